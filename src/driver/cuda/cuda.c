/*
 * The cuda driver: an NVIDIA GPU through libcuda.so.1.
 *
 * Owns: the driver object and one reference to the device's primary context, which the CUDA runtime also uses. Mapped
 * memory does not belong to that context: what the caller does not release stays allocated until the process ends, even
 * if the context is destroyed. Unmap, release and address_free work without a context, and with a broken one.
 * Called by: vmm__driver_open() and through the driver table, any thread.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/cuda/internal.h"

/* ---- Our context on the calling thread ------------------------------------------------------- */

/* Compares context ids. cudaDeviceReset() leaves a context with the same handle that knows neither our work nor our
 * events. */
static vmm_status context_check(const struct cuda_driver *cuda)
{
    unsigned long long id = 0;
    if (!cuda->has_context_id)
        return VMM_OK;
    CUresult result = cuda->api->cuCtxGetId(cuda->context, &id);
    if (result == CUDA_SUCCESS && id != cuda->context_id)
        return vmm__error(VMM_ERR_LOST,
                          "the context was reset: its id is %llu, but was %llu when the cache was "
                          "created; the contents of all blocks are lost",
                          id, cuda->context_id);
    return vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "cuCtxGetId");
}

static void captures_relax(const struct cuda_api *api, struct cuda_scope *scope)
{
    scope->capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)api->cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
}

static vmm_status context_enter(const struct cuda_driver *cuda, struct cuda_scope *scope)
{
    const struct cuda_api *api = cuda->api;
    CUcontext current = NULL;
    CUresult result = api->cuCtxGetCurrent(&current);
    if (result != CUDA_SUCCESS)
        return vmm__cuda_status(api, result, VMM_ERR_HOST_OOM, "cuCtxGetCurrent");
    vmm_status status = context_check(cuda);
    if (status != VMM_OK)
        return status;
    scope->pushed = current != cuda->context;
    if (scope->pushed) {
        result = api->cuCtxPushCurrent_v2(cuda->context);
        if (result != CUDA_SUCCESS)
            return vmm__cuda_status(api, result, VMM_ERR_HOST_OOM, "cuCtxPushCurrent");
    }
    captures_relax(api, scope);
    return VMM_OK;
}

static vmm_status refuse_after_shutdown(void)
{
    return vmm__error(VMM_ERR_LOST, "the process is exiting: CUDA can no longer be called");
}

vmm_status vmm__cuda_enter(const struct cuda_driver *cuda, struct cuda_scope *scope)
{
    if (!vmm__cuda_calls_begin())
        return refuse_after_shutdown();
    vmm_status status = context_enter(cuda, scope);
    if (status != VMM_OK)
        vmm__cuda_calls_end();
    return status;
}

vmm_status vmm__cuda_enter_for_release(const struct cuda_driver *cuda, struct cuda_scope *scope)
{
    if (!vmm__driver_is_lost(&cuda->base))
        return vmm__cuda_enter(cuda, scope);
    if (!vmm__cuda_calls_begin())
        return refuse_after_shutdown();
    scope->pushed = false;
    captures_relax(cuda->api, scope);
    return VMM_OK;
}

void vmm__cuda_leave(const struct cuda_driver *cuda, const struct cuda_scope *scope)
{
    CUstreamCaptureMode mode = scope->capture_mode;
    (void)cuda->api->cuThreadExchangeStreamCaptureMode(&mode);
    CUcontext popped;
    if (scope->pushed)
        (void)cuda->api->cuCtxPopCurrent_v2(&popped);
    vmm__cuda_calls_end();
}

/* ---- Close ----------------------------------------------------------------------------------- */

static void context_release(const struct cuda_driver *cuda)
{
    if (!vmm__cuda_calls_begin())
        return;
    (void)cuda->api->cuDevicePrimaryCtxRelease_v2(cuda->device);
    vmm__cuda_calls_end();
}

static void work_close(struct cuda_driver *cuda)
{
    struct cuda_scope scope;
    struct error_line line;
    vmm__error_save(&line);
    if (vmm__cuda_enter(cuda, &scope) == VMM_OK) {
        (void)cuda->api->cuCtxSynchronize();
        vmm__cuda_kernels_unload(cuda);
        vmm__cuda_clock_close(cuda);
        vmm__cuda_leave(cuda, &scope);
    }
    vmm__error_restore(&line);
}

/* On a lost device only releases our reference to the context: the process can create a new one after all references
 * are released. */
static void cuda_close(struct driver *driver)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    bool has_work = cuda->kernels != NULL || cuda->clock.stream != NULL;
    if (has_work && !vmm__driver_is_lost(driver))
        work_close(cuda);
    context_release(cuda);
    vmm__mutex_fini(&cuda->clock.lock);
    vmm__mutex_fini(&cuda->kernels_lock);
    vmm__driver_fini(driver);
    vmm__host_free(cuda, sizeof *cuda);
}

