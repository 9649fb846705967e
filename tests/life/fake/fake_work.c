/* Events and streams of the fake libcuda, and its calls by name: see fake_internal.h. */
#define _GNU_SOURCE
#include "fake_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- Events ------------------------------------------------------------------------------------- */

/* An event is invalid once its context has ended. Its record stays, so that a use of it is found. */
struct event {
    unsigned long long context_id;
    struct driver *memory; /* of that context */
    void *event;
    struct event *next;
};

static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;
static struct event *events; /* that were not destroyed */

static void event_enter(struct event *made)
{
    (void)pthread_mutex_lock(&events_lock);
    made->next = events;
    events = made;
    (void)pthread_mutex_unlock(&events_lock);
}

static void event_leave(const struct event *known)
{
    (void)pthread_mutex_lock(&events_lock);
    struct event **link = &events;
    while (*link != known)
        link = &(*link)->next;
    *link = known->next;
    (void)pthread_mutex_unlock(&events_lock);
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    CONTEXT_CALL_BEGIN();
    if (flags != CU_EVENT_DISABLE_TIMING)
        return fake_misuse(__func__, "flags", CUDA_ERROR_INVALID_VALUE);
    struct event *made = calloc(1, sizeof *made);
    if (made == NULL)
        abort();
    made->context_id = context->id;
    made->memory = memory;
    vmm_status status = vmm__driver_event_create(memory, &made->event);
    if (status == VMM_OK) {
        event_enter(made);
        *out = (CUevent)(void *)made;
    } else {
        free(made);
    }
    return fake_result(__func__, status);
}

/* Begins a call on an event; `event` is the host driver's. */
#define EVENT_CALL_BEGIN(handle)                                                                   \
    CONTEXT_CALL_BEGIN();                                                                          \
    struct event *known = (struct event *)(void *)(handle);                                        \
    if (known == NULL || known->context_id != context->id)                                         \
        return fake_misuse(__func__, "an event of another context", CUDA_ERROR_INVALID_HANDLE);    \
    void *event = known->event

EXPORT CUresult cuEventDestroy_v2(CUevent handle)
{
    EVENT_CALL_BEGIN(handle);
    vmm_status status = vmm__driver_event_destroy(memory, event);
    if (status == VMM_OK) {
        event_leave(known);
        free(known);
    }
    return fake_result(__func__, status);
}

EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    EVENT_CALL_BEGIN(handle);
    return fake_result(__func__, vmm__driver_event_record(memory, event, stream));
}

/* Of the current context, as all calls are. */
EXPORT CUresult cuCtxRecordEvent(CUcontext asked, CUevent handle)
{
    EVENT_CALL_BEGIN(handle);
    if (asked != (CUcontext)context)
        return fake_misuse(__func__, "another context", CUDA_ERROR_INVALID_CONTEXT);
    vmm_status status = vmm__driver_clock_record(memory, event);
    if (status == VMM__PENDING)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return fake_result(__func__, status);
}

EXPORT CUresult cuEventQuery(CUevent handle)
{
    EVENT_CALL_BEGIN(handle);
    return fake_result(__func__, vmm__driver_event_query(memory, event));
}

EXPORT CUresult cuEventSynchronize(CUevent handle)
{
    EVENT_CALL_BEGIN(handle);
    return fake_result(__func__, vmm__driver_event_wait(memory, event));
}

/* The event may be of another context: then the host waits for it. */
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags)
{
    const struct event *foreign = (const struct event *)(const void *)handle;
    const struct context *current = fake_context();
    if (foreign != NULL && current != NULL && foreign->memory != current->memory) {
        CALL_BEGIN();
        return fake_result(__func__, vmm__driver_event_wait(foreign->memory, foreign->event));
    }
    EVENT_CALL_BEGIN(handle);
    if (flags != 0)
        return fake_misuse(__func__, "flags", CUDA_ERROR_INVALID_VALUE);
    return fake_result(__func__, vmm__driver_stream_wait(memory, stream, event));
}

/* ---- Streams ------------------------------------------------------------------------------------ */

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    (void)flags;
    CONTEXT_CALL_BEGIN();
    vmm_stream stream = NULL;
    vmm_status status = vmm__driver_stream_create(memory, &stream);
    *out = stream;
    return fake_result(__func__, status);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    CONTEXT_CALL_BEGIN();
    return fake_result(__func__, vmm__driver_stream_destroy(memory, stream));
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CONTEXT_CALL_BEGIN();
    bool is_capturing = false;
    vmm_status queried = vmm__driver_stream_capturing(memory, stream, &is_capturing);
    *status = is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return fake_result(__func__, queried);
}

