/* Grows a heap: see grow.h. */
#define _GNU_SOURCE
#include "cache/grow/grow.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/time.h"
#include "cache/grow/fill.h"
#include "cache/grow/guard_page.h"
#include "cache/grow/stitch.h"
#include "cache/grow/target.h"

static bool placement_extends_home(const struct arena *arena, const struct heap *heap,
                                   const struct placement *placement)
{
    return *heap->home_end == 0 || placement->beside == NULL ||
           vmm__arena_address(arena, placement->granule) == *heap->home_end;
}

/* Blocks of 10 MiB and more have chunks of their own, as they have segments of their own in PyTorch's allocator: if a
 * program frees some blocks of one size, the chunks that this leaves idle serve larger ones. So have smaller blocks of
 * a quarter of the largest chunk. */
enum { OWN_CHUNKS_BYTES = 10 << 20, OWN_CHUNKS_SHARE = 4 };

static bool gets_own_chunks(const struct vmm_cache *cache, uint64_t bytes, uint64_t most)
{
    return bytes >= OWN_CHUNKS_BYTES ||
           bytes >> cache->vm.arena.granule_shift >= most / OWN_CHUNKS_SHARE;
}

/* Other blocks share a chunk. It gets more granules, for later requests, from the room of the placement and what the
 * target still allows: many small chunks cost driver time. */
static void placement_widen(const struct vmm_cache *cache, const struct heap *heap, uint64_t bytes,
                            uint64_t allowed, struct placement *placement)
{
    uint64_t most = vmm__target_chunk_granules(cache, heap, bytes);
    if (gets_own_chunks(cache, bytes, most))
        return;
    uint64_t more = vmm__min(most - placement->count, allowed - placement->count);
    placement->count += vmm__min(more, placement->room - placement->count);
}

/* Creates new memory at a placement. */
static vmm_status placement_grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                                 const struct placement *placement, bool is_at_home)
{
    const struct arena *arena = &cache->vm.arena;
    vmm_status status = vmm__fill(cache, heap, bytes, placement->granule, placement->count);
    if (status != VMM_OK)
        return status;
    if (is_at_home)
        *heap->home_end = vmm__arena_address(arena, placement->granule + placement->count);
    vmm__cache_log(cache, "grow: stream %p: %llu granules at 0x%llx, reserved %llu MiB",
                   heap->lane->owner.stream, (unsigned long long)placement->count,
                   (unsigned long long)vmm__arena_address(arena, placement->granule),
                   (unsigned long long)vmm__stat_now(&cache->vm.reserved_bytes) >> 20);
    return VMM_OK;
}

/* What the device has free. A refusal is dear: the driver creates what fits, and releases it again. So once the device
 * has refused, or may be full because other processes use it, it is asked first. */
static uint64_t device_granules(const struct vmm_cache *cache, const struct request *request)
{
    bool may_refuse = request->refused == VMM_ERR_DEVICE_OOM || cache->neighbours != NULL;
    return may_refuse ? vmm__cache_device_bytes(cache) >> cache->vm.arena.granule_shift
                      : UINT64_MAX;
}

/* Chooses a placement; reserves more addresses if the reserved ones have no room. */
static vmm_status placement_reserve(struct vmm_cache *cache, const struct heap *heap,
                                    uint64_t bytes, struct placement *placement)
{
    vmm_status status = vmm__placement_find(cache, heap, bytes, placement);
    if (status != VMM_ERR_ADDRESS_SPACE)
        return status;
    status = vmm__arena_extend(&cache->vm.arena, bytes);
    return status == VMM_OK ? vmm__placement_find(cache, heap, bytes, placement) : status;
}

/* A small heap has no views. Nor has a cache whose driver maps a chunk at one address only, or one in debug mode, where
 * an access after a free must fault. */
static bool has_views(const struct vmm_cache *cache, const struct heap *heap)
{
    return !heap->is_small && cache->has_views;
}

