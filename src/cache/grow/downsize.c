/* Releases large idle chunks: see downsize.h. */
#include "cache/grow/downsize.h"
#include "cache/reuse/idle_scan.h"

/* The state of one call. */
struct downsizing {
    struct vmm_cache *cache;
    const struct placement *placement;
    uint64_t want; /* granules */
    uint64_t done; /* granules */
    uint32_t most;
};

static bool downsizing_is_done(const struct downsizing *downsizing)
{
    return downsizing->done >= downsizing->want;
}

/* Releases large chunks of a free block, in ascending order of addresses. */
static void block_downsize(struct downsizing *downsizing, struct idle_scan *scan,
                           struct block *block)
{
    struct vmm_cache *cache = downsizing->cache;
    uint64_t from = block->address;
    while (block != NULL && !downsizing_is_done(downsizing)) {
        struct idle_run run;
        if (!vmm__idle_next(cache, scan, block, from, 1, &run))
            break;
        uint64_t granules = run.bytes >> cache->vm.arena.granule_shift;
        from = run.address + run.bytes;
        if (granules <= downsizing->most)
            continue;
        if (vmm__idle_discard(cache, &run) != VMM_OK)
            break;
        downsizing->done += granules;
        block = vmm__idle_behind(cache, &run);
    }
}

static void heap_downsize(struct downsizing *downsizing, struct heap *heap)
{
    struct idle_scan scan = vmm__idle_scan(heap, NULL, IDLE_FINISHED);
    unsigned shift = downsizing->cache->vm.arena.granule_shift;
    uint64_t least_bytes = ((uint64_t)downsizing->most + 1) << shift;
    struct size_node *node = vmm__size_index_from(&heap->index, least_bytes);
    while (node != NULL && !downsizing_is_done(downsizing)) {
        struct size_node *next = vmm__size_index_larger(&heap->index, node);
        const struct block *block = (const struct block *)node;
        if (block != downsizing->placement->beside && block != downsizing->placement->beyond)
            block_downsize(downsizing, &scan, (struct block *)node);
        node = next;
    }
}

uint64_t vmm__downsize(struct vmm_cache *cache, const struct pool *held,
                       const struct placement *placement, uint64_t want, uint32_t most)
{
    struct downsizing downsizing = {
        .cache = cache, .placement = placement, .want = want, .most = most
    };
    uint64_t left = vmm__cache_pools_most(cache, &held->large);
    for (struct pool *pool = cache->pools.stocked.first;
         pool != NULL && !downsizing_is_done(&downsizing) && left > 0;
         pool = pool->list_next, left--) {
        vmm__pool_lock_refilling(cache, pool, held);
        heap_downsize(&downsizing, &pool->large);
        vmm__pool_unlock_beside(pool, held);
    }
    if (downsizing.done > 0)
        (void)vmm__limbo_drain(&cache->vm, NULL);
    return downsizing.done;
}
