/*
 * Physical memory of the sim driver: handles, mappings and access.
 *
 * Owns: sim->handles, the mappings and the granules' entries. Refuses what CUDA refuses, and checks a whole call before
 * it changes anything. The use of an invalid handle is refused and also recorded as a violation, because it is
 * undefined behaviour in CUDA.
 */
#include "driver/sim/internal.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

/* ---- Handles --------------------------------------------------------------------------------- */

static vmm_status create_refuse(vmm_status status, uint64_t bytes, const char *why)
{
    return vmm__error(status, "sim: create of %" PRIu64 " bytes: %s", bytes, why);
}

uint64_t vmm__sim_handle_add(struct sim *sim, struct sim_handle *handle)
{
    sim->census.handles++;
    return sim_id_give(sim, &sim->handles, &handle->node);
}

static struct sim_handle *handle_new(struct sim *sim, uint64_t bytes, vmm_share_reach reach)
{
    struct sim_handle *created = vmm__host_alloc(1, sizeof *created);
    if (created == NULL)
        return NULL;
    created->bytes = bytes;
    created->reach = reach;
    if (reach != VMM_SHARE_NONE)
        created->share = vmm__sim_share_new(sim, bytes);
    if (reach == VMM_SHARE_NONE || created->share != NULL)
        return created;
    vmm__host_free(created, sizeof *created);
    return NULL;
}

vmm_status vmm__sim_create(struct sim *sim, uint64_t bytes, vmm_share_reach reach, uint64_t *handle)
{
    uint64_t free_bytes = sim->driver.total_bytes - sim->census.physical_bytes;
    if (bytes == 0 || !vmm__is_aligned(bytes, sim->driver.granule_bytes))
        return create_refuse(VMM_ERR_DRIVER, bytes, "not a positive multiple of the granule");
    if (bytes > free_bytes) {
        sim_charge(sim, SIM_COST_CREATE, 0);
        return vmm__error(VMM_ERR_DEVICE_OOM,
                          "sim: create of %" PRIu64 " bytes: %" PRIu64 " of %" PRIu64
                          " bytes are free",
                          bytes, free_bytes, sim->driver.total_bytes);
    }
    struct sim_handle *created = handle_new(sim, bytes, reach);
    if (created == NULL)
        return create_refuse(VMM_ERR_HOST_OOM, bytes, "out of host memory for its record");
    sim->census.physical_bytes += bytes;
    sim_charge(sim, reach != VMM_SHARE_NONE ? SIM_COST_CREATE_EXPORTABLE : SIM_COST_CREATE, bytes);
    *handle = vmm__sim_handle_add(sim, created);
    return VMM_OK;
}

static void handle_free(struct map_node *node)
{
    struct sim_handle *handle = (struct sim_handle *)node;
    if (handle->share != NULL)
        vmm__sim_share_drop(handle->share);
    vmm__sim_shadow_free(&handle->shadow);
    vmm__host_free(handle, sizeof *handle);
}

/* Frees the memory once the handle is released and has no mappings. */
static void handle_settle(struct sim *sim, struct sim_handle *handle)
{
    if (!handle->released || handle->mappings != 0)
        return;
    if (!handle->imported)
        sim->census.physical_bytes -= handle->bytes;
    handle_free(&handle->node);
}

vmm_status vmm__sim_handle_refuse(struct sim *sim, const char *verb, uint64_t id)
{
    vmm__sim_report_add(&sim->violations, 1,
                        "%s of handle %#" PRIx64 ", which was released or never created", verb, id);
    return vmm__error(VMM_ERR_DRIVER, "sim: %s: %#" PRIx64 " is not a handle", verb, id);
}

static enum sim_cost release_cost(const struct sim_handle *handle)
{
    if (handle->imported)
        return SIM_COST_SHARE_RELEASE;
    return handle->share != NULL ? SIM_COST_RELEASE_EXPORTABLE : SIM_COST_RELEASE;
}

vmm_status vmm__sim_handle_drop(struct sim *sim, const char *verb, uint64_t id, uint64_t bytes,
                                bool imported)
{
    struct sim_handle *handle = (struct sim_handle *)vmm__map_find(&sim->handles, id);
    if (handle == NULL)
        return vmm__sim_handle_refuse(sim, verb, id);
    if (handle->bytes != bytes || handle->imported != imported)
        return vmm__error(
            VMM_ERR_DRIVER,
            "sim: %s of handle %#" PRIx64 " with %" PRIu64 " bytes: it was %s with %" PRIu64, verb,
            id, bytes, handle->imported ? "imported" : "created", handle->bytes);
    sim_charge(sim, release_cost(handle), bytes);
    vmm__map_remove(&sim->handles, &handle->node);
    handle->released = true;
    sim->census.handles--;
    handle_settle(sim, handle);
    return VMM_OK;
}

vmm_status vmm__sim_release(struct sim *sim, uint64_t id, uint64_t bytes)
{
    return vmm__sim_handle_drop(sim, "release", id, bytes, false);
}

