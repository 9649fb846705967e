/* vmm_trace_start() and what goes with it: see "Recording" in include/vmmcache/vmmcache.h. */
#define _GNU_SOURCE
#include "api/config.h"
#include "api/internal.h"
#include "base/error.h"
#include "base/variable.h"
#include "trace/file_name.h"

#include <stdlib.h>
#include <string.h>

static vmm_status options_read(const vmm_trace_options *options, vmm_trace_options *out)
{
    static const struct options_kind kind = { .what = "vmm_trace_start",
                                              .init = "VMM_TRACE_OPTIONS_INIT",
                                              .least_bytes = offsetof(vmm_trace_options, stacks) +
                                                             sizeof options->stacks,
                                              .bytes = sizeof *out };
    *out = (vmm_trace_options)VMM_TRACE_OPTIONS_INIT;
    return vmm__options_read(&kind, options, out);
}

/* ---- What there is at the start -------------------------------------------------------------- */

/* Each unit with memory of a reserved block is recorded as a block of its own, and the reserved block is not. */
static bool item_is_block(const vmm_item *item)
{
    bool is_used = item->state == VMM_ITEM_LIVE || item->state == VMM_ITEM_WAITING;
    return item->kind == VMM_ITEM_BLOCK && is_used && !item->is_reserved;
}

/* A trace does not know sleep: memory that sleeps is recorded as if it stayed. */
static bool item_is_memory(const vmm_item *item)
{
    return item->kind == VMM_ITEM_CHUNK && item->state != VMM_ITEM_WAITING;
}

/* A unit of a reserved block that is live. The walk holds the grow lock. */
static bool item_is_unit(const struct vmm_cache *cache, const vmm_item *item)
{
    if (!item->is_reserved || !item_is_memory(item))
        return false;
    const struct reserved *block = vmm__reserved_around_locked(cache, item->address);
    return block != NULL && !vmm__reserved_is_freed(block);
}

static int item_record(void *context, const vmm_item *item)
{
    const struct vmm_cache *cache = context;
    struct recorder *recorder = cache->recorder;
    if (item->is_imported)
        return 0;
    struct trace_event event = { .kind = TRACE_MAP,
                                 .address = item->address,
                                 .bytes = item->bytes,
                                 .stream = (uint64_t)(uintptr_t)item->stream,
                                 .pool = (uint64_t)(uintptr_t)item->pool };
    if (item_is_memory(item))
        vmm__recorder_push(recorder, event);
    event.kind = TRACE_FOUND;
    if (item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_LIVE)
        event.bytes = item->requested_bytes;
    if (item_is_block(item) || item_is_unit(cache, item))
        vmm__recorder_push(recorder, event);
    event.kind = item->name[0] != '\0' ? TRACE_NAME : TRACE_WAIT;
    if (event.kind == TRACE_NAME)
        vmm__recorder_push_text(recorder, event, item->name);
    else if (item_is_block(item) && item->state == VMM_ITEM_WAITING)
        vmm__recorder_push(recorder, event);
    return 0;
}

/* With all lanes locked, no allocation is under way on the fast path, and none begins unrecorded after it. */
static void recording_begin(vmm_cache *cache)
{
    struct recorder *recorder = cache->recorder;
    VMM_HOLD_FAIR(&cache->grow_lock);
    vmm__cache_lanes_lock(cache, NULL);
    vmm__slow_path_set(cache, SLOW_PATH_RECORDED, true);
    atomic_store_explicit(&cache->directory.recorder, recorder, memory_order_release);
    for (const struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (pool->handle != NULL)
            vmm__record_pool(cache, pool->handle);
    }
    vmm__vm_record(&cache->vm, recorder);
    vmm__walk_locked(cache, item_record, cache);
    vmm__cache_lanes_unlock(cache, NULL);
}

static void recording_end(vmm_cache *cache)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    vmm__cache_lanes_lock(cache, NULL);
    vmm__slow_path_set(cache, SLOW_PATH_RECORDED, false);
    atomic_store_explicit(&cache->directory.recorder, NULL, memory_order_release);
    vmm__vm_record(&cache->vm, NULL);
    vmm__cache_lanes_unlock(cache, NULL);
}

