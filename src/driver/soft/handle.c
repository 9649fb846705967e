/* Handles of the drivers without a GPU: created, exported and imported, and released. See soft.h, S3. */
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/soft/soft.h"

#include <inttypes.h>

/* What neither this driver nor another process has of the device. */
static uint64_t free_bytes_read(struct soft *soft)
{
    uint64_t taken_bytes = soft->physical_bytes + soft->backing->others_bytes(soft);
    return soft->driver.total_bytes - vmm__min(soft->driver.total_bytes, taken_bytes);
}

/* ---- Create and import ----------------------------------------------------------------------- */

static vmm_status handle_new(struct soft *soft, const char *verb, uint64_t bytes,
                             struct soft_handle **out)
{
    if (!soft_is_granules(bytes))
        return vmm__soft_refuse(soft, VMM_ERR_DRIVER, verb, bytes,
                                "not a positive multiple of the granule");
    *out = vmm__host_alloc(1, soft->backing->handle_bytes);
    if (*out == NULL)
        return vmm__soft_refuse(soft, VMM_ERR_HOST_OOM, verb, bytes,
                                "out of host memory for its record");
    (*out)->bytes = bytes;
    return VMM_OK;
}

/* Gives the handle an id, or frees it if the backing failed. */
static vmm_status handle_list(struct soft *soft, enum driver_call call, vmm_status status,
                              struct soft_handle *handle, uint64_t *id)
{
    if (status != VMM_OK) {
        vmm__host_free(handle, soft->backing->handle_bytes);
        return status;
    }
    handle->node.key = ++soft->last_id;
    vmm__map_add(&soft->handles, &handle->node);
    soft_charge(soft, call, handle->bytes, handle);
    *id = handle->node.key;
    return VMM_OK;
}

vmm_status vmm__soft_create(struct soft *soft, uint64_t bytes, vmm_share_reach reach,
                            uint64_t *handle)
{
    struct soft_handle *created;
    uint64_t free_bytes = free_bytes_read(soft);
    vmm_status status = handle_new(soft, "create", bytes, &created);
    if (status != VMM_OK)
        return status;
    created->reach = reach;
    if (bytes <= free_bytes) {
        status = soft->backing->create(soft, created);
    } else {
        soft_charge(soft, DRIVER_CALL_create, 0, NULL);
        status =
            vmm__error(VMM_ERR_DEVICE_OOM,
                       "%s: create of %" PRIu64 " bytes: %" PRIu64 " of %" PRIu64 " bytes are free",
                       soft->driver.ops->name, bytes, free_bytes, soft->driver.total_bytes);
    }
    status = handle_list(soft, DRIVER_CALL_create, status, created, handle);
    if (status == VMM_OK)
        soft->physical_bytes += bytes;
    return status;
}

/* From a fabric handle or, if that is NULL, from a descriptor. */
static vmm_status handle_import(struct soft *soft, int descriptor,
                                const struct driver_fabric *fabric, uint64_t bytes, uint64_t *id)
{
    struct soft_handle *handle;
    vmm_status status = handle_new(soft, "share import", bytes, &handle);
    if (status != VMM_OK)
        return status;
    handle->imported = true;
    if (fabric != NULL)
        status = soft->backing->fabric_import(soft, fabric, handle);
    else
        status = soft->backing->share_import(soft, descriptor, handle);
    return handle_list(soft, DRIVER_CALL_share_import, status, handle, id);
}

vmm_status vmm__soft_share_import(struct soft *soft, int descriptor, uint64_t bytes, uint64_t *id)
{
    return handle_import(soft, descriptor, NULL, bytes, id);
}

vmm_status vmm__soft_fabric_import(struct soft *soft, const struct driver_fabric *fabric,
                                   uint64_t bytes, uint64_t *id)
{
    return handle_import(soft, -1, fabric, bytes, id);
}

/* ---- Release --------------------------------------------------------------------------------- */

void vmm__soft_handle_settle(struct soft *soft, struct soft_handle *handle)
{
    if (!handle->released || handle->mappings != 0)
        return;
    if (!handle->imported)
        soft->physical_bytes -= handle->bytes;
    soft->backing->handle_end(soft, handle);
    vmm__host_free(handle, soft->backing->handle_bytes);
}

static void handle_release(struct soft *soft, struct soft_handle *handle)
{
    vmm__map_remove(&soft->handles, &handle->node);
    handle->released = true;
    vmm__soft_handle_settle(soft, handle);
}

