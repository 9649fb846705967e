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

/* Blocks of 10 MiB and more have chunks of their own, as they have segments of their own in PyTorch's allocator: if a
 * program frees some blocks of one size, the chunks that this leaves idle serve larger ones. Smaller blocks have chunks
 * of their own if they are at least a quarter of the largest chunk. */
enum { OWN_CHUNKS_BYTES = 10 << 20, OWN_CHUNKS_SHARE = 4 };

static bool gets_own_chunks(const struct vmm_cache *cache, uint64_t bytes, uint64_t most)
{
    return bytes >= OWN_CHUNKS_BYTES ||
           bytes >> cache->vm.arena.granule_shift >= most / OWN_CHUNKS_SHARE;
}

/* Widens a placement for a block that shares its chunk: the chunk gets more granules for later requests, as far as the
 * room of the placement and the target allow. Many small chunks would cost driver time. */
static void placement_widen(const struct vmm_cache *cache, const struct heap *heap, uint64_t bytes,
                            uint64_t allowed, struct placement *placement)
{
    uint64_t most = vmm__target_chunk_granules(cache, heap, bytes);
    if (gets_own_chunks(cache, bytes, most))
        return;
    uint64_t more = vmm__min(most - placement->count, allowed - placement->count);
    placement->count += vmm__min(more, placement->room - placement->count);
}

/* What the device has free. A refusal is dear: the driver creates what fits, and releases it again. So once the device
 * has refused, or may be full because other processes use it, it is asked first. */
static uint64_t device_granules(const struct vmm_cache *cache, const struct request *request)
{
    bool may_refuse = request->refused == VMM_ERR_DEVICE_OOM || cache->neighbours != NULL;
    return may_refuse ? vmm__cache_device_bytes(cache) >> cache->vm.arena.granule_shift
                      : UINT64_MAX;
}

static vmm_status placement_choose(const struct vmm_cache *cache, const struct heap *heap,
                                   uint64_t bytes, bool is_alone, struct placement *placement)
{
    return is_alone ? vmm__placement_alone(cache, bytes, placement)
                    : vmm__placement_find(cache, heap, bytes, placement);
}

/* Chooses a placement, after limbo has released what it may. Reserves more addresses if the reserved ones have no
 * room. */
static vmm_status placement_reserve(struct vmm_cache *cache, const struct heap *heap,
                                    uint64_t bytes, bool is_alone, struct placement *placement)
{
    (void)vmm__limbo_drain(&cache->vm, NULL);
    vmm_status status = placement_choose(cache, heap, bytes, is_alone, placement);
    if (status != VMM_ERR_ADDRESS_SPACE)
        return status;
    status = vmm__arena_extend(&cache->vm.arena, bytes);
    return status == VMM_OK ? placement_choose(cache, heap, bytes, is_alone, placement) : status;
}

/* Creates new memory at a placement; a wider chunk, if `allowed` is more than the placement needs. */
static vmm_status placement_fill(struct vmm_cache *cache, const struct request *request,
                                 uint64_t bytes, uint64_t allowed, struct placement *placement)
{
    const struct arena *arena = &cache->vm.arena;
    struct heap *heap = request->heap;
    uint64_t device = device_granules(cache, request);
    if (device < placement->count)
        return vmm__error(VMM_ERR_DEVICE_OOM, "grow: the device has %llu granules free",
                          (unsigned long long)device);
    if (placement->count <= allowed)
        placement_widen(cache, heap, bytes, vmm__min(allowed, device), placement);
    vmm_status status = vmm__fill(cache, heap, bytes, placement->granule, placement->count);
    if (status != VMM_OK)
        return status;
    uint64_t address = vmm__arena_address(arena, placement->granule);
    if (placement->extends_home)
        vmm__placement_note(heap, address, address + (placement->count << arena->granule_shift),
                            bytes);
    vmm__cache_log(cache, "grow: stream %p: %llu granules at 0x%llx, reserved %llu MiB",
                   heap->lane->owner.stream, (unsigned long long)placement->count,
                   (unsigned long long)address,
                   (unsigned long long)vmm__stat_now(&cache->vm.reserved_bytes) >> 20);
    return VMM_OK;
}

/* A small heap has no views. Nor has a cache whose driver maps a chunk at one address only, or with vmm_config.views
 * off, or debug or nvtx on: see cache_open(). In debug mode an access after a free must fault. */
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
                            uint64_t allowed, uint64_t most)
{
    struct heap *heap = request->heap;
    unsigned shift = cache->vm.arena.granule_shift;
    enum idle_when when =
        request->from == GROW_FOLLOW ? IDLE_FOLLOW : vmm__idle_usual(cache, heap->lane);
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

vmm_status vmm__grow_new(struct vmm_cache *cache, const struct request *request, bool is_within)
{
    struct placement placement;
    uint64_t bytes = request->block_bytes;
    vmm_status status = placement_reserve(cache, request->heap, bytes, false, &placement);
    if (status != VMM_OK)
        return status;
    uint64_t allowed = is_within ? vmm__target_granules(cache, request) : placement.count;
    return placement.count <= allowed ? placement_fill(cache, request, bytes, allowed, &placement)
                                      : VMM__NO_FIT;
}

vmm_status vmm__grow(struct vmm_cache *cache, const struct request *request)
{
    struct placement placement;
    struct heap *heap = request->heap;
    uint64_t bytes = request->block_bytes;
    vmm_status status = placement_reserve(cache, heap, bytes, false, &placement);
    if (status != VMM_OK)
        return status;
    uint64_t allowed = request->from == GROW_TARGET ? vmm__target_granules(cache, request) : 0;
    if (placement.count > allowed && has_views(cache, heap)) {
        status = view_make(cache, request, allowed, placement.count);
        /* a view needs addresses for all of its chunks, and may find none where new memory does */
        if (status != VMM__NO_FIT && status != VMM_ERR_ADDRESS_SPACE)
            return status;
        /* transfers may have changed it */
        status = placement_reserve(cache, heap, bytes, false, &placement);
    }
    return status == VMM_OK ? placement_fill(cache, request, bytes, allowed, &placement) : status;
}

vmm_status vmm__grow_alone(struct vmm_cache *cache, const struct request *request, uint64_t bytes,
                           struct block **out)
{
    struct placement placement;
    vmm_status status = placement_reserve(cache, request->heap, bytes, true, &placement);
    if (status == VMM_OK)
        status = placement_fill(cache, request, bytes, 0, &placement);
    if (status != VMM_OK)
        return status;
    if (cache->has_guard_pages)
        vmm__guard_page_put(cache, placement.granule + placement.count);
    *out = vmm__heap_find(request->heap, vmm__arena_address(&cache->vm.arena, placement.granule));
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
