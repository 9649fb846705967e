/* Chooses where a heap grows: see placement.h. */
#include "cache/grow/placement.h"
#include "base/error.h"
#include "cache/grow/guard_page.h"

/* Free blocks to examine, from the largest down. Usually the largest with room beside it wins. Examining a block costs
 * a few cache lines; a chunk costs 45 microseconds on an H200, for cuMemCreate, cuMemMap and cuMemSetAccess. */
enum { PLACEMENT_PROBES = 64 };

static uint64_t granules_for(const struct arena *arena, uint64_t bytes)
{
    return (bytes + arena->granule_bytes - 1) >> arena->granule_shift;
}

static void placement_prefer(struct placement *best, struct placement placement)
{
    if (placement.count < best->count)
        *best = placement;
}

/* Considers extending a free block to the right, or filling the gap between it and the next free block. */
static void right_consider(const struct heap *heap, const struct block *block, uint64_t bytes,
                           struct placement *best)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t end = vmm__block_end(block);
    uint64_t granule = vmm__arena_granule(arena, end);
    uint64_t room = vmm__arena_room_after(arena, granule);
    uint64_t missing = granules_for(arena, bytes - block->node.size);
    if (missing <= room) {
        placement_prefer(best,
                         (struct placement){
                             .granule = granule, .count = missing, .room = room, .beside = block });
        return;
    }
    uint64_t beyond = end + (room << arena->granule_shift);
    if (room == 0 || !vmm__heap_has_extent(heap, beyond))
        return;
    const struct block *far = *vmm__directory_slot(heap->directory, beyond);
    if (far->state == BLOCK_FREE && beyond - block->address + far->node.size >= bytes)
        placement_prefer(
            best,
            (struct placement){ .granule = granule, .count = room, .room = room, .beside = block });
}

static void left_consider(const struct heap *heap, const struct block *block, uint64_t bytes,
                          struct placement *best)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t granule = vmm__arena_granule(arena, block->address);
    uint64_t missing = granules_for(arena, bytes - block->node.size);
    if (missing <= vmm__arena_room_before(arena, granule))
        placement_prefer(best, (struct placement){ .granule = granule - missing,
                                                   .count = missing,
                                                   .room = missing,
                                                   .beside = block });
}

/* Considers the free blocks at the ends of extents. Skips those that are large enough: the search of the index gave up
 * before it found them, and extending them gains nothing. */
static void neighbours_consider(const struct heap *heap, uint64_t bytes, struct placement *best)
{
    const struct size_node *node = vmm__size_index_largest(&heap->index);
    for (int probe = 0; node != NULL && probe < PLACEMENT_PROBES; probe++) {
        const struct block *block = (const struct block *)node;
        bool is_short = node->size < bytes;
        if (is_short && block->next == NULL)
            right_consider(heap, block, bytes, best);
        if (is_short && block->prev == NULL)
            left_consider(heap, block, bytes, best);
        node = vmm__size_index_smaller(&heap->index, node);
    }
}

/* Whether an address lies in an extent of the heap, or of one that shares its home. */
static bool is_in_home(const struct heap *heap, uint64_t address)
{
    const struct directory *directory = heap->directory;
    const struct heap *owner = vmm__arena_contains(directory->arena, address)
                                   ? vmm__directory_heap(directory, address)
                                   : NULL;
    bool shares =
        owner == heap || (heap->home != NULL && owner != NULL && owner->home == heap->home);
    return shares && vmm__heap_has_extent(owner, address);
}

/*
 * Blocks of a few granules fill them badly: two streams that take 1.4 MiB in turn would need 2 MiB for each. So a heap
 * that grows at the end of the home for such a block has a gap behind it, where it grows on; and its free memory behind
 * such a block has room, which others leave to it. More granules help little.
 *
 * A gap parts the free memory that transfers could join, so only blocks that waste a quarter of their size have one.
 * Room is of memory that is parted anyway: a fifth is enough. With an eighth, encoder_streams needs 7 % more driver
 * time at 101 % of its peak.
 */
enum { ROOM_GRANULES = 8, GAP_WASTE_SHARE = 4, ROOM_WASTE_SHARE = 5 };

static uint64_t room_for(const struct arena *arena, uint64_t bytes, uint64_t waste_share)
{
    uint64_t waste = (granules_for(arena, bytes) << arena->granule_shift) - bytes;
    return waste >= bytes / waste_share ? ROOM_GRANULES : 0;
}

void vmm__placement_keep_room(struct heap *heap, uint64_t block_bytes)
{
    if (!heap->is_small)
        heap->room_granules =
            (uint8_t)room_for(heap->directory->arena, block_bytes, ROOM_WASTE_SHARE);
}

/*
 * Considers an end of the home, `skip` granules further on. If a trim has released the last granules before the end,
 * the end is where the last extent ends now; if the trim has released all of that extent, the end stays.
 */
