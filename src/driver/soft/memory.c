/* Mappings of the drivers without a GPU, access to them, and descriptors of them. See soft.h, S2. */
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/soft/soft.h"

#include <inttypes.h>
#include <string.h>

/* ---- Map ------------------------------------------------------------------------------------- */

static bool range_is_mapped(const struct soft_reservation *reservation, uint64_t address,
                            uint64_t bytes)
{
    struct soft_mapping **granule = soft_granule(reservation, address);
    for (uint64_t left = bytes / SOFT_GRANULE_BYTES; left > 0; left--) {
        if (*granule++ != NULL)
            return true;
    }
    return false;
}

static void granules_set(const struct soft_reservation *reservation,
                         const struct soft_mapping *mapping, struct soft_mapping *entry)
{
    struct soft_mapping **granule = soft_granule(reservation, mapping->address);
    for (uint64_t left = mapping->bytes / SOFT_GRANULE_BYTES; left > 0; left--)
        *granule++ = entry;
}

vmm_status vmm__soft_map(struct soft *soft, uint64_t address, uint64_t bytes, uint64_t id)
{
    struct soft_reservation *reservation;
    struct soft_handle *handle = soft_handle_find(soft, id);
    vmm_status status = vmm__soft_range_find(soft, "map", address, bytes, &reservation);
    if (status != VMM_OK)
        return status;
    if (handle == NULL)
        return vmm__soft_handle_refuse(soft, "map", id);
    if (handle->bytes != bytes)
        return vmm__soft_range_refuse(soft, "map", address, bytes, "not a whole handle");
    if (range_is_mapped(reservation, address, bytes))
        return vmm__soft_range_refuse(soft, "map", address, bytes, "already mapped");
    struct soft_mapping *mapping = vmm__host_alloc(1, soft->backing->mapping_bytes);
    if (mapping == NULL)
        return vmm__soft_refuse(soft, VMM_ERR_HOST_OOM, "map", bytes,
                                "out of host memory for its record");
    mapping->address = address;
    mapping->bytes = bytes;
    mapping->handle = handle;
    status = soft->backing->map(soft, mapping);
    if (status != VMM_OK) {
        vmm__host_free(mapping, soft->backing->mapping_bytes);
        return status;
    }
    granules_set(reservation, mapping, mapping);
    handle->mappings++;
    reservation->mappings++;
    soft_charge(soft, DRIVER_CALL_map, bytes, handle);
    return VMM_OK;
}

/* ---- Unmap and access: ranges of whole mappings ---------------------------------------------- */

/* Returns NULL if the range consists of whole mappings without gaps, otherwise the reason. */
static const char *mappings_whole(const struct soft_reservation *reservation, uint64_t address,
                                  uint64_t bytes)
{
    uint64_t end = address + bytes;
    while (address < end) {
        const struct soft_mapping *mapping = *soft_granule(reservation, address);
        if (mapping == NULL)
            return "not completely mapped";
        if (mapping->address != address || mapping->bytes > end - address)
            return "part of a mapping";
        address += mapping->bytes;
    }
    return NULL;
}

/* Finds the reservation around a range of whole mappings. */
static vmm_status mappings_find(struct soft *soft, const char *verb, uint64_t address,
                                uint64_t bytes, struct soft_reservation **out)
{
    vmm_status status = vmm__soft_range_find(soft, verb, address, bytes, out);
    if (status != VMM_OK)
        return status;
    const char *why = mappings_whole(*out, address, bytes);
    return why == NULL ? VMM_OK : vmm__soft_range_refuse(soft, verb, address, bytes, why);
}

static void mapping_remove(struct soft *soft, struct soft_reservation *reservation,
                           struct soft_mapping *mapping)
{
    granules_set(reservation, mapping, NULL);
    reservation->mappings--;
    mapping->handle->mappings--;
    if (soft->backing->mapping_end != NULL)
        soft->backing->mapping_end(soft, mapping);
    vmm__soft_handle_settle(soft, mapping->handle);
    vmm__host_free(mapping, soft->backing->mapping_bytes);
}

