/* Guard pages behind blocks that are alone on their granules: see guard_page.h. */
#include "cache/grow/guard_page.h"
#include "base/arith.h"
#include "base/error.h"
#include "cache/reuse/idle_scan.h"

/* The zone of these blocks is the upper half of the first reservation. Heaps that grow use the lower half. */
static uint64_t zone_end(const struct arena *arena)
{
    return arena->reservations[0].end;
}

static uint64_t zone_first(const struct arena *arena)
{
    return (arena->reservations[0].first + zone_end(arena)) / 2;
}

/* Returns the granule after the chunk or guard page at a granule. */
static uint64_t taken_end(const struct vm *memory, uint64_t granule)
{
    const struct chunk *chunk = vmm__vm_chunk(memory, granule);
    return chunk == NULL ? granule + 1 : chunk->first + chunk->granules;
}

static bool zone_find(const struct vm *memory, uint64_t from, uint64_t count, uint64_t *granule)
{
    const struct arena *arena = &memory->arena;
    uint64_t at = from;
    while (at + count <= zone_end(arena)) {
        uint64_t first;
        uint64_t room;
        if (!vmm__arena_gap(arena, at, &first, &room)) {
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

bool vmm__guard_page_placement(const struct vmm_cache *cache, uint64_t count, uint64_t *granule)
{
    const struct vm *memory = &cache->vm;
    uint64_t first = zone_first(&memory->arena);
    return zone_find(memory, vmm__max(cache->guard_page_next, first), count, granule) ||
           zone_find(memory, first, count, granule);
}

void vmm__guard_page_put(struct vmm_cache *cache, uint64_t granule)
{
    vmm__arena_guard_page_put(&cache->vm.arena, granule);
    cache->guard_page_next = granule + 1;
}

static void heap_sweep(struct vmm_cache *cache, struct heap *heap)
{
    struct idle_scan scan = vmm__idle_scan(heap, NULL, IDLE_ANY);
    struct size_node *node = vmm__size_index_largest(&heap->index);
    while (node != NULL && node->size >= cache->vm.arena.granule_bytes) {
        struct size_node *next = vmm__size_index_smaller(&heap->index, node);
        struct block *block = (struct block *)node;
        struct idle_run run;
        if (vmm__idle_next(cache, &scan, block, block->address, UINT64_MAX, &run))
            (void)vmm__idle_discard(cache, &run); /* without host memory it stays idle */
        node = next;
    }
}

void vmm__guard_page_sweep(struct vmm_cache *cache)
{
    VMM_QUIET();
    vmm__fair_lock(&cache->grow_lock);
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        vmm__lane_lock(lane);
        (void)vmm__lane_poll_locked(lane, UINT32_MAX);
        heap_sweep(cache, &lane->large);
        vmm__lane_unlock(lane);
    }
    vmm__cache_lanes_vacate(cache);
    (void)vmm__limbo_drain(&cache->vm, NULL);
    vmm__fair_unlock(&cache->grow_lock);
}
