/*
 * The pools of a cache: creates and destroys them, and gives them lanes. See vmm_pool_create().
 *
 * Graphs use the addresses of a retained pool without asking the cache, on streams that it may never have seen. So when
 * the last use of a pool ends, the pool is leaving: it counts as retained until all work of the device that was
 * submitted before has finished, which the clock says. A destroyed pool then gives its lanes and chunks to the
 * default pool.
 *
 * Owns: all pools but the default one, which is part of the cache. Invariants:
 *  1. a pool without a handle is destroyed, and is leaving;
 *  2. each lane is in the list of its pool;
 *  3. `leaving` counts the pools that are leaving;
 *  4. is_keeping says of each pool whether its free memory serves only that pool, and `keeping` counts those; that of
 *     imports counts as none, because imported memory is not reserved.
 * May be called by: cache, api. Locks: the grow lock guards all of it.
 */
#ifndef VMM_CACHE_POOL_POOLS_H
#define VMM_CACHE_POOL_POOLS_H

#include "base/mutex.h"
#include "lane/lanes.h"

struct vmm_cache;

/* The offered pool that a claim puts to sleep now: see sleep.h. The grow lock and its own one guard it; either is
 * enough to read it. */
struct claimed {
    struct mutex lock;
    pthread_cond_t ended;
    struct pool *pool; /* NULL: none */
    uintptr_t thread;  /* that carries it out */
};

struct pools {
    struct pool *first; /* linked by next */
    uint64_t created;
    uint64_t leaving;
    uint64_t keeping;
    struct mutex list_lock; /* held when the list changes: a reader needs this lock only */
    struct claimed claimed;
};

/* Opens the default pool of a cache. ERR_HOST_OOM. */
vmm_status vmm__pools_init(struct vmm_cache *cache);

/* Frees all pools; their lanes are closed. */
void vmm__pools_fini(struct vmm_cache *cache);

/* Closes the handles of all pools, so that nothing finds them any longer. */
void vmm__pools_close(struct vmm_cache *cache);

/* The functions below take the grow lock, except those that end in _locked. See vmm_pool_create() and so on. */
vmm_status vmm__pool_create(struct vmm_cache *cache, const vmm_pool_options *options,
                            vmm_pool **out);
vmm_status vmm__pool_destroy(struct pool *pool, bool adopts);
/* Checks what destroying a pool with a source would refuse, and ends the pool's own use: its memory can then be
 * released. The use begins again if vmm__pool_destroy() fails. */
vmm_status vmm__pool_unretain(struct pool *pool);
void vmm__pool_retain(struct pool *pool);
vmm_status vmm__pool_drop(struct pool *pool); /* VMM__NOT_FOUND: it has no use to end */
vmm_pool *vmm__pool_find(struct vmm_cache *cache, vmm_pool_id id);

/* The lane of a stream in a pool; creates it on first use. */
vmm_status vmm__pool_lane(struct pool *pool, vmm_stream stream, struct lane **out);

/* The same in another pool than the default one, for a caller that holds the grow lock. */
vmm_status vmm__pool_lane_locked(struct pool *pool, vmm_stream stream, struct lane **out);

/* Makes the memory of leaving pools available whose work has finished. VMM__NOTHING if there is none. The caller holds
 * the grow lock and no lane's. */
vmm_status vmm__pools_leave_locked(struct vmm_cache *cache);

/* The same after the host has waited for that work. VMM__NOTHING: no pool is leaving, or a capture forbids the wait. */
vmm_status vmm__pools_leave_wait_locked(struct vmm_cache *cache);

/* Makes the totals of a pool exact, and those of the default one, which may inherit them. settle: then ends the waits
 * of freed blocks that are over, and an epoch in each lane. The caller holds the grow lock and no lane's. */
void vmm__pool_counters_flush(const struct pool *pool);
void vmm__pool_settle(const struct pool *pool);

/* Sets is_keeping, after a change of what it follows from. The caller holds the grow lock. */
void vmm__pool_keeping_settle(struct pool *pool);

/* Free bytes that serve only their own pool, but not those of the lane `from`, whose requests they do serve. The caller
 * holds the grow lock and no lane's. */
uint64_t vmm__pools_kept_bytes(struct vmm_cache *cache, const struct lane *from);

/* The number of uses that vmm_pool_retain() declared. */
uint64_t vmm__pool_uses(struct pool *pool);

/* The whole of vmm_wait(). Because the host waits anyway, leaving pools leave as well. */
vmm_status vmm__pools_wait(struct vmm_cache *cache);

#endif
