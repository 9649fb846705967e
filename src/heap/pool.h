/*
 * A pool: the free memory that one stream may reuse at once, in two heaps (small and large blocks)
 * and slabs, and the timeline that tells when others may have it.
 *
 * Sizes: up to 8 KiB objects of slabs; up to 1 MiB blocks of the small heap; larger ones of the
 * large heap. So one live kilobyte never holds a large chunk.
 *
 * Owns: its heaps, slabs, uses and timeline. Invariants:
 *  1. every live or waiting block is of the heap that its size says, except those of a cache that
 *     does not cache, which are all large;
 *  2. the account's figures are the sums over the live and waiting blocks;
 *  3. what is overdue, and the last period, belong to epochs that have ended; decay makes nothing
 *     overdue that is later than the last period.
 *  4. a pool that is held has the id of a private pool; no other has one.
 * May be called by: policy, report, entry.
 * Locks: functions that end in _locked expect the pool's lock; stream and timeline need none. The
 * paths of allocating and freeing enter a pool; everybody else locks it, and finds no block warm and
 * all magazines empty.
 */
#ifndef VMM_HEAP_POOL_H
#define VMM_HEAP_POOL_H

#include "base/biased.h"
#include "heap/heap.h"
#include "heap/magazine.h"
#include "heap/uses.h"

enum { POOL_SMALL_LARGEST_BYTES = 1 << 20 };

/* Idle memory that is to go back once its work has finished: what was given up to an epoch. */
struct overdue {
    uint64_t latest_epoch; /* 0: there is none left */
    uint64_t stuck_epoch;  /* nothing of it has finished before this has passed; 0: not known */
};

/*
 * What was handed out last is often given back first. It is remembered so that it need not be looked
 * up, which is a chain of loads that each wait for the one before. It may be out of date, so what it
 * names is checked; its record stays a record of the heap.
 */
struct last_handed_out {
    uint64_t address; /* 0: none */
    struct heap *heap;
    struct block *block; /* or the slab's */
};

/* When others who looked for memory came by, and what the pool had taken until then. */
struct passer_by {
    uint64_t occasion;
    uint64_t taken;
    bool is_at_rest; /* nothing since the occasion before: what is warm has grown cold */
};

struct pool {
    _Atomic(vmm_stream) stream; /* changes only while no stream finds it and nothing is in it */
    vmm_pool_id id;             /* of the private pool that it is part of; else zeros; as is_held */
    bool
        is_held; /* by that: what is free stays where it is, for nobody else. Guarded by the grow lock */
    bool is_private;       /* it was made for one */
    _Atomic bool is_apart; /* no stream finds it: it is private, or its stream has ended */
    struct ledger *ledger;
    uint64_t serial;         /* no other pool ever has it */
    _Atomic bool is_crowded; /* threads keep magazines of it; from then on for ever */
    _Atomic bool is_watched; /* its account is posted whenever it has changed by much */
    struct pool *next;       /* all pools of the cache, in order of creation */
    _Atomic(struct pool *) next_in_bucket; /* see pools.h */
    struct pool *recent_prev;              /* by last supply; guarded by the grow lock */
    struct pool *recent_next;
    struct timeline timeline;
    struct biased_lock lock; /* guards all below */
    struct account account;
    struct last_handed_out last;
    struct passer_by passer_by;
    struct magazine *magazines;
    uint64_t frees; /* counted for decay */
    struct slabs slabs;
    struct uses uses;
    struct heap small;
    struct heap large;
    struct overdue trimmed; /* by the last trim; the grow lock guards this and all below */
    struct overdue decayed; /* by the end of the last period */
    uint64_t period_epoch;  /* that ended with the last period */
    uint64_t leaving_epoch; /* that ended when a wait for the device began: see privates.h */
};

vmm_status vmm__pool_open(vmm_stream stream, struct driver *driver, struct directory *directory,
                          struct ledger *ledger, struct pool **out);
/* Returns the first error of the driver; the pool is gone in either case. */
vmm_status vmm__pool_close(struct pool *pool);

static inline bool vmm__pool_ids_equal(vmm_pool_id a, vmm_pool_id b)
{
    return a.first == b.first && a.second == b.second;
}

/* Whether any memory belongs to a pool. The caller holds the grow lock. */
static inline bool vmm__pool_has_memory(const struct pool *pool)
{
    return pool->large.bytes > 0 || pool->small.bytes > 0;
}

/* Locks a pool, with nothing warm in it nor kept by a magazine; a second one only under the grow lock. */
void vmm__pool_lock(struct pool *pool);
void vmm__pool_lock_second(struct pool *pool);

/*
 * Locks a second pool for who passes by on an occasion, looking for memory that is not needed where it
 * is. What is warm, or kept by magazines, is, unless the pool has taken nothing since an
 * earlier occasion: threads that allocate and free the same thing all the time would else take it from each
 * other, and both wait for the barrier of the lock each time.
 */
void vmm__pool_lock_passing(struct pool *pool, uint64_t occasion);

void vmm__pool_unlock(struct pool *pool);

/* The heap that a request belongs to, and the bytes of the block that it needs there (for tiny
 * ones: of a new slab's run). False if the size cannot be rounded up. */
bool vmm__pool_need(struct pool *pool, uint64_t bytes, struct heap **heap, uint64_t *block_bytes);

/* The size of the place that a request needs, as vmm__place_bytes() tells it; UINT64_MAX if it
 * cannot be rounded up. */
uint64_t vmm__pool_place_bytes(uint64_t bytes);

/* Hands out from what is mapped. VMM_NOT_READY if nothing fits; ERR_HOST_OOM. */
vmm_status vmm__pool_take_locked(struct pool *pool, uint64_t bytes, void **out);

/* Hands out exactly the given free block, whole: for a cache that does not cache. */
vmm_status vmm__pool_take_block_locked(struct pool *pool, struct block *block, uint64_t bytes,
                                       void **out);

/* The heap of the address that was handed out last, if it may be live still: a record that is in use
 * says where its block is. NULL for any other address. */
static inline struct heap *vmm__pool_last_heap(const struct pool *pool, uint64_t address)
{
    const struct block *block = pool->last.block;
    if (pool->last.address != address || block == NULL)
        return NULL;
    bool holds = address - block->address < block->node.size;
    bool is_used = block->state == BLOCK_LIVE || block->state == BLOCK_SLAB;
    return holds && is_used ? pool->last.heap : NULL;
}

/* Takes back the live block at an address that `heap`, of this pool, owns, and leaves it warm. See
 * vmm_free(). */
vmm_status vmm__pool_give_locked(struct pool *pool, struct heap *heap, uint64_t address);

/* Notes that another stream uses the live block at an address. See vmm_use(). */
vmm_status vmm__pool_use_locked(struct pool *pool, struct heap *heap, uint64_t address,
                                struct timeline *other);

/* Keeps the live block at an address where its bytes are, or no longer. See vmm_pin(). */
vmm_status vmm__pool_pin_locked(struct heap *heap, uint64_t address, bool pinned);

/*
 * Lets blocks go whose waits on other streams are over, among the `most` oldest. VMM_OK if any went,
 * VMM_NOT_READY if none did.
 */
vmm_status vmm__pool_poll_locked(struct pool *pool, unsigned most);

/*
 * Lets go what is held for no use any more: blocks whose waits are over, slabs without live objects.
 * Then begins a new epoch, and returns the one that ended: that of the youngest idle memory.
 */
uint64_t vmm__pool_settle_locked(struct pool *pool);

vmm_status vmm__pool_check_locked(struct pool *pool);

#endif
