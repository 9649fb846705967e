/*
 * The hooks of PyTorch's plug-in interface that are plain C. A hook that returns nothing, such as a free, writes
 * its error to the log and keeps it for vmm_last_error().
 * Owns: the listeners of requests that ran out of memory, which it calls without locks.
 * Called by: PyTorch and the Python package; provider uses some of the functions below the hooks. Locks: none of their
 * own.
 */
#include "torch/hooks.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/outcome.h"
#include "base/size.h"
#include "torch/record.h"
#include "torch/regions.h"
#include "torch/shared_blocks.h"

#define EXABYTE (UINT64_C(1) << 60)

/* ---- Running out of memory -------------------------------------------------------------------- */

enum { OOM_LISTENER_OF_PROGRAM, OOM_LISTENER_OF_CLASS, OOM_LISTENERS };

static _Atomic(vmm_torch_oom_fn) oom_listeners[OOM_LISTENERS];
static _Thread_local bool is_reporting; /* requests of a listener are not reported */

void vmm_torch_oom_listen(vmm_torch_oom_fn watch)
{
    atomic_store_explicit(&oom_listeners[OOM_LISTENER_OF_PROGRAM], watch, memory_order_release);
}

void vmm__torch_oom_watch(vmm_torch_oom_fn watch)
{
    atomic_store_explicit(&oom_listeners[OOM_LISTENER_OF_CLASS], watch, memory_order_release);
}

/* Leaves both at zero if the device does not report its memory. */
static void memory_read(vmm_cache *cache, uint64_t *free_bytes, uint64_t *most_bytes)
{
    vmm_stats stats = VMM_STATS_INIT;
    if (vmm_device_memory(cache, free_bytes, most_bytes) != VMM_OK)
        return;
    if (vmm_stats_get(cache, &stats) == VMM_OK && stats.limit_bytes != 0)
        *most_bytes = stats.limit_bytes;
}

static bool oom_has_listener(void)
{
    for (int i = 0; i < OOM_LISTENERS; i++) {
        if (atomic_load_explicit(&oom_listeners[i], memory_order_relaxed) != NULL)
            return true;
    }
    return false;
}

/* Reports a request that ran out of memory, before the caller sees the failure. vmm_last_error() describes the request
 * whatever a listener does. */
static void oom_tell(const struct torch_device *device, vmm_status status, uint64_t bytes)
{
    if (!vmm__is_oom(status) || is_reporting || !oom_has_listener())
        return;
    VMM_QUIET();
    uint64_t free_bytes = 0;
    uint64_t most_bytes = 0;
    memory_read(vmm__torch_cache_of(device), &free_bytes, &most_bytes);
    is_reporting = true;
    for (int i = 0; i < OOM_LISTENERS; i++) {
        vmm_torch_oom_fn watch = atomic_load_explicit(&oom_listeners[i], memory_order_acquire);
        if (watch != NULL)
            watch(device->ordinal, bytes, most_bytes, free_bytes);
    }
    is_reporting = false;
}

/* A size as PyTorch's errors have it. */
static const char *torch_size_write(char *text, size_t text_bytes, uint64_t bytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB" };
    double size = (double)bytes / 1024.0;
    unsigned unit = 0;
    for (; unit < 2 && size > 1024.0; unit++)
        size /= 1024.0;
    if (bytes <= 1024)
        (void)snprintf(text, text_bytes, "%llu bytes", (unsigned long long)bytes);
    else
        (void)snprintf(text, text_bytes, "%.2f %s", size, units[unit]);
    return text;
}

/* What PyTorch's own error says of the memory, in its words, because programs search for them. Writes a colon if the
 * device does not report it. */
