/*
 * The hooks of PyTorch's plug-in interface that need no C++. A free or another hook that returns nothing
 * never fails: its error is kept for vmm_last_error() and told to the log.
 * May be called by: nobody within; they are the library's interface. Locks: none of their own.
 */
#include "base/error.h"
#include "torch/plugin.h"

/* ---- Allocating and freeing ------------------------------------------------------------------- */

vmm_status vmm__torch_take(size_t bytes, int ordinal, vmm_stream stream, void **out)
{
    if (bytes == 0) { /* PyTorch wants NULL, and never frees it */
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
    if (status == VMM_ERR_INVALID_ARGUMENT) /* more than there are addresses */
        status = VMM_ERR_ADDRESS_SPACE;
    if (status != VMM_OK) {
        vmm__torch_shortage_tell(device, status, bytes);
        return status;
    }
    vmm__figures_take(&device->figures, bytes, vmm_block_bytes(cache, bytes));
    if (!is_recorded && vmm__torch_records())
        vmm__record_late_alloc(device, *out);
    return VMM_OK;
}

void *vmm_torch_try_alloc(size_t bytes, int device, vmm_stream stream)
{
    void *ptr = NULL;
    return vmm__torch_take(bytes, device, stream, &ptr) == VMM_OK ? ptr : NULL;
}

/* What was asked for; for callers that do not know it. */
static vmm_status requested_find(vmm_cache *cache, const void *ptr, uint64_t *bytes)
{
    vmm_item item = VMM_ITEM_INIT;
    vmm_status status = vmm_find(cache, ptr, &item);
    if (status == VMM_OK)
        *bytes = item.requested_bytes;
    return status;
}

static vmm_status block_give(struct torch_device *device, void *ptr, uint64_t bytes)
{
    vmm_cache *cache = vmm__torch_cache_of(device);
    vmm_status status = bytes != 0 ? VMM_OK : requested_find(cache, ptr, &bytes);
    bool is_recorded = vmm__torch_records();
    uint64_t waits = atomic_load_explicit(&device->waits, memory_order_relaxed);
    if (status == VMM_OK)
        status = is_recorded ? vmm__record_free(device, ptr) : vmm_free(cache, ptr);
    if (status != VMM_OK && status != VMM_ERR_CORRUPTED) /* which was taken back */
        return status;
    bool waits_on = atomic_load_explicit(&device->waits, memory_order_relaxed) != waits &&
                    vmm__torch_waits(ptr);
    vmm__figures_give(&device->figures, bytes, vmm_block_bytes(cache, bytes), waits_on);
    if (!is_recorded && vmm__torch_records())
        vmm__record_late_free(device, ptr);
    return status;
}

void vmm_torch_free(void *ptr, size_t bytes, int ordinal, vmm_stream stream)
{
    (void)stream; /* the block knows it */
    if (ptr == NULL || (vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return;
    struct torch_device *device = vmm__torch_find(ordinal);
    vmm_status status = device != NULL
                            ? block_give(device, ptr, bytes)
                            : vmm__error(VMM_ERR_UNKNOWN_POINTER,
                                         "%p: nothing was allocated on device %d", ptr, ordinal);
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_free", status);
}

/* ---- Caches as a whole ---------------------------------------------------------------------- */

void vmm_torch_reset(void)
{
    for (int ordinal = 0; ordinal < TORCH_DEVICES; ordinal++) {
        struct torch_device *device = vmm__torch_find(ordinal);
        if (device == NULL)
            continue;
        vmm_cache *cache = vmm__torch_cache_of(device);
        vmm_status status = vmm_wait(cache);
        if (status == VMM_OK)
            status = vmm_trim(cache, 0, NULL);
        if (status != VMM_OK)
            vmm__torch_complain("vmm_torch_reset", status);
    }
}

/* All of the memory is no limit. */
static vmm_status fraction_set(double fraction, int ordinal)
{
    if (!(fraction >= 0.0 && fraction <= 1.0))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "a fraction of %g is not from 0 to 1",
                          fraction);
    struct torch_device *device = NULL;
    vmm_status status = vmm__torch_open(ordinal, &device);
    if (status != VMM_OK)
        return status;
    vmm_cache *cache = vmm__torch_cache_of(device);
    return fraction < 1.0 ? vmm__torch_limit(cache, fraction) : vmm_limit_set(cache, 0);
}

void vmm_torch_memory_fraction(double fraction, int device)
{
    vmm_status status = fraction_set(fraction, device);
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_memory_fraction", status);
}

/* ---- Private pools --------------------------------------------------------------------------- */

vmm_status vmm__torch_pool_begin(int ordinal, vmm_pool_id id, vmm_pool_filter filter, void *context)
{
    struct torch_device *device = NULL;
    vmm_status status = vmm__torch_open(ordinal, &device);
    if (status != VMM_OK)
        return status;
    return vmm_pool_begin(vmm__torch_cache_of(device), id, filter, context);
}

/* Does something to a pool that was begun: the cache is there already. */
static vmm_status pool_act(int ordinal, vmm_pool_id id,
                           vmm_status (*act)(vmm_cache *cache, vmm_pool_id id))
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    if (device == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "device %d has no cache", ordinal);
    return act(vmm__torch_cache_of(device), id);
}

vmm_status vmm__torch_pool_end(int ordinal, vmm_pool_id id)
{
    return pool_act(ordinal, id, vmm_pool_end);
}

vmm_status vmm__torch_pool_release(int ordinal, vmm_pool_id id)
{
    return pool_act(ordinal, id, vmm_pool_release);
}

/* ---- Blocks of whichever device ------------------------------------------------------------- */

/* Asks each cache until one knows the block. vmm_last_error() speaks of it only if none does. */
static vmm_status caches_ask(vmm_status (*ask)(const struct torch_device *device, void *context),
                             void *context)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__error(VMM_ERR_UNKNOWN_POINTER, "nothing was allocated yet");
    for (int ordinal = 0; ordinal < TORCH_DEVICES; ordinal++) {
        const struct torch_device *device = vmm__torch_find(ordinal);
        if (device == NULL)
            continue;
        status = ask(device, context);
        if (status != VMM_ERR_UNKNOWN_POINTER)
            break;
    }
    if (status == VMM_OK)
        vmm__error_restore(&line);
    return status;
}

