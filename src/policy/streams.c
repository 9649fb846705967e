/* Pools of streams that end: see streams.h. */
#include "policy/streams.h"
#include "base/error.h"

/* ---- The end ------------------------------------------------------------------------------- */

/* A pool that work of the stream may still be told apart in: of its own, or of a private pool. */
static bool is_alive(const struct pool *pool, vmm_stream stream)
{
    return pool->stream == stream && !vmm__timeline_has_ended(&pool->timeline);
}

/* What waits in a pool for more goes, and is stamped by now: of a stream that is gone nothing could be told later. */
static void pool_settle(struct pool *pool)
{
    vmm__pool_lock(pool);
    if (!pool->is_held)
        (void)vmm__pool_settle_locked(pool);
    vmm__pool_unlock(pool);
}

/* Nobody comes back to it soon: what waits in it for more goes, and the rest is there for others. */
static void pool_leave(struct vmm_cache *cache, struct pool *pool)
{
    vmm__timeline_end(&pool->timeline);
    if (!pool->is_private)
        vmm__pools_hide(&cache->pools, pool);
    pool_settle(pool);
}

static vmm_status end_locked(struct vmm_cache *cache, vmm_stream stream, bool *is_gone)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        struct timeline *timeline = &pool->timeline;
        if (!is_alive(pool, stream))
            continue;
        vmm_status status = vmm__timeline_mark(timeline, vmm__timeline_now(timeline));
        *is_gone = vmm__timeline_is_gone(timeline);
        if (status != VMM_OK)
            return status;
    }
    vmm__cache_post(cache, NULL); /* before waits end and are posted */
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (is_alive(pool, stream))
            pool_leave(cache, pool);
    }
    return VMM_OK;
}

vmm_status vmm__stream_end(struct vmm_cache *cache, vmm_stream stream, bool *is_gone)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_take(&cache->grow_lock);
    vmm_status status = end_locked(cache, stream, is_gone);
    vmm__fair_drop(&cache->grow_lock);
    if (status == VMM_OK)
        vmm__error_restore(&line);
    return status;
}

/* ---- Another stream ------------------------------------------------------------------------ */

/* Whether all work of the stream that has ended has, too. */
static bool has_passed(struct pool *pool)
{
    struct timeline *timeline = &pool->timeline;
    return vmm__timeline_query(timeline, vmm__timeline_now(timeline)) == VMM_OK;
}

/* A pool that no stream finds although none has it; *stream: the same handle's only, or any's. */
static struct pool *left_find(struct vmm_cache *cache, const vmm_stream *stream)
{
    struct pool *pool = cache->pools.first;
    for (; pool != NULL; pool = pool->next) {
        if (pool->is_private || !pool->is_apart)
            continue;
        if (stream != NULL ? pool->stream == *stream
                           : !vmm__pool_has_memory(pool) && has_passed(pool))
            return pool;
    }
    return NULL;
}

static bool pool_resume(struct vmm_cache *cache, struct pool *pool, vmm_stream stream)
{
    if (pool == NULL || vmm__timeline_resume(&pool->timeline, stream) != VMM_OK)
        return false;
    atomic_store_explicit(&pool->stream, stream, memory_order_relaxed);
    vmm__pools_show(&cache->pools, pool);
    return true;
}

bool vmm__stream_resume(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    struct error_line line;
    vmm__error_save(&line);
    *out = left_find(cache, &stream);
    bool is_found = pool_resume(cache, *out, stream);
    if (!is_found) {
        *out = left_find(cache, NULL);
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

/* ---- Gone without a word --------------------------------------------------------------------- */

vmm_status vmm__stream_outwait(struct vmm_cache *cache, struct pool *pool)
{
    vmm__fair_take(&cache->grow_lock);
    bool has_capture = vmm__privates_capture(cache);
    if (!has_capture)
        pool_settle(pool);
    vmm__fair_drop(&cache->grow_lock);
    return has_capture ? VMM_NOT_READY : vmm__timeline_outwait(&pool->timeline);
}

vmm_status vmm__streams_outwait_locked(struct vmm_cache *cache)
{
    vmm_status status = VMM_NOT_READY;
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (!vmm__timeline_is_gone(&pool->timeline) || vmm__privates_capture(cache))
            continue;
        pool_settle(pool);
        vmm_status waited = vmm__timeline_outwait(&pool->timeline);
        status = status == VMM_NOT_READY ? waited : status;
    }
    return status;
}
