/*
 * Events of all work that can reach the device's memory.
 *
 * cuCtxRecordEvent() covers all streams of one context. Work of other devices reaches the memory through their primary
 * contexts, with peer access or with copies. So where one of these is active, an event is recorded in each context, a
 * stream of the driver's own waits for all of them, and the caller's event is recorded there.
 *
 * Owns: that stream, an event of the driver's own context, and one of each other device. Called by: the driver table,
 * any thread; cuda.c. Locks: clock.lock guards all of it.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "driver/cuda/internal.h"

/* Whether CUDA refused the call because of a capture, which it may have spoiled. */
static bool is_capture(CUresult result)
{
    return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
           result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

static CUresult event_make(const struct cuda_api *api, CUevent *event)
{
    return *event != NULL ? CUDA_SUCCESS : api->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
}

/* ---- Other devices --------------------------------------------------------------------------- */

static CUresult peer_state(const struct cuda_driver *cuda, const struct cuda_peer *peer,
                           int *is_active)
{
    unsigned flags;
    return cuda->api->cuDevicePrimaryCtxGetState(peer->device, &flags, is_active);
}

/* What is done in a peer's context, which is current. */
typedef CUresult peer_step(const struct cuda_api *api, struct cuda_peer *peer, CUcontext context);

/* The event of a context that was reset went with it. */
static void peer_event_forget(const struct cuda_api *api, struct cuda_peer *peer, CUcontext context)
{
    unsigned long long id = 0;
    if (api->cuCtxGetId == NULL || api->cuCtxGetId(context, &id) != CUDA_SUCCESS)
        id = 0;
    if (id != peer->context_id)
        peer->event = NULL;
    peer->context_id = id;
}

static CUresult peer_record(const struct cuda_api *api, struct cuda_peer *peer, CUcontext context)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    peer_event_forget(api, peer, context);
    CUresult result = api->cuStreamIsCapturing(NULL, &capture);
    if (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (result == CUDA_SUCCESS)
        result = event_make(api, &peer->event);
    return result == CUDA_SUCCESS ? api->cuCtxRecordEvent(context, peer->event) : result;
}

static CUresult peer_event_end(const struct cuda_api *api, struct cuda_peer *peer,
                               CUcontext context)
{
    peer_event_forget(api, peer, context);
    return peer->event == NULL ? CUDA_SUCCESS : api->cuEventDestroy_v2(peer->event);
}

static CUresult peer_enter(const struct cuda_driver *cuda, struct cuda_peer *peer, peer_step *step)
{
    const struct cuda_api *api = cuda->api;
    CUcontext context;
    CUcontext popped;
    CUresult result = api->cuDevicePrimaryCtxRetain(&context, peer->device);
    if (result != CUDA_SUCCESS)
        return result;
    result = api->cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        result = step(api, peer, context);
        (void)api->cuCtxPopCurrent_v2(&popped);
    }
    (void)api->cuDevicePrimaryCtxRelease_v2(peer->device);
    return result;
}

/* Lets the joining stream wait for the work of a peer. A context that was reset, destroyed or broken runs no work any
 * longer. If it is the driver's own, the next call finds that. */
static CUresult peer_join(const struct cuda_driver *cuda, struct cuda_peer *peer)
{
    int is_active = 0;
    CUresult result = peer_state(cuda, peer, &is_active);
    if (result == CUDA_SUCCESS && is_active != 0)
        result = peer_enter(cuda, peer, peer_record);
    if (result == CUDA_SUCCESS && is_active != 0)
        result = cuda->api->cuStreamWaitEvent(cuda->clock.stream, peer->event, 0);
    return vmm__cuda_is_loss(result) ? CUDA_SUCCESS : result;
}

/* Whether the context of another device is active, or the driver does not say that none is. */
static bool any_may_be_active(const struct cuda_driver *cuda)
{
    int i = 0;
    int is_active = 0;
    while (i < cuda->clock.peer_count &&
           peer_state(cuda, &cuda->clock.peers[i], &is_active) == CUDA_SUCCESS && is_active == 0)
        i++;
    return i < cuda->clock.peer_count;
}

static CUresult contexts_join(struct cuda_driver *cuda)
{
    const struct cuda_api *api = cuda->api;
    struct cuda_clock *clock = &cuda->clock;
    CUresult result = CUDA_SUCCESS;
    if (clock->stream == NULL)
        result = api->cuStreamCreate(&clock->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = event_make(api, &clock->event);
    if (result == CUDA_SUCCESS)
        result = api->cuCtxRecordEvent(cuda->context, clock->event);
    if (result == CUDA_SUCCESS)
        result = api->cuStreamWaitEvent(clock->stream, clock->event, 0);
    for (int i = 0; i < clock->peer_count && result == CUDA_SUCCESS; i++)
        result = peer_join(cuda, &clock->peers[i]);
    return result;
}

/* ---- The operation --------------------------------------------------------------------------- */

static CUresult clock_record(struct cuda_driver *cuda, CUevent event)
{
    VMM_HOLD(&cuda->clock.lock);
    if (!any_may_be_active(cuda))
        return cuda->api->cuCtxRecordEvent(cuda->context, event);
    CUresult result = contexts_join(cuda);
    return result == CUDA_SUCCESS ? cuda->api->cuEventRecord(event, cuda->clock.stream) : result;
}

vmm_status vmm__cuda_clock_record(struct driver *driver, void *event)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    if (cuda->api->cuCtxRecordEvent == NULL)
        return vmm__error(VMM_ERR_UNSUPPORTED, "the driver is older than CUDA 12.5");
    CUDA_CALLS(cuda, clock_record(cuda, event), VMM_ERR_HOST_OOM, "cuCtxRecordEvent");
    return is_capture(result) ? VMM__PENDING : status;
}

/* ---- Life ------------------------------------------------------------------------------------ */

vmm_status vmm__cuda_clock_open(struct cuda_driver *cuda)
{
    struct cuda_clock *clock = &cuda->clock;
    int count = 0;
    if (cuda->api->cuDevicePrimaryCtxGetState == NULL)
        return VMM_OK;
    vmm_status status = vmm__cuda_device_count(cuda->api, &count);
    for (int i = 0; i < count && status == VMM_OK; i++) {
        CUdevice device;
        CUresult result = cuda->api->cuDeviceGet(&device, i);
        status = vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "cuDeviceGet(%d)", i);
        if (status == VMM_OK && device != cuda->device && clock->peer_count < CUDA_PEERS)
            clock->peers[clock->peer_count++].device = device;
    }
    return status;
}

void vmm__cuda_clock_close(struct cuda_driver *cuda)
{
    struct cuda_clock *clock = &cuda->clock;
    for (int i = 0; i < clock->peer_count; i++) {
        int is_active = 0;
        (void)peer_state(cuda, &clock->peers[i], &is_active);
        if (clock->peers[i].event != NULL && is_active != 0)
            (void)peer_enter(cuda, &clock->peers[i], peer_event_end);
    }
    if (clock->event != NULL)
        (void)cuda->api->cuEventDestroy_v2(clock->event);
    if (clock->stream != NULL)
        (void)cuda->api->cuStreamDestroy_v2(clock->stream);
}
