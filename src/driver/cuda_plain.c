/*
 * Plain memory of the cuda driver: the same table, but all memory is one allocation of CUDA's own (cuMemAlloc), and
 * mapping is bookkeeping. For tools that know allocations and nothing of mappings, such as compute-sanitizer, whose
 * marks (src/marks.h) it refuses in mapped memory.
 *
 * Reserving takes the memory of all addresses at once, so they are as few as a cache can do with: twice what the
 * device is said to have. Each address has memory of its own: a handle that is mapped at two places (D4) is not one
 * memory there, which only moving live bytes would need; a plain cache does not compact.
 *
 * Owns: the allocation. Called by: the driver table, any thread; cuda.c. Locks: none, the counters are atomic and
 * there is one reservation in a driver's life.
 */
#ifdef VMM_WITH_CUDA
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "driver/cuda_internal.h"

#include <inttypes.h>

/* Of the memory that nobody has taken, in quarters: the program may want some, too. */
enum { SHARE = 3, SHARE_OF = 4, ADDRESSES_EACH = 2 };

/* ---- Addresses ------------------------------------------------------------------------------- */

static vmm_status allocation_take(struct cuda_driver *cuda, uint64_t bytes)
{
    CUdeviceptr taken = 0;
    CUDA_CALL(cuda, cuMemAlloc_v2(&taken, bytes), VMM_ERR_ADDRESS_SPACE, "cuMemAlloc(%" PRIu64 ")",
              bytes);
    if (status == VMM_OK)
        cuda->plain_allocation = taken;
    return status;
}

static vmm_status allocation_give(struct cuda_driver *cuda)
{
    CUDA_CALL(cuda, cuMemFree_v2(cuda->plain_allocation), VMM_ERR_HOST_OOM,
              "cuMemFree(0x%" PRIx64 ")", (uint64_t)cuda->plain_allocation);
    if (status == VMM_OK)
        cuda->plain_allocation = 0;
    return status;
}

/* CUDA allocates so much at the start of a granule. Should it not, there is one in a granule more; a tool may then
 * refuse marks, because the heap does not begin with the allocation. */
static vmm_status plain_reserve(struct driver *driver, uint64_t bytes, uint64_t *address)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    if (cuda->plain_allocation != 0 || bytes > ADDRESSES_EACH * driver->total_bytes)
        return vmm__error(VMM_ERR_ADDRESS_SPACE, "plain memory: %" PRIu64 " bytes are not there",
                          bytes);
    vmm_status status = allocation_take(cuda, bytes);
    if (status == VMM_OK && !vmm__is_aligned(cuda->plain_allocation, driver->granule_bytes)) {
        status = allocation_give(cuda);
        if (status == VMM_OK)
            status = allocation_take(cuda, bytes + driver->granule_bytes);
    }
    if (status == VMM_OK)
        *address = vmm__align_up(cuda->plain_allocation, driver->granule_bytes);
    return status;
}

static vmm_status plain_address_free(struct driver *driver, uint64_t address, uint64_t bytes)
{
    (void)address;
    (void)bytes;
    return allocation_give(vmm__cuda_of(driver));
}

/* ---- Handles and mappings -------------------------------------------------------------------- */

static vmm_status plain_create(struct driver *driver, uint64_t bytes, uint64_t *handle)
{
    struct cuda_driver *cuda = vmm__cuda_of(driver);
    uint64_t before = atomic_fetch_add(&cuda->plain_bytes, bytes);
    if (bytes > driver->total_bytes || before > driver->total_bytes - bytes) {
        atomic_fetch_sub(&cuda->plain_bytes, bytes);
        return vmm__error(VMM_ERR_DEVICE_OOM,
                          "plain memory: %" PRIu64 " of %" PRIu64 " bytes are taken, %" PRIu64
                          " more were needed",
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

/* Unmapping and access: there is nothing to do. */
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
        return vmm__error(VMM_ERR_DEVICE_OOM, "plain memory: %" PRIu64 " bytes are no granule",
                          device_bytes);
    cuda->plain_ops = *ops;
    cuda->plain_ops.reserve = plain_reserve;
    cuda->plain_ops.address_free = plain_address_free;
    cuda->plain_ops.create = plain_create;
    cuda->plain_ops.release = plain_release;
    cuda->plain_ops.map = plain_map;
    cuda->plain_ops.unmap = plain_range;
    cuda->plain_ops.access = plain_range;
    cuda->plain_ops.memory_info = plain_memory_info;
    cuda->base.ops = &cuda->plain_ops;
    cuda->base.is_plain = true;
    return VMM_OK;
}

#endif
