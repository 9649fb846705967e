/*
 * Plain memory of the cuda driver: the same table, but all memory is one cuMemAlloc allocation, and mapping is
 * bookkeeping only. For tools that support allocations but not mappings, such as compute-sanitizer, which rejects NVTX
 * annotations (src/debug/nvtx.h) in mapped memory.
 *
 * Reserving allocates the memory of all addresses at once, so the address range is as small as a cache can use: twice
 * the device capacity. Each address has its own memory, so a handle mapped at two addresses would not be shared:
 * has_aliases is false, and a plain cache has no views, does not compact, and moves no block to other addresses.
 *
 * Owns: the allocation. Called by: the driver table, any thread; cuda.c. Locks: none; the counters are atomic and a
 * driver makes one reservation in its life.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "driver/cuda/internal.h"

#include <inttypes.h>
#include <stdio.h>

/* The default takes three quarters of the free memory, so that the program can use the rest. */
enum { SHARE = 3, SHARE_OF = 4, ADDRESSES_EACH = 2 };

/* ---- Addresses ------------------------------------------------------------------------------- */

static vmm_status allocation_create(struct cuda_driver *cuda, uint64_t bytes)
{
    CUdeviceptr created = 0;
    CUDA_CALL(cuda, cuMemAlloc_v2(&created, bytes), VMM_ERR_ADDRESS_SPACE,
              "cuMemAlloc(%" PRIu64 ")", bytes);
    if (status == VMM_OK)
        cuda->plain_allocation = created;
    return status;
}

static vmm_status allocation_free(struct cuda_driver *cuda)
{
    CUDA_CALL(cuda, cuMemFree_v2(cuda->plain_allocation), VMM_ERR_HOST_OOM,
              "cuMemFree(0x%" PRIx64 ")", (uint64_t)cuda->plain_allocation);
    if (status == VMM_OK)
        cuda->plain_allocation = 0;
    return status;
}

/* Allocations of this size start on a granule boundary. If one does not, allocates one granule more; a tool may then
 * reject annotations, because the heap does not start at the allocation. */
static vmm_status plain_reserve(struct driver *driver, uint64_t bytes, uint64_t hint,
                                uint64_t *address)
{
    (void)hint;
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    if (cuda->plain_allocation != 0 || bytes > ADDRESSES_EACH * driver->total_bytes)
        return vmm__error(VMM_ERR_ADDRESS_SPACE,
                          "plain memory: %" PRIu64 " bytes of addresses are not available", bytes);
    vmm_status status = allocation_create(cuda, bytes);
    if (status == VMM_OK && !vmm__is_aligned(cuda->plain_allocation, driver->granule_bytes)) {
        status = allocation_free(cuda);
        if (status == VMM_OK)
            status = allocation_create(cuda, bytes + driver->granule_bytes);
    }
    if (status == VMM_OK)
        *address = vmm__align_up(cuda->plain_allocation, driver->granule_bytes);
    return status;
}

static vmm_status plain_address_free(struct driver *driver, uint64_t address, uint64_t bytes)
{
    (void)address;
    (void)bytes;
    return allocation_free(vmm__cuda_of(driver));
}

/* ---- Handles and mappings -------------------------------------------------------------------- */

static vmm_status plain_create(struct driver *driver, uint64_t bytes, vmm_share_reach reach,
                               uint64_t *handle)
{
    if (reach != VMM_SHARE_NONE)
        return vmm__cuda_sharing_refuse(driver);
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    uint64_t before = atomic_fetch_add(&cuda->plain_bytes, bytes);
    if (bytes > driver->total_bytes || before > driver->total_bytes - bytes) {
        atomic_fetch_sub(&cuda->plain_bytes, bytes);
        return vmm__error(VMM_ERR_DEVICE_OOM,
                          "plain memory: %" PRIu64 " of %" PRIu64
                          " bytes are in use, cannot create %" PRIu64 " more",
                          before, driver->total_bytes, bytes);
    }
    *handle = atomic_fetch_add(&cuda->plain_handles, 1) + 1;
    return VMM_OK;
}

static vmm_status plain_release(struct driver *driver, uint64_t handle, uint64_t bytes)
{
    (void)handle;
    atomic_fetch_sub(&vmm__cuda_of(driver)->plain_bytes, bytes);
    return VMM_OK;
}

static vmm_status plain_map(struct driver *driver, uint64_t address, uint64_t bytes,
                            uint64_t handle)
{
    (void)driver;
    (void)address;
    (void)bytes;
    (void)handle;
    return VMM_OK;
}

/* Unmap and access have nothing to do. */
static vmm_status plain_range(struct driver *driver, uint64_t address, uint64_t bytes)
{
    (void)driver;
    (void)address;
    (void)bytes;
    return VMM_OK;
}

static vmm_status plain_memory_info(struct driver *driver, uint64_t *free_bytes,
                                    uint64_t *total_bytes)
{
    *free_bytes = driver->total_bytes - atomic_load(&vmm__cuda_of(driver)->plain_bytes);
    *total_bytes = driver->total_bytes;
    return VMM_OK;
}

static vmm_status plain_peers_check(struct driver *driver, uint64_t devices)
{
    (void)devices;
    return vmm__error(VMM_ERR_UNSUPPORTED, "%s: memory is plain: only this device can access it",
                      driver->device_name);
}

/* ---- The table ------------------------------------------------------------------------------- */

static vmm_status capacity_read(struct cuda_driver *cuda, uint64_t *bytes)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    vmm_status status = vmm__cuda_memory_info(&cuda->base, &free_bytes, &total_bytes);
    if (status == VMM_OK)
        *bytes = free_bytes / SHARE_OF * SHARE / ADDRESSES_EACH;
    return status;
}

vmm_status vmm__cuda_plain_begin(struct cuda_driver *cuda, const struct driver_ops *ops,
                                 uint64_t device_bytes)
{
    vmm_status status = VMM_OK;
    if (device_bytes == 0)
        status = capacity_read(cuda, &device_bytes);
    if (status != VMM_OK)
        return status;
    cuda->base.total_bytes = vmm__align_down(device_bytes, cuda->base.granule_bytes);
    if (cuda->base.total_bytes == 0)
        return vmm__error(VMM_ERR_DEVICE_OOM,
                          "plain memory: %" PRIu64 " bytes are less than a granule", device_bytes);
    cuda->plain_ops = *ops;
    cuda->plain_ops.reserve = plain_reserve;
    cuda->plain_ops.address_free = plain_address_free;
    cuda->plain_ops.create = plain_create;
    cuda->plain_ops.release = plain_release;
    cuda->plain_ops.map = plain_map;
    cuda->plain_ops.unmap = plain_range;
    cuda->plain_ops.access = plain_range;
    cuda->plain_ops.memory_info = plain_memory_info;
    cuda->plain_ops.peers_check = plain_peers_check;
    cuda->base.ops = &cuda->plain_ops;
    cuda->base.is_plain = true;
    vmm__driver_peers_set(&cuda->base, 0);
    cuda->base.has_aliases = false;
    cuda->base.has_sharing = false; /* so create and the imports refuse */
    (void)snprintf(cuda->base.sharing_failure, sizeof cuda->base.sharing_failure,
                   "memory is plain");
    return VMM_OK;
}
