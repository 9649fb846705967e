/*
 * Handles that processes share, and pinned host memory, of the cuda driver.
 *
 * Owns: nothing. Called by: the driver table, any thread; probe.c. Locks: none; libcuda has its own.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "driver/cuda/internal.h"

#include <fcntl.h>
#include <inttypes.h>

vmm_status vmm__cuda_sharing_refuse(const struct driver *driver)
{
    return vmm__error(VMM_ERR_UNSUPPORTED, "%s cannot share memory between processes: %s",
                      driver->device_name, driver->sharing_failure);
}

vmm_status vmm__cuda_share_export(struct driver *driver, uint64_t handle, int *descriptor)
{
    int exported = -1;
    CUDA_CALL(vmm__cuda_of(driver),
              cuMemExportToShareableHandle(&exported, handle,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              VMM_ERR_HOST_OOM, "cuMemExportToShareableHandle(0x%" PRIx64 ")", handle);
    if (status != VMM_OK)
        return status;
    (void)fcntl(exported, F_SETFD, FD_CLOEXEC);
    *descriptor = exported;
    return VMM_OK;
}

vmm_status vmm__cuda_fabric_export(struct driver *driver, uint64_t handle,
                                   struct driver_fabric *fabric)
{
    struct driver_fabric exported = { { 0 } };
    CUDA_CALL(vmm__cuda_of(driver),
              cuMemExportToShareableHandle(exported.bytes, handle, CUDA_HANDLE_TYPE_FABRIC, 0),
              VMM_ERR_HOST_OOM, "cuMemExportToShareableHandle(0x%" PRIx64 ", fabric)", handle);
    if (status == VMM_OK)
        *fabric = exported;
    return status;
}

/* CUDA wants a range whose handles are of one device and were created alike. api/parts.c refuses a range whose chunks
 * have different reaches. */
