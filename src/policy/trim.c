/* Giving idle memory back: see trim.h. */
#include "policy/trim.h"
#include "base/error.h"
#include "policy/idle.h"

/* Puts whole chunks of one free block into limbo; 0 if there are none, or they may not go. */
static uint64_t block_trim(struct vmm_cache *cache, struct heap *heap, struct block *block,
                           const struct trim_order *order, uint64_t bytes)
{
    struct timeline *timeline = &heap->pool->timeline;
    uint64_t epoch = block->epoch;
    uint64_t address;
    uint64_t run_bytes;
    if (block == order->keep ||
        !vmm__whole_chunks(&cache->memory, block, bytes, &address, &run_bytes))
        return 0;
    if (order->finished_only && vmm__timeline_query(timeline, epoch) != VMM_OK)
        return 0;
    if (vmm__heap_detach(heap, block, address, run_bytes) != VMM_OK)
        return 0;
    const struct arena *arena = &cache->memory.arena;
    vmm__memory_discard(&cache->memory, vmm__arena_granule(arena, address),
                        run_bytes >> arena->granule_shift, timeline, epoch);
    return run_bytes;
}

static uint64_t heap_trim(struct vmm_cache *cache, struct heap *heap,
                          const struct trim_order *order, uint64_t bytes)
{
    uint64_t put_bytes = 0;
    struct size_node *node = vmm__size_index_largest(&heap->index);
    while (node != NULL && put_bytes < bytes && node->size >= cache->memory.arena.granule_bytes) {
        struct size_node *next = vmm__size_index_smaller(&heap->index, node);
        put_bytes += block_trim(cache, heap, (struct block *)node, order, bytes - put_bytes);
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

static void waits_poll(struct vmm_cache *cache)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        vmm__lock_take(&pool->lock);
        (void)vmm__pool_poll_locked(pool, UINT32_MAX);
        vmm__lock_drop(&pool->lock);
    }
}

vmm_status vmm__trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released)
{
    uint64_t released_bytes = 0;
    struct error_line line;
    vmm__error_save(&line);
    vmm__lock_take(&cache->grow_lock);
    waits_poll(cache);
    struct trim_order order = { .bytes = excess_bytes(&cache->memory, keep_bytes) };
    if (order.bytes > 0)
        (void)vmm__trim_idle(cache, &order);
    vmm_status status = vmm__limbo_drain(&cache->memory, &released_bytes);
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
