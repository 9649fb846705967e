/* Calls the program for memory: see pressure.h. */
#include "cache/reclaim/pressure.h"
#include "base/arith.h"
#include "base/callback.h"

static void locks_drop(struct vmm_cache *cache, struct lane *held)
{
    vmm__lane_unlock(held);
    vmm__fair_unlock(&cache->grow_lock);
}

static void locks_take(struct vmm_cache *cache, struct lane *held)
{
    vmm__cache_lane_activate(cache, held); /* the function may have made another lane active */
    vmm__fair_lock(&cache->grow_lock);
    vmm__lane_lock(held);
}

bool vmm__pressure_ask(struct vmm_cache *cache, struct lane *held, uint64_t bytes)
{
    if (cache->pressure == NULL || vmm__callback_is_in(cache, false))
        return false;
    atomic_fetch_add_explicit(&cache->pressure_calls, 1, memory_order_relaxed);
    vmm_pool *pool = held->pool->handle; /* without the locks, another thread may destroy it */
    locks_drop(cache, held);
    struct callback callback;
    vmm__callback_begin(&callback, cache, false);
    bool freed = cache->pressure(cache->pressure_context, pool, vmm__min(bytes, SIZE_MAX)) != 0;
    vmm__callback_end(&callback);
    locks_take(cache, held);
    return freed;
}

bool vmm__pressure_quarantine(struct vmm_cache *cache, struct lane *held, uint64_t *given)
{
    uint64_t before = *given;
    if (cache->debug == NULL)
        return false;
    locks_drop(cache, held);
    *given = cache->debug_view->give(cache->debug);
    locks_take(cache, held);
    return *given != before;
}
