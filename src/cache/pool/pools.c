/* The pools of a cache: see pools.h. */
#include "cache/pool/pools.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "cache/reserve/reserve.h"
#include "cache/streams.h"

/* ---- The list ------------------------------------------------------------------------------ */

void vmm__pools_insert(struct pools *pools, struct pool *pool)
{
    VMM_HOLD(&pools->list_lock);
    pool->next = pools->first;
    pool->link = &pools->first;
    if (pool->next != NULL)
        pool->next->link = &pool->next;
    pools->first = pool;
}

static void list_remove(struct pools *pools, const struct pool *pool)
{
    VMM_HOLD(&pools->list_lock);
    *pool->link = pool->next;
    if (pool->next != NULL)
        pool->next->link = pool->link;
}

/* ---- Lanes --------------------------------------------------------------------------------- */

/* Whether a lane serves a stream in a pool. If its own stream has ended, it does once that stream's work has
 * finished. */
static bool is_of(struct lane *lane, const struct pool *pool, vmm_stream stream)
{
    return lane->owner.pool == pool && vmm__stream_serves(&pool->cache->lanes, lane, stream);
}

/* Whether a lane without memory can serve the stream in a pool: one of a destroyed pool, or of a stream of the pool
 * that has ended. */
static bool is_spare(struct lane *lane, const struct pool *pool, vmm_stream stream)
{
    bool is_free = lane->owner.pool == pool || lane->owner.pool == &pool->cache->pool;
    bool is_alike = lane->owner.has_own_chunks == pool->has_own_chunks &&
                    lane->owner.is_imported == pool->account.is_imported &&
                    lane->owner.has_source == vmm__pool_has_source(pool);
    return is_free && is_alike && !vmm__lane_has_memory(lane) &&
           vmm__stream_serves(&pool->cache->lanes, lane, stream);
}

/* Lanes of ended streams that a search checks. It rotates their list, so that the next one checks others. */
enum { SPARE_PROBES = 4 };

/* Finds a lane that is_spare(), of the same stream or of one that has ended; NULL: there is none. Its counters have
 * been flushed, and count nothing. */
static struct lane *spare_find(const struct pool *pool, vmm_stream stream)
{
    struct lanes *lanes = &pool->cache->lanes;
    struct lane *lane = vmm__lanes_pooled_first(lanes, stream);
    while (lane != NULL && !is_spare(lane, pool, stream))
        lane = vmm__lanes_pooled_next(lane);
    for (int probe = 0; lane == NULL && probe < SPARE_PROBES; probe++) {
        struct lane *spare = vmm__lane_list_rotate(&lanes->vacant_pooled);
        if (spare != NULL && is_spare(spare, pool, stream))
            lane = spare;
    }
    return lane;
}

static vmm_status lane_make(struct pool *pool, vmm_stream stream, struct lane **out)
{
    struct vmm_cache *cache = pool->cache;
    struct lane *lane = spare_find(pool, stream);
    if (lane == NULL) {
        vmm_status status = vmm__driver_stream_check(cache->driver, stream);
        if (status == VMM_OK)
            status = vmm__stream_lane_open(cache, pool, stream, &lane);
        if (status != VMM_OK)
            return status;
        vmm__lanes_add_pooled(&cache->lanes, lane);
    }
    bool shares_home =
        pool->kind == VMM_POOL_GENERAL; /* lanes of graph pools have nothing to transfer */
    vmm__lane_lock(lane);
    vmm__lane_join(lane, pool);
    lane->is_asleep = pool->phase != VMM_POOL_AWAKE;
    lane->large.home = shares_home ? &pool->home : NULL;
    lane->large.home_end = 0; /* it has no memory */
    vmm__lane_unlock(lane);
    *out = lane;
    return VMM_OK;
}

/* Also finds a lane that its stream has taken out of the table when it ended. */
vmm_status vmm__pool_lane_locked(struct pool *pool, vmm_stream stream, struct lane **out)
{
    VMM_ASSERT_HELD(&pool->cache->grow_lock);
    *out = vmm__lane_table_find(&pool->table, stream);
    if (*out != NULL)
        return VMM_OK;
    struct lane *lane = vmm__lanes_pooled_first(&pool->cache->lanes, stream);
    while (lane != NULL && !is_of(lane, pool, stream))
        lane = vmm__lanes_pooled_next(lane);
    vmm_status status = lane == NULL ? lane_make(pool, stream, &lane) : VMM_OK;
    if (status != VMM_OK)
        return status;
    if (!lane->is_asleep)
        vmm__lane_table_enter(&pool->table, lane);
    *out = lane;
    return VMM_OK;
}

