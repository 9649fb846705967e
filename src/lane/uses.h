/*
 * Uses: which live blocks other streams use (vmm_record_stream), and which freed blocks wait for
 * those streams.
 *
 * A use pairs the address of a block with the timeline of another stream. When the block is
 * freed, its uses are stamped with the current epochs of those timelines, and the block waits
 * until all have passed.
 *
 * Owns: the records of uses and waits. Invariants:
 *  1. each pair (address, timeline) is in the map at most once, and a live block starts at
 *     the address;
 *  2. a block waits for streams exactly if its address is in the list of waits, and then it
 *     has no use in the map. An exported block waits for its shares: see lane.h.
 * May be called by: lane, cache, debug, api. Locks: the lane's lock.
 */
#ifndef VMM_LANE_USES_H
#define VMM_LANE_USES_H

#include "base/map.h"
#include "vm/vm.h"

enum { USES_STUCK = 8 };

struct use {
    struct map_node node; /* its key is the block's address */
    struct use *next;     /* in the list of a wait */
    struct timeline *timeline;
    uint64_t epoch; /* set by the free, or by vmm__uses_stamp() */
    bool is_borrower;
};

struct wait {
    struct wait *next;
    uint64_t address;
    struct use *uses; /* those that have not passed yet */
};

struct uses {
    struct map map;         /* of the uses of live blocks */
    _Atomic uint64_t count; /* in the map; may be read without the lock */
    struct wait *oldest;
    struct wait **newest_next;
};

void vmm__uses_init(struct uses *uses);
void vmm__uses_fini(struct uses *uses);

static inline uint64_t vmm__uses_count(const struct uses *uses)
{
    return atomic_load_explicit(&uses->count, memory_order_relaxed);
}

/* Whether other streams use a live block. */
bool vmm__uses_has(const struct uses *uses, uint64_t address);

/* Forgets the uses of all live blocks. */
void vmm__uses_forget_all(struct uses *uses);

/* Whether any block waits. */
static inline bool vmm__uses_has_waits(const struct uses *uses)
{
    return uses->oldest != NULL;
}

/* Records that the timeline's stream uses the block. ERR_HOST_OOM. */
vmm_status vmm__uses_add(struct uses *uses, uint64_t address, struct timeline *timeline);

/* Marks a use that was added: the block was allocated for the timeline's stream, from another stream's memory. */
void vmm__uses_lend(struct uses *uses, uint64_t address, const struct timeline *timeline);

/* Returns the timeline of the stream that a live block was allocated for; NULL: the lane's. */
const struct timeline *vmm__uses_borrower(const struct uses *uses, uint64_t address);

/*
 * Ends the life of a block. VMM_OK: no other stream uses it. VMM__PENDING: it waits from now on.
 * On failure (an event could not be recorded, ERR_HOST_OOM) nothing changes. On a lost device no
 * block has uses any more.
 */
vmm_status vmm__uses_end(struct uses *uses, uint64_t address);

/* Whether the block at an address waits. */
bool vmm__uses_is_waiting(const struct uses *uses, uint64_t address);

/* Adds a wait for each use of a live block, for the work that its stream has now. ERR_HOST_OOM: adds none. */
vmm_status vmm__uses_waits(const struct uses *uses, uint64_t address, struct limbo_wait **waits);

/* Stamps the uses of a live block with the current epochs. vmm__uses_forget() then drops those
 * that have passed and returns whether all have. The streams may run other work between the two
 * calls. */
void vmm__uses_stamp(struct uses *uses, uint64_t address);
bool vmm__uses_forget(struct uses *uses, uint64_t address);

/* One pass over the waits, oldest first, with the uses that it found pending. */
struct uses_pass {
    struct wait **link;
    unsigned left; /* waits that the pass may still check */
    unsigned stuck_count;
    struct use stuck[USES_STUCK]; /* timeline and epoch */
};

void vmm__uses_pass_begin(struct uses *uses, unsigned most, struct uses_pass *pass);

/* Finds the next finished wait of a pass and removes it from the list. VMM__NOTHING at the end of
 * the pass. */
vmm_status vmm__uses_pass_next(struct uses *uses, struct uses_pass *pass, uint64_t *address);

/* The first use of the oldest wait whose streams are not capturing. False if there is none. The
 * host may wait for it without the lane's lock: timelines outlive the lock. */
bool vmm__uses_oldest(const struct uses *uses, struct timeline **timeline, uint64_t *epoch);

#endif
