/* Asking the program for memory: see pressure.h. */
#include "policy/pressure.h"
#include "base/arith.h"

/* One question that has not been answered yet, on the stack of the thread that asks. */
struct question {
    const struct vmm_cache *cache;
    const struct question *outer;
};

static _Thread_local const struct question *innermost;

static bool is_asking(const struct vmm_cache *cache)
{
    const struct question *question = innermost;
    while (question != NULL && question->cache != cache)
        question = question->outer;
    return question != NULL;
}

bool vmm__pressure_ask(struct vmm_cache *cache, struct pool *held, uint64_t bytes)
{
    if (cache->pressure == NULL || is_asking(cache))
        return false;
    atomic_fetch_add_explicit(&cache->pressure_calls, 1, memory_order_relaxed);
    vmm__pool_unlock(held);
    vmm__fair_drop(&cache->grow_lock);
    struct question question = { .cache = cache, .outer = innermost };
    innermost = &question;
    bool freed = cache->pressure(cache->pressure_context, vmm__min(bytes, SIZE_MAX)) != 0;
    innermost = question.outer;
    vmm__cache_turn(cache, held); /* the program may have given another pool its turn */
    vmm__fair_take(&cache->grow_lock);
    vmm__pool_lock(held);
    return freed;
}
