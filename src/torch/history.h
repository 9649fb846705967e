/*
 * The history of one device: its last events, and the live map of blocks, which says what a recording knows of each.
 *
 * Owns: the ring of events and the live map. Invariants:
 *  1. while it is open, event number n (from 0) is at events[n % capacity], for the last `capacity` n;
 *  2. events are in the order in which the changes happened: record.h says how;
 *  3. the times of events never decrease, even if the clock is set back;
 *  4. vmm_torch_stack_use_fn knows of one copy for each event in the ring and each block of the live map that has a
 *     stack;
 *  5. a history that has closed knows live blocks whose stacks are counted, until they are forgotten, and no others.
 * May be called by: torch. Locks: its own, a leaf: it may be taken with any other lock held.
 */
#ifndef VMM_TORCH_HISTORY_H
#define VMM_TORCH_HISTORY_H

#include "base/map.h"
#include "base/mutex.h"
#include "vmmcache/torch_provider.h"

#include <stdbool.h>

/* What a recording knows of a live block. */
struct live_block {
    uint64_t address;
    uint64_t requested_bytes;
    uint64_t stream;
    uint64_t stack;
    vmm_pool_id pool;
    uint64_t told; /* the number of its ALLOC, from 1; 0: it was not recorded */
    bool waits;    /* it is freed, but other streams use it */
};

struct history {
    int device; /* its ordinal */
    struct mutex lock;
    vmm_torch_event *events;
    uint64_t capacity;
    uint64_t capacity_most; /* as many events as are kept */
    uint64_t pushed;        /* number of events so far */
    uint64_t latest_us;     /* time of the last event */
    struct map live_map;    /* of live entries by address */
    struct map_pool entries;
};

void vmm__history_init(struct history *history, int device);

/* open() discards all events, and lets the history accept events and learn blocks; ERR_HOST_OOM. close() discards
 * these. */
vmm_status vmm__history_open(struct history *history, uint64_t entries);
void vmm__history_close(struct history *history);

/* Each event has the present time, or the time of the one before if the clock was set back. A closed history has none.
 * note() adds an event that is of no block in the map. alloc() adds a block, and its ALLOC; if that was recorded, it
 * only gets the stack. release() adds both events of a free, unless the block waits; wait() only the first; complete()
 * the second one, of a block that waited. Their stack is that of `block`, or the one given. */
void vmm__history_note(struct history *history, vmm_torch_action action,
                       const struct live_block *what);
void vmm__history_alloc(struct history *history, const struct live_block *block);
void vmm__history_release(struct history *history, uint64_t address, uint64_t stack);
void vmm__history_wait(struct history *history, const struct live_block *block);
void vmm__history_complete(struct history *history, const struct live_block *block);

/* The live map. learn() adds a block without an event, but keeps one of the same size, with its stack. recall() returns
 * false if there is none at the address. also_told: also one whose ALLOC was recorded. knows(): whether the map of any
 * history has a block. */
void vmm__history_learn(struct history *history, const struct live_block *block);
bool vmm__history_recall(struct history *history, uint64_t address, struct live_block *out);
void vmm__history_forget(struct history *history, uint64_t address, bool also_told);
void vmm__history_forget_all(struct history *history);
bool vmm__history_knows(void);

/* Sets the function that counts copies of stacks, for all histories; NULL: none. drop() ends the use of a stack by the
 * call that got it; 0 does nothing. */
void vmm__history_count_stacks_by(vmm_torch_stack_use_fn use);
void vmm__history_stack_drop(uint64_t stack);

/* Returns the number of events so far. */
uint64_t vmm__history_length(struct history *history);

/* Copies the events before number `end`, oldest first, into memory that the caller frees: vmm__host_free() with
 * capacity events. ERR_HOST_OOM. */
struct history_copy {
    vmm_torch_event *events; /* NULL: none */
    uint64_t capacity;
    uint64_t count;
    uint64_t lost;
};
vmm_status vmm__history_copy(struct history *history, uint64_t end, struct history_copy *out);

#endif