vmm_status vmm__sim_memory_info(struct sim *sim, uint64_t *free_bytes, uint64_t *total_bytes)
{
    *free_bytes = sim->driver.total_bytes - sim->census.physical_bytes;
    *total_bytes = sim->driver.total_bytes;
    sim_charge(sim, SIM_COST_MEMORY_INFO, 0);
    return VMM_OK;
}

vmm_status vmm__sim_peers_check(struct sim *sim, uint64_t devices)
{
    (void)sim;
    (void)devices;
    return VMM_OK;
}

/* ---- Mappings -------------------------------------------------------------------------------- */

static vmm_status range_refuse(const char *verb, uint64_t address, uint64_t bytes, const char *why)
{
    return vmm__error(VMM_ERR_DRIVER, "sim: %s of %" PRIu64 " bytes at %#" PRIx64 ": %s", verb,
                      bytes, address, why);
}

/* Returns the reservation around a range of whole granules, or NULL with the reason. */
static struct sim_reservation *range_find(struct sim *sim, uint64_t address, uint64_t bytes,
                                          const char **why)
{
    if (bytes == 0 || !vmm__is_aligned(address | bytes, sim->driver.granule_bytes)) {
        *why = "not a positive multiple of the granule";
        return NULL;
    }
    struct sim_reservation *reservation = vmm__sim_reservation_at(sim, address);
    if (reservation == NULL)
        *why = "not reserved";
    else if (bytes > reservation->bytes - (address - reservation->address)) {
        *why = "crosses the end of the reservation";
        reservation = NULL;
    }
    return reservation;
}

/* Returns NULL if the range consists of whole mappings without gaps, otherwise the reason. */
static const char *mappings_whole(const struct sim *sim, const struct sim_reservation *reservation,
                                  uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes;
    while (address < end) {
        const struct sim_mapping *mapping = *sim_granule(sim, reservation, address);
        if (mapping == NULL)
            return "not completely mapped";
        if (mapping->address != address || mapping->bytes > end - address)
            return "part of a mapping";
        address += mapping->bytes;
    }
    return NULL;
}

/* Finds the reservation around a range of whole mappings. */
static vmm_status mappings_find(struct sim *sim, const char *verb, uint64_t address, uint64_t bytes,
                                struct sim_reservation **out)
{
    const char *why = NULL;
    *out = range_find(sim, address, bytes, &why);
    if (*out != NULL)
        why = mappings_whole(sim, *out, address, bytes);
    return why == NULL ? VMM_OK : range_refuse(verb, address, bytes, why);
}

static bool range_is_mapped(const struct sim *sim, const struct sim_reservation *reservation,
                            uint64_t address, uint64_t bytes)
{
    struct sim_mapping **granule = sim_granule(sim, reservation, address);
    for (uint64_t left = bytes / sim->driver.granule_bytes; left > 0; left--) {
        if (*granule++ != NULL)
            return true;
    }
    return false;
}

static void granules_set(const struct sim *sim, const struct sim_reservation *reservation,
                         const struct sim_mapping *mapping, struct sim_mapping *entry)
{
    struct sim_mapping **granule = sim_granule(sim, reservation, mapping->address);
    for (uint64_t left = mapping->bytes / sim->driver.granule_bytes; left > 0; left--)
        *granule++ = entry;
}

static void mapping_insert(struct sim *sim, struct sim_reservation *reservation,
                           struct sim_mapping *mapping)
{
    granules_set(sim, reservation, mapping, mapping);
    mapping->older = mapping->handle->youngest;
    mapping->handle->youngest = mapping;
    mapping->handle->mappings++;
    mapping->handle->lost_oldest = false;
    reservation->mappings++;
    sim->census.mappings++;
}

