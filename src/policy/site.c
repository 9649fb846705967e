/* Where a heap should grow: see site.h. */
#include "policy/site.h"
#include "base/error.h"
#include "policy/fence.h"

/* Free blocks looked at, from the largest down. The largest that has room beside it wins in the
 * usual case; each further one costs a few cache lines, a mapping 45 microseconds. */
enum { SITE_PROBES = 64 };

static uint64_t granules_for(const struct arena *arena, uint64_t bytes)
{
    return (bytes + arena->granule_bytes - 1) >> arena->granule_shift;
}

static void site_prefer(struct site *best, struct site site)
{
    if (site.count < best->count)
        *best = site;
}

/* Growing a free block to the right, or filling the void between it and the free block beyond. */
static void right_consider(const struct heap *heap, const struct block *block, uint64_t bytes,
                           struct site *best)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t end = vmm__block_end(block);
    uint64_t granule = vmm__arena_granule(arena, end);
    uint64_t room = vmm__arena_room_after(arena, granule);
    uint64_t missing = granules_for(arena, bytes - block->node.size);
    if (missing <= room) {
        site_prefer(
            best,
            (struct site){ .granule = granule, .count = missing, .room = room, .beside = block });
        return;
    }
    uint64_t beyond = end + (room << arena->granule_shift);
    if (room == 0 || !vmm__arena_contains(arena, beyond) ||
        vmm__directory_heap(heap->directory, beyond) != heap)
        return;
    const struct block *far = *vmm__directory_slot(heap->directory, beyond);
    if (far->state == BLOCK_FREE && beyond - block->address + far->node.size >= bytes)
        site_prefer(
            best,
            (struct site){
                .granule = granule, .count = room, .room = room, .beside = block, .beyond = far });
}

static void left_consider(const struct heap *heap, const struct block *block, uint64_t bytes,
                          struct site *best)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t granule = vmm__arena_granule(arena, block->address);
    uint64_t missing = granules_for(arena, bytes - block->node.size);
    if (missing <= vmm__arena_room_before(arena, granule))
        site_prefer(best, (struct site){ .granule = granule - missing,
                                         .count = missing,
                                         .room = missing,
                                         .beside = block });
}

/* Blocks that are large enough as they are were not found in time: growing them would give nothing. */
static void neighbours_consider(const struct heap *heap, uint64_t bytes, struct site *best)
{
    const struct size_node *node = vmm__size_index_largest(&heap->index);
    for (int probe = 0; node != NULL && probe < SITE_PROBES; probe++) {
        const struct block *block = (const struct block *)node;
        bool is_short = node->size < bytes;
        if (is_short && block->next == NULL)
            right_consider(heap, block, bytes, best);
        if (is_short && block->prev == NULL)
            left_consider(heap, block, bytes, best);
        node = vmm__size_index_smaller(&heap->index, node);
    }
}

/*
 * The end of the heap's home. Trimming may have taken its last granules away: then it ends where
 * the heap's territory does, or, when nothing is left there, stays where it was.
 */
static bool home_consider(const struct heap *heap, uint64_t count, struct site *best)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t granule = vmm__arena_granule(arena, heap->home_end);
    uint64_t first;
    uint64_t room;
    if (heap->home_end == 0 || !vmm__arena_void(arena, granule, &first, &room))
        return false;
    uint64_t before = vmm__arena_address(arena, first) - 1;
    if (first > 0 && vmm__directory_heap(heap->directory, before) == heap)
        granule = first;
    room -= granule - first;
    if (room < count)
        return false;
    site_prefer(best, (struct site){ .granule = granule, .count = count, .room = room });
    return true;
}

vmm_status vmm__site_find(const struct vmm_cache *cache, const struct heap *heap, uint64_t bytes,
                          struct site *out)
{
    const struct arena *arena = &cache->memory.arena;
    uint64_t count = granules_for(arena, bytes);
    struct site best = { .count = UINT64_MAX };
    neighbours_consider(heap, bytes, &best);
    if (best.count >= count && !home_consider(heap, count, &best)) {
        uint64_t granule;
        if (vmm__arena_find(arena, count, &granule))
            site_prefer(&best, (struct site){ .granule = granule, .count = count, .room = count });
    }
    if (best.count == UINT64_MAX)
        return vmm__error(VMM_ERR_ADDRESS_SPACE, "no %llu free granules of addresses in a row",
                          (unsigned long long)count);
    *out = best;
    return VMM_OK;
}

vmm_status vmm__site_alone(const struct vmm_cache *cache, uint64_t bytes, struct site *out)
{
    uint64_t count = granules_for(&cache->memory.arena, bytes);
    uint64_t granule;
    if (!(cache->has_fences && vmm__fence_site(cache, count + 2, &granule)) &&
        !vmm__arena_find(&cache->memory.arena, count + 2, &granule))
        return vmm__error(VMM_ERR_ADDRESS_SPACE, "no %llu free granules of addresses in a row",
                          (unsigned long long)count + 2);
    *out = (struct site){ .granule = granule + 1, .count = count, .room = count };
    return VMM_OK;
}
