/*
 * Which live blocks other streams use (vmm_use), and blocks that were freed while they did.
 *
 * A use is a pair of a block's address and another stream's timeline. When the block is freed, its
 * uses are stamped with those timelines' epochs and the block waits until all have passed.
 *
 * Owns: the records of uses and waits. Invariants:
 *  1. each (address, timeline) is in the table at most once, and the address is a live block's;
 *  2. a block waits exactly if its address is in the list of waits, and then has no uses in the
 * table. May be called by: pool. Locks: the pool's lock.
 */
#ifndef VMM_HEAP_USES_H
#define VMM_HEAP_USES_H

#include "memory/timeline.h"

enum { USE_BUCKETS = 256, USES_STUCK = 8 };

struct use {
    struct use *next; /* in its bucket, or among the uses of a wait */
    uint64_t address;
    struct timeline *timeline;
    uint64_t epoch; /* of a wait, or of a stamp */
};

struct wait {
    struct wait *next;
    uint64_t address;
    struct use *uses; /* those that have not passed yet */
};

struct uses {
    struct use **buckets;   /* made with the first use */
    _Atomic uint64_t count; /* in the table; may be read without the lock */
    struct wait *oldest;
    struct wait **newest_next;
};

void vmm__uses_init(struct uses *uses);
void vmm__uses_fini(struct uses *uses);

static inline uint64_t vmm__uses_count(const struct uses *uses)
{
    return atomic_load_explicit(&uses->count, memory_order_relaxed);
}

/* Notes that the timeline's stream uses the block. ERR_HOST_OOM. */
vmm_status vmm__uses_add(struct uses *uses, uint64_t address, struct timeline *timeline);

/*
 * Called when the block is freed. VMM_OK: no other stream uses it. VMM_NOT_READY: it waits now. A
 * failure (an event could not be recorded, ERR_HOST_OOM) leaves everything as it was. On a device that is lost
 * nothing has a use any more.
 */
vmm_status vmm__uses_end(struct uses *uses, uint64_t address);

/* Notes what other streams do with a live block until now; and forgets what of that has passed since, false if not all
 * has. Streams may have gone on with other things meanwhile. */
void vmm__uses_stamp(struct uses *uses, uint64_t address);
bool vmm__uses_forget(struct uses *uses, uint64_t address);

/* One pass over the waits, oldest first, and what it found not to have passed on the way. */
struct uses_pass {
    struct wait **link;
    unsigned left; /* waits that may still be looked at */
    unsigned stuck_count;
    struct use stuck[USES_STUCK]; /* timeline and epoch */
};

void vmm__uses_pass_begin(struct uses *uses, unsigned most, struct uses_pass *pass);

/* Goes on with a pass to the next wait that is over, and takes it off the list. VMM_NOT_READY if
 * the pass has come to its end. */
vmm_status vmm__uses_pass_next(struct uses *uses, struct uses_pass *pass, uint64_t *address);

/* What the oldest wait waits for first; those for a stream that is being captured are passed over. False if
 * there is none. The host may wait for it without
 * the pool's lock: timelines stay. */
bool vmm__uses_oldest(const struct uses *uses, struct timeline **timeline, uint64_t *epoch);

#endif
