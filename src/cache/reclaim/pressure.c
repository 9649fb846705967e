/* Calls the program for memory: see pressure.h. */
#include "cache/reclaim/pressure.h"
#include "base/arith.h"
#include "base/callback.h"

bool vmm__pressure_call(struct vmm_cache *cache, vmm_pool *pool, uint64_t bytes)
{
    struct callback callback;
    if (cache->pressure == NULL)
        return false;
    vmm__count(&cache->counts.pressure_calls, 1);
    vmm__callback_begin(&callback, cache, false);
    bool freed = cache->pressure(cache->pressure_context, pool, vmm__min(bytes, SIZE_MAX)) != 0;
    vmm__callback_end(&callback);
    return freed;
}

bool vmm__pressure_ask(struct vmm_cache *cache, struct lane *held, uint64_t bytes)
{
    if (cache->pressure == NULL || vmm__callback_is_in(cache, false))
        return false;
    vmm_pool *pool =
        held->owner.pool->handle; /* without the locks, another thread may destroy it */
    vmm__cache_locks_drop(cache, held);
    bool freed = vmm__pressure_call(cache, pool, bytes);
    vmm__cache_locks_take(cache, held);
    return freed;
}

bool vmm__pressure_quarantine(struct vmm_cache *cache, struct lane *held, uint64_t *given)
{
    uint64_t before = *given;
    if (cache->debug == NULL)
        return false;
    vmm__cache_locks_drop(cache, held);
    *given = cache->debug_view->give(cache->debug);
    vmm__cache_locks_take(cache, held);
    return *given != before;
}