/* ---- Start and stop -------------------------------------------------------------------------- */

/* VMM__IN_USE: another recording writes the file. */
static vmm_status trace_start(vmm_cache *cache, const char *path, const vmm_trace_options *options)
{
    VMM_HOLD(&cache->recorder_lock);
    if (atomic_load_explicit(&cache->directory.recorder, memory_order_relaxed) != NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_trace_start: the cache is recorded already");
    vmm_status status = cache->recorder == NULL ? vmm__recorder_make(&cache->recorder) : VMM_OK;
    if (status != VMM_OK)
        return status;
    struct writer_origin origin = { .chunk_bytes = cache->vm.arena.granule_bytes,
                                    .pool = (uint64_t)(uintptr_t)cache->pool.handle };
    status = vmm__recorder_open(cache->recorder, path, origin);
    if (status != VMM_OK)
        return status;
    atomic_store_explicit(&cache->recorder->has_stacks, options->stacks != 0, memory_order_relaxed);
    recording_begin(cache);
    return VMM_OK;
}

vmm_status vmm_trace_start(vmm_cache *cache, const char *path, const vmm_trace_options *options)
{
    vmm_trace_options settings;
    vmm_status status = vmm__api_admit(cache, "vmm_trace_start", path, "path");
    if (status == VMM_OK)
        status = options_read(options, &settings);
    if (status == VMM_OK)
        status = trace_start(cache, path, &settings);
    return status == VMM__IN_USE ? VMM_ERR_INVALID_ARGUMENT : status;
}

static vmm_status trace_stop(vmm_cache *cache)
{
    VMM_HOLD(&cache->recorder_lock);
    if (atomic_load_explicit(&cache->directory.recorder, memory_order_relaxed) == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_trace_stop: the cache is not recorded");
    recording_end(cache);
    return vmm__recorder_close(cache->recorder);
}

vmm_status vmm_trace_stop(vmm_cache *cache)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_trace_stop");
    return status == VMM_OK ? trace_stop(cache) : status;
}

vmm_status vmm_trace_note(vmm_cache *cache, const char *text)
{
    vmm_status status = vmm__api_admit(cache, "vmm_trace_note", text, "text");
    if (status == VMM_OK)
        vmm__record_note(cache, "%s", text);
    return status;
}

void vmm__trace_end(struct vmm_cache *cache)
{
    bool is_on = atomic_load_explicit(&cache->directory.recorder, memory_order_relaxed) != NULL;
    if (is_on && trace_stop(cache) != VMM_OK)
        vmm__cache_log(cache, "%s", vmm_last_error());
    vmm__recorder_free(cache->recorder);
}

/* ---- Environment ----------------------------------------------------------------------------- */

/* The caches of a program, and of programs that it starts, have the same variable: the file of the second is FILE.2. */
vmm_status vmm__trace_environment(struct vmm_cache *cache)
{
    static atomic_uint caches;
    char path[TRACE_PATH_BYTES];
    const char *file = vmm__variable("VMM_TRACE");
    const char *stacks = vmm__variable("VMM_TRACE_STACKS");
    vmm_trace_options options = VMM_TRACE_OPTIONS_INIT;
    if (file == NULL)
        return VMM_OK;
    options.stacks = stacks != NULL && !vmm__variable_is(stacks, "off");
    if (options.stacks && !vmm__variable_is(stacks, "on"))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_TRACE_STACKS=%.40s: not one of: on, off",
                          stacks);
    vmm_status status = VMM__IN_USE;
    while (status == VMM__IN_USE) {
        unsigned number = 1 + atomic_fetch_add_explicit(&caches, 1, memory_order_relaxed);
        status = vmm__trace_file_name(path, file, number);
        if (status != VMM_OK)
            return status;
        status = trace_start(cache, path, &options);
    }
    return status == VMM_OK ? VMM_OK : vmm__error(status, "VMM_TRACE: %s", vmm_last_error());
}