static void memory_write(int ordinal, char *text, size_t text_bytes)
{
    char sizes[5][32];
    char allowed[48] = "";
    vmm_stats stats = VMM_STATS_INIT;
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    const struct torch_device *device = vmm__torch_find(ordinal);
    vmm_cache *cache = device == NULL ? NULL : vmm__torch_cache_of(device);
    if (cache == NULL || vmm_device_memory(cache, &free_bytes, &total_bytes) != VMM_OK ||
        vmm_stats_get(cache, &stats) != VMM_OK) {
        (void)snprintf(text, text_bytes, ":");
        return;
    }
    uint64_t allocated = stats.allocated_bytes.current;
    uint64_t reserved = vmm__max(stats.reserved_bytes.current, allocated);
    const uint64_t values[] = { total_bytes, free_bytes, stats.limit_bytes, allocated,
                                reserved - allocated };
    for (int i = 0; i < 5; i++)
        (void)torch_size_write(sizes[i], sizeof sizes[i], values[i]);
    if (stats.limit_bytes != 0)
        (void)snprintf(allowed, sizeof allowed, "%s allowed; ", sizes[2]);
    (void)snprintf(text, text_bytes,
                   " has a total capacity of %s of which %s is free. %s"
                   "Of the allocated memory %s is allocated by PyTorch, "
                   "and %s is reserved by PyTorch but unallocated. vmmcache:",
                   sizes[0], sizes[1], allowed, sizes[3], sizes[4]);
}

void vmm__torch_failure_write(int ordinal, size_t bytes, vmm_status status, char *text,
                              size_t text_bytes)
{
    char size[32];
    char memory[320] = ":";
    struct error_line line;
    bool is_oom = vmm__is_oom(status);
    vmm__error_save(&line);
    if (is_oom)
        memory_write(ordinal, memory, sizeof memory);
    vmm__error_restore(&line);
    if (!is_oom)
        (void)snprintf(text, text_bytes, "vmmcache: cannot allocate %s. GPU %d: %s",
                       vmm__size_write(size, sizeof size, bytes), ordinal, line.text);
    else if (bytes >= EXABYTE)
        (void)snprintf(text, text_bytes,
                       "CUDA out of memory. Tried to allocate more than 1EB memory. vmmcache: %s",
                       line.text);
    else
        (void)snprintf(text, text_bytes, "CUDA out of memory. Tried to allocate %s. GPU %d%s %s",
                       torch_size_write(size, sizeof size, bytes), ordinal, memory, line.text);
}

/* ---- Allocating and freeing ------------------------------------------------------------------- */

vmm_status vmm__torch_take(size_t bytes, int ordinal, vmm_stream stream, void **out)
{
    if (bytes == 0) { /* PyTorch expects NULL, and never frees it */
        *out = NULL;
        return VMM_OK;
    }
    struct torch_device *device = vmm__torch_find(ordinal);
    vmm_status status = device != NULL ? VMM_OK : vmm__torch_open(ordinal, &device);
    if (status != VMM_OK)
        return status;
    vmm_cache *cache = vmm__torch_cache_of(device);
    bool is_recorded = vmm__torch_records();
    status = is_recorded ? vmm__record_alloc(device, bytes, stream, out)
                         : vmm_alloc(cache, bytes, stream, out);
    if (status != VMM_OK) {
        oom_tell(device, status, bytes);
        return status;
    }
    vmm__torch_stats_alloc(&device->stats, bytes, vmm_block_bytes(cache, bytes));
    if (!is_recorded && vmm__torch_records())
        vmm__record_late_alloc(device, *out);
    return VMM_OK;
}

void *vmm_torch_try_alloc(size_t bytes, int device, vmm_stream stream)
{
    void *ptr = NULL;
    return vmm__torch_take(bytes, device, stream, &ptr) == VMM_OK ? ptr : NULL;
}

/* Looks up the size requested, for callers that do not pass it. */
static vmm_status requested_find(vmm_cache *cache, const void *ptr, uint64_t *bytes)
{
    vmm_item item = VMM_ITEM_INIT;
    vmm_status status = vmm_find(cache, ptr, &item);
    if (status == VMM_OK)
        *bytes = item.requested_bytes;
    return status;
}

/* Frees a block while something is recorded or shared. */
static vmm_status special_free(struct torch_device *device, void *ptr, unsigned mode)
{
    if ((mode & TORCH_SHARES) != 0)
        vmm__shared_block_drop(ptr);
    return (mode & TORCH_RECORDS) != 0 ? vmm__record_free(device, ptr)
                                       : vmm_free(vmm__torch_cache_of(device), ptr);
}

