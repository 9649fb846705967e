/* Which caches there are: see roll.h. */
#include "policy/roll.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { PLACES = 256 };

static _Atomic(const struct vmm_cache *) places[PLACES];
static _Atomic unsigned without_place;

/* Where a search begins, and mostly ends. */
static unsigned place_first(const struct vmm_cache *cache)
{
    return (unsigned)((uint64_t)(uintptr_t)cache * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

/* Puts one in the place of another, wherever that is. */
static bool place_exchange(const struct vmm_cache *cache, const struct vmm_cache *before,
                           const struct vmm_cache *after)
{
    unsigned first = place_first(cache);
    for (unsigned i = 0; i < PLACES; i++) {
        const struct vmm_cache *found = before;
        if (atomic_compare_exchange_strong(&places[(first + i) % PLACES], &found, after))
            return true;
    }
    return false;
}

void vmm__roll_enter(const struct vmm_cache *cache)
{
    if (!place_exchange(cache, NULL, cache))
        atomic_fetch_add(&without_place, 1);
}

bool vmm__roll_strike(const struct vmm_cache *cache)
{
    if (place_exchange(cache, cache, NULL))
        return true;
    unsigned count = atomic_load(&without_place);
    while (count > 0 && !atomic_compare_exchange_weak(&without_place, &count, count - 1))
        continue;
    return count > 0;
}

bool vmm__roll_has(const struct vmm_cache *cache)
{
    unsigned first = place_first(cache);
    for (unsigned i = 0; i < PLACES; i++) {
        if (atomic_load_explicit(&places[(first + i) % PLACES], memory_order_relaxed) == cache)
            return true;
    }
    return atomic_load_explicit(&without_place, memory_order_relaxed) > 0;
}
