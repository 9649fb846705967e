/*
 * A cache for each device, made at the first allocation under its primary context: see preload.h. A program that makes
 * contexts of its own keeps libcuda's allocator in them.
 *
 * Owns: the devices. Invariant: `cache` and the streams do not change while `context` is not NULL.
 * Called by: all files, any thread. A device's lock guards making and ending its cache. To end one takes `caches_lock`
 * for writing, too.
 */
#define _GNU_SOURCE
#include "api/find.h"
#include "preload/preload.h"

static struct preload_device devices[PRELOAD_DEVICES];
static pthread_rwlock_t caches_lock = PTHREAD_RWLOCK_INITIALIZER;

static __attribute__((constructor)) void locks_init(void)
{
    for (unsigned i = 0; i < PRELOAD_DEVICES; i++)
        devices[i].lock = (struct mutex)VMM_MUTEX_INIT;
}

static CUcontext context_of(const struct preload_device *device)
{
    return atomic_load_explicit(&device->context, memory_order_acquire);
}

struct preload_device *vmm__preload_device_at(int ordinal)
{
    if (ordinal < 0 || ordinal >= PRELOAD_DEVICES || context_of(&devices[ordinal]) == NULL)
        return NULL;
    return &devices[ordinal];
}

void vmm__preload_caches_hold(void)
{
    (void)pthread_rwlock_rdlock(&caches_lock);
}

void vmm__preload_caches_release(void)
{
    (void)pthread_rwlock_unlock(&caches_lock);
}

int vmm__preload_ordinal(const struct preload_device *device)
{
    return (int)(device - devices);
}

/* ---- Contexts -------------------------------------------------------------------------------- */

struct preload_scope vmm__preload_scope(const struct preload_device *device)
{
    const struct preload_real *real = vmm__preload_real();
    struct preload_scope scope = { .mode = CU_STREAM_CAPTURE_MODE_RELAXED };
    CUcontext current = NULL;
    CUcontext wanted = context_of(device);
    if (real->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != wanted)
        scope.is_pushed = real->cuCtxPushCurrent_v2(wanted) == CUDA_SUCCESS;
    (void)real->cuThreadExchangeStreamCaptureMode(&scope.mode);
    return scope;
}

void vmm__preload_restore(const struct preload_scope *scope)
{
    const struct preload_real *real = vmm__preload_real();
    CUstreamCaptureMode mode = scope->mode;
    CUcontext popped;
    (void)real->cuThreadExchangeStreamCaptureMode(&mode);
    if (scope->is_pushed)
        (void)real->cuCtxPopCurrent_v2(&popped);
}

/* Does not start a primary context that the program has not started. */
static bool is_primary(CUdevice ordinal, CUcontext current)
{
    const struct preload_real *real = vmm__preload_real();
    CUcontext primary = NULL;
    unsigned flags = 0;
    int is_active = 0;
    if (real->cuDevicePrimaryCtxGetState(ordinal, &flags, &is_active) != CUDA_SUCCESS ||
        !is_active || real->cuDevicePrimaryCtxRetain(&primary, ordinal) != CUDA_SUCCESS)
        return false;
    (void)real->cuDevicePrimaryCtxRelease_v2(ordinal);
    return primary == current;
}

/* ---- Making a cache -------------------------------------------------------------------------- */

