/*
 * Streams that end, captures, and frees that wait for the end of captures: see preload.h.
 *
 * Owns: the deferred blocks, and a record of each capture under way that began by a call that is replaced.
 * Called by: memory, devices and programs, any thread. `lock` guards both.
 */
#include "base/hostmem.h"
#include "base/map.h"
#include "preload/preload.h"

struct capture {
    struct map_node node; /* key_of() the stream on which it begins */
    CUstream stream;
    int ordinal; /* of its device */
};

/* A block that the program has freed. */
struct deferred {
    struct map_node node; /* its key is the block's address; until the block is about to be freed */
    struct preload_device *device;
    bool is_taken; /* a thread is about to free it */
    struct deferred *next_taken;
};

static struct mutex lock = VMM_MUTEX_INIT;
static struct map captures;
static struct map deferred;
static _Atomic bool has_deferred;

/* ---- Deferred frees -------------------------------------------------------------------------- */

static struct deferred *deferred_of(struct map_node *node)
{
    return VMM_MAP_RECORD(node, struct deferred, node);
}

/* Takes those of a device; NULL: of all, unless captures are under way. They stay deferred, so that a second free of
 * one finds no block, until deferred_end(). */
static struct deferred *deferred_take(const struct preload_device *device)
{
    struct deferred *first = NULL;
    VMM_HOLD(&lock);
    bool takes = device != NULL || captures.count == 0;
    for (struct map_node *node = vmm__map_next(&deferred, NULL); takes && node != NULL;
         node = vmm__map_next(&deferred, node)) {
        struct deferred *block = deferred_of(node);
        if (block->is_taken || (device != NULL && block->device != device))
            continue;
        block->is_taken = true;
        block->next_taken = first;
        first = block;
    }
    return first;
}

/* The block ends to be deferred, or stays it. */
static void deferred_end(struct deferred *block, bool ends)
{
    vmm__mutex_lock(&lock);
    block->is_taken = false;
    if (ends)
        vmm__map_remove(&deferred, &block->node);
    atomic_store_explicit(&has_deferred, deferred.count > 0, memory_order_release);
    vmm__mutex_unlock(&lock);
    if (ends)
        vmm__host_free(block, sizeof *block);
}