static bool end_consider(const struct heap *heap, uint64_t end, uint64_t skip, uint64_t count,
                         struct placement *best)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t granule = vmm__arena_granule(arena, end);
    uint64_t first;
    uint64_t room;
    if (end == 0 || !vmm__arena_gap(arena, granule, &first, &room))
        return false;
    uint64_t before = vmm__arena_address(arena, first) - 1;
    if (first > 0 && is_in_home(heap, before))
        granule = first;
    granule += skip;
    if (room < granule - first + count)
        return false;
    room -= granule - first;
    placement_prefer(best, (struct placement){ .granule = granule, .count = count, .room = room });
    return true;
}

/* Considers the addresses before the begin of the home, in the same way. */
static bool begin_consider(const struct heap *heap, uint64_t count, struct placement *best)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t begin = vmm__arena_granule(arena, heap->home_begin);
    uint64_t first;
    uint64_t room;
    if (heap->home_begin == 0 || !vmm__arena_gap(arena, begin - 1, &first, &room))
        return false;
    if (is_in_home(heap, vmm__arena_address(arena, first + room)))
        begin = first + room;
    if (begin - first < count)
        return false;
    placement_prefer(best,
                     (struct placement){ .granule = begin - count, .count = count, .room = count });
    return true;
}

/* Where the heap last grew, else where the home ends. Blocks from the high end of free ones let it grow downward: what
 * a block leaves of its granule then lies beside the next one. */
static bool home_consider(const struct heap *heap, uint64_t bytes, uint64_t count,
                          struct placement *best)
{
    const struct home *home = heap->home;
    return (vmm__heap_takes_high(heap, bytes) && begin_consider(heap, count, best)) ||
           end_consider(heap, heap->home_end, 0, count, best) ||
           (home != NULL && end_consider(heap, home->end, home->gap_granules, count, best));
}

vmm_status vmm__placement_find(const struct vmm_cache *cache, const struct heap *heap,
                               uint64_t bytes, struct placement *out)
{
    const struct arena *arena = &cache->vm.arena;
    uint64_t count = granules_for(arena, bytes);
    struct placement best = { .count = UINT64_MAX };
    neighbours_consider(heap, bytes, &best);
    if (best.count >= count && !home_consider(heap, bytes, count, &best)) {
        uint64_t granule;
        if (vmm__arena_find(arena, count, &granule))
            placement_prefer(
                &best, (struct placement){ .granule = granule, .count = count, .room = count });
    }
    if (best.count == UINT64_MAX)
        return vmm__error(VMM_ERR_ADDRESS_SPACE, "no %llu free granules of addresses in a row",
                          (unsigned long long)count);
    uint64_t address = vmm__arena_address(arena, best.granule);
    uint64_t end = address + (best.count << arena->granule_shift);
    best.extends_home = best.beside == NULL || vmm__placement_is_at_home(heap, address, end);
    *out = best;
    return VMM_OK;
}

vmm_status vmm__placement_home(struct vmm_cache *cache, const struct heap *heap, uint64_t count,
                               uint64_t *granule)
{
    struct placement best = { .count = UINT64_MAX };
    if (!home_consider(heap, 0, count, &best))
        return vmm__arena_find_or_extend(&cache->vm.arena, count, granule);
    *granule = best.granule;
    return VMM_OK;
}

bool vmm__placement_is_at_home(const struct heap *heap, uint64_t address, uint64_t end)
{
    uint64_t home_end = heap->home != NULL ? heap->home->end : heap->home_end;
    return home_end == 0 || address == home_end || address == heap->home_end ||
           end == heap->home_begin;
}

/* Whether a heap that has grown at an address went on where it last grew. A trim may have released what was there. */
static bool has_gone_on(const struct heap *heap, uint64_t address)
{
    return address == heap->home_end || (address < heap->home_end && is_in_home(heap, address - 1));
}

static bool has_gone_down(const struct heap *heap, uint64_t end, uint64_t block_bytes)
{
    return end == heap->home_begin ||
           (vmm__heap_takes_high(heap, block_bytes) && is_in_home(heap, end));
}

void vmm__placement_note(struct heap *heap, uint64_t address, uint64_t end, uint64_t block_bytes)
{
    struct home *home = heap->home;
    bool goes_on = has_gone_on(heap, address);
    bool goes_down = has_gone_down(heap, end, block_bytes);
    if (heap->is_small && (goes_down || !goes_on))
        heap->home_begin = address;
    if (goes_down)
        return;
    if (home != NULL && (end > home->end || !goes_on))
        *home = (struct home){ .end = end,
                               .gap_granules =
                                   room_for(heap->directory->arena, block_bytes, GAP_WASTE_SHARE) };
    heap->home_end = end;
}

vmm_status vmm__placement_alone(const struct vmm_cache *cache, uint64_t bytes,
                                struct placement *out)
{
    uint64_t count = granules_for(&cache->vm.arena, bytes);
    uint64_t granule;
    if (!(cache->has_guard_pages && vmm__guard_page_placement(cache, count + 2, &granule)) &&
        !vmm__arena_find(&cache->vm.arena, count + 2, &granule))
        return vmm__error(VMM_ERR_ADDRESS_SPACE, "no %llu free granules of addresses in a row",
                          (unsigned long long)count + 2);
    *out = (struct placement){ .granule = granule + 1, .count = count, .room = count };
    return VMM_OK;
}
