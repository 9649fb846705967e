/*
 * How large a workspace may be, for libraries that try several sizes: cuDNN in PyTorch's benchmark mode.
 * Called by: provider. Locks: none of its own.
 */
#include "torch/hooks.h"

/* The most that one request could get: free memory of the device, up to the limit, and idle memory of the cache. */
static vmm_status largest_request_find(vmm_cache *cache, uint64_t *bytes)
{
    uint64_t room, total;
    vmm_stats stats = VMM_STATS_INIT;
    vmm_status status = vmm_device_memory(cache, &room, &total);
    if (status == VMM_OK)
        status = vmm_stats_get(cache, &stats);
    if (status != VMM_OK)
        return status;
    uint64_t reserved = stats.reserved_bytes.current;
    uint64_t allowed = stats.limit_bytes > reserved ? stats.limit_bytes - reserved : 0;
    if (stats.limit_bytes != 0 && room > allowed)
        room = allowed;
    room += stats.idle_bytes;
    *bytes = room > stats.largest_free_bytes ? room : stats.largest_free_bytes;
    return VMM_OK;
}

vmm_status vmm__torch_largest_get(int ordinal, uint64_t *bytes)
{
    struct torch_device *device = NULL;
    vmm_status status = vmm__torch_open(ordinal, &device);
    return status == VMM_OK ? largest_request_find(vmm__torch_cache_of(device), bytes) : status;
}
