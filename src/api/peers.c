/* The devices that may access the cache's memory: see vmmcache.h. */
#include "api/internal.h"

vmm_status vmm_peers_add(vmm_cache *cache, uint64_t devices)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_peers_add");
    if (status != VMM_OK)
        return status;
    VMM_HOLD_FAIR(&cache->grow_lock);
    return vmm__vm_peers_add(&cache->vm, devices & ~vmm__driver_device_bit(cache->device));
}

vmm_status vmm_peers_get(vmm_cache *cache, uint64_t *devices)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_peers_get");
    if (status != VMM_OK)
        return status;
    if (devices == NULL)
        return vmm__cache_missing("vmm_peers_get", "devices");
    /* Until vmm_peers_add() ends, it may fail. */
    VMM_HOLD_FAIR(&cache->grow_lock);
    *devices = vmm__driver_peers(cache->driver);
    return VMM_OK;
}
