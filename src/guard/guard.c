/* The guard: see guard.h. */
#include "base/hostmem.h"
#include "guard/guard_internal.h"
#include "policy/privates.h"

/* The quarantine: at most so many bytes, and this share of the device or limit. */
enum { KEPT_SHARE = 16 };
#define KEPT_BYTES_MOST (UINT64_C(64) << 20)

/* ---- View ------------------------------------------------------------------------------------ */

/* The bytes that reports show of a block: the same for all requests of that size. */
static uint64_t shown_bytes(const struct guard *guard, uint64_t bytes)
{
    if (!vmm__guard_watches(guard))
        return vmm__cache_block_bytes(guard->cache, bytes);
    return vmm__guard_is_large(bytes) ? vmm__align_up(bytes, LARGE_UNIT_BYTES)
                                      : vmm__guard_padded_bytes(bytes) - GUARD_FRONT_BYTES;
}

static void guard_show(struct guard *guard, vmm_item *item)
{
    if (guard->mode == VMM_GUARD_OFF)
        return;
    if (!vmm__guard_watches(guard) && item->state == VMM_ITEM_WAITING)
        return;
    vmm__lock_take(&guard->records.lock);
    const struct record *record = vmm__records_find_inner_locked(&guard->records, item->address);
    if (record == NULL || record->is_kept) {
        item->state = VMM_ITEM_FREE;
        item->requested_bytes = 0;
    } else {
        item->address = record->address;
        item->bytes = shown_bytes(guard, record->bytes);
        item->requested_bytes = record->bytes;
    }
    vmm__lock_drop(&guard->records.lock);
}

static uint64_t guard_block_bytes(const struct guard *guard, uint64_t bytes)
{
    return shown_bytes(guard, bytes);
}

static const struct guard_view view = { .show = guard_show,
                                        .block_bytes = guard_block_bytes,
                                        .give = vmm__guard_give };

/* ---- Life ------------------------------------------------------------------------------------ */

static vmm_status watch_open(struct guard *guard)
{
    vmm_cache *cache = guard->cache;
    uint64_t limit = cache->memory.limit_bytes;
    uint64_t device = cache->driver->total_bytes;
    uint64_t share = (limit != 0 && limit < device ? limit : device) / KEPT_SHARE;
    guard->kept_bytes_most = vmm__min(share, KEPT_BYTES_MOST);
    guard->buffer = vmm__host_alloc(1, GUARD_BUFFER_BYTES);
    if (guard->buffer == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory to look at blocks");
    vmm_status status = vmm__driver_stream_create(cache->driver, &guard->stream);
    if (status != VMM_OK)
        vmm__host_free(guard->buffer, GUARD_BUFFER_BYTES);
    return status;
}

static void guard_free(struct guard *guard)
{
    vmm__lock_fini(&guard->gate);
    vmm__host_free(guard, sizeof *guard);
}

vmm_status vmm__guard_open(vmm_cache *cache, const vmm_config *config)
{
    if (config->zero == 0 && config->guard == VMM_GUARD_OFF)
        return VMM_OK;
    struct guard *guard = vmm__host_alloc(1, sizeof *guard);
    if (guard == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory for the guard");
    guard->mode = config->guard;
    guard->zero = config->zero != 0;
    guard->cache = cache;
    guard->misuse.tell = config->misuse;
    guard->misuse.context = config->misuse_context;
    vmm__lock_init(&guard->gate);
    vmm_status status = VMM_OK;
    if (guard->mode != VMM_GUARD_OFF)
        status = vmm__records_init(&guard->records);
    if (status != VMM_OK)
        goto fail_records;
    if (vmm__guard_watches(guard))
        status = watch_open(guard);
    if (status != VMM_OK)
        goto fail_watch;
    cache->guard = guard;
    cache->guard_view = &view;
    cache->has_fences = vmm__guard_watches(guard);
    if (vmm__guard_watches(guard))
        cache->compaction = VMM_COMPACTION_OFF; /* a place that is astray could not be looked at */
    return VMM_OK;

fail_watch:
    vmm__records_fini(&guard->records);
fail_records:
    guard_free(guard);
    return status;
}

vmm_status vmm__guard_close(vmm_cache *cache, bool work_has_ended)
{
    struct guard *guard = cache->guard;
    struct finding finding = { .first = { .text = "" } };
    struct guard_call call = { .cache = cache, .function = "vmm_destroy" };
    vmm_status status = VMM_OK;
    if (guard == NULL)
        return VMM_OK;
    if (vmm__guard_watches(guard) && work_has_ended) {
        (void)vmm__guard_check_all(&call, !vmm__privates_capture(cache), &finding);
        status = vmm__guard_settle(guard);
    }
    status = vmm__finding_end(&call, &finding, status);
    if (vmm__guard_watches(guard)) {
        (void)vmm__driver_stream_destroy(cache->driver, guard->stream);
        vmm__host_free(guard->buffer, GUARD_BUFFER_BYTES);
    }
    if (guard->mode != VMM_GUARD_OFF)
        vmm__records_fini(&guard->records);
    cache->guard = NULL;
    guard_free(guard);
    return status;
}