vmm_status vmm__torch_block_free(struct torch_device *device, void *ptr, uint64_t bytes)
{
    vmm_cache *cache = vmm__torch_cache_of(device);
    vmm_status status = bytes != 0 ? VMM_OK : requested_find(cache, ptr, &bytes);
    unsigned mode = vmm__torch_mode_now();
    uint64_t waits = atomic_load_explicit(&device->waits, memory_order_relaxed);
    if (status == VMM_OK)
        status = mode == 0 ? vmm_free(cache, ptr) : special_free(device, ptr, mode);
    if (status != VMM_OK && status != VMM_ERR_CORRUPTED) /* a corrupted block was freed */
        return status;
    bool waits_on = atomic_load_explicit(&device->waits, memory_order_relaxed) != waits &&
                    vmm__torch_waits(ptr);
    vmm__torch_stats_free(&device->stats, bytes, vmm_block_bytes(cache, bytes), waits_on);
    if ((mode & TORCH_RECORDS) == 0 && !waits_on && vmm__history_knows())
        vmm__record_late_free(device, ptr);
    return status;
}

void vmm_torch_free(void *ptr, size_t bytes, int ordinal, vmm_stream stream)
{
    (void)stream; /* the block's own stream counts */
    if (ptr == NULL || vmm__torch_is_forked())
        return;
    struct torch_device *device = vmm__torch_find(ordinal);
    vmm_status status = device != NULL
                            ? vmm__torch_block_free(device, ptr, bytes)
                            : vmm__error(VMM_ERR_UNKNOWN_POINTER,
                                         "%p: nothing was allocated on device %d", ptr, ordinal);
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_free", status);
}

void vmm_torch_free_unsized(void *ptr, size_t bytes, int ordinal, vmm_stream stream)
{
    (void)bytes; /* may be another block's */
    vmm_torch_free(ptr, 0, ordinal, stream);
}

/* ---- Caches as a whole ---------------------------------------------------------------------- */

static uint64_t stalls_read(const struct torch_device *device)
{
    vmm_stats stats = VMM_STATS_INIT;
    return vmm_stats_get(vmm__torch_cache_of(device), &stats) == VMM_OK ? stats.stalls : 0;
}

static vmm_status device_empty(struct torch_device *device)
{
    vmm_cache *cache = vmm__torch_cache_of(device);
    uint64_t stalls = stalls_read(device);
    vmm_status status = vmm_wait(cache);
    if (status == VMM_OK)
        status = vmm__torch_records() ? vmm__record_trim(device) : vmm_trim(cache, 0, NULL);
    int64_t beyond = 1 - (int64_t)(stalls_read(device) - stalls);
    atomic_fetch_add_explicit(&device->calls_beyond_stalls, beyond, memory_order_relaxed);
    return status;
}

/* Empties all devices, and returns the last failure, which vmm_last_error() describes. The tensors of a pool that
 * PyTorch has ended may be gone now. */
vmm_status vmm__torch_empty(void)
{
    vmm_status failure = VMM_OK;
    vmm__torch_region_end_deferred();
    for (struct torch_device *device = vmm__torch_next(NULL); device != NULL;
         device = vmm__torch_next(device)) {
        vmm_status status = device_empty(device);
        failure = status != VMM_OK ? status : failure;
    }
    return failure;
}

void vmm_torch_reset(void)
{
    vmm_status status = vmm__torch_empty();
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_reset", status);
}

vmm_status vmm__torch_fraction_set(int ordinal, double fraction)
{
    if (!(fraction >= 0.0 && fraction <= 1.0))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "a fraction of %g is not from 0 to 1",
                          fraction);
    struct torch_device *device = NULL;
    vmm_status status = vmm__torch_open(ordinal, &device);
    if (status != VMM_OK)
        return status;
    return vmm__torch_fraction_limit(device, vmm__torch_cache_of(device), fraction);
}

void vmm_torch_memory_fraction(double fraction, int device)
{
    vmm_status status = vmm__torch_fraction_set(device, fraction);
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_memory_fraction", status);
}

/* ---- Blocks of any device ------------------------------------------------------------------- */

vmm_status vmm__torch_owned_find(const void *ptr, struct owned_block *out,
                                 struct torch_device **device)
{
    vmm_status status = VMM__NOT_FOUND;
    *device = vmm__torch_next(NULL);
    while (*device != NULL) {
        status = vmm__find_owned(vmm__torch_cache_of(*device), ptr, out);
        if (status != VMM__NOT_FOUND)
            break;
        *device = vmm__torch_next(*device);
    }
    return status;
}

