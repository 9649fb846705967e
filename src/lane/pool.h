/*
 * A pool: a part of a cache with physical memory of its own. Every cache has a default pool; the program creates others
 * (vmm_pool_create()). Chunks that are completely free may go from one pool to another.
 *
 * Owns: the table that finds its lanes by stream. Its lanes live until the cache ends: when a pool is destroyed, they
 * and what they hold join the default pool. Invariants:
 *  1. every chunk of a lane belongs to the account of the lane's pool;
 *  2. the totals of a pool are the sums over its lanes, except for what these have not flushed.
 * May be called by: lane, cache, api. Locks: finding a lane needs none; the grow lock guards everything else.
 */
#ifndef VMM_LANE_POOL_H
#define VMM_LANE_POOL_H

#include "lane/counters.h"
#include "vm/vm.h"
#include "vmmcache/vmmcache.h"

struct backup;
struct lane;
struct vmm_cache;

/* Finds lanes by stream. A reader that races with a change may miss a lane; it then searches again under the grow
 * lock. */
struct lane_table {
    _Atomic(struct lane *) *buckets;
    unsigned bits;
};

/* Streams that the table of a pool finds at the first look, as a power of 2. The pages of a table are made as streams
 * use them. */
enum { POOL_TABLE_BITS = 16 };

enum { POOL_NAME_BYTES = 64 };

/* What requests know of the idle memory of other lanes: see cache/idle/gather.h. The grow lock guards changes, but for
 * those of has_more. */
struct gathering {
    /* The lane that gathered last, if it got all idle memory but for rooms; NULL: some work was unfinished. */
    _Atomic(struct lane *) last;
    _Atomic bool has_more; /* a lane other than `last` has freed much since */
};

/* How fast lanes of a pool take idle memory from each other: see lane.h. */
struct takes {
    uint32_t last_us;
    uint32_t apart_us; /* the mean of the last ones, the latest weighing most; at first 0 */
};

/* How a pool that is offered would sleep: see cache/pool/offer.h. */
struct offer {
    vmm_sleep_options options;
    uint64_t epoch;  /* of the cache's clock: once it has passed, no work uses the pool */
    bool has_failed; /* a claim could not put it to sleep; it is not tried again */
};

/* The addresses where the large heaps of a pool grow: the free memory of one lies beside that of another, and transfers
 * join both. */
struct home {
    uint64_t end;          /* where one of them last grew into unused addresses; 0: none did */
    uint64_t gap_granules; /* of addresses behind that, which the others leave to it */
};

struct pool {
    struct vmm_cache *cache;
    struct pool *next;          /* all pools of the cache but the default one, the newest first */
    struct pool **link;         /* what points to this one */
    _Atomic(vmm_pool *) handle; /* as the program knows it; NULL: it is destroyed */
    vmm_pool_id id;
    struct gathering gathering; /* beside what seldom changes: each large request reads it */
    char name[POOL_NAME_BYTES];
    vmm_pool_kind kind;
    bool has_own_chunks;       /* each of its blocks has chunks that no other block uses */
    bool lends;                /* see vmm_pool_options.use_on_oom */
    vmm_segment_source source; /* of all of its memory; alloc NULL: none */
    struct totals totals;
    struct account account;
    struct home home; /* of its large heaps */
    struct lane_table table;
    struct lane *lanes; /* all, linked by next_of_pool */
    struct takes takes;
    uint64_t uses;   /* of its addresses: see vmm_pool_retain(); a graph pool is created with one */
    uint64_t routes; /* and pushes, of all threads, that lead requests to it */
    bool is_keeping; /* its free memory serves only this pool: see cache/pool/pools.h */
    bool is_leaving; /* its last use has ended, but the device may not have finished */
    uint64_t leaving_epoch; /* of the cache's clock: once it has passed, the device has finished */
    vmm_on_sleep on_sleep;
    vmm_pool_phase phase;  /* see cache/pool/sleep.h; only the call that changes it uses `backup` */
    struct backup *backup; /* NULL: none */
    struct offer offer;    /* while the phase is OFFERED */
};

/* Whether graphs may use the addresses of the pool, live or free. */
static inline bool vmm__pool_is_used(const struct pool *pool)
{
    return pool->uses > 0 || pool->is_leaving;
}

/* Whether the pool sleeps, or is falling asleep or waking. The memory of a pool that is only offered is all there. */
static inline bool vmm__pool_is_asleep(const struct pool *pool)
{
    return pool->phase != VMM_POOL_AWAKE && pool->phase != VMM_POOL_OFFERED;
}

/* Whether its memory stays as it is: not moved, released or given to another lane, all views kept. So it is while the
 * pool is used, and while it sleeps. */
static inline bool vmm__pool_is_retained(const struct pool *pool)
{
    return vmm__pool_is_used(pool) || vmm__pool_is_asleep(pool);
}

/* Whether all of its memory is that of a source of the program: see vm/vm.h. */
static inline bool vmm__pool_has_source(const struct pool *pool)
{
    return pool->source.alloc != NULL;
}

/* Whether its idle memory may go to other pools, and that of others to it. */
static inline bool vmm__pool_shares(const struct pool *pool)
{
    const struct account *account = &pool->account;
    return account->least_bytes == 0 && !pool->has_own_chunks && !account->is_imported &&
           !vmm__pool_has_source(pool);
}

/* Whether another lane of the pool may have idle memory that a gathering would get. */
static inline bool vmm__pool_should_gather(const struct pool *pool, const struct lane *lane)
{
    const struct gathering *gathering = &pool->gathering;
    const struct lane *last = atomic_load_explicit(&gathering->last, memory_order_relaxed);
    return last != NULL &&
           (last != lane || atomic_load_explicit(&gathering->has_more, memory_order_relaxed));
}

/* Notes that a lane has freed much memory. */
static inline void vmm__pool_note_free(struct pool *pool, const struct lane *lane)
{
    struct gathering *gathering = &pool->gathering;
    const struct lane *last = atomic_load_explicit(&gathering->last, memory_order_relaxed);
    if (last != NULL && last != lane &&
        !atomic_load_explicit(&gathering->has_more, memory_order_relaxed))
        atomic_store_explicit(&gathering->has_more, true, memory_order_relaxed);
}

/* The pool of an account. */
static inline struct pool *vmm__pool_of_account(struct account *account)
{
    return (struct pool *)(void *)((char *)account - offsetof(struct pool, account));
}

#endif
