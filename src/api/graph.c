/* The public functions of graph pools: see "Pools of graphs" in include/vmmcache/vmmcache.h. */
#include "base/error.h"
#include "cache/reclaim/trim.h"

static vmm_status id_check(const vmm_cache *cache, const char *function, vmm_pool_id id)
{
    vmm_status status = vmm__cache_admit(cache, function);
    if (status != VMM_OK)
        return status;
    if (id.first == 0 && id.second == 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: the id is zeros, which no pool can have",
                          function);
    return VMM_OK;
}

static vmm_status id_wrong(const char *function, vmm_pool_id id, const char *what)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: the pool (%llu, %llu) %s", function,
                      (unsigned long long)id.first, (unsigned long long)id.second, what);
}

/* With no_caching, releases the memory that a graph pool no longer retains. If that fails, a later call retries. */
static void trim_without_caching(vmm_cache *cache)
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
    status = vmm__graph_pool_begin(cache, &capture);
    if (status == VMM__IN_USE)
        return id_wrong("vmm_pool_begin", id, "is begun already, and not ended");
    return status;
}

/* Ends a capture or a use of a pool. `refusal` says what is wrong if there is none. */
static vmm_status pool_leave(vmm_cache *cache, const char *function, vmm_pool_id id,
                             vmm_status (*leave)(vmm_cache *cache, vmm_pool_id id),
                             const char *refusal)
{
    vmm_status status = id_check(cache, function, id);
    if (status != VMM_OK)
        return status;
    status = leave(cache, id);
    trim_without_caching(cache);
    return status == VMM__NOT_FOUND ? id_wrong(function, id, refusal) : status;
}

vmm_status vmm_pool_end(vmm_cache *cache, vmm_pool_id id)
{
    return pool_leave(cache, "vmm_pool_end", id, vmm__graph_pool_end, "is not begun");
}

vmm_status vmm_pool_release(vmm_cache *cache, vmm_pool_id id)
{
    return pool_leave(cache, "vmm_pool_release", id, vmm__graph_pool_release,
                      "has no use left to end");
}
