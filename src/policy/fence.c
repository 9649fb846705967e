/* Blocks that lie apart, and what is behind them: see fence.h. */
#include "policy/fence.h"
#include "base/arith.h"
#include "base/error.h"
#include "policy/idle.h"

/* From here on: the lower half is for heaps that grow. */
static uint64_t zone_first(const struct arena *arena)
{
    return arena->granules / 2;
}

/* The granule behind one that is taken, where the next void or chunk begins. */
static uint64_t taken_end(const struct memory *memory, uint64_t granule)
{
    const struct chunk *chunk = vmm__memory_chunk(memory, granule);
    return chunk == NULL ? granule + 1 : chunk->first + chunk->granules;
}

static bool zone_find(const struct memory *memory, uint64_t from, uint64_t count, uint64_t *granule)
{
    const struct arena *arena = &memory->arena;
    uint64_t at = from;
    while (at + count <= arena->granules) {
        uint64_t first;
        uint64_t room;
        if (!vmm__arena_void(arena, at, &first, &room)) {
            at = taken_end(memory, at);
            continue;
        }
        if (first + room - at >= count) {
            *granule = at;
            return true;
        }
        at = first + room;
    }
    return false;
}

bool vmm__fence_site(const struct vmm_cache *cache, uint64_t count, uint64_t *granule)
{
    const struct memory *memory = &cache->memory;
    uint64_t first = zone_first(&memory->arena);
    return zone_find(memory, vmm__max(cache->fence_next, first), count, granule) ||
           zone_find(memory, first, count, granule);
}

void vmm__fence_put(struct vmm_cache *cache, uint64_t granule)
{
    vmm__arena_fence(&cache->memory.arena, granule);
    cache->fence_next = granule + 1;
}

static void heap_sweep(struct vmm_cache *cache, struct heap *heap)
{
    struct idle_quest quest = vmm__idle_quest(heap, NULL, IDLE_ANY);
    struct size_node *node = vmm__size_index_largest(&heap->index);
    while (node != NULL && node->size >= cache->memory.arena.granule_bytes) {
        struct size_node *next = vmm__size_index_smaller(&heap->index, node);
        struct block *block = (struct block *)node;
        struct idle_run run;
        if (vmm__idle_next(cache, &quest, block, block->address, UINT64_MAX, &run))
            (void)vmm__idle_discard(cache, &run); /* it stays idle for want of host memory */
        node = next;
    }
}

void vmm__fence_sweep(struct vmm_cache *cache)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_take(&cache->grow_lock);
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        vmm__pool_lock(pool);
        (void)vmm__pool_poll_locked(pool, UINT32_MAX);
        heap_sweep(cache, &pool->large);
        vmm__pool_unlock(pool);
    }
    (void)vmm__limbo_drain(&cache->memory, NULL);
    vmm__fair_drop(&cache->grow_lock);
    vmm__error_restore(&line);
}
