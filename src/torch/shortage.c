/*
 * Who is told that a request has failed for want of memory, before the program is.
 *
 * Owns: the watcher. Invariants:
 *  1. what the watcher does itself is not told to it again on the same thread;
 *  2. vmm_last_error() speaks of the request that failed, whatever the watcher did.
 * May be called by: torch. Locks: none; the watcher is called without locks.
 */
#include "base/error.h"
#include "torch/plugin.h"

static _Atomic(vmm_torch_shortage_fn) watcher;
static _Thread_local bool is_telling;

void vmm_torch_shortage_watch(vmm_torch_shortage_fn watch)
{
    atomic_store_explicit(&watcher, watch, memory_order_release);
}

/* What is left zero if the device does not tell. */
static void memory_find(vmm_cache *cache, uint64_t *free_bytes, uint64_t *most_bytes)
{
    vmm_stats stats = VMM_STATS_INIT;
    if (vmm_device_memory(cache, free_bytes, most_bytes) != VMM_OK)
        return;
    if (vmm_stats_get(cache, &stats) == VMM_OK && stats.limit_bytes != 0)
        *most_bytes = stats.limit_bytes;
}

void vmm__torch_shortage_tell(const struct torch_device *device, vmm_status status, uint64_t bytes)
{
    vmm_torch_shortage_fn watch = atomic_load_explicit(&watcher, memory_order_acquire);
    if (watch == NULL || is_telling || !vmm__is_shortage(status))
        return;
    struct error_line line;
    vmm__error_save(&line);
    uint64_t free_bytes = 0;
    uint64_t most_bytes = 0;
    memory_find(vmm__torch_cache_of(device), &free_bytes, &most_bytes);
    is_telling = true;
    watch(device->ordinal, bytes, most_bytes, free_bytes);
    is_telling = false;
    vmm__error_restore(&line);
}