vmm_status vmm__pool_lane(struct pool *pool, vmm_stream stream, struct lane **out)
{
    struct vmm_cache *cache = pool->cache;
    if (pool == &cache->pool)
        return vmm__stream_lane(cache, stream, out);
    struct lane *lane = vmm__lane_table_find(&pool->table, stream);
    vmm_status status = VMM_OK;
    if (lane == NULL) {
        vmm__fair_lock(&cache->grow_lock);
        status = vmm__pool_lane_locked(pool, stream, &lane);
        vmm__fair_unlock(&cache->grow_lock);
    }
    if (status == VMM_OK)
        *out = lane;
    return status;
}

vmm_status vmm__pool_lane_of(struct vmm_cache *cache, vmm_stream stream, struct lane **out,
                             const vmm_pool **handle)
{
    vmm_status status = VMM__NOT_FOUND;
    vmm__fair_lock(&cache->grow_lock);
    struct pool *pool = vmm__handle_find(HANDLE_POOL, *handle);
    if (pool != NULL && pool != &cache->pool)
        status = vmm__pool_lane_locked(pool, stream, out);
    vmm__fair_unlock(&cache->grow_lock);
    if (status != VMM__NOT_FOUND)
        return status;
    *handle = NULL;
    return vmm__stream_lane(cache, stream, out);
}

/* ---- Leave --------------------------------------------------------------------------------- */

static void totals_add(struct totals *to, const struct totals *from)
{
    vmm__stat_add(&to->requested_bytes, vmm__stat_now(&from->requested_bytes));
    vmm__stat_add(&to->allocated_bytes, vmm__stat_now(&from->allocated_bytes));
    vmm__stat_add(&to->active_bytes, vmm__stat_now(&from->active_bytes));
    vmm__stat_add(&to->allocations, vmm__stat_now(&from->allocations));
}

/* Gives the lanes and chunks of a pool to the default pool. */
static void pool_adopt(struct vmm_cache *cache, struct pool *pool)
{
    while (pool->lanes != NULL) {
        struct lane *lane = pool->lanes;
        if (lane->is_in_table)
            vmm__lane_table_leave(&pool->table, lane);
        vmm__lane_lock(lane);
        vmm__lane_counters_flush(lane);
        lane->large.home = NULL;
        vmm__lane_join(lane, &cache->pool);
        lane->is_asleep = cache->pool.phase != VMM_POOL_AWAKE;
        lane->stays_awake = lane->is_asleep;
        vmm__lane_unlock(lane);
    }
    totals_add(&cache->pool.totals, &pool->totals);
    vmm__account_remove(&cache->vm, &pool->account, &cache->pool.account);
}

void vmm__pool_free(struct pool *pool)
{
    vmm__lane_table_fini(&pool->table);
    vmm__host_free(pool, sizeof *pool);
}

void vmm__pool_end_locked(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    pool_adopt(cache, pool);
    cache->pools.keeping -= pool->is_keeping ? 1 : 0;
    list_remove(&cache->pools, pool);
    vmm__pool_free(pool);
}

/* ---- Its lanes ----------------------------------------------------------------------------- */

static void lane_flush(struct lane *lane)
{
    vmm__lane_lock(lane);
    vmm__lane_counters_flush(lane);
    vmm__lane_unlock(lane);
}

/* While one thread makes all calls, only the active lane has counted something. */
void vmm__pool_counters_flush(const struct pool *pool)
{
    struct lane *active = atomic_load_explicit(&pool->cache->active_lane, memory_order_acquire);
    for (struct lane *lane = pool->lanes; lane != NULL; lane = lane->next_of_pool)
        lane_flush(lane);
    if (active != NULL)
        lane_flush(active);
}

void vmm__pool_settle(const struct pool *pool)
{
    vmm__pool_counters_flush(pool); /* before waits end */
    for (struct lane *lane = pool->lanes; lane != NULL; lane = lane->next_of_pool) {
        if (!vmm__lane_has_memory(lane))
            continue;
        vmm__lane_lock(lane);
        (void)vmm__lane_settle_locked(lane);
        vmm__lane_unlock(lane);
    }
}

/* ---- The end ------------------------------------------------------------------------------- */

/* Ends the leave of a pool if its work has finished, and frees it if it is destroyed. */
static vmm_status pool_try_leave(struct vmm_cache *cache, struct pool *pool)
{
    if (!pool->is_leaving)
        return VMM__NOTHING;
    vmm_status status = vmm__clock_query_all(&cache->clock, pool->leaving_epoch);
    if (status == VMM__PENDING || status == VMM_ERR_LOST) /* on a lost device nothing leaves */
        return VMM__NOTHING;
    if (status != VMM_OK)
        return status;
    vmm__pool_settle(pool);
    pool->is_leaving = false;
    cache->pools.leaving--;
    vmm__pool_keeping_settle(pool);
    if (pool->handle == NULL)
        vmm__pool_end_locked(pool);
    return VMM_OK;
}

