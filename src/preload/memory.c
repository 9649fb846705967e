/*
 * Allocations and frees: see preload.h.
 *
 * cuMemAlloc() and cuMemFree() are not in the order of a stream: the program may use the memory on any stream at once,
 * and cuMemFree() waits for the device. Their blocks belong to the device's idle stream. cuMemAllocAsync() and
 * cuMemFreeAsync() are vmm_alloc() and vmm_free() on the program's stream.
 */
#include "base/error.h"
#include "preload/preload.h"

/* The cache aligns blocks as cuMemAlloc() does; rows of cuMemAllocPitch() have the same alignment on all devices. */
enum { PITCH_BYTES = 512 };

/* Whether the cache has done an allocation, with *result; otherwise libcuda does it. */
static bool is_done(vmm_status status, CUresult *result)
{
    *result = status == VMM_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    return status == VMM_OK || status == VMM_ERR_HOST_OOM || vmm__is_oom(status);
}

/* ---- cuMemAlloc ------------------------------------------------------------------------------ */

/* Makes the idle stream idle again: with VMM_REUSE=stream_wait it may wait for another stream, and with VMM_ZERO=1 it
 * writes zeros. */
static vmm_status idle_wait(struct preload_device *device)
{
    struct preload_scope scope = vmm__preload_scope(device);
    CUresult result = vmm__preload_real()->cuStreamSynchronize(device->idle_stream);
    vmm__preload_restore(&scope);
    return result == CUDA_SUCCESS ? VMM_OK : VMM_ERR_LOST;
}

static vmm_status idle_alloc(struct preload_device *device, size_t bytes, CUdeviceptr *out)
{
    void *block = NULL;
    vmm__preload_deferred_free();
    vmm_status status = vmm_alloc(device->cache, bytes, device->idle_stream, &block);
    if (status == VMM_OK)
        status = idle_wait(device);
    if (status == VMM_OK)
        *out = (CUdeviceptr)(uintptr_t)block;
    else
        (void)vmm_free(device->cache, block);
    return status;
}

static bool alloc_serve(CUdeviceptr *out, size_t bytes, CUresult *result)
{
    struct preload_device *device = bytes > 0 && out != NULL ? vmm__preload_device() : NULL;
    return device != NULL && is_done(idle_alloc(device, bytes, out), result);
}

/* An allocation by libcuda. If memory runs out, again without what the cache holds and no block uses, which
 * cuMemGetInfo() counts as free. */
#define ALLOC_BY_LIBCUDA(result, call)                                                             \
    do {                                                                                           \
        result = (call);                                                                           \
        if (result == CUDA_ERROR_OUT_OF_MEMORY && vmm__preload_give_back_current())                \
            result = (call);                                                                       \
    } while (0)

static CUresult mem_alloc(const struct preload_real *real, CUdeviceptr *out, size_t bytes,
                          const void *caller)
{
    CUresult result;
    if (alloc_serve(out, bytes, &result))
        return result;
    ALLOC_BY_LIBCUDA(result, real->cuMemAlloc_v2(out, bytes));
    if (result == CUDA_SUCCESS)
        vmm__preload_record_alloc(*out, bytes, NULL, caller);
    return result;
}

PRELOAD_CALL(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes), (out, bytes),
             mem_alloc(real, out, bytes, __builtin_return_address(0)))

/* ---- cuMemAllocPitch ------------------------------------------------------------------------- */

static bool pitch_bytes(size_t width, size_t height, unsigned element, size_t *pitch, size_t *bytes)
{
    if ((element != 4 && element != 8 && element != 16) || width == 0 || height == 0 ||
        width > SIZE_MAX - PITCH_BYTES)
        return false;
    *pitch = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    return !__builtin_mul_overflow(*pitch, height, bytes);
}

