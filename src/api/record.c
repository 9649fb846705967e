/*
 * Calls that are recorded: see vmm_trace_start(). While a cache is recorded, SLOW_PATH_RECORDED keeps allocations and
 * frees from the fast paths of vmm_alloc() and vmm_free(); the fast paths here do the same, and record. Other frees are
 * recorded where they are made, with the lock held under which the block becomes free; in debug mode with guard pages,
 * before that (free_unrecorded()).
 */
#include "api/internal.h"
#include "base/handle.h"
#include "base/stack.h"
#include "cache/alloc/alloc.h"
#include "cache/alloc/refill.h"
#include "cache/streams.h"
#include "debug/debug_mode.h"

#include <stdarg.h>
#include <stdio.h>

static struct recorder *recorder_of(struct vmm_cache *cache)
{
    return atomic_load_explicit(&cache->directory.recorder, memory_order_acquire);
}

static uint64_t number_of(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

/* The pool of a new block. With the lane locked, because another thread may destroy a pool to which a route has led. */
static uint64_t pool_of(struct vmm_cache *cache, const void *block)
{
    uint64_t address = number_of(block);
    const struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return 0;
    uint64_t pool = number_of(heap->lane->owner.pool->handle);
    vmm__biased_unlock(&heap->lane->lock);
    return pool;
}

/* pool: the block's, if the caller knows it; else 0. */
static void alloc_record(struct recorder *recorder, const struct api_call *call,
                         const struct request *request, const void *block, uint64_t pool)
{
    struct trace_event event = { .kind = TRACE_ALLOC,
                                 .address = number_of(block),
                                 .bytes = request->bytes };
    vmm_stream stream = request->stream;
    (void)vmm__stream_resolve(call->function, &stream);
    event.stream = number_of(stream);
    event.pool = pool != 0 ? pool : pool_of(call->cache, block);
    if (atomic_load_explicit(&recorder->has_stacks, memory_order_relaxed))
        event.attached = vmm__stack_new(call->caller);
    vmm__recorder_push(recorder, event);
}

/* A lane that the thread can lock on the fast path, for a request that it may serve; NULL if there is none. */
static struct lane *lane_lock_fast(struct vmm_cache *cache, const struct request *request)
{
    if (request->alignment > 0 || request->is_unborrowed)
        return NULL;
    if (request->pool == NULL)
        return vmm__alloc_lane_lock_unless(cache, request->stream, SLOW_PATH_ONLY);
    return vmm__alloc_lane_lock_unless_in(cache, request->pool, request->stream, SLOW_PATH_ONLY);
}

vmm_status vmm__recorded_alloc(struct recorder *recorder, const struct api_call *call,
                               struct request *request, void **out)
{
    vmm_cache *cache = call->cache;
    vmm_status status;
    uint64_t pool = 0;
    struct lane *lane = lane_lock_fast(cache, request);
    if (lane == NULL) {
        status = vmm__api_alloc_unrecorded(call, request, out);
    } else {
        status = vmm__lane_take_locked(lane, request->bytes, out);
        pool = status == VMM_OK ? number_of(lane->owner.pool->handle)
                                : 0; /* others may lend a refill */
        vmm__biased_unlock(&lane->lock);
        if (status == VMM__NO_FIT)
            status = vmm__refill(cache, lane, NULL, request->bytes, out);
    }
    if (status == VMM_OK)
        alloc_record(recorder, call, request, *out, pool);
    else
        vmm__record_failure(cache, "alloc: ", status);
    return status;
}

vmm_status vmm__recorded_free_fast(struct vmm_cache *cache, uint64_t address, bool *should_poll)
{
    struct recorder *recorder = recorder_of(cache);
    struct heap *heap = recorder == NULL ? NULL : vmm__free_lane_lock_unless(cache, address, 0);
    if (heap == NULL)
        return VMM__NO_FIT;
    struct lane *lane = heap->lane;
    vmm_status status = vmm__lane_give_locked(lane, heap, address);
    if (status == VMM_OK)
        vmm__recorder_push_block(recorder, TRACE_FREE, address);
    *should_poll = vmm__decay_should_poll(&cache->decay, &lane->frees) || cache->no_caching;
    vmm__biased_unlock(&lane->lock);
    return status;
}

void vmm__record_new_block(const struct api_call *call, const struct request *request,
                           const void *block)
{
    struct recorder *recorder = recorder_of(call->cache);
    if (recorder != NULL)
        alloc_record(recorder, call, request, block, 0);
}

void vmm__record_use(struct vmm_cache *cache, const void *block, vmm_stream stream)
{
    struct recorder *recorder = recorder_of(cache);
    if (recorder != NULL)
        vmm__recorder_push(recorder, (struct trace_event){ .kind = TRACE_USE,
                                                           .address = number_of(block),
                                                           .stream = number_of(stream) });
}

void vmm__record_name(struct vmm_cache *cache, const void *block, const char *name)
{
    struct recorder *recorder = recorder_of(cache);
    struct trace_event event = { .kind = TRACE_NAME, .address = number_of(block) };
    char cut[VMM_NAME_BYTES]; /* as reports show it */
    if (recorder == NULL)
        return;
    (void)snprintf(cut, sizeof cut, "%s", name);
    if (vmm__reserved_owns(cache, event.address))
        vmm__reserved_record_name(cache, recorder, event.address);
    else
        vmm__recorder_push_text(recorder, event, cut);
}

void vmm__record_pool(struct vmm_cache *cache, vmm_pool *handle)
{
    struct recorder *recorder = recorder_of(cache);
    const struct pool *pool = vmm__handle_find(HANDLE_POOL, handle);
    if (recorder != NULL && pool != NULL)
        vmm__recorder_push_text(
            recorder, (struct trace_event){ .kind = TRACE_POOL, .pool = number_of(handle) },
            pool->name);
}

/* A child of fork() has the ring, but not the thread that empties it. */
void vmm__record_failure(struct vmm_cache *cache, const char *what, vmm_status status)
{
    if (status != VMM_ERR_FORKED)
        vmm__record_note(cache, "%s%s", what, vmm_last_error());
}

void vmm__record_note(struct vmm_cache *cache, const char *format, ...)
{
    struct recorder *recorder = recorder_of(cache);
    char text[TRACE_TEXT_BYTES];
    va_list arguments;
    if (recorder == NULL)
        return;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    vmm__recorder_push_text(recorder, (struct trace_event){ .kind = TRACE_NOTE }, text);
}