vmm_status vmm__soft_handle_refuse(struct soft *soft, const char *verb, uint64_t id)
{
    vmm__soft_report_add(&soft->violations, 1,
                         "%s of handle %#" PRIx64 ", which was released or never created", verb,
                         id);
    return vmm__error(VMM_ERR_DRIVER, "%s: %s: %#" PRIx64 " is not a handle",
                      soft->driver.ops->name, verb, id);
}

static vmm_status handle_drop(struct soft *soft, enum driver_call call, const char *verb,
                              uint64_t id, uint64_t bytes, bool imported)
{
    struct soft_handle *handle = soft_handle_find(soft, id);
    if (handle == NULL)
        return vmm__soft_handle_refuse(soft, verb, id);
    if (handle->bytes != bytes || handle->imported != imported)
        return vmm__error(VMM_ERR_DRIVER,
                          "%s: %s of handle %#" PRIx64 " with %" PRIu64
                          " bytes: it was %s with %" PRIu64,
                          soft->driver.ops->name, verb, id, bytes,
                          handle->imported ? "imported" : "created", handle->bytes);
    soft_charge(soft, call, bytes, handle);
    handle_release(soft, handle);
    return VMM_OK;
}

vmm_status vmm__soft_release(struct soft *soft, uint64_t handle, uint64_t bytes)
{
    return handle_drop(soft, DRIVER_CALL_release, "release", handle, bytes, false);
}

vmm_status vmm__soft_share_release(struct soft *soft, uint64_t id, uint64_t bytes)
{
    return handle_drop(soft, DRIVER_CALL_share_release, "share release", id, bytes, true);
}

void vmm__soft_handles_close(struct soft *soft)
{
    struct map_node *next;
    for (struct map_node *node = vmm__map_next(&soft->handles, NULL); node != NULL; node = next) {
        next = vmm__map_next(&soft->handles, node);
        handle_release(soft, (struct soft_handle *)node);
    }
    vmm__map_clear(&soft->handles, NULL);
}

/* ---- Export ---------------------------------------------------------------------------------- */

/* A handle that was created with at least this reach. */
static vmm_status exportable_find(struct soft *soft, const char *verb, uint64_t id,
                                  vmm_share_reach reach, const struct soft_handle **out)
{
    *out = soft_handle_find(soft, id);
    if (*out == NULL)
        return vmm__soft_handle_refuse(soft, verb, id);
    if ((*out)->reach < reach)
        return vmm__error(VMM_ERR_DRIVER,
                          "%s: %s: handle %#" PRIx64 " was not created as exportable",
                          soft->driver.ops->name, verb, id);
    return VMM_OK;
}

vmm_status vmm__soft_share_export(struct soft *soft, uint64_t id, int *descriptor)
{
    const struct soft_handle *handle;
    vmm_status status = exportable_find(soft, "share export", id, VMM_SHARE_MACHINE, &handle);
    if (status == VMM_OK)
        status = soft->backing->share_export(handle, descriptor);
    if (status == VMM_OK)
        soft_charge(soft, DRIVER_CALL_share_export, handle->bytes, handle);
    return status;
}

vmm_status vmm__soft_fabric_export(struct soft *soft, uint64_t id, struct driver_fabric *fabric)
{
    const struct soft_handle *handle;
    struct driver_fabric made = { { 0 } };
    vmm_status status = exportable_find(soft, "fabric export", id, VMM_SHARE_FABRIC, &handle);
    if (status == VMM_OK)
        status = soft->backing->fabric_export(handle, &made);
    if (status != VMM_OK)
        return status;
    soft_charge(soft, DRIVER_CALL_share_export, handle->bytes, handle);
    *fabric = made;
    return VMM_OK;
}

/* ---- Properties of the device ---------------------------------------------------------------- */

vmm_status vmm__soft_memory_info(struct soft *soft, uint64_t *free_bytes, uint64_t *total_bytes)
{
    *free_bytes = free_bytes_read(soft);
    *total_bytes = soft->driver.total_bytes;
    soft_charge(soft, DRIVER_CALL_memory_info, 0, NULL);
    return VMM_OK;
}

vmm_status vmm__soft_peers_check(struct soft *soft, uint64_t devices)
{
    (void)soft;
    (void)devices;
    return VMM_OK;
}

vmm_status vmm__soft_fabric_check(struct soft *soft)
{
    (void)soft;
    return VMM_OK;
}
