/* The pools of closed and stale streams: see streams.h. */
#include "cache/streams.h"
#include "base/error.h"

vmm_status vmm__stream_resolve(const char *function, vmm_stream *stream)
{
    if (*stream == STREAM_PER_THREAD)
        return vmm__error(
            VMM_ERR_INVALID_ARGUMENT,
            "%s: stream 0x2 (CU_STREAM_PER_THREAD) is a different stream on each thread: "
            "pass a stream that the program created",
            function);
    if (*stream == STREAM_LEGACY)
        *stream = NULL;
    return VMM_OK;
}

/* ---- Closing ------------------------------------------------------------------------------- */

/* Whether a pool, of the stream itself or of a graph, is this open stream's: not one of a closed stream with the same
 * handle. */
static bool is_open(const struct pool *pool, vmm_stream stream)
{
    return pool->stream == stream && !vmm__timeline_has_ended(&pool->timeline);
}

/* Settles a pool and begins a new epoch, so that a wait for the device covers all that was freed before. Leaves pools in
 * use by graphs alone. */
static void pool_settle(struct pool *pool)
{
    vmm__pool_lock(pool);
    if (!pool->is_in_use)
        (void)vmm__pool_settle_locked(pool);
    vmm__pool_unlock(pool);
}

/* Detaches a pool, so that other streams may use its free memory. */
static void pool_close(struct vmm_cache *cache, struct pool *pool)
{
    vmm__timeline_end(&pool->timeline);
    if (!pool->is_graph)
        vmm__pools_hide(&cache->pools, pool);
    pool_settle(pool);
}

/* The pools of an open stream: its own, then those of graphs. */
static struct pool *pool_first(const struct vmm_cache *cache, vmm_stream stream)
{
    struct pool *pool = vmm__pools_find(&cache->pools, stream);
    if (pool == NULL)
        pool = cache->pools.graph_pools;
    while (pool != NULL && !is_open(pool, stream))
        pool = pool->next_graph_pool;
    return pool;
}

static struct pool *pool_next(const struct vmm_cache *cache, const struct pool *pool)
{
    vmm_stream stream = pool->stream;
    struct pool *next = pool->is_graph ? pool->next_graph_pool : cache->pools.graph_pools;
    while (next != NULL && !is_open(next, stream))
        next = next->next_graph_pool;
    return next;
}

static vmm_status close_locked(struct vmm_cache *cache, vmm_stream stream, bool *is_stale)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    bool has_waits = false;
    for (struct pool *pool = pool_first(cache, stream); pool != NULL;
         pool = pool_next(cache, pool)) {
        struct timeline *timeline = &pool->timeline;
        vmm_status status = vmm__timeline_record(timeline, vmm__timeline_now(timeline));
        *is_stale = vmm__timeline_is_stale(timeline);
        if (status != VMM_OK)
            return status;
        vmm__pool_lock(pool);
        has_waits = has_waits || vmm__uses_has_waits(&pool->uses);
        vmm__pool_unlock(pool);
    }
    if (has_waits)
        vmm__cache_counters_flush(cache,
                                  NULL); /* before waits end, so that the totals stay exact */
    struct pool *next;
    for (struct pool *pool = pool_first(cache, stream); pool != NULL; pool = next) {
        next = pool_next(cache, pool);
        pool_close(cache, pool);
    }
    vmm__cache_pools_vacate(cache);
    return VMM_OK;
}

vmm_status vmm__stream_end(struct vmm_cache *cache, vmm_stream stream, bool *is_stale)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = close_locked(cache, stream, is_stale);
    vmm__fair_unlock(&cache->grow_lock);
    if (status == VMM_OK)
        vmm__error_restore(&line);
    return status;
}

/* ---- Reuse ------------------------------------------------------------------------ */

/* Whether all work of a pool's closed stream has finished. */
static bool has_passed(struct pool *pool)
{
    struct timeline *timeline = &pool->timeline;
    return vmm__timeline_query(timeline, vmm__timeline_now(timeline)) == VMM_OK;
}

/* Pools that each search checks. A search rotates its list, so that the next one checks other pools. */
enum { CLOSED_PROBES = 2, STALE_PROBES = 2 };

