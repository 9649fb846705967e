/* Giving idle memory back: see trim.h. */
#include "policy/trim.h"
#include "base/error.h"
#include "policy/compact.h"
#include "policy/ring.h"

/* Puts whole chunks of one free block into limbo, as many as the order and the quest allow. */
static uint64_t block_trim(struct vmm_cache *cache, struct idle_quest *quest, struct block *block,
                           uint64_t bytes)
{
    const struct arena *arena = &cache->memory.arena;
    uint64_t from = block->address;
    uint64_t put_bytes = 0;
    struct idle_run run;
    while (block != NULL && put_bytes < bytes &&
           vmm__idle_next(cache, quest, block, from, bytes - put_bytes, &run)) {
        uint64_t epoch = vmm__idle_epoch(cache, &run);
        if (vmm__heap_detach(quest->from, block, run.address, run.bytes) != VMM_OK)
            break;
        vmm__memory_discard(&cache->memory, vmm__arena_granule(arena, run.address),
                            run.bytes >> arena->granule_shift, &quest->from->pool->timeline, epoch);
        put_bytes += run.bytes;
        from = run.address + run.bytes;
        block = vmm__idle_behind(cache, &run);
    }
    return put_bytes;
}

static uint64_t heap_trim(struct vmm_cache *cache, struct heap *heap,
                          const struct trim_order *order, uint64_t bytes)
{
    struct idle_quest quest = vmm__idle_quest(heap, NULL, order->when);
    uint64_t put_bytes = 0;
    struct size_node *node = vmm__size_index_largest(&heap->index);
    while (node != NULL && put_bytes < bytes && node->size >= cache->memory.arena.granule_bytes) {
        struct size_node *next = vmm__size_index_smaller(&heap->index, node);
        if ((const struct block *)node != order->keep)
            put_bytes += block_trim(cache, &quest, (struct block *)node, bytes - put_bytes);
        node = next;
    }
    return put_bytes;
}

uint64_t vmm__trim_idle(struct vmm_cache *cache, const struct trim_order *order)
{
    uint64_t put_bytes = 0;
    for (struct pool *pool = cache->pools.first; pool != NULL && put_bytes < order->bytes;
         pool = pool->next) {
        vmm__pool_lock_beside(pool, order->held);
        (void)vmm__slabs_purge(&pool->slabs, vmm__timeline_now(&pool->timeline));
        put_bytes += heap_trim(cache, &pool->large, order, order->bytes - put_bytes);
        if (put_bytes < order->bytes)
            put_bytes += heap_trim(cache, &pool->small, order, order->bytes - put_bytes);
        vmm__pool_unlock_beside(pool, order->held);
    }
    return put_bytes;
}

static uint64_t excess_bytes(const struct memory *memory, uint64_t keep_bytes)
{
    uint64_t staying_bytes = vmm__figure_now(&memory->reserved_bytes) - memory->limbo_bytes;
    return staying_bytes > keep_bytes ? staying_bytes - keep_bytes : 0;
}

/* Lets everything go that waits for nothing any more, so that it counts as idle. */
static void waits_poll(struct vmm_cache *cache)
{
    vmm__cache_pools_lock(cache, NULL);
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        (void)vmm__pool_poll_locked(pool, UINT32_MAX);
    vmm__rings_part(cache);
    vmm__cache_pools_unlock(cache, NULL);
}

/* What is still too much is pinned by live bytes, which may be moved. */
static vmm_status pinned_trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released)
{
    uint64_t before = vmm__figure_now(&cache->memory.reserved_bytes);
    if (excess_bytes(&cache->memory, keep_bytes) == 0 || !vmm__compact_may(cache) ||
        (cache->compaction == VMM_COMPACTION_AUTO && !vmm__compact_is_quiet(cache)))
        return VMM_OK;
    vmm_status status = vmm__compact(cache, NULL, excess_bytes(&cache->memory, keep_bytes));
    *released += before - vmm__figure_now(&cache->memory.reserved_bytes);
    return status == VMM_NOT_READY ? VMM_OK : status;
}

vmm_status vmm__trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released)
{
    uint64_t released_bytes = 0;
    struct error_line line;
    vmm__error_save(&line);
    vmm__lock_take(&cache->grow_lock);
    waits_poll(cache);
    struct trim_order order = { .bytes = excess_bytes(&cache->memory, keep_bytes),
                                .when = IDLE_ANY };
    if (order.bytes > 0)
        (void)vmm__trim_idle(cache, &order);
    vmm_status status = vmm__limbo_drain(&cache->memory, &released_bytes);
    if (status == VMM_OK)
        status = pinned_trim(cache, keep_bytes, &released_bytes);
    vmm__cache_log(cache, "trim: kept %llu MiB, released %llu MiB, %llu MiB in limbo",
                   (unsigned long long)vmm__figure_now(&cache->memory.reserved_bytes) >> 20,
                   (unsigned long long)released_bytes >> 20,
                   (unsigned long long)cache->memory.limbo_bytes >> 20);
    status = vmm__cache_checked(cache, VMM_CHECK >= 1 ? 1 : 0, status);
    vmm__lock_drop(&cache->grow_lock);
    if (status != VMM_OK)
        return status;
    vmm__error_restore(&line);
    if (released != NULL)
        *released = released_bytes;
    return VMM_OK;
}