/* Plans a view, and counts the time. */
static struct plan view_plan(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                             uint64_t allowed_bytes, enum idle_when when)
{
    uint64_t start_ns = vmm__time_ns();
    struct plan plan = vmm__plan(cache, heap, bytes, allowed_bytes, when);
    vmm__count(&cache->counts.planning_ns, vmm__time_ns() - start_ns);
    vmm__count(&cache->counts.plans, 1);
    return plan;
}

/* Makes a view, if that needs less new memory than the placement. VMM__NO_FIT if not. */
static vmm_status view_make(struct vmm_cache *cache, const struct request *request,
                            uint64_t allowed, uint64_t most, enum idle_when when)
{
    struct heap *heap = request->heap;
    unsigned shift = cache->vm.arena.granule_shift;
    vmm__request_lanes_lock(cache, request);
    struct plan plan =
        view_plan(cache, heap, request->block_bytes, vmm__min(allowed, most) << shift, when);
    vmm_status status = VMM__NO_FIT;
    if (plan.new_bytes >> shift < most)
        status = vmm__stitch_transfer(cache, heap, when, &plan);
    vmm__request_lanes_unlock(cache, heap); /* nothing is mapped under other lanes' locks */
    if (status == VMM_OK)
        status = vmm__stitch(cache, heap, request->block_bytes, &plan);
    return status;
}

vmm_status vmm__grow(struct vmm_cache *cache, const struct request *request, enum grow_from from)
{
    struct heap *heap = request->heap;
    uint64_t bytes = request->block_bytes;
    struct placement placement;
    (void)vmm__limbo_drain(&cache->vm, NULL); /* release memory whose epoch has passed */
    vmm_status status = placement_reserve(cache, heap, bytes, &placement);
    if (status != VMM_OK)
        return status;
    uint64_t allowed =
        from == GROW_TARGET || from == GROW_WITHIN ? vmm__target_granules(cache, request) : 0;
    if (from == GROW_NEW)
        allowed = placement.count;
    bool is_within = placement.count <= allowed;
    if (!is_within && from == GROW_WITHIN)
        return VMM__NO_FIT;
    if (!is_within && has_views(cache, heap)) {
        status = view_make(cache, request, allowed, placement.count,
                           from == GROW_FOLLOW ? IDLE_FOLLOW : vmm__idle_usual(cache, heap->lane));
        /* a view needs addresses for all of its chunks, and may find none where new memory does */
        if (status != VMM__NO_FIT && status != VMM_ERR_ADDRESS_SPACE)
            return status;
        status =
            placement_reserve(cache, heap, bytes, &placement); /* transfers may have changed it */
        if (status != VMM_OK)
            return status;
    }
    uint64_t device = device_granules(cache, request);
    if (device < placement.count)
        return vmm__error(VMM_ERR_DEVICE_OOM, "grow: the device has %llu granules free",
                          (unsigned long long)device);
    if (is_within)
        placement_widen(cache, heap, bytes, vmm__min(allowed, device), &placement);
    bool is_at_home = placement_extends_home(&cache->vm.arena, heap, &placement);
    return placement_grow(cache, heap, bytes, &placement, is_at_home);
}

vmm_status vmm__grow_alone(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                           struct block **out)
{
    struct placement placement;
    (void)vmm__limbo_drain(&cache->vm, NULL);
    vmm_status status = vmm__placement_alone(cache, bytes, &placement);
    if (status == VMM_ERR_ADDRESS_SPACE)
        status = vmm__arena_extend(&cache->vm.arena, bytes);
    if (status == VMM_OK)
        status = vmm__placement_alone(cache, bytes, &placement);
    if (status == VMM_OK)
        status = placement_grow(cache, heap, bytes, &placement, false);
    if (status != VMM_OK)
        return status;
    if (cache->has_guard_pages)
        vmm__guard_page_put(cache, placement.granule + placement.count);
    *out = vmm__heap_find(heap, vmm__arena_address(&cache->vm.arena, placement.granule));
    return VMM_OK;
}

uint64_t vmm__grow_bytes(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         const struct block **beside)
{
    struct placement placement = { .count = 0 };
    vmm_status status = vmm__placement_find(cache, heap, bytes, &placement);
    *beside = placement.beside;
    return status == VMM_OK ? placement.count << cache->vm.arena.granule_shift : bytes;
}
