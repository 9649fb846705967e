/* Grows a heap: see grow.h. */
#include "cache/grow/grow.h"
#include "base/arith.h"
#include "cache/grow/downsize.h"
#include "cache/grow/guard_page.h"
#include "cache/grow/steal.h"
#include "cache/grow/target.h"

/* If the heap exceeds the target because too few chunks can move, live bytes or work in flight pin the free memory: new
 * chunks are small from now on. */
static void excess_note(struct vmm_cache *cache, enum grow_from from, uint64_t missing)
{
    if (from == GROW_TARGET && missing > 0)
        cache->is_fine = true;
}

/*
 * Moves idle chunks to the low end of a placement and returns the granules filled. While chunks are small, it releases
 * larger idle chunks instead of moving them, so that the caller creates small chunks from that memory.
 */
static uint64_t placement_steal(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                                const struct placement *placement, enum grow_from from)
{
    uint64_t want = placement->count;
    if (from == GROW_DETACHED)
        return 0;
    if (from == GROW_TARGET)
        want -= vmm__min(want, vmm__target_granules(cache, bytes));
    if (from == GROW_TARGET && want > 0 && cache->is_fine) {
        uint32_t most = vmm__target_chunk_granules(cache, heap, bytes);
        want -= vmm__min(want, vmm__downsize(cache, heap->pool, placement, want, most));
    }
    if (want == 0)
        return 0;
    uint64_t stolen =
        vmm__steal(cache, heap, placement, bytes, want,
                   from == GROW_FOLLOW ? IDLE_FOLLOW : vmm__idle_usual(cache, heap->pool));
    excess_note(cache, from, want - vmm__min(want, stolen));
    return stolen;
}

/* Fills a placement, whose granules are taken, from idle chunks and then the driver. Stores the granules filled in
 * *filled, also on failure, and returns the rest to the arena. */
static vmm_status placement_fill(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                                 const struct placement *placement, enum grow_from from,
                                 uint64_t *filled)
{
    uint64_t stolen = placement_steal(cache, heap, bytes, placement, from);
    uint64_t rest = placement->count > stolen ? placement->count - stolen : 0;
    uint64_t end = vmm__max(stolen, placement->count);
    if (end < placement->room)
        vmm__arena_give(&cache->vm.arena, placement->granule + end, placement->room - end);
    vmm_status status = VMM_OK;
    if (rest > 0)
        status = vmm__vm_map(&cache->vm, placement->granule + stolen, rest,
                             vmm__target_chunk_granules(cache, heap, bytes));
    *filled = status == VMM_OK ? end : stolen;
    return status;
}

static bool placement_extends_home(const struct arena *arena, const struct heap *heap,
                                   const struct placement *placement)
{
    return heap->home_end == 0 || placement->beside == NULL ||
           vmm__arena_address(arena, placement->granule) == heap->home_end;
}

/* Attaches the filled granules of a placement to the heap. */
static vmm_status placement_attach(struct vmm_cache *cache, struct heap *heap,
                                   const struct placement *placement, uint64_t filled,
                                   struct block **out)
{
    const struct arena *arena = &cache->vm.arena;
    uint64_t address = vmm__arena_address(arena, placement->granule);
    uint64_t epoch = vmm__timeline_now(&heap->pool->timeline);
    vmm_status status = vmm__vm_access(&cache->vm, placement->granule, filled);
    if (status == VMM_OK)
        status = vmm__heap_attach(heap, address, filled << arena->granule_shift, epoch, out);
    if (status != VMM_OK)
        vmm__vm_discard(&cache->vm, placement->granule, filled, NULL, 0);
    return status;
}

/* A request of less than a chunk gets a whole chunk if the placement and the target allow it: later requests use the
 * rest. */
static void placement_widen(const struct vmm_cache *cache, const struct heap *heap, uint64_t bytes,
                            struct placement *placement)
{
    if (vmm__target_limit_is_near(cache, bytes))
        return;
    uint64_t whole = vmm__min(vmm__target_chunk_granules(cache, heap, bytes),
                              vmm__target_granules(cache, bytes));
    placement->count = vmm__max(placement->count, vmm__min(whole, placement->room));
}

static vmm_status placement_choose(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                                   enum grow_from from, struct placement *placement)
{
    return from == GROW_DETACHED ? vmm__placement_detached(cache, bytes, placement)
                                 : vmm__placement_find(cache, heap, bytes, placement);
}

/* Chooses a placement; reserves more addresses if the reserved ones have no room. */
static vmm_status placement_reserve(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                                    enum grow_from from, struct placement *placement)
{
    vmm_status status = placement_choose(cache, heap, bytes, from, placement);
    if (status != VMM_ERR_ADDRESS_SPACE)
        return status;
    status = vmm__arena_extend(&cache->vm.arena, bytes);
    return status == VMM_OK ? placement_choose(cache, heap, bytes, from, placement) : status;
}

vmm_status vmm__grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                     enum grow_from from, struct block **out)
{
    struct arena *arena = &cache->vm.arena;
    struct placement placement;
    (void)vmm__limbo_drain(&cache->vm, NULL); /* release memory whose epoch has passed */
    vmm_status status = placement_reserve(cache, heap, bytes, from, &placement);
    if (status != VMM_OK)
        return status;
    if (from == GROW_TARGET)
        placement_widen(cache, heap, bytes, &placement);
    placement.room = vmm__min(placement.room, placement.count + cache->largest_chunk_granules - 1);
    bool at_home = from != GROW_DETACHED && placement_extends_home(arena, heap, &placement);
    vmm__arena_take(arena, placement.granule, placement.room);
    uint64_t filled;
    status = placement_fill(cache, heap, bytes, &placement, from, &filled);
    vmm_status attached = VMM_OK;
    if (filled > 0)
        attached = placement_attach(cache, heap, &placement, filled, out);
    if (status == VMM_OK)
        status = attached;
    else
        (void)vmm__limbo_drain(&cache->vm, NULL); /* release what was mapped before the failure */
    if (filled > 0 && attached == VMM_OK && at_home)
        heap->home_end = vmm__arena_address(arena, placement.granule + filled);
    if (status == VMM_OK && from == GROW_DETACHED && cache->has_guard_pages)
        vmm__guard_page_put(cache, placement.granule + filled);
    if (filled > 0)
        vmm__cache_log(cache, "grow: stream %p: %llu granules at 0x%llx, reserved %llu MiB",
                       heap->pool->stream, (unsigned long long)filled,
                       (unsigned long long)vmm__arena_address(arena, placement.granule),
                       (unsigned long long)vmm__stat_now(&cache->vm.reserved_bytes) >> 20);
    return status;
}

uint64_t vmm__grow_bytes(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         const struct block **beside)
{
    struct placement placement = { .count = 0 };
    vmm_status status = vmm__placement_find(cache, heap, bytes, &placement);
    *beside = placement.beside;
    return status == VMM_OK ? placement.count << cache->vm.arena.granule_shift : bytes;
}
