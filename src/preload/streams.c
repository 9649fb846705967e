/*
 * Streams that end, captures, and frees that wait for the end of captures: see preload.h.
 *
 * Owns: the number of captures under way, as far as they began by a call that is replaced, and the deferred blocks,
 * which `lock` guards.
 */
#include "preload/preload.h"

#define EXPORT __attribute__((visibility("default")))

static _Atomic unsigned captures;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct map_node *) deferred;

/* ---- Deferred frees -------------------------------------------------------------------------- */

static struct preload_block *block_of(struct map_node *node)
{
    return VMM_MAP_RECORD(node, struct preload_block, node);
}

static void deferred_add(struct preload_block *block)
{
    (void)pthread_mutex_lock(&lock);
    block->node.next = atomic_load_explicit(&deferred, memory_order_relaxed);
    atomic_store_explicit(&deferred, &block->node, memory_order_relaxed);
    (void)pthread_mutex_unlock(&lock);
}

static struct map_node *deferred_take_all(void)
{
    (void)pthread_mutex_lock(&lock);
    struct map_node *first = atomic_load_explicit(&deferred, memory_order_relaxed);
    atomic_store_explicit(&deferred, NULL, memory_order_relaxed);
    (void)pthread_mutex_unlock(&lock);
    return first;
}

bool vmm__preload_defer(struct preload_block *block)
{
    if (atomic_load_explicit(&captures, memory_order_relaxed) == 0)
        return false;
    deferred_add(block);
    return true;
}

static void deferred_block_free(struct preload_block *block)
{
    struct preload_scope scope = vmm__preload_scope(block->device);
    CUresult result = vmm__preload_real()->cuCtxSynchronize();
    vmm__preload_restore(&scope);
    if (result != CUDA_SUCCESS) {
        deferred_add(block);
        return;
    }
    (void)vmm_free(block->device->cache, (void *)(uintptr_t)block->node.key);
    vmm__preload_block_drop(block);
}

void vmm__preload_deferred_free(void)
{
    if (atomic_load_explicit(&deferred, memory_order_relaxed) == NULL ||
        atomic_load_explicit(&captures, memory_order_relaxed) > 0)
        return;
    struct map_node *next;
    for (struct map_node *node = deferred_take_all(); node != NULL; node = next) {
        next = node->next;
        deferred_block_free(block_of(node));
    }
}

void vmm__preload_deferred_drop(const struct preload_device *device)
{
    struct map_node *next;
    for (struct map_node *node = deferred_take_all(); node != NULL; node = next) {
        next = node->next;
        if (block_of(node)->device == device)
            vmm__preload_block_drop(block_of(node));
        else
            deferred_add(block_of(node));
    }
}

/* ---- Captures -------------------------------------------------------------------------------- */

static CUresult capture_began(CUresult result)
{
    if (result == CUDA_SUCCESS)
        atomic_fetch_add_explicit(&captures, 1, memory_order_relaxed);
    return result;
}

/* After other errors the stream is not being captured, or still is. */
static CUresult capture_ended(CUresult result)
{
    bool has_ended = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    unsigned before = atomic_load_explicit(&captures, memory_order_relaxed);
    while (has_ended && before > 0 &&
           !atomic_compare_exchange_weak_explicit(&captures, &before, before - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    return result;
}

/* Passes a call on; `note` gets its result. */
#define CAPTURE_CALL(name, note, parameters, arguments)                                            \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        const struct preload_real *real = vmm__preload_real();                                     \
        if (real == NULL || real->name == NULL)                                                    \
            return CUDA_ERROR_NOT_SUPPORTED;                                                       \
        if (!vmm__preload_enter())                                                                 \
            return real->name arguments;                                                           \
        CUresult result = note(real->name arguments);                                              \
        vmm__preload_leave();                                                                      \
        return result;                                                                             \
    }

#define BEGIN_CALL(name)                                                                           \
    CAPTURE_CALL(name, capture_began, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN_CALL(cuStreamBeginCapture_v2)
BEGIN_CALL(cuStreamBeginCapture_v2_ptsz)

#define END_CALL(name)                                                                             \
    CAPTURE_CALL(name, capture_ended, (CUstream stream, CUgraph * graph), (stream, graph))
END_CALL(cuStreamEndCapture)
END_CALL(cuStreamEndCapture_ptsz)

#if CUDA_VERSION >= 12030
#define BEGIN_TO_GRAPH_CALL(name)                                                                  \
    CAPTURE_CALL(name, capture_began,                                                              \
                 (CUstream stream, CUgraph graph, const CUgraphNode *nodes,                        \
                  const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),           \
                 (stream, graph, nodes, edges, count, mode))
BEGIN_TO_GRAPH_CALL(cuStreamBeginCaptureToGraph)
BEGIN_TO_GRAPH_CALL(cuStreamBeginCaptureToGraph_ptsz)
#endif

/* ---- Streams and devices that end ------------------------------------------------------------ */

/* Afterwards no cache asks libcuda about the stream. A cache that does not know it does nothing. */
static void stream_end(CUstream stream)
{
    for (int i = 0; i < PRELOAD_DEVICES; i++) {
        struct preload_device *device = vmm__preload_device_at(i);
        if (device != NULL)
            (void)vmm_stream_end(device->cache, stream);
    }
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    const struct preload_real *real = vmm__preload_real();
    if (real == NULL)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (stream != NULL && vmm__preload_enter()) {
        stream_end(stream);
        vmm__preload_leave();
    }
    return real->cuStreamDestroy_v2(stream);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    const struct preload_real *real = vmm__preload_real();
    if (real == NULL)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (vmm__preload_enter()) {
        vmm__preload_device_end(device);
        vmm__preload_leave();
    }
    return real->cuDevicePrimaryCtxReset_v2(device);
}
