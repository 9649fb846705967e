/* Memory of the fake libcuda: see fake_internal.h. */
#define _GNU_SOURCE
#include "fake_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Records are never freed, so that a second release of a handle is detected. */
struct handle {
    struct handle *next;
    struct context *context; /* of its device */
    uint64_t handle;
    size_t bytes;
    bool is_imported;
    bool is_released;
    uint64_t
        first; /* where it is mapped first and second; 0: nowhere yet. Only if the device lies. */
    uint64_t second;
};

#define FILE_HANDLE   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define FABRIC_HANDLE CUDA_HANDLE_TYPE_FABRIC

/* A fabric handle is one of the host driver with the size at its end: CUDA knows it. */
enum { FABRIC_SIZE_AT = DRIVER_FABRIC_BYTES - sizeof(uint64_t) };

static _Atomic(struct handle *) handles;

/* Reserved addresses, from which calls find the device. Records are never freed. */
struct range {
    struct range *next;
    struct context *context;
    uint64_t address;
    size_t bytes;
    _Atomic bool is_free;
};

static _Atomic(struct range *) ranges;

static struct handle *handle_add(struct context *context, uint64_t made, size_t bytes)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        abort();
    *handle = (struct handle){
        .next = atomic_load(&handles), .context = context, .handle = made, .bytes = bytes
    };
    while (!atomic_compare_exchange_weak(&handles, &handle->next, handle))
        continue;
    return handle;
}

static struct handle *handle_of(CUmemGenericAllocationHandle value)
{
    struct handle *handle = (struct handle *)(uintptr_t)value;
    return handle != NULL && !handle->is_released ? handle : NULL;
}

static void range_add(struct context *context, uint64_t address, size_t bytes)
{
    struct range *range = calloc(1, sizeof *range);
    if (range == NULL)
        abort();
    *range = (struct range){
        .next = atomic_load(&ranges), .context = context, .address = address, .bytes = bytes
    };
    while (!atomic_compare_exchange_weak(&ranges, &range->next, range))
        continue;
}

/* Pinned memory. Records are never freed. */
struct pin_record {
    struct pin_record *next;
    const void *host;
    _Atomic size_t bytes; /* 0: no longer pinned */
};

static _Atomic(struct pin_record *) pinned;

static void pin_add(const void *host, size_t bytes)
{
    struct pin_record *record = calloc(1, sizeof *record);
    if (record == NULL)
        abort();
    *record = (struct pin_record){ .next = atomic_load(&pinned), .host = host, .bytes = bytes };
    while (!atomic_compare_exchange_weak(&pinned, &record->next, record))
        continue;
}

/* Returns how many bytes were pinned there. */
static size_t pin_remove(const void *host)
{
    struct pin_record *record = atomic_load(&pinned);
    while (record != NULL && (record->host != host || atomic_load(&record->bytes) == 0))
        record = record->next;
    return record == NULL ? 0 : atomic_exchange(&record->bytes, 0);
}

static struct range *range_of(uint64_t address)
{
    struct range *range = atomic_load(&ranges);
    while (range != NULL && (range->is_free || address - range->address >= range->bytes))
        range = range->next;
    return range;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CONTEXT_CALL_BEGIN();
    uint64_t free_now;
    uint64_t total;
    vmm_status status = vmm__driver_memory_info(memory, &free_now, &total);
    *free_bytes = fake_cuda.is_integrated ? memory->granule_bytes : free_now;
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
    if (alignment > memory->granule_bytes || wanted % memory->granule_bytes != 0 || flags != 0)
        return fake_misuse(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
    uint64_t reserved;
    vmm_status status = vmm__driver_reserve(memory, bytes, wanted, &reserved);
    if (status == VMM_OK)
        *address = reserved;
    if (status == VMM_OK)
        range_add(context, reserved, bytes);
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    CALL_BEGIN();
    struct range *range = range_of(address);
    if (range == NULL)
        return fake_misuse(__func__, "not reserved", CUDA_ERROR_INVALID_VALUE);
    vmm_status status = vmm__driver_address_free(range->context->memory, address, bytes);
    range->is_free = status == VMM_OK;
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *property, unsigned long long flags)
{
    CONTEXT_CALL_BEGIN();
    unsigned types = property->requestedHandleTypes;
    if (property->type != CU_MEM_ALLOCATION_TYPE_PINNED || flags != 0 ||
        (types & ~(unsigned)(FILE_HANDLE | FABRIC_HANDLE)) != 0 ||
        &fake_contexts[property->location.id] != context)
        return fake_misuse(__func__, "property", CUDA_ERROR_INVALID_VALUE);
    if ((types & FABRIC_HANDLE) != 0 && fake_cuda.lacks_fabric)
        return CUDA_ERROR_NOT_PERMITTED;
    uint64_t made;
    vmm_share_reach reach = types == 0 ? VMM_SHARE_NONE : VMM_SHARE_MACHINE;
    if ((types & FABRIC_HANDLE) != 0)
        reach = VMM_SHARE_FABRIC;
    vmm_status status = vmm__driver_create(memory, bytes, reach, &made);
    if (status == VMM_OK)
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)handle_add(context, made, bytes);
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle value)
{
    CALL_BEGIN();
    struct handle *handle = handle_of(value);
    if (handle == NULL)
        return fake_misuse(__func__, "no such handle", CUDA_ERROR_INVALID_VALUE);
    struct driver *memory = handle->context->memory;
    vmm_status status = handle->is_imported
                            ? vmm__driver_share_release(memory, handle->handle, handle->bytes)
                            : vmm__driver_release(memory, handle->handle, handle->bytes);
    handle->is_released = status == VMM_OK;
    return fake_result(__func__, status);
}