/* A pool without memory, of any closed stream whose work has finished. */
static struct pool *closed_find(struct vmm_cache *cache)
{
    for (int probe = 0; probe < CLOSED_PROBES; probe++) {
        struct pool *pool = vmm__pool_list_turn(&cache->pools.spare);
        if (pool != NULL && has_passed(pool))
            return pool;
    }
    return NULL;
}

/* Whether the driver rejects a pool's stream and no record refers to its timeline. Queries the driver only if it has
 * rejected the stream before, and queries it again because a new stream may have the same handle now. */
static bool is_stale(struct vmm_cache *cache, const struct pool *pool)
{
    bool is_capturing;
    return vmm__timeline_is_unknown(&pool->timeline) &&
           vmm__timeline_is_unreferenced(&pool->timeline) &&
           vmm__driver_capturing(cache->driver, pool->stream, &is_capturing) ==
               VMM_ERR_INVALID_ARGUMENT;
}

/* A pool without memory of a stale stream; closes the stream. */
static struct pool *stale_find(struct vmm_cache *cache)
{
    for (int probe = 0; probe < STALE_PROBES; probe++) {
        struct pool *pool = vmm__pool_list_turn(&cache->pools.vacant);
        if (pool == NULL || !is_stale(cache, pool))
            continue;
        vmm__timeline_end(&pool->timeline);
        vmm__pools_hide(&cache->pools, pool);
        return pool;
    }
    return NULL;
}

static bool pool_resume(struct vmm_cache *cache, struct pool *pool, vmm_stream stream)
{
    if (pool == NULL || vmm__timeline_resume(&pool->timeline, stream) != VMM_OK)
        return false;
    vmm__pools_show(&cache->pools, pool, stream);
    return true;
}

bool vmm__stream_resume(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    struct error_line line;
    vmm__error_save(&line);
    *out = vmm__pools_find_closed(&cache->pools, stream);
    bool is_found = pool_resume(cache, *out, stream);
    if (!is_found) {
        *out = closed_find(cache);
        if (*out == NULL)
            *out = stale_find(cache);
        is_found = pool_resume(cache, *out, stream);
    }
    vmm__error_restore(&line);
    return is_found;
}

bool vmm__stream_serves(struct pool *pool)
{
    struct timeline *timeline = &pool->timeline;
    if (!vmm__timeline_has_ended(timeline))
        return true;
    struct error_line line;
    vmm__error_save(&line);
    bool serves = has_passed(pool) && vmm__timeline_resume(timeline, pool->stream) == VMM_OK;
    vmm__error_restore(&line);
    return serves;
}

/* ---- Stale streams --------------------------------------------------------------------- */

vmm_status vmm__stream_wait_stale(struct vmm_cache *cache, struct pool *pool, bool has_capture)
{
    vmm__fair_lock(&cache->grow_lock);
    has_capture = has_capture || cache->graph_pools.captures != NULL;
    if (!has_capture)
        pool_settle(pool);
    vmm__fair_unlock(&cache->grow_lock);
    return has_capture ? VMM__PENDING : vmm__timeline_wait_stale(&pool->timeline);
}

static bool any_is_stale(const struct vmm_cache *cache)
{
    const struct pool *pool = cache->pools.first;
    while (pool != NULL && !vmm__timeline_is_stale(&pool->timeline))
        pool = pool->next;
    return pool != NULL;
}

/* One wait for the device serves all stale streams. */
vmm_status vmm__streams_wait_stale_locked(struct vmm_cache *cache)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    if (!any_is_stale(cache) || vmm__graph_pools_capture(cache))
        return VMM__NOTHING;
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (!vmm__timeline_is_stale(&pool->timeline))
            continue;
        pool_settle(pool);
        pool->leaving_epoch = vmm__timeline_advance(&pool->timeline);
    }
    vmm_status status = vmm__driver_device_wait(cache->driver);
    for (struct pool *pool = cache->pools.first; pool != NULL && status == VMM_OK;
         pool = pool->next) {
        if (vmm__timeline_is_stale(&pool->timeline))
            vmm__timeline_pass_stale(&pool->timeline, pool->leaving_epoch);
    }
    return status;
}
