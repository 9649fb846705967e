/* What all of policy needs of the cache: see cache.h. */
#include "policy/cache.h"
#include "base/callback.h"
#include "base/error.h"
#include "policy/ring.h"
#include "policy/roll.h"
#include "policy/streams.h"

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
    if (!vmm__roll_has(cache))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %p is no cache, or none any more",
                          function, (const void *)cache);
    if (cache->generation != vmm__fork_generation())
        return vmm__fork_refuse(function);
    if (vmm__callback_is_in(cache, true))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "%s: called by a function that the cache calls with locks held",
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

static void listener_tell(const struct vmm_cache *cache, const char *line)
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
        listener_tell(cache, line);
    if (cache->log_file != NULL)
        (void)fprintf(cache->log_file, "vmmcache: %s\n", line);
}

vmm_status vmm__cache_pool_open(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    vmm_status status =
        vmm__pool_open(stream, cache->driver, &cache->directory, &cache->ledger, out);
    if (status == VMM_OK && (cache->marks != NULL || cache->guard != NULL))
        vmm__biased_deny(&(*out)->lock);
    return status;
}

/* The pool of a stream that has none: one whose stream has ended, or a new one. */
static vmm_status pool_make(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    if (vmm__stream_resume(cache, stream, out))
        return VMM_OK;
    vmm_status status = vmm__cache_pool_open(cache, stream, out);
    if (status == VMM_OK)
        vmm__pools_add(&cache->pools, *out);
    return status;
}

vmm_status vmm__cache_pool(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    struct pool *pool = vmm__pools_find(&cache->pools, stream);
    vmm_status status = VMM_OK;
    if (pool == NULL) {
        vmm__fair_take(&cache->grow_lock);
        pool = vmm__pools_find(&cache->pools, stream);
        if (pool == NULL)
            status = pool_make(cache, stream, &pool);
        vmm__fair_drop(&cache->grow_lock);
    }
    if (status == VMM_OK)
        *out = pool;
    return status;
}

static void pool_post(struct vmm_cache *cache, struct pool *pool)
{
    vmm__account_post(&pool->account, &cache->ledger);
}

static void pool_post_apart(struct vmm_cache *cache, struct pool *pool)
{
    if (!vmm__biased_enter(&pool->lock))
        vmm__biased_visit(&pool->lock);
    pool_post(cache, pool);
    vmm__biased_drop(&pool->lock);
}

/* Its account is posted when it has changed by much, from now on. */
static void pool_share(struct vmm_cache *cache, struct pool *pool)
{
    if (!atomic_exchange_explicit(&pool->is_watched, true, memory_order_relaxed))
        pool_post_apart(cache, pool);
}

/* The ledger is shared from now on: nobody has the turn, and who had it is watched like all that come. */
static void cache_share(struct vmm_cache *cache, struct pool *pool)
{
    atomic_store_explicit(&cache->ledger.is_shared, true, memory_order_relaxed);
    struct pool *before = atomic_exchange_explicit(&cache->turn, NULL, memory_order_acq_rel);
    if (before != NULL)
        pool_share(cache, before);
    pool_share(cache, pool);
}

/* Another thread may come at the same time: whichever of the two changes the turn last sees the other. */
static void cache_turn(struct vmm_cache *cache, struct pool *pool)
{
    vmm__cache_called(cache);
    if (atomic_load_explicit(&cache->has_callers, memory_order_relaxed)) {
        cache_share(cache, pool);
        return;
    }
    struct pool *before = atomic_exchange_explicit(&cache->turn, pool, memory_order_acq_rel);
    if (before != NULL)
        pool_post_apart(cache, before);
    if (atomic_load_explicit(&cache->has_callers, memory_order_relaxed))
        cache_share(cache, pool);
}

void vmm__cache_turn(struct vmm_cache *cache, struct pool *pool)
{
    if (atomic_load_explicit(&cache->turn, memory_order_acquire) != pool &&
        !atomic_load_explicit(&pool->is_watched, memory_order_relaxed))
        cache_turn(cache, pool);
}

/* So many times threads found a pool's lock taken by another. */
enum { CROWD_WAITS = 32 };

/* Written once: others read what lies beside it all the time. */
static void crowd_note_locked(struct pool *pool)
{
    bool is_crowded = pool->lock.waits >= CROWD_WAITS && pool->lock.may_favour;
    if (is_crowded && !atomic_load_explicit(&pool->is_crowded, memory_order_relaxed))
        atomic_store_explicit(&pool->is_crowded, true, memory_order_relaxed);
}

void vmm__cache_visit(struct vmm_cache *cache, struct pool *pool)
{
    vmm__cache_turn(cache, pool);
    if (vmm__biased_enter(&pool->lock))
        return;
    vmm__biased_visit(&pool->lock);
    vmm__cache_called(cache);
    crowd_note_locked(pool);
}

void vmm__cache_post(struct vmm_cache *cache, const struct pool *held)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        vmm__pool_lock_beside(pool, held);
        pool_post(cache, pool);
        vmm__pool_unlock_beside(pool, held);
    }
}

void vmm__cache_pools_lock(struct vmm_cache *cache, const struct pool *held)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        vmm__pool_lock_beside(pool, held);
}

void vmm__cache_pools_lock_supplying(struct vmm_cache *cache, const struct pool *held)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        vmm__pool_lock_supplying(cache, pool, held);
}

void vmm__cache_pools_unlock(struct vmm_cache *cache, const struct pool *held)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
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

/* Pools stay, so who has found one may look at it without the lock. */
static struct pool *pool_after(struct vmm_cache *cache, const struct pool *pool)
{
    vmm__fair_take(&cache->grow_lock);
    struct pool *next = pool == NULL ? cache->pools.first : pool->next;
    vmm__fair_drop(&cache->grow_lock);
    return next;
}

vmm_status vmm__cache_wait(struct vmm_cache *cache)
{
    vmm_status first = VMM_OK;
    for (struct pool *pool = pool_after(cache, NULL); pool != NULL;
         pool = pool_after(cache, pool)) {
        struct timeline *timeline = &pool->timeline;
        vmm_status status = vmm__timeline_wait(timeline, vmm__timeline_now(timeline));
        if (status == VMM_NOT_READY && vmm__timeline_is_gone(timeline))
            status = vmm__stream_outwait(cache, pool);
        if (status != VMM_OK && status != VMM_NOT_READY && first == VMM_OK)
            first = status;
    }
    return first;
}

vmm_status vmm__cache_check_locked(struct vmm_cache *cache)
{
    vmm_status status = vmm__memory_check(&cache->memory);
    for (struct pool *pool = cache->pools.first; pool != NULL && status == VMM_OK;
         pool = pool->next) {
        vmm__pool_lock(pool);
        status = vmm__pool_check_locked(pool);
        vmm__pool_unlock(pool);
    }
    vmm__cache_pools_lock(cache, NULL);
    if (status == VMM_OK)
        status = vmm__rings_check(cache);
    vmm__cache_pools_unlock(cache, NULL);
    return status;
}
