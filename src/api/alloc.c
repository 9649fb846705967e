/*
 * The public functions that allocate, free, release and compact memory, and those that change the limit, the listener
 * and the log. Each checks its arguments and takes the fast path of the stream's lane, or calls the module that does
 * the work. include/vmmcache/vmmcache.h documents each function.
 */
#include "cache/alloc/alloc.h"
#include "api/config.h"
#include "api/internal.h"
#include "api/listen.h"
#include "base/error.h"
#include "cache/alloc/refill.h"
#include "cache/compact/compact.h"
#include "cache/grow/source.h"
#include "cache/idle/trim.h"
#include "cache/pool/pools.h"
#include "cache/reserve/reserve.h"
#include "cache/share/import.h"
#include "cache/streams.h"
#include "debug/debug_mode.h"
#include "debug/nvtx.h"
#include "vm/captures.h"
#include "vmmcache/vmmcache.h"

/* ---- Memory ------------------------------------------------------------------------------- */

/* Debug mode and NVTX disable the fast path. */
vmm_status vmm__api_alloc_unrecorded(const struct api_call *call, struct request *request,
                                     void **out)
{
    vmm_cache *cache = call->cache;
    if (cache->debug == NULL && cache->nvtx == NULL)
        return vmm__alloc_request(cache, request, out);
    vmm_status status =
        vmm__cache_admit_work(cache, call->function); /* before the locks of debug mode and NVTX */
    if (status != VMM_OK)
        return status;
    if (cache->debug != NULL)
        return vmm__debug_alloc(call, request, out);
    status = vmm__alloc_request(cache, request, out);
    if (status == VMM_OK)
        vmm__nvtx_register(cache, *out, request->bytes);
    return status;
}

bool vmm__api_is_watched(const vmm_cache *cache)
{
    return cache->debug != NULL || cache->nvtx != NULL ||
           atomic_load_explicit(&cache->directory.recorder, memory_order_acquire) != NULL;
}

vmm_status vmm__api_alloc(const struct api_call *call, struct request *request, void **out)
{
    struct recorder *recorder =
        atomic_load_explicit(&call->cache->directory.recorder, memory_order_acquire);
    return recorder == NULL ? vmm__api_alloc_unrecorded(call, request, out)
                            : vmm__recorded_alloc(recorder, call, request, out);
}

/* Not inlined, so that the path of other calls has no request on its stack. */
static __attribute__((noinline)) vmm_status alloc_watched(vmm_cache *cache, struct pool *pool,
                                                          size_t bytes, vmm_stream stream,
                                                          void **out, const void *caller)
{
    struct api_call call = { .cache = cache,
                             .function = pool == NULL ? "vmm_alloc" : "vmm_alloc_from",
                             .caller = caller };
    struct request request = { .pool = pool, .bytes = bytes, .stream = stream };
    return vmm__api_alloc(&call, &request, out);
}

/* Not inlined, so that the fast path needs no stack frame. */
__attribute__((noinline)) vmm_status vmm__api_alloc_slow(vmm_cache *cache, struct pool *pool,
                                                         size_t bytes, vmm_stream stream,
                                                         void **out, const void *caller)
{
    if (vmm__api_is_watched(cache))
        return alloc_watched(cache, pool, bytes, stream, out, caller);
    return vmm__alloc_slow(cache, pool, bytes, stream, out);
}

vmm_status vmm_alloc(vmm_cache *cache, size_t bytes, vmm_stream stream, void **out)
{
    if (cache == NULL || out == NULL)
        return vmm__cache_missing("vmm_alloc", cache == NULL ? "cache" : "out");
    struct lane *lane =
        vmm__alloc_lane_lock_unless(cache, stream, SLOW_PATH_ONLY | SLOW_PATH_RECORDED);
    if (lane == NULL)
        return vmm__api_alloc_slow(cache, NULL, bytes, stream, out, API_CALLER);
    vmm_status status = vmm__lane_take_locked(lane, bytes, out);
    vmm__biased_unlock(&lane->lock);
    return status == VMM__NO_FIT ? vmm__refill(cache, lane, NULL, bytes, out) : status;
}

