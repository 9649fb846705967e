/*
 * The history of one device: its last events, and what is known of the blocks in them.
 *
 * Owns: the ring of events and the table of blocks. Invariants:
 *  1. while it is open, event number n (from 0) is at events[n % capacity], for the last `capacity` n;
 *  2. events are in the order in which things came about: see record.h, which tells them;
 *  3. times of events never fall, also where the clock is set back;
 *  4. an event that turned out not to have happened is struck, and no copy has it.
 * May be called by: torch. Locks: `order` is the recorder's (record.h) and comes before the cache's
 * locks; `lock` guards all else and is a leaf, which may be taken with any lock held.
 */
#ifndef VMM_TORCH_HISTORY_H
#define VMM_TORCH_HISTORY_H

#include "base/lock.h"
#include "torch/known.h"

struct history {
    struct lock order;
    struct lock lock;
    bool is_open;
    vmm_torch_event *events;
    uint64_t capacity;
    uint64_t most;      /* that capacity grows to */
    uint64_t pushed;    /* events so far */
    uint64_t latest_us; /* time of the last of them */
    struct known_table known;
};

void vmm__history_init(struct history *history);

/* Empties it, to learn of blocks; ERR_HOST_OOM. From open() on it takes events. close() forgets all. */
vmm_status vmm__history_prepare(struct history *history, uint64_t entries);
void vmm__history_open(struct history *history);
void vmm__history_close(struct history *history);

/* Adds an event, whose time is now, or that of the last if the clock was set back. Returns its number; if the history is closed, nothing happens. */
uint64_t vmm__history_push(struct history *history, const vmm_torch_event *event);
void vmm__history_strike(struct history *history, uint64_t number);

/* What is known of a block; false if nothing is. What a closed history is told is forgotten. */
bool vmm__history_recall(struct history *history, uint64_t address, struct known *out);
void vmm__history_learn(struct history *history, const struct known *entry);
void vmm__history_forget(struct history *history, uint64_t address);

/* How many events there were so far. */
uint64_t vmm__history_length(struct history *history);

/*
 * Copies the events before number `end`, oldest first, into memory of the caller's: vmm__host_free() with
 * capacity events. ERR_HOST_OOM.
 */
struct history_copy {
    vmm_torch_event *events; /* NULL: none */
    uint64_t capacity;
    uint64_t count;
    uint64_t lost;
};
vmm_status vmm__history_copy(struct history *history, uint64_t end, struct history_copy *out);

#endif
