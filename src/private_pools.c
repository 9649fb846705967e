/*
 * The public entry points of private pools: check arguments, then policy. See "Private pools" in
 * include/vmmcache/vmmcache.h.
 */
#include "base/error.h"
#include "policy/trim.h"

static vmm_status id_check(const vmm_cache *cache, const char *function, vmm_pool_id id)
{
    vmm_status status = vmm__cache_admit(cache, function);
    if (status != VMM_OK)
        return status;
    if (id.first == 0 && id.second == 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: the id is zeros, which names no pool",
                          function);
    return VMM_OK;
}

static vmm_status id_wrong(const char *function, vmm_pool_id id, const char *what)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: the pool (%llu, %llu) %s", function,
                      (unsigned long long)id.first, (unsigned long long)id.second, what);
}

/* Without caching, what is kept for nobody any more goes back. What cannot now is tried again later. */
static void after_leaving(vmm_cache *cache)
{
    struct error_line line;
    if (!cache->no_caching)
        return;
    vmm__error_save(&line);
    (void)vmm__trim(cache, 0, NULL);
    vmm__error_restore(&line);
}

vmm_status vmm_pool_begin(vmm_cache *cache, vmm_pool_id id, vmm_pool_filter filter, void *context)
{
    vmm_status status = id_check(cache, "vmm_pool_begin", id);
    if (status == VMM_OK)
        status = vmm__cache_admit_work(cache, "vmm_pool_begin");
    if (status != VMM_OK)
        return status;
    struct capture capture = { .id = id, .filter = filter, .context = context };
    status = vmm__private_begin(cache, &capture);
    if (status == VMM_NOT_READY)
        return id_wrong("vmm_pool_begin", id, "is begun already, and not ended");
    return status;
}

vmm_status vmm_pool_end(vmm_cache *cache, vmm_pool_id id)
{
    vmm_status status = id_check(cache, "vmm_pool_end", id);
    if (status != VMM_OK)
        return status;
    status = vmm__private_end(cache, id);
    after_leaving(cache);
    return status == VMM_NOT_READY ? id_wrong("vmm_pool_end", id, "is not begun") : status;
}

vmm_status vmm_pool_release(vmm_cache *cache, vmm_pool_id id)
{
    vmm_status status = id_check(cache, "vmm_pool_release", id);
    if (status != VMM_OK)
        return status;
    status = vmm__private_release(cache, id);
    after_leaving(cache);
    return status == VMM_NOT_READY ? id_wrong("vmm_pool_release", id, "has no use left to end")
                                   : status;
}
