/* Guard pages behind blocks that are alone on their granules: see guard_page.h. */
#include "cache/grow/guard_page.h"
#include "base/arith.h"
#include "base/error.h"
#include "cache/idle/idle_scan.h"

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

void vmm__guard_page_sweep(struct vmm_cache *cache)
{
    VMM_QUIET();
    VMM_HOLD_FAIR(&cache->grow_lock);
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        vmm__lane_lock(lane);
        (void)vmm__lane_poll_locked(lane, UINT32_MAX);
        if (!vmm__lane_is_retained(lane))
            vmm__idle_discard_heap(cache, &lane->large);
        vmm__lane_unlock(lane);
    }
    vmm__cache_lanes_vacate(cache);
    (void)vmm__limbo_drain(&cache->vm, NULL);
}
