/* Blocks that wait for other streams: see waits.h. */
#include "api/waits.h"
#include "api/internal.h"
#include "cache/alloc/alloc.h"

/* Locks the lane of an address, and makes that one the lane's. NULL: no lane has it. */
static struct lane *lane_lock(struct vmm_cache *cache, uint64_t *address)
{
    const struct heap *heap = cache->debug == NULL ? vmm__free_lane_lock(cache, address) : NULL;
    return heap == NULL ? NULL : heap->lane;
}

unsigned vmm__wait_streams(vmm_cache *cache, const void *ptr, vmm_stream *streams, unsigned room)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct lane *lane = lane_lock(cache, &address);
    if (lane == NULL)
        return 0;
    streams[0] = lane->owner.stream;
    unsigned count = vmm__notes_streams(&lane->notes, address, streams + 1, room - 1);
    vmm__biased_unlock(&lane->lock);
    return count == 0 ? 0 : count + 1;
}

bool vmm__wait_end(vmm_cache *cache, const void *ptr)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct lane *lane = lane_lock(cache, &address);
    if (lane == NULL)
        return false;
    bool waited = vmm__lane_wait_end_locked(lane, address);
    vmm__biased_unlock(&lane->lock);
    return waited;
}
