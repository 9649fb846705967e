/*
 * Questions about memory, answered as for memory of cuMemAlloc(): see preload.h.
 */
#include "preload/preload.h"

#include <string.h>

/* ---- How much is free ------------------------------------------------------------------------ */

/* What the cache reserves and no block uses is free for the program; with a limit, at most what the limit leaves. */
static size_t free_bytes_of(const struct preload_device *device, size_t free_bytes)
{
    vmm_stats stats = VMM_STATS_INIT;
    if (vmm_stats_get(device->cache, &stats) != VMM_OK)
        return free_bytes;
    uint64_t active = stats.active_bytes.current;
    uint64_t reserved = stats.reserved_bytes.current;
    if (reserved > active)
        free_bytes += reserved - active;
    if (stats.limit_bytes == 0)
        return free_bytes;
    uint64_t room = stats.limit_bytes > active ? stats.limit_bytes - active : 0;
    return room < free_bytes ? (size_t)room : free_bytes;
}

static CUresult info_get(const struct preload_real *real, size_t *free_bytes, size_t *total_bytes)
{
    CUresult result = real->cuMemGetInfo_v2(free_bytes, total_bytes);
    const struct preload_device *device = vmm__preload_device_if_made();
    if (result == CUDA_SUCCESS && free_bytes != NULL && device != NULL)
        *free_bytes = free_bytes_of(device, *free_bytes);
    return result;
}

PRELOAD_CALL(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total_bytes), (free_bytes, total_bytes),
             info_get(real, free_bytes, total_bytes))

/* ---- Whose an address is --------------------------------------------------------------------- */

static CUresult range_get(const struct preload_real *real, CUdeviceptr *base, size_t *bytes,
                          CUdeviceptr address)
{
    struct preload_block found;
    if (!vmm__preload_block_find(address, &found))
        return real->cuMemGetAddressRange_v2(base, bytes, address);
    if (base != NULL)
        *base = found.address;
    if (bytes != NULL)
        *bytes = found.bytes;
    return CUDA_SUCCESS;
}

PRELOAD_CALL(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address),
             (base, bytes, address), range_get(real, base, bytes, address))

/* Stores what cuMemAlloc() would have stored; libcuda answers for the whole mapping. False: libcuda's answer is
 * right. */
static bool attribute_store(const struct preload_block *found, CUpointer_attribute attribute,
                            void *data)
{
    CUcontext context = atomic_load_explicit(&found->device->context, memory_order_acquire);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        memcpy(data, &context, sizeof context);
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        memcpy(data, &found->address, sizeof found->address);
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        memcpy(data, &found->bytes, sizeof found->bytes);
        return true;
    default:
        return false;
    }
}

static CUresult attribute_get(const struct preload_real *real, void *data,
                              CUpointer_attribute attribute, CUdeviceptr address)
{
    struct preload_block found;
    bool is_changed = attribute == CU_POINTER_ATTRIBUTE_CONTEXT ||
                      attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
                      attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE;
    if (data != NULL && is_changed && vmm__preload_block_find(address, &found) &&
        attribute_store(&found, attribute, data))
        return CUDA_SUCCESS;
    return real->cuPointerGetAttribute(data, attribute, address);
}

PRELOAD_CALL(cuPointerGetAttribute,
             (void *data, CUpointer_attribute attribute, CUdeviceptr address),
             (data, attribute, address), attribute_get(real, data, attribute, address))

static CUresult attributes_get(const struct preload_real *real, unsigned count,
                               CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
    struct preload_block found;
    CUresult result = real->cuPointerGetAttributes(count, attributes, data, address);
    if (result != CUDA_SUCCESS || !vmm__preload_block_find(address, &found))
        return result;
    for (unsigned i = 0; i < count; i++)
        (void)attribute_store(&found, attributes[i], data[i]);
    return result;
}

PRELOAD_CALL(cuPointerGetAttributes,
             (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address),
             (count, attributes, data, address),
             attributes_get(real, count, attributes, data, address))

/* ---- Handles for other processes ------------------------------------------------------------- */

/* Blocks share handles with others, and neither is exportable. A log says which call was refused. */
static bool block_refuse(CUdeviceptr address, const char *line)
{
    struct preload_block found;
    if (!vmm__preload_block_find(address, &found))
        return false;
    (void)vmm_log_write(found.device->cache, line);
    return true;
}

PRELOAD_CALL(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address), (handle, address),
             block_refuse(address,
                          "cuIpcGetMemHandle: not supported for memory of the cache; start the "
                          "program without libvmmcache_preload")
                 ? CUDA_ERROR_NOT_SUPPORTED
                 : real->cuIpcGetMemHandle(handle, address))

/* As for memory of cuMemAlloc(), which has no handle. */
PRELOAD_CALL(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address),
             (handle, address),
             block_refuse((CUdeviceptr)(uintptr_t)address,
                          "cuMemRetainAllocationHandle: memory of the cache has no handle for the "
                          "program")
                 ? CUDA_ERROR_INVALID_VALUE
                 : real->cuMemRetainAllocationHandle(handle, address))
