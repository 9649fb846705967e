/* Debug mode, opened and closed, and its view of blocks: see debug_mode.h. */
#include "base/hostmem.h"
#include "debug/internal.h"

/* The quarantine has at most this share of the device or limit, and at most this many bytes. */
enum { KEPT_SHARE = 16 };
#define KEPT_BYTES_MOST (UINT64_C(64) << 20)

/* ---- View ------------------------------------------------------------------------------------ */

/* The size that reports give for a block of a request of `bytes` without an alignment. */
static uint64_t shown_bytes(const struct debug *debug, uint64_t bytes)
{
    if (!vmm__debug_watches_memory(debug))
        return vmm__cache_block_bytes(debug->cache, bytes);
    return vmm__debug_is_large(bytes) ? vmm__align_up(bytes, LARGE_UNIT_BYTES)
                                      : vmm__debug_padded_bytes(bytes) - DEBUG_FRONT_BYTES;
}

static void debug_show(struct debug *debug, vmm_item *item)
{
    if (debug->mode == VMM_DEBUG_OFF)
        return;
    if (!vmm__debug_watches_memory(debug) && item->state == VMM_ITEM_WAITING)
        return;
    VMM_HOLD(&debug->records.lock);
    const struct record *record = vmm__records_find_inner_locked(&debug->records, item->address);
    if (record == NULL || record->is_kept) {
        item->state = VMM_ITEM_FREE;
        item->requested_bytes = 0;
    } else {
        item->address = record->address;
        if (vmm__debug_watches_memory(debug)) /* otherwise it is the lane's block */
            item->bytes = vmm__debug_shown_bytes(debug, record);
        item->requested_bytes = record->bytes;
    }
}

static const struct debug_view view = { .show = debug_show,
                                        .block_bytes = shown_bytes,
                                        .give = vmm__debug_give };

/* ---- Life ------------------------------------------------------------------------------------ */

static vmm_status watch_open(struct debug *debug)
{
    vmm_cache *cache = debug->cache;
    uint64_t limit = cache->vm.limit_bytes;
    uint64_t device = cache->driver->total_bytes;
    uint64_t share = (limit != 0 && limit < device ? limit : device) / KEPT_SHARE;
    debug->kept_bytes_most = vmm__min(share, KEPT_BYTES_MOST);
    debug->buffer = vmm__host_alloc(1, DEBUG_BUFFER_BYTES);
    if (debug->buffer == NULL)
        return vmm__error(VMM_ERR_HOST_OOM,
                          "create: no host memory for the check buffer of debug mode");
    vmm_status status = vmm__driver_stream_create(cache->driver, &debug->stream);
    if (status != VMM_OK)
        vmm__host_free(debug->buffer, DEBUG_BUFFER_BYTES);
    return status;
}

static void debug_free(struct debug *debug)
{
    vmm__records_fini(&debug->records);
    vmm__mutex_fini(&debug->gate);
    vmm__host_free(debug, sizeof *debug);
}

vmm_status vmm__debug_open(vmm_cache *cache, const vmm_config *config)
{
    if (config->zero == VMM_OFF && config->debug == VMM_DEBUG_OFF)
        return VMM_OK;
    struct debug *debug = vmm__host_alloc(1, sizeof *debug);
    if (debug == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory for debug mode");
    debug->mode = config->debug;
    debug->zero = config->zero == VMM_ON;
    debug->cache = cache;
    debug->misuse.function = config->misuse;
    debug->misuse.context = config->misuse_context;
    vmm__mutex_init_ranked(&debug->gate, LOCK_RANK_GATE);
    vmm__records_init(&debug->records);
    vmm_status status = vmm__debug_watches_memory(debug) ? watch_open(debug) : VMM_OK;
    if (status != VMM_OK) {
        debug_free(debug);
        return status;
    }
    cache->debug = debug;
    cache->debug_view = &view;
    cache->has_guard_pages = vmm__debug_watches_memory(debug);
    if (vmm__debug_watches_memory(debug))
        cache->compaction = VMM_OFF; /* a block whose remap is pending cannot be checked */
    return VMM_OK;
}

vmm_status vmm__debug_close(vmm_cache *cache, bool work_has_ended)
{
    struct debug *debug = cache->debug;
    struct finding finding = { .first = { .text = "" } };
    struct api_call call = { .cache = cache, .function = "vmm_destroy" };
    vmm_status status = VMM_OK;
    if (debug == NULL)
        return VMM_OK;
    if (vmm__debug_watches_memory(debug) && work_has_ended) {
        (void)vmm__debug_check_all(&call, vmm__clock_capture_query(&cache->clock) == VMM_OK,
                                   &finding);
        status = vmm__debug_settle(debug);
    }
    if (vmm__debug_watches_memory(debug)) {
        vmm_status closed = vmm__driver_stream_end(cache->driver, debug->stream);
        vmm__host_free(debug->buffer, DEBUG_BUFFER_BYTES);
        status = status == VMM_OK ? closed : status;
    }
    status = vmm__finding_end(&call, &finding, status);
    cache->debug = NULL;
    debug_free(debug);
    return status;
}
