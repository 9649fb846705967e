/* What all of src/cache shares: see cache.h. */
#include "cache/cache.h"
#include "base/callback.h"
#include "base/error.h"
#include "cache/registry.h"
#include "cache/streams.h"

#include <stdarg.h>

enum { LOG_LINE_BYTES = 512 };

vmm_status vmm__cache_missing(const char *function, const char *argument)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

vmm_status vmm__cache_admit(const struct vmm_cache *cache, const char *function)
{
    if (cache == NULL)
        return vmm__cache_missing(function, "cache");
    if (!vmm__registry_has(cache))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %p is not a cache, or was destroyed",
                          function, (const void *)cache);
    if (cache->generation != vmm__fork_generation())
        return vmm__fork_refuse(function);
    if (vmm__callback_is_in(cache, true))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "%s: called from a callback that the cache runs with its locks held",
                          function);
    return VMM_OK;
}

vmm_status vmm__cache_admit_work(const struct vmm_cache *cache, const char *function)
{
    vmm_status status = vmm__cache_admit(cache, function);
    if (status == VMM_OK && vmm__driver_is_lost(cache->driver))
        return vmm__lost_refuse(&cache->driver->lost);
    return status;
}

static void log_call(const struct vmm_cache *cache, const char *line)
{
    struct callback callback;
    vmm__callback_begin(&callback, cache, true);
    cache->log(cache->log_context, line);
    vmm__callback_end(&callback);
}

