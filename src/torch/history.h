/*
 * The history of one device: its last events, and the live map of blocks, which says what a recording knows of each.
 *
 * Owns: the ring of events and the live map. Invariants:
 *  1. while it is open, event number n (from 0) is at events[n % capacity], for the last `capacity` n;
 *  2. events are in the order in which the changes happened: record.h says how;
 *  3. the times of events never decrease, even if the clock is set back;
 *  4. an event that turned out not to have happened is cancelled, and no copy contains it; neither does one contain the
 *     ALLOC of a block that has ended unseen, because other calls than the recorded ones freed, moved or resized it;
 *  5. vmm_torch_stack_use_fn knows of one copy for each event in the ring and each block of the live map that has a
 *     stack;
 *  6. a history that has closed knows live blocks whose stacks are counted, until they are forgotten, and no others.
 * May be called by: torch. Locks: `order` belongs to the recorder (record.h) and is taken before the cache's locks;
 * `lock` guards all other fields and is a leaf: it may be taken with any other lock held.
 */
#ifndef VMM_TORCH_HISTORY_H
#define VMM_TORCH_HISTORY_H

#include "base/map.h"
#include "base/mutex.h"
#include "vmmcache/torch_provider.h"

#include <stdatomic.h>
#include <stdbool.h>

/* What a recording knows of a live block. */
struct live_block {
    uint64_t address;
    uint64_t requested_bytes;
    uint64_t stream;
    uint64_t stack;
    vmm_pool_id pool;
    uint64_t told; /* the number of its ALLOC, and one; 0: that was not recorded */
};

struct history {
    struct mutex order;
    struct mutex lock;
    bool is_open;
    vmm_torch_event *events;
    uint64_t capacity;
    uint64_t capacity_most;     /* as many events as are kept */
    uint64_t pushed;            /* number of events so far */
    uint64_t latest_us;         /* time of the last event */
    struct map live_map;        /* of live entries by address */
    uint64_t walks;             /* so far */
    struct live_entry *spare;   /* entries in no use, linked by node.next */
    struct live_batch *batches; /* all entries */
};

void vmm__history_init(struct history *history);

/* prepare() discards all events, and lets the history learn blocks; ERR_HOST_OOM. From open() on it accepts events.
 * close() discards these. */
vmm_status vmm__history_prepare(struct history *history, uint64_t entries);
void vmm__history_open(struct history *history);
void vmm__history_close(struct history *history);

/* Adds an event with the present time, or the time of the last event if the clock was set back. Returns its number.
 * Does nothing if the history is closed. */
uint64_t vmm__history_push(struct history *history, const vmm_torch_event *event);
/* Cancels the event of that number, if the ring still has it. */
void vmm__history_cancel(struct history *history, uint64_t number);

/* The live map. recall() returns false if it has no block at the address. learn() adds or replaces a block; without
 * host memory, or in a closed history, the map has no block there afterwards. knows(): whether the map of any history
 * has a block, also one that has closed. */
bool vmm__history_recall(struct history *history, uint64_t address, struct live_block *out);
void vmm__history_learn(struct history *history, const struct live_block *block);
void vmm__history_forget(struct history *history, uint64_t address);
void vmm__history_forget_all(struct history *history);

extern _Atomic uint64_t vmm__history_blocks; /* of all maps */
static inline bool vmm__history_knows(void)
{
    return atomic_load_explicit(&vmm__history_blocks, memory_order_relaxed) > 0;
}

/* Sets the function that counts copies of stacks, for all histories; NULL: none. drop() ends the use of a stack by the
 * call that got it; 0 does nothing. */
void vmm__history_count_stacks_by(vmm_torch_stack_use_fn use);
void vmm__history_stack_drop(uint64_t stack);

/* Returns the number of events so far. */
uint64_t vmm__history_length(struct history *history);

/* A walk meets the blocks that are live or wait. Its end forgets all others: they have ended unseen. begin() returns
 * the number of events so far; meet() is recall(). The caller holds `order`. */
uint64_t vmm__history_walk_begin(struct history *history);
bool vmm__history_walk_meet(struct history *history, uint64_t address, struct live_block *out);
void vmm__history_walk_end(struct history *history);

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
