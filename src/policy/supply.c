/* Meeting a request that missed: see supply.h. */
#include "policy/supply.h"
#include "base/error.h"
#include "policy/cross.h"
#include "policy/ladder.h"
#include "policy/span.h"
#include "policy/trim.h"

/* Supplies from one check of all invariants to the next; 0: none. See VMM_CHECK. */
enum { CHECK_EVERY = VMM_CHECK >= 3 ? 1 : VMM_CHECK == 2 ? 16 : 0 };

/* Free addresses in a row that other heaps own in part: for a block that then fits, or grows less.
 */
static vmm_status span_take(struct vmm_cache *cache, const struct request *request, void **out)
{
    const struct block *beside;
    uint64_t grow_bytes = vmm__grow_bytes(cache, request->heap, request->block_bytes, &beside);
    vmm_status status = vmm__span_join(cache, request->heap, request->block_bytes, grow_bytes,
                                       vmm__idle_usual(cache, request->pool));
    if (status != VMM_OK)
        return status;
    return vmm__pool_take_locked(request->pool, request->bytes, out);
}

static vmm_status supply_cached(struct vmm_cache *cache, const struct request *request, void **out)
{
    (void)vmm__pool_poll_locked(request->pool, UINT32_MAX);
    vmm_status status = vmm__pool_take_locked(request->pool, request->bytes, out);
    if (status != VMM_NOT_READY)
        return status;
    status = vmm__cross(cache, request->heap, request->block_bytes,
                        vmm__idle_usual(cache, request->pool));
    if (status == VMM_OK)
        return vmm__pool_take_locked(request->pool, request->bytes, out);
    status = span_take(cache, request, out);
    if (status == VMM_OK)
        return status;
    struct block *block;
    status = vmm__grow(cache, request->heap, request->block_bytes, request->from, &block);
    if (status != VMM_OK)
        return status;
    request->heap->index.search_all = true; /* it is there, and must be found */
    return vmm__pool_take_locked(request->pool, request->bytes, out);
}

/* A block of its own, apart from all others. */
static vmm_status supply_alone(struct vmm_cache *cache, const struct request *request, void **out)
{
    struct block *block;
    vmm_status status = vmm__grow(cache, request->heap, request->block_bytes, GROW_ALONE, &block);
    if (status != VMM_OK)
        return status;
    return vmm__pool_take_block_locked(request->pool, block, request->bytes, out);
}

static vmm_status supply_once(struct vmm_cache *cache, const struct request *request, void **out)
{
    vmm__account_post(&request->pool->account, &cache->ledger);
    return request->is_alone ? supply_alone(cache, request, out)
                             : supply_cached(cache, request, out);
}

/* Idle memory and stale mappings hold addresses as well as memory, so the ladder helps with both. */
static vmm_status supply_locked(struct vmm_cache *cache, struct request *request, void **out)
{
    vmm_status status = supply_once(cache, request, out);
    if (!vmm__is_shortage(status))
        return status;
    atomic_fetch_add_explicit(&cache->retries, 1, memory_order_relaxed);
    cache->is_passing = false;
    struct ladder ladder = { .step = 0 };
    while (vmm__is_shortage(status)) {
        vmm_status climbed = vmm__ladder_climb(cache, request, &ladder);
        if (climbed == VMM_NOT_READY)
            break;
        if (climbed != VMM_OK && !vmm__is_shortage(climbed))
            return climbed;
        cache->is_passing = false; /* others may have been supplied meanwhile */
        status = supply_once(cache, request, out);
    }
    if (!vmm__is_shortage(status))
        return status;
    atomic_fetch_add_explicit(&cache->ooms, 1, memory_order_relaxed);
    return vmm__ladder_report(cache, request, status);
}

static vmm_status supply(struct vmm_cache *cache, struct request request, void **out)
{
    struct pool *pool = request.pool;
    uint64_t bytes = request.bytes;
    if (!vmm__pool_need(pool, bytes, &request.heap, &request.block_bytes) ||
        request.block_bytes > cache->memory.arena.bytes)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "alloc: %llu bytes are more than the arena has",
                          (unsigned long long)bytes);
    if (request.is_alone)
        request.heap = &pool->large;
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_take(&cache->grow_lock);
    if (vmm__trim_may_be_due(cache))
        (void)vmm__trim_due_locked(cache); /* what cannot go back now is tried again later */
    vmm__pools_touch(&cache->pools, pool);
    cache->supplies++;
    cache->kept_bytes = vmm__privates_kept_bytes(cache);
    cache->is_passing = atomic_load_explicit(&cache->has_callers, memory_order_relaxed);
    vmm__pool_lock(pool);
    vmm_status status = supply_locked(cache, &request, out);
    pool->small.index.search_all = false;
    pool->large.index.search_all = false;
    vmm__pool_unlock(pool);
    status = vmm__cache_checked(cache, CHECK_EVERY, status);
    vmm__fair_drop(&cache->grow_lock);
    if (status == VMM_OK)
        vmm__error_restore(&line);
    else
        vmm__cache_log(cache, "alloc: %s", vmm_last_error());
    return status;
}

vmm_status vmm__supply(struct vmm_cache *cache, struct pool *pool, uint64_t bytes, void **out)
{
    struct request request = { .pool = pool, .bytes = bytes, .is_alone = cache->no_caching };
    return supply(cache, request, out);
}

vmm_status vmm__supply_alone(struct vmm_cache *cache, struct pool *pool, uint64_t bytes, void **out)
{
    struct request request = { .pool = pool, .bytes = bytes, .is_alone = true };
    return supply(cache, request, out);
}
