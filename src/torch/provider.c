/*
 * The table of vmm_torch_provider().
 * Called by: the allocator class of PyTorch (src/torch/shim). Locks: none of its own.
 */
#include "api/waits.h"
#include "base/error.h"
#include "base/outcome.h"
#include "torch/hooks.h"
#include "torch/pools.h"
#include "torch/record.h"
#include "torch/regions.h"
#include "torch/share.h"
#include "vmmcache/torch_provider.h"

/* ---- Devices -------------------------------------------------------------------------------- */

static vmm_status memory_get(int ordinal, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct torch_device *device = NULL;
    vmm_status status = vmm__torch_open(ordinal, &device);
    if (status != VMM_OK)
        return status;
    return vmm_device_memory(vmm__torch_cache_of(device), free_bytes, total_bytes);
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* Reports a pointer that is not a block, as the cache does. */
static vmm_status misuse_report(const struct torch_device *device, void *ptr)
{
    if (device == NULL)
        return vmm__error(VMM_ERR_UNKNOWN_POINTER, "%p: nothing was allocated yet", ptr);
    return vmm_free(vmm__torch_cache_of(device), ptr);
}

static vmm_status block_release(void *ptr, vmm_torch_freed *out)
{
    struct owned_block block;
    struct torch_device *device = NULL;
    if (ptr == NULL || vmm__torch_is_forked()) {
        *out = (vmm_torch_freed){ 0 };
        return VMM_OK;
    }
    vmm_status status = vmm__torch_owned_find(ptr, &block, &device);
    if (status != VMM_OK || block.address != (uint64_t)(uintptr_t)ptr)
        return misuse_report(status == VMM_OK ? device : vmm__torch_next(NULL), ptr);
    if (block.is_imported) /* a second end would close what has its address by then */
        return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                          "%p is memory of another process: it ends with its tensor", ptr);
    status = vmm__torch_block_free(device, ptr, block.requested_bytes);
    if (status == VMM_OK || status == VMM_ERR_CORRUPTED) /* it was freed */
        *out = (vmm_torch_freed){ .device = device->ordinal, .bytes = block.requested_bytes };
    return status;
}

/* ---- Limits and statistics ------------------------------------------------------------------ */

static vmm_status fraction_get(int ordinal, double *fraction)
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    uint64_t free_bytes, total_bytes = 1;
    vmm_stats stats = VMM_STATS_INIT;
    double known = device == NULL ? vmm__torch_fraction_first() : device->fraction;
    vmm_status status = VMM_OK;
    if (device != NULL)
        status = vmm_stats_get(vmm__torch_cache_of(device), &stats);
    if (status == VMM_OK && device != NULL && stats.limit_bytes != device->fraction_limit_bytes)
        known = -1.0; /* another limit was set since then */
    if (status == VMM_OK && known < 0.0 && stats.limit_bytes != 0)
        status = vmm_device_memory(vmm__torch_cache_of(device), &free_bytes, &total_bytes);
    if (status != VMM_OK)
        return status;
    double limit = (double)stats.limit_bytes / (double)total_bytes;
    *fraction = known >= 0.0 ? known : stats.limit_bytes == 0 || limit > 1.0 ? 1.0 : limit;
    return VMM_OK;
}

static vmm_status stats_get(int ordinal, vmm_stats *stats, vmm_torch_stats *kinds)
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    vmm_stats all = VMM_STATS_INIT;
    vmm_torch_stats read = { .struct_size = sizeof read };
    vmm_status status = VMM_OK;
    if (device != NULL)
        status = vmm_stats_get(vmm__torch_cache_of(device), &all);
    if (status == VMM_OK)
        status = vmm_torch_stats_get(ordinal, &read);
    if (status != VMM_OK)
        return status;
    if (device != NULL)
        all.stalls += (uint64_t)device->calls_beyond_stalls;
    *stats = all;
    *kinds = read;
    return VMM_OK;
}

static vmm_status stats_reset_peak(int ordinal)
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    if (device == NULL)
        return VMM_OK;
    vmm_status status = vmm_torch_stats_reset(ordinal, 0);
    return status == VMM_OK ? vmm_stats_reset_peak(vmm__torch_cache_of(device)) : status;
}

/* ---- Listeners and history ------------------------------------------------------------------ */

static vmm_status reclaim_watch(vmm_torch_reclaim_fn reclaim)
{
    if (reclaim != NULL && vmm__torch_is_open())
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "reclaim_watch: a device was opened before");
    vmm__record_reclaim_set(reclaim);
    return VMM_OK;
}

