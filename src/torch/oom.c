/* Reports of requests that ran out of memory: see oom.h. */
#include "torch/oom.h"
#include "base/error.h"

static _Atomic(vmm_torch_oom_fn) listener;
static _Thread_local bool is_reporting;

void vmm_torch_oom_listen(vmm_torch_oom_fn watch)
{
    atomic_store_explicit(&listener, watch, memory_order_release);
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

void vmm__torch_oom_tell(const struct torch_device *device, vmm_status status, uint64_t bytes)
{
    vmm_torch_oom_fn watch = atomic_load_explicit(&listener, memory_order_acquire);
    if (watch == NULL || is_reporting || !vmm__is_oom(status))
        return;
    struct error_line line;
    vmm__error_save(&line);
    uint64_t free_bytes = 0;
    uint64_t most_bytes = 0;
    memory_read(vmm__torch_cache_of(device), &free_bytes, &most_bytes);
    is_reporting = true;
    watch(device->ordinal, bytes, most_bytes, free_bytes);
    is_reporting = false;
    vmm__error_restore(&line);
}