/* What is said of an address while no cache has answered. */
static vmm_status nothing_allocated(void)
{
    return vmm__error(VMM_ERR_UNKNOWN_POINTER, "nothing was allocated yet");
}

vmm_status vmm__torch_block_find(const void *address, vmm_item *item, int *ordinal)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = nothing_allocated();
    for (const struct torch_device *device = vmm__torch_next(NULL);
         device != NULL && status == VMM_ERR_UNKNOWN_POINTER; device = vmm__torch_next(device)) {
        status = vmm_find(vmm__torch_cache_of(device), address, item);
        if (status == VMM_OK)
            *ordinal = device->ordinal;
    }
    return vmm__error_end(&line, status);
}

void *vmm_torch_base(void *ptr, size_t *bytes)
{
    vmm_item item = VMM_ITEM_INIT;
    int device;
    bool found = vmm__torch_block_find(ptr, &item, &device) == VMM_OK;
    if (bytes != NULL)
        *bytes = found ? item.bytes : 0;
    return found ? (void *)(uintptr_t)item.address : ptr;
}

/* Asks first whose block it is: debug mode reports one of another device as misuse. */
vmm_status vmm__torch_stream_record(void *ptr, vmm_stream stream)
{
    struct error_line line;
    struct owned_block block;
    struct torch_device *device;
    if (ptr == NULL || vmm__torch_is_forked())
        return VMM_OK;
    if (vmm__torch_owned_find(ptr, &block, &device) != VMM__NOT_FOUND)
        return vmm_record_stream(vmm__torch_cache_of(device), ptr, stream);
    vmm__error_save(&line);
    vmm_status status = nothing_allocated();
    for (device = vmm__torch_next(NULL); device != NULL && status == VMM_ERR_UNKNOWN_POINTER;
         device = vmm__torch_next(device)) /* one of vmm_reserve(), or misuse */
        status = vmm_record_stream(vmm__torch_cache_of(device), ptr, stream);
    return vmm__error_end(&line, status);
}

void vmm_torch_record_stream(void *ptr, vmm_stream stream)
{
    vmm_status status = vmm__torch_stream_record(ptr, stream);
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_record_stream", status);
}

/* ---- Statistics ----------------------------------------------------------------------------- */

static int asleep_subtract(void *context, const vmm_item *item)
{
    vmm_torch_stats *stats = context;
    uint64_t *reserved = &(item->is_small ? &stats->small : &stats->large)->reserved_bytes.current;
    if (item->kind == VMM_ITEM_CHUNK && item->state == VMM_ITEM_ASLEEP)
        *reserved -= item->bytes < *reserved ? item->bytes : *reserved;
    return 0;
}

/* Memory of a pool that sleeps is not reserved; the cache reports no change of it, since its addresses stay. */
static vmm_status stats_read(struct torch_device *device, vmm_torch_stats *out)
{
    vmm_cache *cache = vmm__torch_cache_of(device);
    vmm_stats stats = VMM_STATS_INIT;
    vmm__torch_stats_read(&device->stats, out);
    vmm_status status = vmm_stats_get(cache, &stats);
    return status == VMM_OK && stats.asleep_bytes > 0 ? vmm_walk(cache, asleep_subtract, out)
                                                      : status;
}

vmm_status vmm_torch_stats_get(int ordinal, vmm_torch_stats *out)
{
    if (out == NULL || out->struct_size < sizeof *out)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_torch_stats_get: %s",
                          out == NULL ? "out is NULL" : "struct_size is too small");
    struct torch_device *device = vmm__torch_find(ordinal);
    vmm_torch_stats stats = { .struct_size = sizeof stats };
    vmm_status status = device == NULL ? VMM_OK : stats_read(device, &stats);
    if (status == VMM_OK)
        *out = stats;
    return status;
}

vmm_status vmm_torch_stats_reset(int ordinal, int accumulated)
{
    struct torch_device *device = vmm__torch_find(ordinal);
    if (device != NULL)
        vmm__torch_stats_reset(&device->stats, accumulated != 0);
    return VMM_OK;
}