static vmm_status history_start(const vmm_torch_recording *wanted)
{
    if (wanted == NULL || wanted->struct_size < sizeof *wanted)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "history_start: %s",
                          wanted == NULL ? "it is NULL" : "struct_size is too small");
    return vmm__record_start(wanted);
}

static uint64_t stack_find(const void *address)
{
    vmm_item item = VMM_ITEM_INIT;
    struct live_block block;
    int ordinal;
    if (!vmm__history_knows() || vmm__torch_block_find(address, &item, &ordinal) != VMM_OK)
        return 0;
    struct torch_device *device = vmm__torch_find(ordinal);
    bool is_known = vmm__history_recall(&device->history, item.address, &block);
    return is_known && block.requested_bytes == item.requested_bytes ? block.stack : 0;
}

static vmm_status capture_announce(int ordinal, vmm_stream stream)
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    return device == NULL ? VMM_OK : vmm_capture_announce(vmm__torch_cache_of(device), stream);
}

/* On a lost device nothing is captured. */
static void capture_retract(int ordinal, vmm_stream stream)
{
    VMM_QUIET();
    const struct torch_device *device = vmm__torch_find(ordinal);
    if (device != NULL)
        (void)vmm_capture_retract(vmm__torch_cache_of(device), stream);
}

static unsigned wait_streams(int ordinal, const void *ptr, vmm_stream *streams, unsigned room)
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    return device == NULL ? 0 : vmm__wait_streams(vmm__torch_cache_of(device), ptr, streams, room);
}

static void wait_end(int ordinal, const void *ptr)
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    if (device != NULL)
        (void)vmm__wait_end(vmm__torch_cache_of(device), ptr);
}

/* ---- The table ------------------------------------------------------------------------------ */

static const vmm_torch_functions functions = {
    .struct_size = sizeof functions,
    .version = VMM_TORCH_PROVIDER_VERSION,
    .last_error = vmm_last_error,
    .log_failure = vmm__torch_complain,
    .init = vmm_torch_init,
    .memory_get = memory_get,
    .largest_get = vmm__torch_largest_get,
    .peers_get = vmm__torch_peers,
    .allocate = vmm__torch_take,
    .release = block_release,
    .find = vmm__torch_block_find,
    .stream_record = vmm__torch_stream_record,
    .empty = vmm__torch_empty,
    .fraction_set = vmm__torch_fraction_set,
    .fraction_get = fraction_get,
    .stats_get = stats_get,
    .stats_reset_peak = stats_reset_peak,
    .pool_use = vmm__torch_pool_use,
    .pool_leave = vmm__torch_pool_leave,
    .pool_uses = vmm__torch_pool_uses,
    .pool_use_on_oom = vmm__torch_pool_use_on_oom,
    .pool_no_split = vmm__torch_pool_no_split,
    .pool_route = vmm__torch_pool_route,
    .pool_unroute = vmm__torch_pool_unroute,
    .pool_trim = vmm__torch_pool_trim,
    .pool_walk = vmm__torch_pool_walk,
    .pool_place = vmm__torch_pool_place,
    .share = vmm__torch_share,
    .share_open = vmm__torch_share_open,
    .share_close = vmm__torch_share_close,
    .oom_watch = vmm__torch_oom_watch,
    .reclaim_watch = reclaim_watch,
    .change_watch = vmm__torch_change_watch,
    .history_start = history_start,
    .history_stop = vmm_torch_history_stop,
    .snapshot_take = vmm_torch_snapshot_take,
    .snapshot_drop = vmm_torch_snapshot_drop,
    .pool_source = vmm__torch_pool_source,
    .sleep_watch = vmm__torch_sleep_watch,
    .stack_find = stack_find,
    .peers_defer = vmm__torch_peers_defer,
    .peers_add = vmm__torch_peers_add,
    .fraction_begin = vmm__torch_fraction_begin,
    .failure_write = vmm__torch_failure_write,
    .capture_announce = capture_announce,
    .capture_retract = capture_retract,
    .wait_streams = wait_streams,
    .wait_end = wait_end,
    .pool_cover = vmm__torch_pool_cover,
    .pool_uncover = vmm__torch_pool_uncover,
};

const vmm_torch_functions *vmm_torch_provider(void)
{
    vmm__torch_class_note(); /* who asks is PyTorch's allocator class */
    return &functions;
}
