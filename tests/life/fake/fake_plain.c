/*
 * Memory of the fake libcuda that is not mapped by the program: cuMemAlloc() and its like, pools, and questions about
 * addresses. See fake_internal.h. The memory is the C library's; work of streams on it is done at once.
 */
#define _GNU_SOURCE
#include "fake_internal.h"

#include <stdlib.h>
#include <string.h>

/* Records are never freed, so that a second free is detected. */
struct plain {
    struct plain *next;
    uintptr_t address;
    size_t bytes;
    _Atomic bool is_live;
};

static _Atomic(struct plain *) plains;

static struct plain *plain_of(CUdeviceptr address)
{
    struct plain *plain = atomic_load(&plains);
    while (plain != NULL && (!plain->is_live || address < plain->address ||
                             address - plain->address >= plain->bytes))
        plain = plain->next;
    return plain;
}

static CUresult plain_alloc(CUdeviceptr *out, size_t bytes)
{
    struct plain *plain = calloc(1, sizeof *plain);
    void *memory = bytes == 0 ? NULL : aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (plain == NULL)
        abort();
    if (memory == NULL) {
        free(plain);
        return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *plain = (struct plain){
        .next = atomic_load(&plains), .address = (uintptr_t)memory, .bytes = bytes, .is_live = true
    };
    while (!atomic_compare_exchange_weak(&plains, &plain->next, plain))
        continue;
    atomic_fetch_add(&fake_cuda.plain_blocks, 1);
    *out = (CUdeviceptr)plain->address;
    return CUDA_SUCCESS;
}

/* A wrong address is no misuse: tests try it. */
static CUresult plain_free(CUdeviceptr address)
{
    struct plain *plain = plain_of(address);
    if (plain == NULL || plain->address != address || !atomic_exchange(&plain->is_live, false))
        return CUDA_ERROR_INVALID_VALUE;
    free((void *)plain->address);
    atomic_fetch_sub(&fake_cuda.plain_blocks, 1);
    return CUDA_SUCCESS;
}

/* The counter of mismatches is a word that the kernels know. */
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CONTEXT_CALL_BEGIN();
    (void)memory;
    if (bytes != sizeof context->mismatches)
        return plain_alloc(address, bytes);
    *address = (CUdeviceptr)(uintptr_t)&context->mismatches;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    CONTEXT_CALL_BEGIN();
    (void)memory;
    if (address == 0 || address == (CUdeviceptr)(uintptr_t)&context->mismatches)
        return CUDA_SUCCESS;
    return plain_free(address);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                   unsigned element)
{
    CONTEXT_CALL_BEGIN();
    (void)memory;
    if (element != 4 && element != 8 && element != 16)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + 511) / 512 * 512;
    return plain_alloc(address, *pitch * height);
}

/* ---- In the order of a stream ---------------------------------------------------------------- */

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    (void)stream;
    CONTEXT_CALL_BEGIN();
    (void)memory;
    return plain_alloc(address, bytes);
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return cuMemAllocAsync(address, bytes, stream);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    CONTEXT_CALL_BEGIN();
    (void)memory;
    (void)stream;
    return plain_free(address);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return cuMemFreeAsync(address, stream);
}

/* ---- Pools ----------------------------------------------------------------------------------- */

/* The default pool of a device is the address of its context; others are allocated. */
static CUmemoryPool default_pool(CUdevice device)
{
    return (CUmemoryPool)(void *)&fake_contexts[device];
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CALL_BEGIN();
    *pool = default_pool(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CALL_BEGIN();
    (void)properties;
    *pool = malloc(1);
    return *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CALL_BEGIN();
    free(pool);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    CALL_BEGIN();
    (void)pool;
    (void)keep_bytes;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
    (void)pool;
    return cuMemAllocAsync(address, bytes, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                             CUstream stream)
{
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

/* ---- Questions ------------------------------------------------------------------------------- */

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    CALL_BEGIN();
    const struct plain *plain = plain_of(address);
    if (plain == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (base != NULL)
        *base = plain->address;
    if (bytes != NULL)
        *bytes = plain->bytes;
    return CUDA_SUCCESS;
}

/* What CUDA says of mapped memory: no context, and the range of the mapping. */
EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                      CUdeviceptr address)
{
    CALL_BEGIN();
    unsigned type = CU_MEMORYTYPE_DEVICE;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        memcpy(data, &type, sizeof type);
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
        memcpy(data, &address, sizeof address);
    else
        memset(data, 0, sizeof(void *));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr address)
{
    CALL_BEGIN();
    for (unsigned i = 0; i < count; i++)
        (void)cuPointerGetAttribute(data[i], attributes[i], address);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    CALL_BEGIN();
    memset(handle, 0, sizeof *handle);
    return plain_of(address) == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Of mapped memory CUDA has handles, of this memory it has none. */
EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CALL_BEGIN();
    *handle = 1;
    return plain_of((CUdeviceptr)(uintptr_t)address) == NULL ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
}