static CUresult mem_alloc_pitch(const struct preload_real *real, CUdeviceptr *out, size_t *pitch,
                                size_t width, size_t height, unsigned element, const void *caller)
{
    size_t row = 0;
    size_t bytes = 0;
    CUresult result;
    if (pitch != NULL && pitch_bytes(width, height, element, &row, &bytes) &&
        alloc_serve(out, bytes, &result)) {
        if (result == CUDA_SUCCESS)
            *pitch = row;
        return result;
    }
    ALLOC_BY_LIBCUDA(result, real->cuMemAllocPitch_v2(out, pitch, width, height, element));
    if (result == CUDA_SUCCESS)
        vmm__preload_record_alloc(*out, *pitch * height, NULL, caller);
    return result;
}

PRELOAD_CALL(cuMemAllocPitch_v2,
             (CUdeviceptr * out, size_t *pitch, size_t width, size_t height, unsigned element),
             (out, pitch, width, height, element),
             mem_alloc_pitch(real, out, pitch, width, height, element, __builtin_return_address(0)))

/* ---- cuMemFree ------------------------------------------------------------------------------- */

/* As libcuda's own, the call returns what earlier work reports, and then frees nothing. */
static CUresult block_free(const struct preload_block *block)
{
    CUresult result;
    if (vmm__preload_defer(block, &result))
        return result;
    struct preload_scope scope = vmm__preload_scope(block->device);
    result = vmm__preload_real()->cuCtxSynchronize();
    vmm__preload_restore(&scope);
    if (result != CUDA_SUCCESS)
        return result;
    vmm_status status = vmm_free(block->device->cache, (void *)(uintptr_t)block->address);
    vmm__preload_deferred_free();
    return status == VMM_ERR_UNKNOWN_POINTER
               ? CUDA_ERROR_INVALID_VALUE /* another thread freed it */
               : CUDA_SUCCESS;
}

static CUresult mem_free(const struct preload_real *real, CUdeviceptr address)
{
    struct preload_block block;
    if (vmm__preload_block_at(address, &block))
        return block_free(&block);
    vmm__preload_record_free(address);
    return real->cuMemFree_v2(address);
}

PRELOAD_CALL(cuMemFree_v2, (CUdeviceptr address), (address), mem_free(real, address))

/* ---- cuMemAllocAsync ------------------------------------------------------------------------- */

/* The thread's own default stream has one handle for all threads, so a cache cannot tell them apart. A capture needs
 * nodes of libcuda. If libcuda cannot say whether there is one, it also refuses the allocation. */
static bool is_served(const struct preload_real *real, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return stream != PRELOAD_PER_THREAD &&
           real->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool async_serve(const struct preload_real *real, struct preload_device *device,
                        CUdeviceptr *out, size_t bytes, CUstream stream, CUresult *result)
{
    void *block = NULL;
    if (device == NULL || bytes == 0 || out == NULL || !is_served(real, stream))
        return false;
    vmm__preload_deferred_free();
    vmm_status status = vmm_alloc(device->cache, bytes, stream, &block);
    if (status == VMM_OK)
        *out = (CUdeviceptr)(uintptr_t)block;
    return is_done(status, result);
}

/* `pool` NULL: the device's current pool. */
static CUresult alloc_async(const struct preload_real *real, CUdeviceptr *out, size_t bytes,
                            CUmemoryPool pool, CUstream stream, const void *caller)
{
    CUresult result;
    if (async_serve(real, vmm__preload_pool_device(pool), out, bytes, stream, &result))
        return result;
    ALLOC_BY_LIBCUDA(result, pool == NULL
                                 ? real->cuMemAllocAsync(out, bytes, stream)
                                 : real->cuMemAllocFromPoolAsync(out, bytes, pool, stream));
    if (result == CUDA_SUCCESS)
        vmm__preload_record_alloc(*out, bytes, stream, caller);
    return result;
}

#define ALLOC_ASYNC(name, named)                                                                   \
    PRELOAD_CALL(name, (CUdeviceptr * out, size_t bytes, CUstream stream), (out, bytes, stream),   \
                 alloc_async(real, out, bytes, NULL, named, __builtin_return_address(0)))
ALLOC_ASYNC(cuMemAllocAsync, stream)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, PRELOAD_SECOND_FORM(stream))

