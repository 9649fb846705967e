/* Memory of the fake libcuda: see fake_internal.h. */
#define _GNU_SOURCE
#include "fake_internal.h"

#include <stdlib.h>
#include <string.h>

/* Records stay, so that a handle that is released twice is found out. */
struct handle {
    struct handle *next;
    struct context *context;
    unsigned long long context_id;
    uint64_t handle;
    size_t bytes;
    bool is_released;
};

static _Atomic(struct handle *) handles;

static struct handle *handle_add(struct context *context, uint64_t made, size_t bytes)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        abort();
    *handle = (struct handle){ .next = atomic_load(&handles),
                               .context = context,
                               .context_id = context->id,
                               .handle = made,
                               .bytes = bytes };
    while (!atomic_compare_exchange_weak(&handles, &handle->next, handle))
        continue;
    return handle;
}

/* NULL if the handle is of no use in the context. */
static struct handle *handle_of(CUmemGenericAllocationHandle value, const struct context *context)
{
    struct handle *handle = (struct handle *)(uintptr_t)value;
    bool is_good = handle != NULL && handle->context == context &&
                   handle->context_id == context->id && !handle->is_released;
    return is_good ? handle : NULL;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CONTEXT_CALL_BEGIN();
    uint64_t free_now;
    uint64_t total;
    vmm_status status = vmm__driver_memory_info(memory, &free_now, &total);
    *free_bytes = free_now;
    *total_bytes = total;
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity,
                                              const CUmemAllocationProp *property,
                                              CUmemAllocationGranularity_flags flags)
{
    (void)property;
    (void)flags;
    CONTEXT_CALL_BEGIN();
    *granularity = memory->granule_bytes;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                                    CUdeviceptr wanted, unsigned long long flags)
{
    CONTEXT_CALL_BEGIN();
    if (alignment > memory->granule_bytes || wanted != 0 || flags != 0)
        return fake_misuse(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
    uint64_t reserved;
    vmm_status status = vmm__driver_reserve(memory, bytes, &reserved);
    if (status == VMM_OK)
        *address = reserved;
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    CONTEXT_CALL_BEGIN();
    return fake_result(__func__, vmm__driver_address_free(memory, address, bytes));
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *property, unsigned long long flags)
{
    CONTEXT_CALL_BEGIN();
    if (property->type != CU_MEM_ALLOCATION_TYPE_PINNED || flags != 0 ||
        &fake_contexts[property->location.id] != context)
        return fake_misuse(__func__, "property", CUDA_ERROR_INVALID_VALUE);
    uint64_t made;
    vmm_status status = vmm__driver_create(memory, bytes, &made);
    if (status == VMM_OK)
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)handle_add(context, made, bytes);
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle value)
{
    CONTEXT_CALL_BEGIN();
    struct handle *handle = handle_of(value, context);
    if (handle == NULL)
        return fake_misuse(__func__, "no such handle", CUDA_ERROR_INVALID_VALUE);
    vmm_status status = vmm__driver_release(memory, handle->handle, handle->bytes);
    handle->is_released = status == VMM_OK;
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle value, unsigned long long flags)
{
    CONTEXT_CALL_BEGIN();
    const struct handle *handle = handle_of(value, context);
    if (handle == NULL || offset != 0 || flags != 0 || bytes != handle->bytes)
        return fake_misuse(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
    return fake_result(__func__, vmm__driver_map(memory, address, bytes, handle->handle));
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CONTEXT_CALL_BEGIN();
    return fake_result(__func__, vmm__driver_unmap(memory, address, bytes));
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                               size_t count)
{
    CONTEXT_CALL_BEGIN();
    for (size_t i = 0; i < count; i++) {
        bool is_own = &fake_contexts[access[i].location.id] == context;
        if (is_own != (i == 0) || (!is_own && !fake_has_peers))
            return fake_misuse(__func__, "devices", CUDA_ERROR_INVALID_DEVICE);
    }
    return fake_result(__func__, vmm__driver_access(memory, address, bytes));
}

/* One at a time is enough: the counter of mismatches. */
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CONTEXT_CALL_BEGIN();
    if (bytes != sizeof context->mismatches)
        return fake_misuse(__func__, "more than one word", CUDA_ERROR_INVALID_VALUE);
    *address = (CUdeviceptr)(uintptr_t)&context->mismatches;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    CONTEXT_CALL_BEGIN();
    return address == (CUdeviceptr)(uintptr_t)&context->mismatches
               ? CUDA_SUCCESS
               : fake_misuse(__func__, "unknown", CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    CONTEXT_CALL_BEGIN();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return fake_result(__func__, vmm__driver_device_wait(memory));
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    CONTEXT_CALL_BEGIN();
    uint64_t places = 0;
    vmm_status status = vmm__driver_mismatches(memory, &places);
    context->mismatches = places;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                     CUstream stream)
{
    CONTEXT_CALL_BEGIN();
    return fake_result(__func__, vmm__driver_copy(memory, to, from, bytes, stream));
}