/* Of a green context's stream: that context. */
EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *out)
{
    CONTEXT_CALL_BEGIN();
    (void)memory;
    bool is_primary = (uintptr_t)stream < FAKE_GREEN_STREAM;
    *out = is_primary ? (CUcontext)context : (CUcontext)&fake_cuda;
    return CUDA_SUCCESS;
}

/* Of a green context's stream: that context, and the primary one of its device. */
EXPORT CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *out, CUgreenCtx *green)
{
    CONTEXT_CALL_BEGIN();
    (void)memory;
    bool is_green =
        (uintptr_t)stream >= FAKE_GREEN_STREAM && (uintptr_t)stream < FAKE_FOREIGN_STREAM;
    *green = is_green ? (CUgreenCtx)(void *)&fake_cuda : NULL;
    if (!is_green)
        return cuStreamGetCtx(stream, out);
    *out = (CUcontext)&fake_contexts[((uintptr_t)stream - FAKE_GREEN_STREAM) / FAKE_GREEN_STEP];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    CONTEXT_CALL_BEGIN();
    return fake_result(__func__, vmm__driver_capture_begin(memory, stream));
}

/* Ends a capture; tests of the driver also end captures that they invalidated. */
EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CONTEXT_CALL_BEGIN();
    *graph = NULL;
    return vmm__driver_capture_end(memory, stream) == VMM_OK
               ? (CUresult)fake_cuda.capture_result
               : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return cuStreamBeginCapture_v2(stream, mode);
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return cuStreamEndCapture(stream, graph);
}

#if CUDA_VERSION >= 12030
EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                            const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                                            size_t count, CUstreamCaptureMode mode)
{
    (void)graph;
    (void)nodes;
    (void)edges;
    (void)count;
    return cuStreamBeginCapture_v2(stream, mode);
}

EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                 const CUgraphNode *nodes,
                                                 const CUgraphEdgeData *edges, size_t count,
                                                 CUstreamCaptureMode mode)
{
    return cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode);
}
#endif

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    (void)graph;
    CALL_BEGIN();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    CONTEXT_CALL_BEGIN();
    return fake_result(__func__, vmm__driver_clear(memory, to, bytes, value, stream));
}

/* Completes before it returns, as CUDA may do for memory that is not pinned. */
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CONTEXT_CALL_BEGIN();
    struct driver_piece piece = { .address = from, .bytes = bytes, .host = to };
    return fake_result(__func__, vmm__driver_read(memory, &piece, 1, stream));
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    CONTEXT_CALL_BEGIN();
    return fake_result(__func__, vmm__driver_read(memory, NULL, 0, stream));
}

/* ---- Calls by name ------------------------------------------------------------------------------ */

/* The latest form that the version has. Functions with a form for the thread's own default stream also have the
 * other. */
static void *proc_find(const char *queried, int version, bool is_per_thread)
{
    void *found = NULL;
    int latest = 0;
#define PROC_ADDRESS(name, like, wanted, since, form)                                              \
    if (strcmp(queried, wanted) == 0 && version >= (since) && (since) >= latest &&                 \
        (is_per_thread || (form) == CU_GET_PROC_ADDRESS_LEGACY_STREAM)) {                          \
        __typeof__(like) *call = name;                                                             \
        memcpy(&found, &call, sizeof call);                                                        \
        latest = since;                                                                            \
    }
#define LEGACY_ADDRESS(name, wanted, since)                                                        \
    PROC_ADDRESS(name, name, wanted, since, CU_GET_PROC_ADDRESS_LEGACY_STREAM)
    CUDA_CALL_MAP(LEGACY_ADDRESS)
    CUDA_OPTIONAL_CALL_MAP(LEGACY_ADDRESS)
    PRELOAD_HOOK_MAP(PROC_ADDRESS)
    PRELOAD_USED_MAP(PROC_ADDRESS)
#undef LEGACY_ADDRESS
#undef PROC_ADDRESS
    return found;
}

EXPORT CUresult cuGetProcAddress_v2(const char *queried, void **found, int version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *state)
{
    *found = proc_find(queried, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    *state = *found != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *found != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *queried, void **found, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult state;
    return cuGetProcAddress_v2(queried, found, version, flags, &state);
}