struct base_question {
    const void *address;
    vmm_item item;
};

static vmm_status base_ask(const struct torch_device *device, void *context)
{
    struct base_question *question = context;
    return vmm_find(vmm__torch_cache_of(device), question->address, &question->item);
}

void *vmm_torch_base(void *ptr, size_t *bytes)
{
    struct base_question question = { .address = ptr, .item.struct_size = sizeof question.item };
    bool found = caches_ask(base_ask, &question) == VMM_OK;
    if (bytes != NULL)
        *bytes = found ? question.item.bytes : 0;
    return found ? (void *)(uintptr_t)question.item.address : ptr;
}

struct use_question {
    void *ptr;
    vmm_stream stream;
    bool is_misuse; /* no cache has the block */
};

/* To a guard a block of another device would be misuse: so it is looked for first, for which a cache without one need
 * not wait for others. */
static vmm_status use_ask(const struct torch_device *device, void *context)
{
    const struct use_question *question = context;
    vmm_cache *cache = vmm__torch_cache_of(device);
    vmm_item item = VMM_ITEM_INIT;
    vmm_status status = VMM_OK;
    if (device->has_guard && !question->is_misuse)
        status = vmm_find(cache, question->ptr, &item);
    return status == VMM_OK ? vmm_use(cache, question->ptr, question->stream) : status;
}

void vmm_torch_record_stream(void *ptr, vmm_stream stream)
{
    if (ptr == NULL || (vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return;
    struct use_question question = { .ptr = ptr, .stream = stream };
    vmm_status status = caches_ask(use_ask, &question);
    if (status == VMM_ERR_UNKNOWN_POINTER) {
        question.is_misuse = true;
        status = caches_ask(use_ask, &question);
    }
    if (status != VMM_OK)
        vmm__torch_complain("vmm_torch_record_stream", status);
}

/* ---- Figures -------------------------------------------------------------------------------- */

vmm_status vmm_torch_figures_get(int ordinal, vmm_torch_figures *out)
{
    if (out == NULL || out->struct_size < sizeof *out)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_torch_figures_get: %s",
                          out == NULL ? "out is NULL" : "struct_size is too small");
    struct torch_device *device = vmm__torch_find(ordinal);
    vmm_torch_figures figures = { .struct_size = sizeof figures };
    if (device != NULL)
        vmm__figures_read(&device->figures, &figures);
    *out = figures;
    return VMM_OK;
}

vmm_status vmm_torch_figures_reset(int ordinal, int accumulated)
{
    struct torch_device *device = vmm__torch_find(ordinal);
    if (device != NULL)
        vmm__figures_reset(&device->figures, accumulated != 0);
    return VMM_OK;
}
