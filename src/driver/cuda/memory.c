/*
 * Reservations, handles and mappings of the cuda driver: one libcuda call each.
 *
 * Owns: nothing. Called by: the driver table, any thread; probe.c. Locks: none; libcuda has its own.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "driver/cuda/internal.h"
#include "driver/system_memory.h"

#include <inttypes.h>

/* The caller guarantees valid arguments (P2), so INVALID_VALUE means a size beyond the address space. */
vmm_status vmm__cuda_reserve(struct driver *driver, uint64_t bytes, uint64_t hint,
                             uint64_t *address)
{
    CUdeviceptr reserved = 0;
    CUDA_CALL(vmm__cuda_of(driver),
              cuMemAddressReserve(&reserved, bytes, driver->granule_bytes, hint, 0),
              VMM_ERR_ADDRESS_SPACE, "cuMemAddressReserve(%" PRIu64 ")", bytes);
    if (status == VMM_OK)
        *address = reserved;
    return result == CUDA_ERROR_INVALID_VALUE ? VMM_ERR_ADDRESS_SPACE : status;
}

vmm_status vmm__cuda_address_free(struct driver *driver, uint64_t address, uint64_t bytes)
{
    CUDA_RELEASE(vmm__cuda_of(driver), cuMemAddressFree(address, bytes), VMM_ERR_HOST_OOM,
                 "cuMemAddressFree(0x%" PRIx64 ", %" PRIu64 ")", address, bytes);
    return status;
}

/* False unless the system's memory is the device's, and the system says how much of it there is. */
static bool system_left_read(const struct cuda_driver *cuda, uint64_t total_bytes,
                             uint64_t *left_bytes)
{
    uint64_t bytes;
    if (!cuda->is_integrated || !vmm__system_memory_read(&bytes))
        return false;
    *left_bytes = vmm__system_memory_left(bytes, total_bytes);
    return true;
}

/* ERR_DEVICE_OOM if the memory would come out of the system's share: CUDA would give even the last of the system's
 * memory, and the machine would hang. */
static vmm_status system_share_keep(const struct cuda_driver *cuda, uint64_t bytes)
{
    uint64_t left_bytes;
    if (!system_left_read(cuda, cuda->base.total_bytes, &left_bytes) || bytes <= left_bytes)
        return VMM_OK;
    return vmm__error(VMM_ERR_DEVICE_OOM,
                      "cuda driver: create of %" PRIu64 " bytes: the system, whose memory %s uses, "
                      "can give %" PRIu64,
                      bytes, cuda->base.device_name, left_bytes);
}

vmm_status vmm__cuda_create(struct driver *driver, uint64_t bytes, vmm_share_reach reach,
                            uint64_t *handle)
{
    CUmemGenericAllocationHandle created = 0;
    const struct cuda_driver *cuda = vmm__cuda_of(driver);
    CUmemAllocationProp property = cuda->property;
    if (reach != VMM_SHARE_NONE && !driver->has_sharing)
        return vmm__cuda_sharing_refuse(driver);
    if (reach != VMM_SHARE_NONE)
        property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (reach == VMM_SHARE_FABRIC)
        property.requestedHandleTypes |= CUDA_HANDLE_TYPE_FABRIC;
    vmm_status room = system_share_keep(cuda, bytes);
    if (room != VMM_OK)
        return room;
    CUDA_CALL(cuda, cuMemCreate(&created, bytes, &property, 0), VMM_ERR_DEVICE_OOM,
              "cuMemCreate(%" PRIu64 ")", bytes);
    if (status == VMM_OK)
        *handle = created;
    return status;
}

vmm_status vmm__cuda_release(struct driver *driver, uint64_t handle, uint64_t bytes)
{
    CUDA_RELEASE(vmm__cuda_of(driver), cuMemRelease(handle), VMM_ERR_HOST_OOM,
                 "cuMemRelease(0x%" PRIx64 ") of %" PRIu64 " bytes", handle, bytes);
    return status;
}

vmm_status vmm__cuda_map(struct driver *driver, uint64_t address, uint64_t bytes, uint64_t handle)
{
    CUDA_CALL(vmm__cuda_of(driver), cuMemMap(address, bytes, 0, handle, 0), VMM_ERR_DEVICE_OOM,
              "cuMemMap(0x%" PRIx64 ", %" PRIu64 ", handle 0x%" PRIx64 ")", address, bytes, handle);
    return status;
}

vmm_status vmm__cuda_unmap(struct driver *driver, uint64_t address, uint64_t bytes)
{
    CUDA_RELEASE(vmm__cuda_of(driver), cuMemUnmap(address, bytes), VMM_ERR_HOST_OOM,
                 "cuMemUnmap(0x%" PRIx64 ", %" PRIu64 ")", address, bytes);
    return status;
}

/* Lists the device, then its peers. */
static size_t accesses_list(const struct cuda_driver *cuda, CUmemAccessDesc list[1 + CUDA_PEERS])
{
    size_t count = 1;
    list[0] = (CUmemAccessDesc){ .location = cuda->property.location,
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    for (uint64_t peers = vmm__driver_peers(&cuda->base); peers != 0; peers &= peers - 1) {
        list[count] = list[0];
        list[count++].location.id = __builtin_ctzll(peers); /* an ordinal, says cuda.h */
    }
    return count;
}

vmm_status vmm__cuda_access(struct driver *driver, uint64_t address, uint64_t bytes)
{
    const struct cuda_driver *cuda = vmm__cuda_of(driver);
    CUmemAccessDesc list[1 + CUDA_PEERS];
    size_t count = accesses_list(cuda, list);
    CUDA_CALL(cuda, cuMemSetAccess(address, bytes, list, count), VMM_ERR_DEVICE_OOM,
              "cuMemSetAccess(0x%" PRIx64 ", %" PRIu64 ")", address, bytes);
    return status;
}

vmm_status vmm__cuda_memory_info(struct driver *driver, uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t free_now = 0;
    size_t total = 0;
    CUDA_CALL(vmm__cuda_of(driver), cuMemGetInfo_v2(&free_now, &total), VMM_ERR_DEVICE_OOM,
              "cuMemGetInfo");
    if (status != VMM_OK)
        return status;
    *total_bytes = total;
    if (!system_left_read(vmm__cuda_of(driver), total, free_bytes))
        *free_bytes = free_now;
    return VMM_OK;
}
