/* Moves idle chunks: see steal.h. */
#include "cache/grow/steal.h"
#include "base/arith.h"
#include "cache/reuse/idle_scan.h"

/* The state of one call. */
struct theft {
    struct vmm_cache *cache;
    struct heap *to;
    const struct placement *placement;
    uint64_t want;  /* granules */
    uint64_t taken; /* granules */
    enum idle_when when;
};

static bool theft_is_done(const struct theft *theft)
{
    return theft->taken >= theft->want;
}

/* Moves one chunk, already cut out of its free block, to the next granule of the placement. If that fails, releases the
 * chunk to the driver. */
static bool chunk_move(struct theft *theft, struct chunk *chunk, struct timeline *timeline,
                       uint64_t epoch)
{
    struct vm *memory = &theft->cache->vm;
    uint64_t granule = theft->placement->granule + theft->taken;
    if (vmm__vm_move(memory, chunk, granule, timeline, epoch) != VMM_OK) {
        vmm__limbo_put(memory, chunk, timeline, epoch);
        return false;
    }
    theft->taken += chunk->granules;
    return true;
}

/* Moves the chunks of a run that was cut out. False if the driver refuses to go on. */
static bool run_move(struct theft *theft, const struct idle_run *run)
{
    const struct vm *memory = &theft->cache->vm;
    struct timeline *timeline = &run->heap->pool->timeline;
    uint64_t granule = vmm__arena_granule(&memory->arena, run->address);
    uint64_t end = granule + (run->bytes >> memory->arena.granule_shift);
    bool going = true;
    while (granule < end) {
        struct chunk *chunk = vmm__vm_chunk(memory, granule);
        uint64_t epoch =
            vmm__directory_epoch(&theft->cache->directory, chunk->first, chunk->granules);
        granule += chunk->granules;
        if (going)
            going = chunk_move(theft, chunk, timeline, epoch);
        else
            vmm__limbo_put(&theft->cache->vm, chunk, timeline, epoch);
    }
    return going;
}

/* Steals what it may of one free block, from an address on. False if the driver refuses to go on. */
static bool block_steal(struct theft *theft, struct idle_scan *scan, struct block *block,
                        uint64_t from)
{
    unsigned shift = theft->cache->vm.arena.granule_shift;
    bool going = true;
    while (block != NULL && going && !theft_is_done(theft)) {
        struct idle_run run;
        uint64_t left_bytes = (theft->want - theft->taken) << shift;
        uint64_t room_bytes = (theft->placement->room - theft->taken) << shift;
        if (!vmm__idle_next(theft->cache, scan, block, from, left_bytes, &run) ||
            !vmm__idle_cut(&theft->cache->vm, room_bytes, &run) ||
            vmm__idle_clear(theft->cache, &run, scan->to, scan->when) != VMM_OK ||
            vmm__heap_detach(scan->from, block, run.address, run.bytes) != VMM_OK)
            break;
        from = run.address + run.bytes;
        going = run_move(theft, &run);
        block = vmm__idle_behind(theft->cache, &run);
    }
    return going;
}

static bool heap_steal(struct theft *theft, struct heap *heap)
{
    struct idle_scan scan = vmm__idle_scan(heap, theft->to->pool, theft->when);
    struct size_node *node =
        vmm__size_index_from(&heap->index, theft->cache->vm.arena.granule_bytes);
    bool going = true;
    while (node != NULL && going && !theft_is_done(theft)) {
        struct size_node *next = vmm__size_index_larger(&heap->index, node);
        const struct block *block = (const struct block *)node;
        if (block != theft->placement->beside && block != theft->placement->beyond)
            going = block_steal(theft, &scan, (struct block *)node, block->address);
        node = next;
    }
    return going;
}

static bool pool_steal(struct theft *theft, struct pool *pool)
{
    bool going = heap_steal(theft, &pool->large);
    if (going && !theft_is_done(theft))
        going = heap_steal(theft, &pool->small);
    return going;
}

/* Moves chunks of other streams, in the order of the pools' list. Of the orders measured, this one needs the fewest
 * moves: memory that was freed last has the longest runs. */
static bool others_steal(struct theft *theft)
{
    bool going = true;
    uint64_t granule_bytes = theft->cache->vm.arena.granule_bytes;
    uint64_t left = vmm__cache_pools_most(theft->cache, theft->to);
    for (struct pool *pool = theft->cache->pools.recent;
         pool != NULL && going && !theft_is_done(theft) && left > 0;
         pool = pool->recent_next, left--) {
        if (pool == theft->to->pool)
            continue;
        vmm__pool_lock_refilling(theft->cache, pool, theft->to->pool);
        if (pool->large.free_bytes + pool->small.free_bytes >= granule_bytes)
            going = pool_steal(theft, pool);
        vmm__pool_unlock(pool);
    }
    return going;
}

/* What the request will leave of the free block behind the gap: from the far end, so that the rest stays in
 * one piece, unless its chunks do not come in that size. */
static void beyond_steal(struct theft *theft, uint64_t bytes)
{
    const struct placement *placement = theft->placement;
    struct idle_scan scan = vmm__idle_scan(theft->to, theft->to->pool, theft->when);
    struct block *beyond = (struct block *)placement->beyond;
    uint64_t needed_end = placement->beside->address + bytes;
    uint64_t missing_bytes = (theft->want - theft->taken) << theft->cache->vm.arena.granule_shift;
    uint64_t far = vmm__block_end(beyond) - vmm__min(missing_bytes, beyond->node.size);
    bool going = block_steal(theft, &scan, beyond, vmm__max(needed_end, far));
    if (going && !theft_is_done(theft))
        (void)block_steal(theft, &scan, beyond, needed_end);
}

uint64_t vmm__steal(struct vmm_cache *cache, struct heap *heap, const struct placement *placement,
                    uint64_t bytes, uint64_t count, enum idle_when when)
{
    struct theft theft = {
        .cache = cache, .to = heap, .placement = placement, .want = count, .when = when
    };
    bool going = others_steal(&theft);
    if (going && !theft_is_done(&theft))
        going = pool_steal(&theft, heap->pool);
    if (going && !theft_is_done(&theft) && placement->beyond != NULL)
        beyond_steal(&theft, bytes);
    return theft.taken;
}