vmm_status vmm__pools_leave_locked(struct vmm_cache *cache)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    if (cache->pools.leaving == 0)
        return VMM__NOTHING;
    struct pool *next;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = pool_try_leave(cache, &cache->pool);
    bool any = status == VMM_OK;
    for (struct pool *pool = cache->pools.first;
         pool != NULL && (status == VMM_OK || status == VMM__NOTHING); pool = next) {
        next = pool->next;
        status = pool_try_leave(cache, pool);
        any = any || status == VMM_OK;
    }
    if (!any && status != VMM__NOTHING)
        return status;
    if (any)
        vmm__reserves_end_locked(cache, NULL);
    vmm__error_restore(&line); /* a later call asks again about those that stay */
    return any ? VMM_OK : VMM__NOTHING;
}

vmm_status vmm__pools_leave_wait_locked(struct vmm_cache *cache)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    if (cache->pools.leaving == 0)
        return VMM__NOTHING;
    vmm_status status = vmm__clock_wait_all(&cache->clock);
    if (status != VMM_OK)
        return status == VMM__PENDING ? VMM__NOTHING : status;
    return vmm__pools_leave_locked(cache);
}

vmm_status vmm__pools_wait(struct vmm_cache *cache)
{
    vmm_status status = vmm__clock_wait_all(&cache->clock);
    if (status != VMM_OK)
        return status == VMM__PENDING ? vmm__cache_wait(cache) : status;
    VMM_HOLD_FAIR(&cache->grow_lock);
    status = vmm__pools_leave_locked(cache);
    return status == VMM__NOTHING ? VMM_OK : status;
}

/* ---- Uses ---------------------------------------------------------------------------------- */

void vmm__pool_retain(struct pool *pool)
{
    VMM_HOLD_FAIR(&pool->cache->grow_lock);
    pool->uses++;
    vmm__pool_keeping_settle(pool);
}

void vmm__pool_leave_begin(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    vmm__pool_settle(pool);
    cache->pools.leaving += pool->is_leaving ? 0 : 1;
    pool->is_leaving = true;
    pool->leaving_epoch = vmm__clock_advance(&cache->clock);
    vmm__pool_keeping_settle(pool);
}

/* Lets a pool leave at once if its work has finished: the cost does not depend on the number of pools. */
static vmm_status leave_try(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = pool_try_leave(cache, pool);
    if (status == VMM_OK)
        vmm__reserves_end_locked(cache, NULL);
    if (status == VMM_OK || status == VMM__NOTHING)
        vmm__error_restore(&line);
    return status;
}

/* Where the clock does not cover all streams, it never says that all work has finished: then the host waits. */
vmm_status vmm__pool_leave_locked(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    vmm__pool_leave_begin(pool);
    vmm_status status = vmm__clock_is_context(&cache->clock) ? leave_try(pool)
                                                             : vmm__pools_leave_wait_locked(cache);
    return status == VMM__NOTHING ? VMM_OK : status;
}

/* The use with which a graph pool is created ends with the pool. */
uint64_t vmm__pool_own_uses(const struct pool *pool)
{
    return pool->kind == VMM_POOL_GRAPH ? 1 : 0;
}

vmm_status vmm__pool_drop(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    VMM_HOLD_FAIR(&cache->grow_lock);
    vmm_status status = pool->uses > vmm__pool_own_uses(pool) ? VMM_OK : VMM__NOT_FOUND;
    if (status == VMM_OK && --pool->uses == 0)
        status = vmm__pool_leave_locked(pool);
    return status;
}

uint64_t vmm__pool_uses(struct pool *pool)
{
    VMM_HOLD_FAIR(&pool->cache->grow_lock);
    return pool->uses - vmm__pool_own_uses(pool);
}

void vmm__pool_keeping_settle(struct pool *pool)
{
    struct pools *pools = &pool->cache->pools;
    VMM_ASSERT_HELD(&pool->cache->grow_lock);
    pools->keeping -= pool->is_keeping ? 1 : 0;
    pool->is_keeping = !vmm__pool_shares(pool) || vmm__pool_is_retained(pool);
    pools->keeping += pool->is_keeping ? 1 : 0;
}

uint64_t vmm__pools_kept_bytes(struct vmm_cache *cache, const struct lane *from)
{
    uint64_t bytes = 0;
    if (cache->pools.keeping == 0)
        return 0;
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        if (lane == from || !lane->owner.pool->is_keeping)
            continue;
        vmm__lane_lock(lane);
        bytes += lane->large.free_bytes + lane->small.free_bytes;
        vmm__lane_unlock(lane);
    }
    return bytes;
}
