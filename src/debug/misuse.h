/*
 * Reports of misuse: one line, the details in the log, and a call of the program's function.
 *
 * Owns: the last misuse. May be called by: debug, api. Locks: records.lock guards it.
 */
#ifndef VMM_DEBUG_MISUSE_H
#define VMM_DEBUG_MISUSE_H

#include "base/error.h"
#include "cache/api_call.h"
#include "debug/records.h"

/* One misuse. */
struct misuse {
    struct error_line line; /* empty: there was none */
    struct call_site found;
    bool has_record;
    struct record record;
};

struct misuse_state {
    vmm_misuse_fn function;
    void *context;
    atomic_bool was_reported; /* the function was called */
    struct misuse last;
};

/* Fills in a misuse of a record's block, except its line. record is NULL if no block is known. */
void vmm__misuse_begin(const struct api_call *call, const struct record *record,
                       struct misuse *misuse);

/* Writes the line for a pointer to no live block. */
void vmm__misuse_format_pointer(const struct api_call *call, uint64_t address,
                                struct misuse *misuse);

/* Writes the line for a byte that was written outside a block, or after its free. */
void vmm__misuse_format_byte(const struct api_call *call, uint64_t address, struct misuse *misuse);

/* Stores the misuse as the last one, and writes its report to the log. */
void vmm__misuse_note(const struct api_call *call, const struct misuse *misuse);

/* For the first misuse of a cache, calls the program's function, and with VMM_DEBUG_STOP raises SIGTRAP. The caller
 * holds no lock. */
void vmm__misuse_report_first(const struct api_call *call, const struct error_line *line);

/* Writes the report of the last misuse. `debug` may be NULL. */
void vmm__misuse_report(struct debug *debug, FILE *out);

#endif
