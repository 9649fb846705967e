/*
 * Misuse that was found: its line, its story, and who is told.
 *
 * Owns: the last story. May be called by: guard, entry. Locks: the story is guarded by records.lock.
 */
#ifndef VMM_GUARD_MISUSE_H
#define VMM_GUARD_MISUSE_H

#include "base/error.h"
#include "guard/record.h"
#include "policy/cache.h"

/* A call of the program under way. */
struct guard_call {
    vmm_cache *cache;
    const char *function;
    const void *caller; /* where it returns to */
    bool is_use;        /* it lets another stream use the block */
};

/* What is known of one misuse. */
struct misuse {
    struct error_line line; /* empty: there was none */
    struct deed found;
    bool has_record;
    struct record record;
};

struct misuse_state {
    vmm_misuse_fn tell;
    void *context;
    atomic_bool was_told;
    struct misuse last;
};

/* Begins the story of a misuse of a record's block; NULL: of nobody's. */
void vmm__misuse_begin(const struct guard_call *call, const struct record *record,
                       struct misuse *misuse);

/* The line of a pointer that names no live block. */
void vmm__misuse_word_pointer(const struct guard_call *call, uint64_t address,
                              struct misuse *misuse);

/* The line of a byte that was written beyond a block, or after its free. */
void vmm__misuse_word_byte(const struct guard_call *call, uint64_t address, struct misuse *misuse);

/* Keeps the story as the last, and writes it to the log. */
void vmm__misuse_note(const struct guard_call *call, const struct misuse *misuse);

/* Tells the program of the first misuse, and stops it if it wants that. The caller holds no lock. */
void vmm__misuse_tell(const struct guard_call *call, const struct error_line *line);

/* Writes the last story; guard, may be NULL. */
void vmm__misuse_write(struct guard *guard, FILE *out);

#endif
