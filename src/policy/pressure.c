/* Asking the program for memory: see pressure.h. */
#include "policy/pressure.h"
#include "base/arith.h"
#include "base/callback.h"

bool vmm__pressure_ask(struct vmm_cache *cache, struct pool *held, uint64_t bytes)
{
    if (cache->pressure == NULL || vmm__callback_is_in(cache, false))
        return false;
    atomic_fetch_add_explicit(&cache->pressure_calls, 1, memory_order_relaxed);
    vmm__pool_unlock(held);
    vmm__fair_drop(&cache->grow_lock);
    struct callback callback;
    vmm__callback_begin(&callback, cache, false);
    bool freed = cache->pressure(cache->pressure_context, vmm__min(bytes, SIZE_MAX)) != 0;
    vmm__callback_end(&callback);
    vmm__cache_turn(cache, held); /* the program may have given another pool its turn */
    vmm__fair_take(&cache->grow_lock);
    vmm__pool_lock(held);
    return freed;
}