vmm_status vmm__api_unknown_pointer(vmm_cache *cache, const char *function, const void *ptr)
{
    bool is_inside = vmm__arena_spans(&cache->vm.arena, (uint64_t)(uintptr_t)ptr);
    vmm_status status = vmm__error(
        VMM_ERR_UNKNOWN_POINTER, "%s: 0x%llx is not an address of this cache's blocks: %s",
        function, (unsigned long long)(uintptr_t)ptr,
        is_inside ? "no memory is mapped there" : "it lies outside of the cache's arena");
    vmm__record_failure(cache, "", status);
    return status;
}

/* Does the work that may be due after a free. A failure here does not fail the free: a later call retries. */
static __attribute__((noinline)) void run_due_work(vmm_cache *cache)
{
    if (atomic_load_explicit(&cache->has_freed_imports, memory_order_relaxed))
        vmm__import_poll(cache);
    vmm__api_trim_without_caching(cache);
    if (cache->no_caching || !vmm__decay_is_due(&cache->decay))
        return;
    VMM_QUIET();
    (void)vmm__poll(cache);
    vmm__source_poll(cache);
}

static vmm_status free_unrecorded(vmm_cache *cache, const void *ptr, bool *should_poll,
                                  const void *caller)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    if ((cache->debug == NULL && cache->nvtx == NULL) || vmm__alloc_is_import(cache, address))
        return vmm__free_slow(cache, address, should_poll);
    struct api_call call = { .cache = cache, .function = "vmm_free", .caller = caller };
    vmm_status status =
        vmm__cache_admit(cache, "vmm_free"); /* before the locks of debug mode and NVTX */
    if (status != VMM_OK)
        return status;
    if (cache->has_guard_pages) /* the lane's block, whose free is recorded, has another address */
        vmm__record_block(&cache->directory.recorder, TRACE_FREE, address);
    return cache->debug != NULL ? vmm__debug_free(&call, address, should_poll)
                                : vmm__nvtx_unregister(cache, ptr, should_poll);
}

/* Frees in debug mode, with NVTX, and while the cache is recorded. Not inlined, as above. */
static __attribute__((noinline)) vmm_status free_watched(vmm_cache *cache, const void *ptr,
                                                         bool *should_poll, const void *caller)
{
    vmm_status status = vmm__recorded_free_fast(cache, (uint64_t)(uintptr_t)ptr, should_poll);
    if (status == VMM__NO_FIT)
        status = free_unrecorded(cache, ptr, should_poll, caller);
    if (status != VMM_OK && status != VMM__NOT_FOUND)
        vmm__record_failure(cache, "", status);
    return status;
}

static __attribute__((noinline)) vmm_status
free_without_fast_path(vmm_cache *cache, const void *ptr, bool *should_poll, const void *caller)
{
    if (vmm__api_is_watched(cache))
        return free_watched(cache, ptr, should_poll, caller);
    return vmm__free_slow(cache, (uint64_t)(uintptr_t)ptr, should_poll);
}

vmm_status vmm_free(vmm_cache *cache, void *ptr)
{
    if (cache == NULL)
        return vmm__cache_missing("vmm_free", "cache");
    if (ptr == NULL)
        return VMM_OK;
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    bool should_poll = false;
    struct heap *heap = vmm__free_lane_lock_unless(cache, address, SLOW_PATH_RECORDED);
    vmm_status status;
    if (heap == NULL) {
        status = free_without_fast_path(cache, ptr, &should_poll, API_CALLER);
    } else {
        struct lane *lane = heap->lane;
        status = vmm__lane_give_locked(lane, heap, address);
        should_poll = vmm__decay_should_poll(&cache->decay, &lane->frees) || cache->no_caching;
        vmm__biased_unlock(&lane->lock);
    }
    if (status == VMM__NOT_FOUND)
        status = vmm__reserved_free(cache, address);
    if (status == VMM__NOT_FOUND)
        return vmm__api_unknown_pointer(cache, "vmm_free", ptr);
    if (should_poll && status == VMM_OK)
        run_due_work(cache);
    return status;
}

