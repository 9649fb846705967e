/* The public functions of debug mode: see "Debug mode" in include/vmmcache/vmmcache.h. */
#include "api/internal.h"
#include "base/error.h"
#include "debug/debug_mode.h"

vmm_status vmm_debug_check(vmm_cache *cache)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_debug_check");
    if (status != VMM_OK)
        return status;
    struct api_call call = API_CALL(cache, "vmm_debug_check");
    return vmm__debug_check(&call);
}

vmm_status vmm_debug_report(vmm_cache *cache, FILE *out)
{
    vmm_status status = vmm__api_admit(cache, "vmm_debug_report", out, "out");
    if (status != VMM_OK)
        return status;
    vmm__misuse_report(cache->debug, out);
    if (fflush(out) != 0 || ferror(out))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_debug_report: cannot write to the file");
    return VMM_OK;
}
