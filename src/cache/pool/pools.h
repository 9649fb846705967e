/*
 * The pools of a cache: their lanes, their uses, and how they leave. See vmm_pool_retain().
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

#include "cache/cache.h"

/* See vmm_pool_retain() and vmm_pool_drop(). They take the grow lock, as do lane, uses and wait below. */
void vmm__pool_retain(struct pool *pool);
vmm_status vmm__pool_drop(struct pool *pool); /* VMM__NOT_FOUND: it has no use to end */

/* The lane of a stream in a pool; creates it on first use. */
vmm_status vmm__pool_lane(struct pool *pool, vmm_stream stream, struct lane **out);

/* The same in another pool than the default one, for a caller that holds the grow lock. */
vmm_status vmm__pool_lane_locked(struct pool *pool, vmm_stream stream, struct lane **out);

/* The same in the pool of *handle, which other threads may destroy meanwhile. If that is the default pool or is gone:
 * in the default pool, and *handle becomes NULL. */
vmm_status vmm__pool_lane_of(struct vmm_cache *cache, vmm_stream stream, struct lane **out,
                             const vmm_pool **handle);

/* Makes the memory of leaving pools available whose work has finished. VMM__NOTHING if there is none. The caller holds
 * the grow lock and no lane's. */
vmm_status vmm__pools_leave_locked(struct vmm_cache *cache);

/* The same after the host has waited for that work. VMM__NOTHING: no pool is leaving, or a capture forbids the wait. */
vmm_status vmm__pools_leave_wait_locked(struct vmm_cache *cache);

/* For the end of a pool's last use, and its destruction. The caller holds the grow lock and no lane's. leave_begin
 * makes it leaving. leave does that, too, and lets it leave at once if its work has finished. end frees a destroyed
 * pool that is not retained, and gives its lanes and chunks to the default pool. */
void vmm__pool_leave_begin(struct pool *pool);
vmm_status vmm__pool_leave_locked(struct pool *pool);
void vmm__pool_end_locked(struct pool *pool);

/* Adds a pool to the list, and frees the record of one that is in no list. */
void vmm__pools_insert(struct pools *pools, struct pool *pool);
void vmm__pool_free(struct pool *pool);

/* Makes the totals of a pool exact, and those of the default one, which may inherit them. settle: then ends the waits
 * of freed blocks that are over, and an epoch in each lane. The caller holds the grow lock and no lane's. */
void vmm__pool_counters_flush(const struct pool *pool);
void vmm__pool_settle(const struct pool *pool);

/* Sets is_keeping, after a change of what it follows from. The caller holds the grow lock. */
void vmm__pool_keeping_settle(struct pool *pool);

/* The free bytes of pools that keep them for themselves, but for those of the lane `from`, which serve its requests.
 * The caller holds the grow lock and no lane's. */
uint64_t vmm__pools_kept_bytes(struct vmm_cache *cache, const struct lane *from);

/* The number of uses that vmm_pool_retain() declared. */
uint64_t vmm__pool_uses(struct pool *pool);

/* The use with which a graph pool is created. */
uint64_t vmm__pool_own_uses(const struct pool *pool);

/* The whole of vmm_wait(). Because the host waits anyway, leaving pools leave as well. */
vmm_status vmm__pools_wait(struct vmm_cache *cache);

#endif
