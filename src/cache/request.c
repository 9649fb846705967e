/* The lanes that a request searches: see request.h. */
#include "cache/request.h"

void vmm__request_lanes_lock(struct vmm_cache *cache, const struct request *request)
{
    bool has_run_out = request->refused != VMM_OK;
    bool passes_busy =
        !has_run_out && atomic_load_explicit(&cache->is_multithreaded, memory_order_relaxed);
    uint64_t left = has_run_out ? cache->lanes.stocked.count : LANES_USUAL;
    struct lane *held = request->heap->lane;
    struct lane **end = &cache->scanned;
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL && left > 0;
         lane = lane->list_next) {
        if (!vmm__lane_may_give(lane, held))
            continue;
        left--;
        if (lane != held && passes_busy)
            vmm__lane_lock_for_scan(lane, cache->refills);
        else if (lane != held)
            vmm__lane_lock_second(lane);
        if (lane != held)
            vmm__lane_keep(lane);
        *end = lane;
        end = &lane->scan_next;
    }
    *end = NULL;
}

void vmm__request_lanes_unlock(struct vmm_cache *cache, const struct heap *heap)
{
    for (struct lane *lane = cache->scanned; lane != NULL; lane = lane->scan_next) {
        if (lane != heap->lane)
            vmm__lane_unlock_kept(lane);
    }
    cache->scanned = NULL;
}