#define ALLOC_FROM_POOL(name, named)                                                               \
    PRELOAD_CALL(name, (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream),      \
                 (out, bytes, pool, stream),                                                       \
                 pool == NULL                                                                      \
                     ? real->name(out, bytes, pool, stream)                                        \
                     : alloc_async(real, out, bytes, pool, named, __builtin_return_address(0)))
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, stream)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, PRELOAD_SECOND_FORM(stream))

/* ---- cuMemCreate ----------------------------------------------------------------------------- */

static CUresult mem_create(const struct preload_real *real, CUmemGenericAllocationHandle *handle,
                           size_t bytes, const CUmemAllocationProp *property,
                           unsigned long long flags)
{
    CUresult result = real->cuMemCreate(handle, bytes, property, flags);
    if (result == CUDA_ERROR_OUT_OF_MEMORY &&
        property->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        vmm__preload_give_back(property->location.id))
        result = real->cuMemCreate(handle, bytes, property, flags);
    return result;
}

PRELOAD_CALL(cuMemCreate,
             (CUmemGenericAllocationHandle * handle, size_t bytes,
              const CUmemAllocationProp *property, unsigned long long flags),
             (handle, bytes, property, flags), mem_create(real, handle, bytes, property, flags))

/* ---- cuMemFreeAsync -------------------------------------------------------------------------- */

/* Makes the device's order stream wait for the work that `stream` has now. The stream may belong to any context that is
 * current. */
static CUresult order_after(const struct preload_real *real, struct preload_device *device,
                            CUstream stream)
{
    CUevent event = NULL;
    CUresult result = real->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS)
        result = real->cuStreamWaitEvent(device->order_stream, event, 0);
    (void)real->cuEventDestroy_v2(event);
    return result;
}

/* Whether the block is free: debug mode also reports misuse of a block that it frees. */
static bool block_free_after(const struct preload_block *block, CUstream stream)
{
    vmm_cache *cache = block->device->cache;
    void *address = (void *)(uintptr_t)block->address;
    if (vmm_record_stream(cache, address, stream) != VMM_OK)
        return false;
    vmm_status status = vmm_free(cache, address);
    return status != VMM_ERR_DRIVER && status != VMM_ERR_HOST_OOM;
}

/* A stream that the cache cannot know: another context's, or the thread's own default stream. If no event can be
 * recorded there, waits for the stream. */
static CUresult block_free_after_unknown(const struct preload_real *real,
                                         const struct preload_block *block, CUstream stream)
{
    if (order_after(real, block->device, stream) == CUDA_SUCCESS)
        return block_free_after(block, block->device->order_stream) ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_UNKNOWN;
    CUresult result = real->cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS)
        (void)vmm_free(block->device->cache, (void *)(uintptr_t)block->address);
    return result;
}

/* The default stream is that of the current context. */
static bool is_known(const struct preload_block *block, CUstream stream)
{
    if (stream == NULL || stream == (CUstream)CU_STREAM_LEGACY)
        return vmm__preload_device_if_made() == block->device;
    return stream != PRELOAD_PER_THREAD;
}

static CUresult block_free_async(const struct preload_real *real, const struct preload_block *block,
                                 CUstream stream)
{
    if (is_known(block, stream) && block_free_after(block, stream))
        return CUDA_SUCCESS;
    return block_free_after_unknown(real, block, stream);
}

static CUresult free_async(const struct preload_real *real, CUdeviceptr address, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    struct preload_block block;
    if (!vmm__preload_block_at(address, &block)) {
        vmm__preload_record_free(address);
        return real->cuMemFreeAsync(address, stream);
    }
    CUresult result = real->cuStreamIsCapturing(stream, &status);
    if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
        result = CUDA_ERROR_INVALID_VALUE; /* the graph did not allocate it */
    return result == CUDA_SUCCESS ? block_free_async(real, &block, stream) : result;
}

#define FREE_ASYNC(name, named)                                                                    \
    PRELOAD_CALL(name, (CUdeviceptr address, CUstream stream), (address, stream),                  \
                 free_async(real, address, named))
FREE_ASYNC(cuMemFreeAsync, stream)
FREE_ASYNC(cuMemFreeAsync_ptsz, PRELOAD_SECOND_FORM(stream))