/* Records that `user` uses a live block. user NULL: only checks that the block is live. */
static vmm_status block_use(vmm_cache *cache, const void *ptr, struct lane *user)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return vmm__api_unknown_pointer(cache, "vmm_record_stream", ptr);
    struct lane *lane = heap->lane;
    vmm_status status = vmm__lane_use_locked(lane, heap, address, user == NULL ? lane : user);
    vmm__biased_unlock(&lane->lock);
    return status;
}

vmm_status vmm_record_stream(vmm_cache *cache, void *ptr, vmm_stream other)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_record_stream");
    if (status == VMM_OK)
        status = vmm__stream_resolve("vmm_record_stream", &other);
    if (status != VMM_OK)
        return status;
    struct api_call call = API_CALL(cache, "vmm_record_stream");
    call.is_use = true;
    const void *block = ptr;
    status = vmm__debug_inner(&call, &ptr);
    if (status != VMM_OK)
        return status;
    struct lane *user = vmm__lane_table_find(&cache->pool.table, other);
    if (user == NULL) { /* create a lane for the stream only if the block is live */
        status = block_use(cache, ptr, NULL);
        if (status == VMM_OK)
            status = vmm__stream_lane(cache, other, &user);
    }
    if (status == VMM_OK)
        status = block_use(cache, ptr, user);
    if (status == VMM_OK && !vmm__import_owns(cache, (uint64_t)(uintptr_t)block))
        vmm__record_use(cache, block, other);
    return status;
}

static vmm_status stream_is_captured(const char *function, vmm_stream stream)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "%s: a capture of stream %p is announced or under way", function, stream);
}

vmm_status vmm_stream_end(vmm_cache *cache, vmm_stream stream)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_stream_end");
    if (status == VMM_OK)
        status = vmm__stream_resolve("vmm_stream_end", &stream);
    if (status != VMM_OK)
        return status;
    if (stream == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_stream_end: the default stream has no end");
    status = vmm__debug_stream_end(cache, stream);
    return status == VMM__PENDING ? stream_is_captured("vmm_stream_end", stream) : status;
}

vmm_status vmm_capture_announce(vmm_cache *cache, vmm_stream stream)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_capture_announce");
    if (status != VMM_OK)
        return status;
    vmm__fair_lock(&cache->grow_lock);
    vmm__streams_tick(cache);
    vmm__fair_unlock(&cache->grow_lock);
    return vmm__captures_announce(cache->driver, stream);
}

/* Pools may have been leaving meanwhile. A failure of that does not fail the call. */
vmm_status vmm_capture_retract(vmm_cache *cache, vmm_stream stream)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_capture_retract");
    if (status != VMM_OK)
        return status;
    (void)vmm__captures_retract(cache->driver, stream);
    VMM_QUIET();
    (void)vmm__poll(cache);
    return VMM_OK;
}

static vmm_status block_pin(const struct api_call *call, void *ptr, bool pinned)
{
    vmm_cache *cache = call->cache;
    const char *function = call->function;
    vmm_status status = vmm__cache_admit(cache, function);
    if (status == VMM_OK)
        status = vmm__debug_inner(call, &ptr);
    if (status != VMM_OK)
        return status;
    status = vmm__pin_slow(cache, (uint64_t)(uintptr_t)ptr, pinned);
    return status == VMM__NOT_FOUND ? vmm__api_unknown_pointer(cache, function, ptr) : status;
}

vmm_status vmm_pin(vmm_cache *cache, void *ptr)
{
    struct api_call call = API_CALL(cache, "vmm_pin");
    return block_pin(&call, ptr, true);
}

vmm_status vmm_unpin(vmm_cache *cache, void *ptr)
{
    struct api_call call = API_CALL(cache, "vmm_unpin");
    return block_pin(&call, ptr, false);
}

vmm_status vmm_trim(vmm_cache *cache, size_t keep_bytes, size_t *released)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_trim");
    if (status != VMM_OK)
        return status;
    struct api_call call = API_CALL(cache, "vmm_trim");
    vmm_status found = vmm__debug_flush(&call);
    vmm__import_release(cache);
    uint64_t released_bytes = 0;
    status = vmm__trim(cache, keep_bytes, &released_bytes);
    uint64_t returned_bytes = vmm__source_return(cache, NULL);
    released_bytes += status == VMM_OK ? returned_bytes : 0;
    if (status == VMM_OK && found != VMM_OK)
        return found;
    if (status == VMM_OK && released != NULL)
        *released = released_bytes;
    if (status == VMM_OK)
        vmm__record_note(cache, "vmm_trim: released %llu bytes",
                         (unsigned long long)released_bytes);
    return status;
}

