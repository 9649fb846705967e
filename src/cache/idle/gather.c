/* Gathers the idle chunks of other streams: see gather.h. */
#include "cache/idle/gather.h"

/* Lists the idle chunks of a heap. False if the work on one of them is unfinished. */
static bool heap_list(struct vmm_cache *cache, struct heap *from, const struct request *request,
                      struct idle_runs *runs)
{
    struct idle_scan scan = vmm__idle_scan(from, request->lane, IDLE_FINISHED);
    scan.leaves_room = vmm__request_leaves_room(request);
    runs->count = 0;
    return vmm__idle_visit_heap(cache, &scan, vmm__idle_runs_add, runs) &&
           scan.stuck_epoch == UINT64_MAX;
}

/* Moves listed chunks to another heap. Returns whether it moved any. */
static bool heap_take(struct vmm_cache *cache, const struct idle_runs *runs, struct heap *to)
{
    vmm_status status = VMM_OK;
    uint64_t i = 0;
    for (; i < runs->count && status == VMM_OK; i++)
        status = vmm__idle_take(cache, &runs->items[i], to, IDLE_FINISHED);
    return i > (status == VMM_OK ? 0 : 1);
}

static bool gather_locked(struct vmm_cache *cache, const struct request *request,
                          uint64_t chunk_bytes, bool *has_all)
{
    struct heap *heap = request->heap;
    struct idle_runs runs = { .items = NULL };
    bool has_gathered = false;
    for (struct lane *lane = cache->scanned; lane != NULL; lane = lane->scan_next) {
        if (lane == heap->lane || lane->owner.pool != heap->lane->owner.pool ||
            vmm__lane_hoards(lane))
            continue;
        lane->gather_bytes = chunk_bytes;
        if (heap_list(cache, &lane->large, request, &runs))
            has_gathered = heap_take(cache, &runs, heap) || has_gathered;
        else
            *has_all = false;
    }
    vmm__idle_runs_free(&runs);
    return has_gathered;
}

bool vmm__gather(struct vmm_cache *cache, const struct request *request, uint64_t chunk_bytes)
{
    struct lane *lane = request->heap->lane;
    struct gathering *gathering = &lane->owner.pool->gathering;
    bool has_gathered = false;
    bool has_all = !vmm__lane_is_retained(lane);
    if (request->heap->is_small)
        return false;
    atomic_store_explicit(&gathering->has_more, false, memory_order_relaxed);
    lane->gather_bytes = chunk_bytes;
    if (has_all && cache->lanes.stocked.count > 1) {
        vmm__request_lanes_lock(cache, request);
        has_gathered = gather_locked(cache, request, chunk_bytes, &has_all);
        vmm__request_lanes_unlock(cache, request->heap);
    }
    atomic_store_explicit(&gathering->last, has_all ? lane : NULL, memory_order_relaxed);
    return has_gathered;
}
