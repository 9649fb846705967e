/* The public entry points that belong to guards: see "Hunting bugs" in include/vmmcache/vmmcache.h. */
#include "base/error.h"
#include "guard/guard.h"

vmm_status vmm_guard_check(vmm_cache *cache)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_guard_check");
    if (status != VMM_OK)
        return status;
    struct guard_call call = { .cache = cache,
                               .function = "vmm_guard_check",
                               .caller = __builtin_return_address(0) };
    return vmm__guard_check(&call);
}

vmm_status vmm_misuse_write(vmm_cache *cache, FILE *out)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_misuse_write");
    if (status != VMM_OK)
        return status;
    if (out == NULL)
        return vmm__cache_missing("vmm_misuse_write", "out");
    vmm__misuse_write(cache->guard, out);
    if (ferror(out) != 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_misuse_write: the file could not be written");
    return VMM_OK;
}
