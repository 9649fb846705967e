/* A libcuda for tests without a GPU: start, devices and contexts. See fake_cuda.h. */
#define _GNU_SOURCE
#include "fake_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

EXPORT struct fake_cuda fake_cuda;

struct context fake_contexts[FAKE_DEVICES];
static struct context own_context; /* the program's own context: without memory and work */
static int device_count = 2;
static bool has_vmm = true;
bool fake_has_peers = true;
static unsigned long long last_id;
static pid_t process; /* the process that called cuInit() */
static bool has_ended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards making and ending contexts */
static _Thread_local struct context *stack[8];
static _Thread_local unsigned depth;
static _Thread_local CUstreamCaptureMode capture_mode;

CUresult fake_misuse(const char *call, const char *what, CUresult result)
{
    if (atomic_fetch_add(&fake_cuda.misuses, 1) == 0)
        (void)snprintf(fake_cuda.misuse, sizeof fake_cuda.misuse, "%s: %s", call, what);
    return result;
}

/* ---- Before each call ------------------------------------------------------------------------- */

_Atomic bool fake_has_failed;

static bool must_fail(const char *call)
{
    if (strcmp(fake_cuda.fail_call, call) != 0 && strcmp(fake_cuda.fail_call, "*") != 0)
        return false;
    uint64_t number = atomic_fetch_add(&fake_cuda.fail_count, 1) + 1;
    bool fails =
        fake_cuda.fails_once ? number == fake_cuda.fail_from : number >= fake_cuda.fail_from;
    if (fails)
        atomic_store(&fake_has_failed, true);
    return fails;
}

CUresult fake_call(const char *call)
{
    if (has_ended) {
        (void)fprintf(stderr, "fake libcuda: %s was called after exit() ended CUDA\n", call);
        abort();
    }
    atomic_fetch_add(&fake_cuda.calls, 1);
    if (must_fail(call))
        return (CUresult)fake_cuda.fail_result;
    if (process != getpid())
        return fake_misuse(call, "CUDA was not started in this process",
                           CUDA_ERROR_NOT_INITIALIZED);
    return CUDA_SUCCESS;
}

CUresult fake_result(const char *call, vmm_status status)
{
    if (status == VMM__PENDING)
        return CUDA_ERROR_NOT_READY;
    switch (status) {
    case VMM_OK:
        return CUDA_SUCCESS;
    case VMM_ERR_DEVICE_OOM:
    case VMM_ERR_ADDRESS_SPACE:
    case VMM_ERR_HOST_OOM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return fake_misuse(call, "refused", CUDA_ERROR_INVALID_VALUE);
    }
}

