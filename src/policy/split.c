/* Large idle chunks go back: see split.h. */
#include "policy/split.h"
#include "policy/idle.h"

/* A splitting under way. */
struct splitting {
    struct vmm_cache *cache;
    const struct site *site;
    uint64_t want; /* granules */
    uint64_t done; /* granules */
    uint32_t most;
};

static bool splitting_is_done(const struct splitting *splitting)
{
    return splitting->done >= splitting->want;
}

/* One chunk after the other, from the low end of a free block on. */
static void block_split(struct splitting *splitting, struct idle_quest *quest, struct block *block)
{
    struct vmm_cache *cache = splitting->cache;
    uint64_t from = block->address;
    while (block != NULL && !splitting_is_done(splitting)) {
        struct idle_run run;
        if (!vmm__idle_next(cache, quest, block, from, 1, &run))
            break;
        uint64_t granules = run.bytes >> cache->memory.arena.granule_shift;
        from = run.address + run.bytes;
        if (granules <= splitting->most)
            continue;
        if (vmm__idle_discard(cache, &run) != VMM_OK)
            break;
        splitting->done += granules;
        block = vmm__idle_behind(cache, &run);
    }
}

static void heap_split(struct splitting *splitting, struct heap *heap)
{
    struct idle_quest quest = vmm__idle_quest(heap, NULL, IDLE_FINISHED);
    unsigned shift = splitting->cache->memory.arena.granule_shift;
    uint64_t least_bytes = ((uint64_t)splitting->most + 1) << shift;
    struct size_node *node = vmm__size_index_from(&heap->index, least_bytes);
    while (node != NULL && !splitting_is_done(splitting)) {
        struct size_node *next = vmm__size_index_larger(&heap->index, node);
        const struct block *block = (const struct block *)node;
        if (block != splitting->site->beside && block != splitting->site->beyond)
            block_split(splitting, &quest, (struct block *)node);
        node = next;
    }
}

uint64_t vmm__split(struct vmm_cache *cache, const struct pool *held, const struct site *site,
                    uint64_t want, uint32_t most)
{
    struct splitting splitting = { .cache = cache, .site = site, .want = want, .most = most };
    for (struct pool *pool = cache->pools.first; pool != NULL && !splitting_is_done(&splitting);
         pool = pool->next) {
        vmm__pool_lock_supplying(cache, pool, held);
        heap_split(&splitting, &pool->large);
        vmm__pool_unlock_beside(pool, held);
    }
    if (splitting.done > 0)
        (void)vmm__limbo_drain(&cache->memory, NULL);
    return splitting.done;
}