static vmm_status streams_make(struct preload_device *device)
{
    const struct preload_real *real = vmm__preload_real();
    if (real->cuStreamCreate(&device->idle_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return VMM_ERR_DRIVER;
    if (real->cuStreamCreate(&device->order_stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
        return VMM_OK;
    (void)real->cuStreamDestroy_v2(device->idle_stream);
    return VMM_ERR_DRIVER;
}

/* cudaDeviceEnablePeerAccess() does not apply to mapped memory, so each device that can access the memory may. */
static vmm_status cache_make(struct preload_device *device, int ordinal)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = VMM_DRIVER_CUDA;
    config.device = ordinal;
    config.peer_devices = UINT64_MAX;
    config.announces_captures = VMM_ON;
    vmm_status status = vmm__preload_leave_children();
    if (status == VMM_OK)
        status = vmm_create(&config, &device->cache);
    if (status != VMM_OK) {
        vmm__preload_complain("device %d keeps libcuda's allocator: %s", ordinal, vmm_last_error());
        return status;
    }
    status = streams_make(device);
    if (status != VMM_OK) {
        vmm__preload_complain("device %d keeps libcuda's allocator: no stream", ordinal);
        (void)vmm_destroy(device->cache);
    }
    return status;
}

static struct preload_device *device_make_locked(struct preload_device *device, CUcontext current)
{
    if (context_of(device) != NULL)
        return context_of(device) == current ? device : NULL;
    if (device->is_refused || !is_primary(vmm__preload_ordinal(device), current))
        return NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)vmm__preload_real()->cuThreadExchangeStreamCaptureMode(&mode);
    vmm_status status = cache_make(device, vmm__preload_ordinal(device));
    (void)vmm__preload_real()->cuThreadExchangeStreamCaptureMode(&mode);
    /* Too little memory now may be enough later. */
    device->is_refused = status != VMM_OK && status != VMM_ERR_DEVICE_OOM;
    if (status != VMM_OK)
        return NULL;
    atomic_store_explicit(&device->context, current, memory_order_release);
    return device;
}

static struct preload_device *device_make(CUcontext current)
{
    CUdevice ordinal = -1;
    if (vmm__preload_real()->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal < 0 ||
        ordinal >= PRELOAD_DEVICES)
        return NULL;
    struct preload_device *device = &devices[ordinal];
    VMM_HOLD(&device->lock);
    return device_make_locked(device, current);
}

static struct preload_device *device_find(CUcontext current)
{
    for (int i = 0; i < PRELOAD_DEVICES; i++) {
        if (context_of(&devices[i]) == current)
            return &devices[i];
    }
    return NULL;
}

static CUcontext current_context(void)
{
    CUcontext current = NULL;
    return vmm__preload_real()->cuCtxGetCurrent(&current) == CUDA_SUCCESS ? current : NULL;
}

struct preload_device *vmm__preload_device_if_made(void)
{
    CUcontext current = current_context();
    return current == NULL ? NULL : device_find(current);
}

struct preload_device *vmm__preload_device(void)
{
    CUcontext current = vmm__preload_mode() == PRELOAD_SERVE ? current_context() : NULL;
    if (current == NULL)
        return NULL;
    struct preload_device *device = device_find(current);
    return device != NULL ? device : device_make(current);
}

/* ---- Whose an address is --------------------------------------------------------------------- */

static bool cache_find(struct preload_device *device, CUdeviceptr address,
                       struct preload_block *out)
{
    struct owned_block block;
    if (vmm__find_owned(device->cache, (void *)(uintptr_t)address, &block) != VMM_OK)
        return false;
    *out = (struct preload_block){ .address = block.address,
                                   .bytes = block.requested_bytes,
                                   .device = device };
    return true;
}

bool vmm__preload_block_find(CUdeviceptr address, struct preload_block *out)
{
    bool is_found = false;
    if (address == 0)
        return false;
    vmm__preload_caches_hold();
    for (int i = 0; i < PRELOAD_DEVICES && !is_found; i++) {
        struct preload_device *device = vmm__preload_device_at(i);
        is_found = device != NULL && cache_find(device, address, out);
    }
    vmm__preload_caches_release();
    return is_found && address - out->address < out->bytes &&
           !vmm__preload_is_deferred(out->address);
}

bool vmm__preload_block_at(CUdeviceptr address, struct preload_block *out)
{
    return vmm__preload_block_find(address, out) && out->address == address;
}

/* ---- Memory for libcuda's own allocations ---------------------------------------------------- */

bool vmm__preload_give_back(int ordinal)
{
    size_t released = 0;
    struct preload_device *device = vmm__preload_device_at(ordinal);
    if (device == NULL)
        return false;
    vmm__preload_deferred_free();
    (void)vmm_wait(device->cache);
    (void)vmm_trim(device->cache, 0, &released);
    return released > 0;
}

bool vmm__preload_give_back_current(void)
{
    CUdevice ordinal = -1;
    (void)vmm__preload_real()->cuCtxGetDevice(&ordinal);
    return vmm__preload_give_back(ordinal);
}

/* ---- The end --------------------------------------------------------------------------------- */

void vmm__preload_device_end(int ordinal)
{
    if (ordinal < 0 || ordinal >= PRELOAD_DEVICES)
        return;
    struct preload_device *device = &devices[ordinal];
    VMM_HOLD(&device->lock);
    if (context_of(device) != NULL) {
        vmm__preload_deferred_drop(device);
        (void)pthread_rwlock_wrlock(&caches_lock);
        (void)vmm_destroy(device->cache);
        atomic_store_explicit(&device->context, NULL, memory_order_release);
        (void)pthread_rwlock_unlock(&caches_lock);
    }
    device->is_refused = false;
}

/* The last half second of a recording (VMM_TRACE) is not in its file yet. */
static __attribute__((destructor)) void recordings_end(void)
{
    vmm__preload_inside++;
    for (int i = 0; i < PRELOAD_DEVICES; i++) {
        if (context_of(&devices[i]) != NULL)
            (void)vmm_trace_stop(devices[i].cache);
    }
    vmm__preload_inside--;
}