struct context *fake_context(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

/* ---- Start, results ----------------------------------------------------------------------------- */

static void fake_end(void)
{
    has_ended = true;
}

static uint64_t taken_of(const struct context *context)
{
    const struct driver *memory = context->memory;
    return memory == NULL
               ? 0
               : memory->reservations + memory->handles + memory->imports + memory->mapped_bytes;
}

static uint64_t taken(int device)
{
    return taken_of(&fake_contexts[device]);
}

static uint64_t outstanding(int device)
{
    const struct driver *memory = fake_contexts[device].memory;
    return memory == NULL ? 0
                          : taken(device) + memory->events + memory->streams + memory->pinned_bytes;
}

static bool is_set(const char *name)
{
    return getenv(name) != NULL;
}

__attribute__((constructor)) static void environment_read(void)
{
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    const char *fail = getenv("FAKE_CUDA_FAIL");
    if (devices != NULL)
        device_count = atoi(devices);
    has_vmm = !is_set("FAKE_CUDA_NO_VMM");
    fake_has_peers = !is_set("FAKE_CUDA_NO_PEERS");
    fake_cuda.fail_from = 1;
    if (fail != NULL)
        (void)sscanf(fail, "%47[^:]:%d", fake_cuda.fail_call, &fake_cuda.fail_result);
    fake_cuda.taken = taken;
    fake_cuda.outstanding = outstanding;
}

EXPORT CUresult cuInit(unsigned flags)
{
    (void)flags;
    if (process == 0) {
        process = getpid();
        (void)atexit(fake_end);
    }
    CALL_BEGIN();
    return device_count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    CALL_BEGIN();
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult result, const char **name)
{
    (void)result;
    if (has_ended)
        abort();
    *name = "CUDA_ERROR_OF_THE_FAKE";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult result, const char **text)
{
    return cuGetErrorName(result, text);
}

/* ---- Devices ------------------------------------------------------------------------------------ */

EXPORT CUresult cuDeviceGetCount(int *count)
{
    CALL_BEGIN();
    *count = device_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CALL_BEGIN();
    if (ordinal < 0 || ordinal >= device_count)
        return fake_misuse(__func__, "no such ordinal", CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CALL_BEGIN();
    (void)snprintf(name, (size_t)length, "fake device %d", device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    CALL_BEGIN();
    *value = attribute == CU_DEVICE_ATTRIBUTE_INTEGRATED          ? fake_cuda.is_integrated
             : attribute == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED ? !fake_cuda.lacks_dmabuf
             : attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ? has_vmm
                                                                                    : 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CALL_BEGIN();
    memset(uuid->bytes, device + 1, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CALL_BEGIN();
    *can = device != peer && fake_has_peers;
    return CUDA_SUCCESS;
}

/* ---- Contexts ----------------------------------------------------------------------------------- */

static vmm_status context_make_locked(struct context *context)
{
    struct driver_options options = { .device_bytes = (uint64_t)8 << 30 };
    vmm_status status = VMM_OK;
    if (context->is_made)
        return VMM_OK;
    if (context->memory == NULL)
        status = vmm__driver_host_open(&options, &context->memory);
    context->id = ++last_id;
    context->broken = 0;
    context->is_made = status == VMM_OK;
    return status;
}

/* Ends the work of a context. The device's memory stays while any of it is allocated. */
static void context_end_locked(struct context *context)
{
    context->is_made = false;
    context->mismatches = 0;
    if (context->memory == NULL)
        return;
    if (taken_of(context) > 0) {
        (void)vmm__driver_device_wait(context->memory);
        return;
    }
    vmm__driver_close(context->memory);
    context->memory = NULL;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    CALL_BEGIN();
    (void)pthread_mutex_lock(&lock);
    vmm_status status = context_make_locked(&fake_contexts[device]);
    fake_cuda.holds[device] += status == VMM_OK;
    (void)pthread_mutex_unlock(&lock);
    *out = (CUcontext)&fake_contexts[device];
    return fake_result(__func__, status);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CALL_BEGIN();
    (void)pthread_mutex_lock(&lock);
    bool is_in_use = fake_cuda.holds[device] > 0;
    fake_cuda.holds[device] -= is_in_use;
    if (fake_cuda.holds[device] == 0)
        context_end_locked(&fake_contexts[device]);
    (void)pthread_mutex_unlock(&lock);
    return is_in_use ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *is_active)
{
    CALL_BEGIN();
    *flags = 0;
    *is_active = fake_contexts[device].is_made;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CALL_BEGIN();
    (void)pthread_mutex_lock(&lock);
    context_end_locked(&fake_contexts[device]);
    fake_cuda.resets++;
    (void)pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *out)
{
    CALL_BEGIN();
    *out = (CUcontext)fake_context();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    CALL_BEGIN();
    const struct context *context = fake_context();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = context == &own_context ? 0 : (CUdevice)(context - fake_contexts);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext pushed)
{
    CALL_BEGIN();
    if (depth == sizeof stack / sizeof *stack)
        return fake_misuse(__func__, "too many", CUDA_ERROR_INVALID_VALUE);
    stack[depth++] = (struct context *)(void *)pushed;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *popped)
{
    CALL_BEGIN();
    if (depth == 0)
        return fake_misuse(__func__, "no context is pushed", CUDA_ERROR_INVALID_CONTEXT);
    *popped = (CUcontext)stack[--depth];
    return CUDA_SUCCESS;
}

/* Newer headers declare other versions of this function. */
CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device);

EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device)
{
    (void)device;
    CALL_BEGIN();
    if (flags != 0 || own_context.id != 0)
        return fake_misuse(__func__, "a second context", CUDA_ERROR_INVALID_VALUE);
    own_context.id = ++last_id;
    *out = (CUcontext)&own_context;
    return cuCtxPushCurrent_v2(*out);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext destroyed)
{
    CALL_BEGIN();
    if ((struct context *)(void *)destroyed != &own_context || own_context.id == 0)
        return fake_misuse(__func__, "not a context of the program", CUDA_ERROR_INVALID_CONTEXT);
    own_context.id = 0;
    if (fake_context() == &own_context)
        depth--;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetId(CUcontext asked, unsigned long long *id)
{
    CALL_BEGIN();
    const struct context *context = (const struct context *)(const void *)asked;
    *id = context->id;
    return context->is_made ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    CONTEXT_CALL_BEGIN();
    return fake_result(__func__, vmm__driver_device_wait(memory));
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CALL_BEGIN();
    CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