static CUresult defer_locked(const struct preload_block *block)
{
    if (vmm__map_find(&deferred, block->address) != NULL)
        return CUDA_ERROR_INVALID_VALUE; /* another thread has freed it */
    struct deferred *kept = vmm__host_alloc(1, sizeof *kept);
    if (kept == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *kept = (struct deferred){ .node.key = block->address, .device = block->device };
    vmm__map_add(&deferred, &kept->node);
    atomic_store_explicit(&has_deferred, true, memory_order_release);
    return CUDA_SUCCESS;
}

bool vmm__preload_defer(const struct preload_block *block, CUresult *result)
{
    VMM_HOLD(&lock);
    bool is_deferred = captures.count > 0;
    if (is_deferred)
        *result = defer_locked(block);
    return is_deferred;
}

bool vmm__preload_is_deferred(CUdeviceptr address)
{
    if (!atomic_load_explicit(&has_deferred, memory_order_acquire))
        return false;
    VMM_HOLD(&lock);
    return vmm__map_find(&deferred, address) != NULL;
}

/* Once the block is free, its address may be that of another thread's new block, which is not deferred. */
static void deferred_free(struct deferred *block)
{
    vmm_cache *cache = block->device->cache;
    void *address = (void *)(uintptr_t)block->node.key;
    struct preload_scope scope = vmm__preload_scope(block->device);
    CUresult result = vmm__preload_real()->cuCtxSynchronize();
    vmm__preload_restore(&scope);
    deferred_end(block, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        (void)vmm_free(cache, address);
}

void vmm__preload_deferred_free(void)
{
    struct deferred *next;
    if (!atomic_load_explicit(&has_deferred, memory_order_relaxed))
        return;
    for (struct deferred *block = deferred_take(NULL); block != NULL; block = next) {
        next = block->next_taken;
        deferred_free(block);
    }
}

void vmm__preload_deferred_drop(const struct preload_device *device)
{
    struct deferred *next;
    for (struct deferred *block = deferred_take(device); block != NULL; block = next) {
        next = block->next_taken;
        deferred_end(block, true);
    }
}

/* ---- Captures -------------------------------------------------------------------------------- */

/* The handle of the thread's own default stream names one for each thread. */
static uint64_t key_of(CUstream stream)
{
    return stream == PRELOAD_PER_THREAD ? (uintptr_t)&vmm__preload_inside : (uintptr_t)stream;
}

/* Calls the cache of a capture's device, if it has one. */
static void cache_tell(const struct capture *capture,
                       vmm_status (*call)(vmm_cache *cache, vmm_stream stream))
{
    vmm__preload_caches_hold();
    const struct preload_device *device = vmm__preload_device_at(capture->ordinal);
    if (device != NULL)
        (void)call(device->cache, capture->stream);
    vmm__preload_caches_release();
}

/* The stream has no capture any more. */
static void capture_remove(CUstream stream)
{
    vmm__mutex_lock(&lock);
    struct map_node *node = vmm__map_find(&captures, key_of(stream));
    if (node != NULL)
        vmm__map_remove(&captures, node);
    vmm__mutex_unlock(&lock);
    if (node == NULL)
        return;
    struct capture *capture = VMM_MAP_RECORD(node, struct capture, node);
    cache_tell(capture, vmm_capture_retract);
    vmm__host_free(capture, sizeof *capture);
}

/* The announcements ended with the device's cache. */
static void device_captures_remove(int ordinal)
{
    struct map_node *next;
    VMM_HOLD(&lock);
    for (struct map_node *node = vmm__map_next(&captures, NULL); node != NULL; node = next) {
        struct capture *capture = VMM_MAP_RECORD(node, struct capture, node);
        next = vmm__map_next(&captures, node);
        if (capture->ordinal != ordinal)
            continue;
        vmm__map_remove(&captures, node);
        vmm__host_free(capture, sizeof *capture);
    }
}

/* Before a capture begins. Without host memory for a record, frees do not wait for its end. */
static void capture_begins(CUstream stream)
{
    CUdevice ordinal = -1;
    struct capture *capture = vmm__host_alloc(1, sizeof *capture);
    if (capture == NULL)
        return;
    (void)vmm__preload_real()->cuCtxGetDevice(&ordinal);
    *capture = (struct capture){ .node.key = key_of(stream), .stream = stream, .ordinal = ordinal };
    capture_remove(stream);
    cache_tell(capture, vmm_capture_announce);
    VMM_HOLD(&lock);
    vmm__map_add(&captures, &capture->node);
}

/* After a call that may have begun or ended a capture. An error does not say so, hence libcuda is asked. Returns the
 * call's result. */
static CUresult capture_look(CUstream stream, CUresult result)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (vmm__preload_real()->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
        status == CU_STREAM_CAPTURE_STATUS_NONE)
        capture_remove(stream);
    return result;
}

#define CAPTURE_BEGIN(name, named, parameters, arguments)                                          \
    PRELOAD_CALL(name, parameters, arguments,                                                      \
                 (capture_begins(named), capture_look(named, real->name arguments)))

#define BEGIN_CALL(name, named)                                                                    \
    CAPTURE_BEGIN(name, named, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN_CALL(cuStreamBeginCapture_v2, stream)
BEGIN_CALL(cuStreamBeginCapture_v2_ptsz, PRELOAD_SECOND_FORM(stream))

#define END_CALL(name, named)                                                                      \
    PRELOAD_CALL(name, (CUstream stream, CUgraph * graph), (stream, graph),                        \
                 capture_look(named, real->name(stream, graph)))
END_CALL(cuStreamEndCapture, stream)
END_CALL(cuStreamEndCapture_ptsz, PRELOAD_SECOND_FORM(stream))

#if CUDA_VERSION >= 12030
#define BEGIN_TO_GRAPH_CALL(name, named)                                                           \
    CAPTURE_BEGIN(name, named,                                                                     \
                  (CUstream stream, CUgraph graph, const CUgraphNode *nodes,                       \
                   const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),          \
                  (stream, graph, nodes, edges, count, mode))
BEGIN_TO_GRAPH_CALL(cuStreamBeginCaptureToGraph, stream)
BEGIN_TO_GRAPH_CALL(cuStreamBeginCaptureToGraph_ptsz, PRELOAD_SECOND_FORM(stream))
#endif

/* ---- Streams and devices that end ------------------------------------------------------------ */

/* Afterwards no cache asks libcuda about the stream. A cache that does not know it does nothing. */
static void stream_end(CUstream stream)
{
    if (stream == NULL)
        return;
    capture_remove(stream); /* or a cache refuses the end of a stream that is announced */
    vmm__preload_caches_hold();
    for (int i = 0; i < PRELOAD_DEVICES; i++) {
        struct preload_device *device = vmm__preload_device_at(i);
        if (device != NULL)
            (void)vmm_stream_end(device->cache, stream);
    }
    vmm__preload_caches_release();
}

PRELOAD_CALL(cuStreamDestroy_v2, (CUstream stream), (stream),
             (stream_end(stream), real->cuStreamDestroy_v2(stream)))

PRELOAD_CALL(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device),
             (vmm__preload_device_end(device), device_captures_remove(device),
              real->cuDevicePrimaryCtxReset_v2(device)))