vmm_status vmm__soft_unmap(struct soft *soft, uint64_t address, uint64_t bytes)
{
    struct soft_reservation *reservation;
    vmm_status status = mappings_find(soft, "unmap", address, bytes, &reservation);
    if (status == VMM_OK && soft->backing->unmap != NULL)
        status = soft->backing->unmap(soft, reservation, address, bytes);
    if (status != VMM_OK)
        return status;
    for (uint64_t at = address; at < address + bytes;) {
        struct soft_mapping *mapping = *soft_granule(reservation, at);
        at += mapping->bytes;
        mapping_remove(soft, reservation, mapping);
    }
    return VMM_OK;
}

vmm_status vmm__soft_access(struct soft *soft, uint64_t address, uint64_t bytes)
{
    struct soft_reservation *reservation;
    struct soft_mapping *mapping;
    vmm_status status = mappings_find(soft, "access", address, bytes, &reservation);
    if (status == VMM_OK)
        status = soft->backing->access(soft, reservation, address, bytes);
    for (uint64_t at = address; status == VMM_OK && at < address + bytes; at += mapping->bytes) {
        mapping = *soft_granule(reservation, at);
        mapping->accessible = true;
    }
    return status;
}

/* ---- Export ------------------------------------------------------------------------------------ */

/* Part of a file would come with the rest, and a handle without a reach lies in the file of all others. */
vmm_status vmm__soft_dmabuf_export(struct soft *soft, uint64_t address, uint64_t bytes,
                                   int *descriptor)
{
    struct soft_reservation *reservation = vmm__soft_reservation_at(&soft->space, address);
    const struct soft_mapping *mapping =
        reservation == NULL ? NULL : *soft_granule(reservation, address);
    if (mapping == NULL || !mapping->accessible)
        return vmm__soft_range_refuse(soft, "dma-buf export", address, bytes,
                                      "not mapped with access");
    if (!soft->backing->has_memory)
        return vmm__error(VMM_ERR_UNSUPPORTED, "%s: dma-buf export: addresses have no memory",
                          soft->driver.ops->name);
    if (mapping->address != address || mapping->bytes != bytes ||
        mapping->handle->reach == VMM_SHARE_NONE)
        return vmm__error(VMM_ERR_UNSUPPORTED,
                          "%s: dma-buf export of %" PRIu64 " bytes at 0x%" PRIx64
                          ": not one whole exportable allocation, which alone has a file",
                          soft->driver.ops->name, bytes, address);
    return soft->backing->share_export(mapping->handle, descriptor);
}

/* ---- Open and close -------------------------------------------------------------------------- */

void vmm__soft_open(struct soft *soft, const struct driver_ops *ops,
                    const struct soft_backing *backing, const struct driver_options *options,
                    uint64_t total_bytes, const char *device_name)
{
    struct driver *driver = &soft->driver;
    vmm__driver_init(driver, ops);
    soft->backing = backing;
    driver->granule_bytes = SOFT_GRANULE_BYTES;
    driver->total_bytes = total_bytes;
    vmm__driver_peers_set(driver, options->peer_devices & ~vmm__driver_device_bit(options->device));
    memcpy(driver->device_name, device_name, strlen(device_name));
}

static void mappings_close(struct soft *soft, struct soft_reservation *reservation)
{
    for (uint64_t granule = 0; reservation->mappings != 0; granule++) {
        if (reservation->granules[granule] != NULL)
            mapping_remove(soft, reservation, reservation->granules[granule]);
    }
}

void vmm__soft_close(struct soft *soft)
{
    for (uint32_t index = 0; index < soft->space.count; index++)
        mappings_close(soft, &soft->space.items[index]);
    vmm__soft_handles_close(soft);
    vmm__soft_space_close(soft);
    vmm__soft_pins_close(soft);
}