vmm_status vmm__sim_map(struct sim *sim, uint64_t address, uint64_t bytes, uint64_t id)
{
    const char *why = NULL;
    struct sim_reservation *reservation = range_find(sim, address, bytes, &why);
    if (reservation == NULL)
        return range_refuse("map", address, bytes, why);
    struct sim_handle *handle = (struct sim_handle *)vmm__map_find(&sim->handles, id);
    if (handle == NULL)
        return vmm__sim_handle_refuse(sim, "map", id);
    if (handle->bytes != bytes)
        return range_refuse("map", address, bytes, "not a whole handle");
    if (range_is_mapped(sim, reservation, address, bytes))
        return range_refuse("map", address, bytes, "already mapped");
    if (handle->blocks_maps)
        return range_refuse(
            "map", address, bytes,
            "the handle's oldest mapping was unmapped before another had access; CUDA "
            "fails with unknown error (999)");
    struct sim_mapping *mapping = vmm__host_alloc(1, sizeof *mapping);
    if (mapping == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sim: map: out of host memory for its record");
    mapping->address = address;
    mapping->bytes = bytes;
    mapping->handle = handle;
    mapping_insert(sim, reservation, mapping);
    sim_charge(sim, SIM_COST_MAP, bytes);
    return VMM_OK;
}

/* Models CUDA 13.0 on an H200: if a handle's oldest mapping is unmapped while no other has access, and the remaining
 * one then gets access, every further map of the handle fails with unknown error (999) until that mapping is unmapped
 * too. */
static void handle_remove_mapping(struct sim_handle *handle, const struct sim_mapping *removed)
{
    struct sim_mapping **link = &handle->youngest;
    bool accessible = false;
    for (; *link != removed; link = &(*link)->older)
        accessible = accessible || (*link)->accessible;
    bool was_oldest = removed->older == NULL;
    *link = removed->older;
    handle->mappings--;
    if (was_oldest)
        handle->lost_oldest = handle->mappings > 0 && !accessible;
    if (handle->mappings == 0)
        handle->blocks_maps = false;
}

static void mapping_remove(struct sim *sim, struct sim_reservation *reservation,
                           struct sim_mapping *mapping)
{
    granules_set(sim, reservation, mapping, NULL);
    reservation->mappings--;
    sim->census.mappings--;
    handle_remove_mapping(mapping->handle, mapping);
    handle_settle(sim, mapping->handle);
    vmm__sim_users_clear(&mapping->users);
    vmm__host_free(mapping, sizeof *mapping);
}

vmm_status vmm__sim_unmap(struct sim *sim, uint64_t address, uint64_t bytes)
{
    struct sim_reservation *reservation;
    vmm_status status = mappings_find(sim, "unmap", address, bytes, &reservation);
    if (status != VMM_OK)
        return status;
    uint64_t end = address + bytes;
    while (address < end) {
        struct sim_mapping *mapping = *sim_granule(sim, reservation, address);
        address += mapping->bytes;
        bool is_shared = mapping->handle->share != NULL;
        sim_charge(sim, is_shared ? SIM_COST_UNMAP_EXPORTABLE : SIM_COST_UNMAP, mapping->bytes);
        vmm__sim_report_work(sim, "unmap",
                             vmm__sim_users_uncovered(&mapping->users, sim->order.observed),
                             mapping->address, mapping->bytes);
        mapping_remove(sim, reservation, mapping);
    }
    return VMM_OK;
}

static void handle_block_maps(struct sim *sim, const struct sim_mapping *mapping)
{
    mapping->handle->lost_oldest = false;
    mapping->handle->blocks_maps = true;
    vmm__sim_report_add(
        &sim->violations, 1,
        "access to %" PRIu64 " bytes at %#" PRIx64
        " after the handle's oldest mapping was unmapped: the handle cannot be mapped again",
        mapping->bytes, mapping->address);
}

static enum sim_cost access_cost(const struct sim_mapping *mapping)
{
    if (mapping->accessible)
        return SIM_COST_ACCESS_AGAIN;
    return mapping->handle->share != NULL ? SIM_COST_ACCESS_EXPORTABLE : SIM_COST_ACCESS;
}

vmm_status vmm__sim_access(struct sim *sim, uint64_t address, uint64_t bytes)
{
    struct sim_reservation *reservation;
    vmm_status status = mappings_find(sim, "access", address, bytes, &reservation);
    if (status != VMM_OK)
        return status;
    uint64_t end = address + bytes;
    while (address < end) {
        struct sim_mapping *mapping = *sim_granule(sim, reservation, address);
        sim_charge(sim, access_cost(mapping), mapping->bytes);
        mapping->accessible = true;
        mapping->peers = vmm__driver_peers(&sim->driver);
        if (mapping->handle->lost_oldest)
            handle_block_maps(sim, mapping);
        address += mapping->bytes;
    }
    return VMM_OK;
}

static uint64_t peerless_in(const struct sim_reservation *reservation, uint64_t peers)
{
    uint64_t count = 0;
    const struct sim_mapping *last = NULL;
    for (uint64_t granule = 0, left = reservation->mappings; left != 0; granule++) {
        const struct sim_mapping *mapping = reservation->granules[granule];
        if (mapping == NULL || mapping == last)
            continue;
        count += mapping->accessible && (peers & ~mapping->peers) != 0 ? 1 : 0;
        last = mapping;
        left--;
    }
    return count;
}

uint64_t vmm__sim_peerless_count(const struct sim *sim)
{
    uint64_t count = 0;
    for (uint32_t index = 0; index < sim->space.count; index++)
        count += peerless_in(&sim->space.items[index], vmm__driver_peers(&sim->driver));
    return count;
}

void vmm__sim_memory_free(struct sim *sim)
{
    for (uint32_t index = 0; index < sim->space.count; index++) {
        struct sim_reservation *reservation = &sim->space.items[index];
        for (uint64_t granule = 0; reservation->mappings != 0; granule++) {
            if (reservation->granules[granule] != NULL)
                mapping_remove(sim, reservation, reservation->granules[granule]);
        }
    }
    vmm__map_clear(&sim->handles, handle_free);
}