/* ---- Handles that processes share -------------------------------------------------------------- */

static CUresult fabric_export(const struct handle *handle, void *out)
{
    struct driver_fabric fabric;
    uint64_t bytes = handle->bytes;
    if (vmm__driver_fabric_export(handle->context->memory, handle->handle, &fabric) != VMM_OK)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(fabric.bytes + FABRIC_SIZE_AT, &bytes, sizeof bytes);
    memcpy(out, &fabric, sizeof fabric);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle value,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags)
{
    CALL_BEGIN();
    const struct handle *handle = handle_of(value);
    if (handle == NULL || (type != FILE_HANDLE && type != FABRIC_HANDLE) || flags != 0)
        return fake_misuse(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
    if (type == FABRIC_HANDLE)
        return fabric_export(handle, out);
    int descriptor;
    struct driver *memory = handle->context->memory;
    vmm_status status = vmm__driver_share_export(memory, handle->handle, &descriptor);
    if (status == VMM_OK) {
        (void)fcntl(descriptor, F_SETFD, 0); /* CUDA does not promise more */
        memcpy(out, &descriptor, sizeof descriptor);
    }
    return status == VMM_OK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A file of the same size stands for a dma-buf of what has no file: a part of a handle, or one without a reach. */
static vmm_status size_export(size_t bytes, int *descriptor)
{
    *descriptor = memfd_create("fake dma-buf", 0);
    if (*descriptor >= 0 && ftruncate(*descriptor, (off_t)bytes) == 0)
        return VMM_OK;
    return VMM_ERR_DRIVER;
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t bytes,
                                              CUmemRangeHandleType type, unsigned long long flags)
{
    CALL_BEGIN();
    int descriptor;
    const struct range *range = range_of(address);
    if (range == NULL || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || bytes == 0 ||
        (address | bytes) % (uint64_t)sysconf(_SC_PAGESIZE) != 0)
        return fake_misuse(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
    vmm_status status =
        vmm__driver_dmabuf_export(range->context->memory, address, bytes, &descriptor);
    if (status == VMM_ERR_UNSUPPORTED)
        status = size_export(bytes, &descriptor);
    if (status != VMM_OK)
        return CUDA_ERROR_INVALID_VALUE;
    (void)fcntl(descriptor, F_SETFD, 0); /* CUDA does not promise more */
    memcpy(out, &descriptor, sizeof descriptor);
    return CUDA_SUCCESS;
}

static vmm_status file_import(struct driver *memory, int descriptor, uint64_t *bytes,
                              uint64_t *made)
{
    struct stat file;
    if (fstat(descriptor, &file) != 0)
        return VMM_ERR_DRIVER;
    *bytes = (uint64_t)file.st_size;
    return vmm__driver_share_import(memory, descriptor, *bytes, made);
}

static vmm_status fabric_import(struct driver *memory, const void *os_handle, uint64_t *bytes,
                                uint64_t *made)
{
    struct driver_fabric fabric;
    memcpy(&fabric, os_handle, sizeof fabric);
    memcpy(bytes, fabric.bytes + FABRIC_SIZE_AT, sizeof *bytes);
    return vmm__driver_fabric_import(memory, &fabric, *bytes, made);
}

/* Finds the size itself, as CUDA does. A wrong handle is no misuse. */
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
                                               CUmemAllocationHandleType type)
{
    CONTEXT_CALL_BEGIN();
    uint64_t bytes = 0;
    uint64_t made = 0;
    if (type != FILE_HANDLE && type != FABRIC_HANDLE)
        return fake_misuse(__func__, "type", CUDA_ERROR_INVALID_VALUE);
    if (type == FABRIC_HANDLE && fake_cuda.lacks_fabric)
        return CUDA_ERROR_NOT_PERMITTED;
    vmm_status status = type == FABRIC_HANDLE
                            ? fabric_import(memory, os_handle, &bytes, &made)
                            : file_import(memory, (int)(intptr_t)os_handle, &bytes, &made);
    if (status != VMM_OK)
        return CUDA_ERROR_INVALID_VALUE;
    struct handle *handle = handle_add(context, made, (size_t)bytes);
    handle->is_imported = true;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

/* ---- Second mappings of devices that lie ------------------------------------------------------ */

static vmm_status other_bytes_map(struct driver *memory, uint64_t address, size_t bytes)
{
    uint64_t other;
    vmm_status status = vmm__driver_create(memory, bytes, false, &other);
    if (status != VMM_OK)
        return status;
    status = vmm__driver_map(memory, address, bytes, other);
    (void)vmm__driver_release(memory, other, bytes);
    return status;
}

static CUresult lying_map(struct driver *memory, struct handle *handle, uint64_t address)
{
    if (handle->first != 0 && fake_cuda.alias == FAKE_ALIAS_REFUSED)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (handle->first != 0 && fake_cuda.alias == FAKE_ALIAS_OTHER_BYTES)
        return fake_result("cuMemMap", other_bytes_map(memory, address, handle->bytes));
    *(handle->first == 0 ? &handle->first : &handle->second) = address;
    return fake_result("cuMemMap", vmm__driver_map(memory, address, handle->bytes, handle->handle));
}

/* Waits for its work first, so that no work runs later. */
static void alias_break(struct driver *memory, uint64_t first)
{
    for (struct handle *handle = atomic_load(&handles); handle != NULL; handle = handle->next) {
        if (handle->first != first || handle->second == 0)
            continue;
        (void)vmm__driver_device_wait(memory);
        memset((void *)(uintptr_t)handle->second, 0, handle->bytes);
        handle->second = 0;
    }
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle value, unsigned long long flags)
{
    CONTEXT_CALL_BEGIN();
    struct handle *handle = handle_of(value);
    if (handle == NULL || handle->context != context || offset != 0 || flags != 0)
        return fake_misuse(__func__, "arguments", CUDA_ERROR_INVALID_VALUE);
    if (bytes != handle->bytes)
        return handle->is_imported
                   ? CUDA_ERROR_INVALID_VALUE
                   : fake_misuse(__func__, "part of a handle", CUDA_ERROR_INVALID_VALUE);
    if (fake_cuda.alias != FAKE_ALIAS_WORKS)
        return lying_map(memory, handle, address);
    return fake_result(__func__, vmm__driver_map(memory, address, bytes, handle->handle));
}

/* On a GPU the work of a broken context has ended. Here some may still run, as a test may only have declared the
 * context broken: wait for it. */
EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CALL_BEGIN();
    const struct range *range = range_of(address);
    if (range == NULL)
        return fake_misuse(__func__, "not reserved", CUDA_ERROR_INVALID_VALUE);
    if (range->context->broken != 0 || atomic_load(&fake_has_failed))
        (void)vmm__driver_device_wait(range->context->memory);
    if (fake_cuda.alias == FAKE_ALIAS_BROKEN)
        alias_break(range->context->memory, address);
    return fake_result(__func__, vmm__driver_unmap(range->context->memory, address, bytes));
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

/* ---- Pinned memory ------------------------------------------------------------------------------- */

EXPORT CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
    CONTEXT_CALL_BEGIN();
    if (flags != CU_MEMHOSTREGISTER_PORTABLE)
        return fake_misuse(__func__, "flags", CUDA_ERROR_INVALID_VALUE);
    vmm_status status = vmm__driver_pin(memory, host, bytes);
    if (status == VMM_ERR_DRIVER)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (status == VMM_OK)
        pin_add(host, bytes);
    return fake_result(__func__, status);
}

EXPORT CUresult cuMemHostUnregister(void *host)
{
    CONTEXT_CALL_BEGIN();
    size_t bytes = pin_remove(host);
    if (bytes == 0)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    return fake_result(__func__, vmm__driver_unpin(memory, host, bytes));
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                                     CUstream stream)
{
    CONTEXT_CALL_BEGIN();
    struct driver_piece piece = { .address = to, .bytes = bytes, .host = (void *)(uintptr_t)from };
    return fake_result(__func__, vmm__driver_load(memory, &piece, 1, stream));
}
