/* The live caches of the process: see registry.h. */
#include "cache/registry.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { SLOTS = 256 };

static _Atomic(const struct vmm_cache *) slots[SLOTS];
static _Atomic unsigned unregistered;

/* The slot where a search starts and mostly ends. */
static unsigned slot_first(const struct vmm_cache *cache)
{
    return (unsigned)((uint64_t)(uintptr_t)cache * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

/* Puts `after` into the first slot that holds `before`. False if none does. */
static bool slot_exchange(const struct vmm_cache *cache, const struct vmm_cache *before,
                          const struct vmm_cache *after)
{
    unsigned first = slot_first(cache);
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct vmm_cache *found = before;
        if (atomic_compare_exchange_strong(&slots[(first + i) % SLOTS], &found, after))
            return true;
    }
    return false;
}

void vmm__registry_add(const struct vmm_cache *cache)
{
    if (!slot_exchange(cache, NULL, cache))
        atomic_fetch_add(&unregistered, 1);
}

bool vmm__registry_remove(const struct vmm_cache *cache)
{
    if (slot_exchange(cache, cache, NULL))
        return true;
    unsigned count = atomic_load(&unregistered);
    while (count > 0 && !atomic_compare_exchange_weak(&unregistered, &count, count - 1))
        continue;
    return count > 0;
}

bool vmm__registry_has(const struct vmm_cache *cache)
{
    unsigned first = slot_first(cache);
    for (unsigned i = 0; i < SLOTS; i++) {
        if (atomic_load_explicit(&slots[(first + i) % SLOTS], memory_order_relaxed) == cache)
            return true;
    }
    return atomic_load_explicit(&unregistered, memory_order_relaxed) > 0;
}