void vmm__cache_log(struct vmm_cache *cache, const char *format, ...)
{
    if (cache->log == NULL && cache->log_file == NULL)
        return;
    char line[LOG_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    vmm__line_make(line);
    if (cache->log != NULL)
        log_call(cache, line);
    if (cache->log_file != NULL)
        (void)fprintf(cache->log_file, "vmmcache: %s\n", line);
}

vmm_status vmm__cache_pool_open(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    vmm_status status =
        vmm__pool_open(stream, cache->driver, &cache->directory, &cache->totals, out);
    if (status == VMM_OK && (cache->nvtx != NULL || cache->debug != NULL))
        vmm__biased_disable(&(*out)->lock);
    return status;
}

/* A pool for a stream that has none: a closed or stale stream's, or a new one. */
static vmm_status pool_make(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    vmm_status status = vmm__driver_stream_check(cache->driver, stream);
    if (status != VMM_OK || vmm__stream_resume(cache, stream, out))
        return status;
    status = vmm__cache_pool_open(cache, stream, out);
    if (status != VMM_OK)
        return status;
    (*out)->large.home_end = &cache->home_end;
    vmm__pools_add(&cache->pools, *out);
    return status;
}

vmm_status vmm__cache_pool(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    struct pool *pool = vmm__pools_find(&cache->pools, stream);
    vmm_status status = VMM_OK;
    if (pool == NULL) {
        vmm__fair_lock(&cache->grow_lock);
        pool = vmm__pools_find(&cache->pools, stream);
        if (pool == NULL)
            status = pool_make(cache, stream, &pool);
        vmm__fair_unlock(&cache->grow_lock);
    }
    if (status == VMM_OK)
        *out = pool;
    return status;
}

static void counters_flush(struct vmm_cache *cache, struct pool *pool)
{
    vmm__counters_flush(&pool->counters, &cache->totals);
}

static void unlocked_counters_flush(struct vmm_cache *cache, struct pool *pool)
{
    if (!vmm__biased_lock_fast(&pool->lock))
        vmm__biased_lock_slow(&pool->lock);
    counters_flush(cache, pool);
    vmm__biased_unlock(&pool->lock);
}

/* From now on the pool's counters are flushed only after a large change. */
static void pool_share(struct vmm_cache *cache, struct pool *pool)
{
    if (!atomic_exchange_explicit(&pool->is_watched, true, memory_order_relaxed))
        unlocked_counters_flush(cache, pool);
}

/* Shares the totals: no pool is active any longer, and each pool flushes its own counters after a large change. */
static void cache_share(struct vmm_cache *cache, struct pool *pool)
{
    atomic_store_explicit(&cache->totals.is_shared, true, memory_order_relaxed);
    struct pool *before = atomic_exchange_explicit(&cache->active_pool, NULL, memory_order_acq_rel);
    if (before != NULL)
        pool_share(cache, before);
    pool_share(cache, pool);
}

/* Two threads may do this at once: has_callers is read again, so that the one that sets active_pool last sees the other
 * and shares the totals. */
static void pool_activate(struct vmm_cache *cache, struct pool *pool)
{
    vmm__cache_called(cache);
    if (atomic_load_explicit(&cache->has_callers, memory_order_relaxed)) {
        cache_share(cache, pool);
        return;
    }
    struct pool *before = atomic_exchange_explicit(&cache->active_pool, pool, memory_order_acq_rel);
    if (before != NULL)
        unlocked_counters_flush(cache, before);
    if (atomic_load_explicit(&cache->has_callers, memory_order_relaxed))
        cache_share(cache, pool);
}

void vmm__cache_pool_activate(struct vmm_cache *cache, struct pool *pool)
{
    if (atomic_load_explicit(&cache->active_pool, memory_order_acquire) != pool &&
        !atomic_load_explicit(&pool->is_watched, memory_order_relaxed))
        pool_activate(cache, pool);
}

/* A pool is contended, and gets magazines, once threads have waited for its lock this often. */
enum { CONTENDED_WAITS = 32 };

static void contention_note_locked(const struct vmm_cache *cache, struct pool *pool)
{
    VMM_ASSERT_HELD(&pool->lock);
    bool is_contended =
        pool->lock.waits >= CONTENDED_WAITS && pool->lock.may_bias && !cache->no_caching;
    if (is_contended && atomic_load_explicit(&pool->magazines, memory_order_relaxed) == NULL)
        vmm__magazines_make_locked(pool);
}

void vmm__cache_pool_lock_slow(struct vmm_cache *cache, struct pool *pool)
{
    vmm__cache_pool_activate(cache, pool);
    if (vmm__biased_lock_fast(&pool->lock))
        return;
    vmm__biased_lock_slow(&pool->lock);
    vmm__cache_called(cache);
    contention_note_locked(cache, pool);
}

void vmm__cache_counters_flush(struct vmm_cache *cache, const struct pool *held)
{
    for (struct pool *pool = cache->pools.stocked.first; pool != NULL; pool = pool->list_next) {
        vmm__pool_lock_beside(pool, held);
        counters_flush(cache, pool);
        vmm__pool_unlock_beside(pool, held);
    }
}

void vmm__cache_pools_turn(struct vmm_cache *cache)
{
    struct pool_list *stocked = &cache->pools.stocked;
    for (uint64_t i = 0; i < POOLS_USUAL && stocked->count > POOLS_USUAL; i++)
        (void)vmm__pool_list_turn(stocked);
}

void vmm__cache_pools_vacate(struct vmm_cache *cache)
{
    struct heap *heap = vmm__heap_drained(&cache->directory);
    for (; heap != NULL; heap = vmm__heap_drained(&cache->directory)) {
        struct pool *pool = heap->pool;
        if (vmm__pool_has_memory(pool) || pool->list != &cache->pools.stocked)
            continue;
        vmm__pool_lock(pool);
        vmm__pool_vacate_locked(pool);
        vmm__pool_unlock(pool);
        vmm__pools_vacate(&cache->pools, pool);
    }
}

void vmm__cache_pools_lock(struct vmm_cache *cache, const struct pool *held)
{
    for (struct pool *pool = cache->pools.stocked.first; pool != NULL; pool = pool->list_next)
        vmm__pool_lock_beside(pool, held);
}

void vmm__cache_pools_lock_refilling(struct vmm_cache *cache, const struct demand *demand)
{
    uint64_t left = demand->is_short ? cache->pools.stocked.count : POOLS_USUAL;
    struct pool *held = demand->heap->pool;
    held->scanned_refill = cache->refills;
    for (struct pool *pool = cache->pools.stocked.first; pool != NULL && left > 0;
         pool = pool->list_next, left--) {
        if (pool != held && demand->is_sparing)
            vmm__pool_lock_for_scan(pool, cache->refills);
        else
            vmm__pool_lock_beside(pool, held);
        pool->scanned_refill = cache->refills;
    }
}

void vmm__cache_pools_unlock_refilling(struct vmm_cache *cache, const struct heap *heap)
{
    for (struct pool *pool = cache->pools.stocked.first; pool != NULL; pool = pool->list_next) {
        if (!vmm__pool_is_scanned(cache, pool))
            continue;
        pool->scanned_refill = 0;
        vmm__pool_unlock_beside(pool, heap->pool);
    }
}

void vmm__cache_pools_unlock(struct vmm_cache *cache, const struct pool *held)
{
    for (struct pool *pool = cache->pools.stocked.first; pool != NULL; pool = pool->list_next)
        vmm__pool_unlock_beside(pool, held);
}

vmm_status vmm__cache_copies_wait(struct vmm_cache *cache)
{
    vmm_status status = vmm__timeline_wait(&cache->copies, vmm__timeline_now(&cache->copies));
    if (status == VMM_OK)
        return VMM_OK;
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__driver_device_wait(cache->driver);
    vmm__error_restore(&line);
    return status;
}

/* Pools are never freed, so the caller may use one without the lock. Shrinks the timeline of a pool without memory: it
 * needs no events. */
static struct pool *pool_after(struct vmm_cache *cache, struct pool *pool)
{
    vmm__fair_lock(&cache->grow_lock);
    if (pool != NULL && pool->list != &cache->pools.stocked)
        vmm__timeline_shrink(&pool->timeline);
    struct pool *next = pool == NULL ? cache->pools.first : pool->next;
    vmm__fair_unlock(&cache->grow_lock);
    return next;
}

/* Queries the driver for every stream, so vmm__cache_wait() calls it once for all stale streams. */
static bool capture_is_under_way(struct vmm_cache *cache)
{
    vmm__fair_lock(&cache->grow_lock);
    bool is_under_way = vmm__graph_pools_capture(cache);
    vmm__fair_unlock(&cache->grow_lock);
    return is_under_way;
}

vmm_status vmm__cache_wait(struct vmm_cache *cache)
{
    vmm_status first = VMM_OK;
    bool has_asked = false;
    bool has_capture = false;
    for (struct pool *pool = pool_after(cache, NULL); pool != NULL;
         pool = pool_after(cache, pool)) {
        struct timeline *timeline = &pool->timeline;
        vmm_status status = vmm__timeline_wait(timeline, vmm__timeline_now(timeline));
        bool is_stale = status == VMM__PENDING && vmm__timeline_is_stale(timeline);
        if (is_stale && !has_asked)
            has_capture = capture_is_under_way(cache);
        has_asked = has_asked || is_stale;
        if (is_stale)
            status = vmm__stream_wait_stale(cache, pool, has_capture);
        if (status != VMM_OK && status != VMM__PENDING && first == VMM_OK)
            first = status;
    }
    return first;
}

vmm_status vmm__cache_check_locked(struct vmm_cache *cache)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    vmm_status status = vmm__vm_check(&cache->vm);
    for (struct pool *pool = cache->pools.first; pool != NULL && status == VMM_OK;
         pool = pool->next) {
        vmm__pool_lock(pool);
        status = vmm__pool_check_locked(pool);
        vmm__pool_unlock(pool);
    }
    return status;
}