vmm_status vmm__cuda_dmabuf_export(struct driver *driver, uint64_t address, uint64_t bytes,
                                   int *descriptor)
{
    int exported = -1;
    const struct cuda_driver *cuda = vmm__cuda_of(driver);
    bool is_known = cuda->api->cuMemGetHandleForAddressRange != NULL;
    if (!is_known || !cuda->has_dmabuf)
        return vmm__error(VMM_ERR_UNSUPPORTED, "dmabuf_export: %s has no dma-bufs: %s",
                          driver->device_name,
                          is_known ? "attribute 124 is 0, as without NVIDIA's open kernel modules"
                                   : "the driver is older than CUDA 11.7");
    CUDA_CALL(cuda,
              cuMemGetHandleForAddressRange(&exported, address, bytes,
                                            CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
              VMM_ERR_HOST_OOM,
              "cuMemGetHandleForAddressRange(0x%" PRIx64 ", %" PRIu64 ", dma-buf)", address, bytes);
    if (status != VMM_OK)
        return result == CUDA_ERROR_NOT_SUPPORTED ? VMM_ERR_UNSUPPORTED : status;
    (void)fcntl(exported, F_SETFD, FD_CLOEXEC);
    *descriptor = exported;
    return VMM_OK;
}

/* ---- Import ---------------------------------------------------------------------------------- */

/* Undoes a step of import_try(); if the driver refuses, asks it once more. On a lost device that needs no context.
 * Keeps the first failure and its line. */
static vmm_status step_undo(vmm_status first,
                            vmm_status (*undo)(struct driver *driver, uint64_t subject,
                                               uint64_t bytes),
                            struct driver *driver, uint64_t subject, uint64_t bytes)
{
    struct error_line before;
    struct error_line refusal;
    vmm__error_save(&before);
    vmm_status status = undo(driver, subject, bytes);
    vmm__error_save(&refusal);
    if (status == VMM_ERR_LOST)
        vmm__lost_note(&driver->lost);
    if (status != VMM_OK && undo(driver, subject, bytes) == VMM_OK && status != VMM_ERR_LOST)
        status = VMM_OK;
    vmm__error_restore(first == VMM_OK && status != VMM_OK ? &refusal : &before);
    return first != VMM_OK ? first : status;
}

/* CUDA does not tell the size of an imported handle, nor whether this device can access it. It maps whole handles only,
 * so a mapping tells both. */
static vmm_status import_try(struct driver *driver, uint64_t handle, uint64_t bytes)
{
    uint64_t address = 0;
    vmm_status status = vmm__cuda_reserve(driver, bytes, 0, &address);
    if (status != VMM_OK)
        return status;
    status = vmm__cuda_map(driver, address, bytes, handle);
    if (status == VMM_OK) {
        status = vmm__cuda_access(driver, address, bytes);
        status = step_undo(status, vmm__cuda_unmap, driver, address, bytes);
    }
    return step_undo(status, vmm__cuda_address_free, driver, address, bytes);
}

/* Checks a handle that was just imported. */
static vmm_status import_check(struct driver *driver, uint64_t imported, uint64_t bytes,
                               uint64_t *handle)
{
    vmm_status status = import_try(driver, imported, bytes);
    if (status == VMM_OK) {
        *handle = imported;
        return VMM_OK;
    }
    (void)step_undo(status, vmm__cuda_release, driver, imported, bytes);
    struct error_line reason;
    vmm__error_save(&reason);
    return vmm__error(status,
                      "share_import: not %" PRIu64 " bytes that this device can access: %.280s",
                      bytes, reason.text);
}

static vmm_status handle_import(struct driver *driver, void *from, CUmemAllocationHandleType type,
                                uint64_t bytes, uint64_t *handle)
{
    CUmemGenericAllocationHandle imported = 0;
    CUDA_CALL(vmm__cuda_of(driver), cuMemImportFromShareableHandle(&imported, from, type),
              VMM_ERR_DEVICE_OOM, "cuMemImportFromShareableHandle(%s)",
              type == CUDA_HANDLE_TYPE_FABRIC ? "fabric" : "descriptor");
    return status == VMM_OK ? import_check(driver, imported, bytes, handle) : status;
}

vmm_status vmm__cuda_share_import(struct driver *driver, int descriptor, uint64_t bytes,
                                  uint64_t *handle)
{
    if (!driver->has_sharing)
        return vmm__cuda_sharing_refuse(driver);
    if (fcntl(descriptor, F_GETFD) < 0)
        return vmm__error(VMM_ERR_DRIVER, "share_import: %d is not a file descriptor", descriptor);
    return handle_import(driver, (void *)(intptr_t)descriptor,
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, bytes, handle);
}

vmm_status vmm__cuda_fabric_import(struct driver *driver, const struct driver_fabric *fabric,
                                   uint64_t bytes, uint64_t *handle)
{
    struct driver_fabric from = *fabric;
    if (!driver->has_sharing)
        return vmm__cuda_sharing_refuse(driver);
    return handle_import(driver, from.bytes, CUDA_HANDLE_TYPE_FABRIC, bytes, handle);
}

vmm_status vmm__cuda_share_release(struct driver *driver, uint64_t handle, uint64_t bytes)
{
    return vmm__cuda_release(driver, handle, bytes);
}

/* ---- Pinned memory --------------------------------------------------------------------------- */

vmm_status vmm__cuda_pin(struct driver *driver, void *host, uint64_t bytes)
{
    CUDA_CALL(vmm__cuda_of(driver), cuMemHostRegister_v2(host, bytes, CU_MEMHOSTREGISTER_PORTABLE),
              VMM_ERR_HOST_OOM, "cuMemHostRegister(%p, %" PRIu64 ")", host, bytes);
    return status;
}

vmm_status vmm__cuda_unpin(struct driver *driver, void *host, uint64_t bytes)
{
    CUDA_CALL(vmm__cuda_of(driver), cuMemHostUnregister(host), VMM_ERR_HOST_OOM,
              "cuMemHostUnregister(%p) of %" PRIu64 " bytes", host, bytes);
    return status;
}