#define CUDA_OP(name, parameters, arguments) .name = vmm__cuda_##name,
/* clang-format off */
static const struct driver_ops cuda_ops = {
    .name = "cuda",
    .close = cuda_close,
    .stream_check = vmm__cuda_stream_check,
    VMM_DRIVER_MAP(CUDA_OP, , )
};
/* clang-format on */

/* ---- Open ------------------------------------------------------------------------------------ */

vmm_status vmm__cuda_device_count(const struct cuda_api *api, int *count)
{
    CUresult result = api->cuDeviceGetCount(count);
    return vmm__cuda_status(api, result, VMM_ERR_HOST_OOM, "cuDeviceGetCount");
}

static vmm_status device_find(const struct cuda_api *api, int ordinal, CUdevice *device)
{
    int count = 0;
    vmm_status status = vmm__cuda_device_count(api, &count);
    if (status != VMM_OK)
        return status;
    if (ordinal < 0 || ordinal >= count)
        return vmm__error(VMM_ERR_NO_DEVICE, "cuda driver: no device %d; there are %d", ordinal,
                          count);
    CUresult result = api->cuDeviceGet(device, ordinal);
    return vmm__cuda_status(api, result, VMM_ERR_HOST_OOM, "cuDeviceGet(%d)", ordinal);
}

static vmm_status device_describe(struct cuda_driver *cuda, uint64_t peer_devices)
{
    CUresult result = cuda->api->cuDeviceGetName(cuda->base.device_name,
                                                 (int)sizeof cuda->base.device_name, cuda->device);
    if (result != CUDA_SUCCESS)
        return vmm__cuda_status(cuda->api, result, VMM_ERR_HOST_OOM, "cuDeviceGetName");
    struct cuda_scope scope;
    vmm_status status = vmm__cuda_enter(cuda, &scope);
    if (status != VMM_OK)
        return status;
    status = vmm__cuda_device_read(cuda, peer_devices);
    if (status == VMM_OK)
        status = vmm__cuda_clock_open(cuda);
    if (status == VMM_OK)
        status = vmm__cuda_self_test(cuda);
    if (status != VMM_OK)
        vmm__cuda_clock_close(cuda);
    vmm__cuda_leave(cuda, &scope);
    return status;
}

static vmm_status device_retain(struct cuda_driver *cuda, const struct driver_options *options)
{
    int ordinal = options->device;
    vmm_status status = device_find(cuda->api, ordinal, &cuda->device);
    if (status != VMM_OK)
        return status;
    CUresult result = cuda->api->cuDevicePrimaryCtxRetain(&cuda->context, cuda->device);
    if (result != CUDA_SUCCESS)
        return vmm__cuda_status(cuda->api, result, VMM_ERR_DEVICE_OOM,
                                "cuDevicePrimaryCtxRetain(%d)", ordinal);
    cuda->has_context_id = cuda->api->cuCtxGetId != NULL &&
                           cuda->api->cuCtxGetId(cuda->context, &cuda->context_id) == CUDA_SUCCESS;
    status = device_describe(cuda, options->peer_devices);
    if (status != VMM_OK)
        context_release(cuda);
    return status;
}

static vmm_status driver_fill_in(struct cuda_driver *cuda, const struct driver_options *options)
{
    vmm_status status = vmm__cuda_api_start(&cuda->api);
    if (status != VMM_OK)
        return status;
    if (!vmm__cuda_calls_begin())
        return refuse_after_shutdown();
    status = device_retain(cuda, options);
    vmm__cuda_calls_end();
    return status;
}

vmm_status vmm__driver_cuda_open(const struct driver_options *options, struct driver **out)
{
    struct cuda_driver *cuda = vmm__host_alloc(1, sizeof *cuda);
    if (cuda == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "cuda driver: out of host memory for the driver");
    vmm__mutex_init(&cuda->kernels_lock);
    vmm__mutex_init(&cuda->clock.lock);
    vmm__driver_init(&cuda->base, &cuda_ops);
    vmm_status status = driver_fill_in(cuda, options);
    if (status != VMM_OK)
        goto fail_device;
    atomic_init(&cuda->base.accepts_release, !options->is_plain);
    if (options->is_plain)
        status = vmm__cuda_plain_begin(cuda, &cuda_ops, options->device_bytes);
    if (status != VMM_OK)
        goto fail_plain;
    *out = &cuda->base;
    return VMM_OK;

fail_plain:
    work_close(cuda);
    context_release(cuda);
fail_device:
    vmm__driver_fini(&cuda->base);
    vmm__mutex_fini(&cuda->clock.lock);
    vmm__mutex_fini(&cuda->kernels_lock);
    vmm__host_free(cuda, sizeof *cuda);
    return status;
}
