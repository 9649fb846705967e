/* The public functions of shares: see "Sharing" in include/vmmcache/vmmcache.h. */
#include "api/internal.h"
#include "base/error.h"
#include "base/handle.h"
#include "cache/share/export.h"
#include "cache/share/import.h"
#include "cache/share/message.h"
#include "debug/debug_mode.h"

/* The share of a handle, if this process may use it. *out is NULL if there is none. */
static vmm_status share_admit(const vmm_share *handle, const char *function, struct share **out)
{
    struct share *share = vmm__handle_find(HANDLE_SHARE, handle);
    *out = share;
    if (share == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %p is not a share, or was closed",
                          function, (const void *)handle);
    return share->generation == vmm__fork_generation() ? VMM_OK : vmm__fork_refuse(function);
}

/* ---- Export -------------------------------------------------------------------------------- */

/* The program's block in the lane's block at an address: differs in debug mode. */
static vmm_item block_shown(const vmm_cache *cache, uint64_t address)
{
    vmm_item item = { .state = VMM_ITEM_LIVE, .address = address };
    if (cache->debug != NULL)
        cache->debug_view->show(cache->debug, &item);
    return item;
}

/* Why other processes cannot have a live block. */
static const char *export_obstacle(vmm_cache *cache, uint64_t address)
{
    if (vmm__reserved_owns(cache, address))
        return "is one of vmm_reserve()";
    if (vmm__import_owns(cache, address))
        return "is imported";
    if (vmm__sourced_inner(&cache->vm, address) != address)
        return "is memory of a source";
    return "is not of a shareable pool, and vmm_config.shareable is not on";
}

static vmm_status export_refuse(vmm_cache *cache, vmm_status status, const void *ptr)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (status == VMM__NOT_FOUND)
        return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                          "vmm_share_export: %p is not an address of this cache's blocks", ptr);
    if (status == VMM__NO_FIT)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_share_export: the block at %p %s", ptr,
                          export_obstacle(cache, address));
    return status;
}

vmm_status vmm_share_export(vmm_cache *cache, void *ptr, vmm_share **out)
{
    struct share *share = NULL;
    void *inner = ptr;
    vmm_status status = vmm__api_admit_work(cache, "vmm_share_export", out, "out");
    struct api_call call = API_CALL(cache, "vmm_share_export");
    if (status == VMM_OK)
        status = vmm__debug_inner(&call, &inner);
    if (status != VMM_OK)
        return status;
    uint64_t address = (uint64_t)(uintptr_t)inner;
    vmm_item shown = block_shown(cache, address);
    status = vmm__export(cache, address, shown.address - address, shown.requested_bytes, &share);
    if (status != VMM_OK)
        return export_refuse(cache, status, ptr);
    *out = share->handle;
    return VMM_OK;
}

/* ---- Send, receive ------------------------------------------------------------------------- */

vmm_status vmm_share_send(vmm_share *handle, int socket)
{
    struct share *share;
    vmm_status status = share_admit(handle, "vmm_share_send", &share);
    return status == VMM_OK ? vmm__message_send(share, socket) : status;
}

vmm_status vmm_share_receive(int socket, vmm_share **out)
{
    struct share *share = NULL;
    if (out == NULL)
        return vmm__cache_missing("vmm_share_receive", "out");
    vmm_status status = vmm__fork_watch(NULL);
    if (status == VMM_OK)
        status = vmm__message_receive(socket, &share);
    if (status == VMM_OK)
        *out = share->handle;
    return status;
}

/* ---- Import, close ------------------------------------------------------------------------- */

vmm_status vmm_share_import(vmm_cache *cache, vmm_share *handle, vmm_stream stream, void **out)
{
    struct share *share = NULL;
    vmm_status status = vmm__api_admit_work(cache, "vmm_share_import", out, "out");
    if (status == VMM_OK)
        status = share_admit(handle, "vmm_share_import", &share);
    return status == VMM_OK ? vmm__import(cache, share, stream, out) : status;
}

static vmm_status export_close(struct share *share, bool is_forced)
{
    vmm_cache *cache = share->cache;
    vmm_status status = vmm__cache_admit(cache, "vmm_share_close");
    if (status != VMM_OK)
        return status;
    if (!is_forced && atomic_load_explicit(&share->was_sent, memory_order_relaxed))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_share_close: the share was sent, so others may use its block: force "
                          "says that they no longer do");
    vmm__export_end(share);
    vmm__api_trim_without_caching(cache);
    return VMM_OK;
}

vmm_status vmm_share_close(vmm_share *handle, int force)
{
    struct share *share;
    vmm_status status = share_admit(handle, "vmm_share_close", &share);
    if (status != VMM_OK)
        return status;
    if (share->cache != NULL)
        return export_close(share, force != 0);
    vmm__share_close(share);
    return VMM_OK;
}
