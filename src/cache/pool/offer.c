/* Pools that may sleep for other processes: see offer.h. */
#include "cache/pool/offer.h"
#include "base/error.h"
#include "cache/cache.h"
#include "cache/pool/sleep.h"

#include <string.h>

static uint64_t bytes_of(const struct pool *pool)
{
    return vmm__stat_now(&pool->account.reserved_bytes);
}

/* Whether a pool may sleep now. If the query of the clock fails, a later claim asks again. */
static bool may_sleep(const struct pool *pool, uint64_t most_bytes)
{
    if (pool->phase != VMM_POOL_OFFERED || pool->offer.has_failed || bytes_of(pool) == 0 ||
        bytes_of(pool) > most_bytes)
        return false;
    return vmm__clock_query_all(&pool->cache->clock, pool->offer.epoch) == VMM_OK;
}

static bool is_better(const struct pool *pool, const struct pool *than, uint64_t bytes)
{
    bool is_enough = bytes_of(pool) >= bytes;
    if (than == NULL || is_enough != (bytes_of(than) >= bytes))
        return than == NULL || is_enough;
    return is_enough ? bytes_of(pool) < bytes_of(than) : bytes_of(pool) > bytes_of(than);
}

static struct pool *choose_locked(struct vmm_cache *cache, uint64_t bytes, uint64_t floor_bytes)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    VMM_QUIET();
    uint64_t reserved_bytes = vmm__stat_now(&cache->vm.reserved_bytes);
    uint64_t most_bytes = reserved_bytes - vmm__min(reserved_bytes, floor_bytes);
    struct pool *chosen = may_sleep(&cache->pool, most_bytes) ? &cache->pool : NULL;
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (is_better(pool, chosen, bytes) && may_sleep(pool, most_bytes))
            chosen = pool;
    }
    return chosen;
}

/* Chooses a pool, and begins its sleep. False: no pool may sleep. */
static bool sleep_begin(struct sleep_request *request, uint64_t bytes, uint64_t floor_bytes)
{
    struct vmm_cache *cache = request->cache;
    VMM_HOLD_FAIR(&cache->grow_lock);
    struct pool *pool = choose_locked(cache, bytes, floor_bytes);
    if (pool != NULL) {
        request->pools[0] = pool;
        request->options = pool->offer.options;
        vmm__sleep_begin_claimed_locked(request);
    }
    return pool != NULL;
}

/* A recording shows the sleep as one of vmm_pool_sleep(). */
static void sleep_record(struct vmm_cache *cache, const struct pool *pool)
{
    struct recorder *recorder =
        atomic_load_explicit(&cache->directory.recorder, memory_order_acquire);
    char text[POOL_NAME_BYTES + sizeof "vmm_pool_sleep: "];
    (void)snprintf(text, sizeof text, "vmm_pool_sleep: %s", pool->name);
    if (recorder != NULL)
        vmm__recorder_push_text(recorder, (struct trace_event){ .kind = TRACE_NOTE }, text);
}

/* From now on other calls may use the pool, or destroy it. */
static void sleep_end(struct vmm_cache *cache, struct pool *pool, uint64_t before_bytes,
                      struct offer_taken *taken)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    pool->offer.has_failed = taken->has_failed;
    if (!taken->has_failed)
        sleep_record(cache, pool);
    taken->bytes = before_bytes - vmm__min(before_bytes, bytes_of(pool));
    memcpy(taken->name, pool->name, sizeof taken->name);
    vmm__sleep_end_claimed_locked(cache);
}

bool vmm__offer_take(struct vmm_cache *cache, uint64_t bytes, uint64_t floor_bytes,
                     struct offer_taken *taken)
{
    struct pool *pool = NULL;
    struct sleep_request request = {
        .cache = cache, .pools = &pool, .count = 1, .is_claimed = true
    };
    if (!sleep_begin(&request, bytes, floor_bytes))
        return false;
    VMM_QUIET();
    uint64_t before_bytes = bytes_of(pool);
    taken->has_failed = vmm__sleep_run(&request) != VMM_OK;
    sleep_end(cache, pool, before_bytes, taken);
    return true;
}