vmm_status vmm_compact(vmm_cache *cache, uint32_t budget_ms, uint64_t *moved_bytes,
                       uint64_t *released_bytes)
{
    uint64_t moved = 0;
    uint64_t released = 0;
    vmm_status status = vmm__cache_admit_work(cache, "vmm_compact");
    if (status != VMM_OK)
        return status;
    if (cache->nvtx != NULL || cache->has_guard_pages)
        return vmm__error(VMM_ERR_UNSUPPORTED, "vmm_compact: %s prevents moves",
                          cache->nvtx != NULL ? "nvtx" : "debug mode");
    status = vmm__compact_now(cache, budget_ms, &moved, &released);
    uint64_t returned = vmm__source_return(cache, NULL);
    if (status == VMM__PENDING)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_compact: a capture is under way");
    released += status == VMM_OK ? returned : 0;
    if (status == VMM_OK)
        vmm__record_note(cache, "vmm_compact: released %llu bytes", (unsigned long long)released);
    if (status == VMM_OK && moved_bytes != NULL)
        *moved_bytes = moved;
    if (status == VMM_OK && released_bytes != NULL)
        *released_bytes = released;
    return status;
}

vmm_status vmm_wait(vmm_cache *cache)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_wait");
    return status == VMM_OK ? vmm__pools_wait(cache) : status;
}

vmm_status vmm_wait_stream(vmm_cache *cache, vmm_stream stream)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_wait_stream");
    if (status == VMM_OK)
        status = vmm__stream_resolve("vmm_wait_stream", &stream);
    if (status == VMM_OK)
        status = vmm__driver_stream_check(cache->driver, stream);
    if (status == VMM_OK)
        status = vmm__clock_stream_wait(&cache->clock, stream);
    return status == VMM__PENDING ? stream_is_captured("vmm_wait_stream", stream) : status;
}

vmm_status vmm_poll(vmm_cache *cache)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_poll");
    if (status != VMM_OK)
        return status;
    vmm__import_poll(cache);
    status = vmm__poll(cache);
    vmm__source_poll(cache);
    return status;
}

vmm_status vmm_limit_set(vmm_cache *cache, uint64_t limit_bytes)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_limit_set");
    if (status != VMM_OK)
        return status;
    VMM_HOLD_FAIR(&cache->grow_lock);
    cache->vm.limit_bytes = vmm__limit_bytes(limit_bytes);
    return VMM_OK;
}

static vmm_status listener_set(vmm_cache *cache, unsigned number, vmm_listener listener,
                               void *context)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_listen");
    if (status != VMM_OK)
        return status;
    VMM_HOLD_FAIR(&cache->grow_lock);
    vmm__cache_lanes_lock(cache, NULL);
    cache->directory.listeners[number] =
        (struct listener){ .tell = listener,
                           .context = context,
                           .owner = cache,
                           .is_of_memory =
                               cache->debug != NULL && vmm__debug_watches_memory(cache->debug) };
    vmm__cache_lanes_unlock(cache, NULL);
    return VMM_OK;
}

vmm_status vmm_listen(vmm_cache *cache, vmm_listener listener, void *context)
{
    return listener_set(cache, LISTENER_OF_PROGRAM, listener, context);
}

vmm_status vmm__listen_beside(vmm_cache *cache, vmm_listener listener, void *context)
{
    return listener_set(cache, LISTENER_OF_ADAPTER, listener, context);
}

vmm_status vmm_log_write(vmm_cache *cache, const char *line)
{
    vmm_status status = vmm__api_admit(cache, "vmm_log_write", line, "line");
    if (status != VMM_OK)
        return status;
    vmm__cache_log(cache, "%s", line);
    return VMM_OK;
}

vmm_status vmm__cache_check(vmm_cache *cache)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    return vmm__cache_check_locked(cache);
}
