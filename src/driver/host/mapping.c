/*
 * Mappings of the host driver.
 *
 * Owns: the mappings in the reservations' tables.
 * Invariants:
 *  1. a new mapping is inaccessible until access;
 *  2. children created with fork() do not inherit mapped memory.
 * Checks the callers' guarantees P2 to P4, because a breach would let MAP_FIXED overwrite other
 * memory of the process.
 * Called by: the driver table, any thread. memory.lock guards everything.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

struct host_mapping {
    uint64_t address;
    uint64_t bytes;
    struct host_handle *handle;
    bool accessible;
};

/* ---- Map ------------------------------------------------------------------------------------- */

static vmm_status extent_map(int descriptor, struct host_extent extent, uint64_t address)
{
    uint64_t bytes = extent.count * HOST_GRANULE_BYTES;
    if (mmap(vmm__host_pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, descriptor,
             (off_t)(extent.first * HOST_GRANULE_BYTES)) == MAP_FAILED)
        return vmm__host_system_error("mmap", address, bytes, errno);
    if (madvise(vmm__host_pointer(address), bytes, MADV_DONTFORK) != 0)
        return vmm__host_system_error("madvise", address, bytes, errno);
    return VMM_OK;
}

/* If covering the range after a failure also fails, inaccessible pieces remain; the next mapping there replaces
 * them. */
static vmm_status extents_map(int descriptor, const struct host_extents *extents, uint64_t address,
                              uint64_t bytes)
{
    uint64_t at = address;
    for (size_t i = 0; i < extents->count; i++) {
        vmm_status status = extent_map(descriptor, extents->items[i], at);
        if (status != VMM_OK) {
            (void)vmm__host_range_cover(address, bytes);
            return status;
        }
        at += extents->items[i].count * HOST_GRANULE_BYTES;
    }
    return VMM_OK;
}

static vmm_status handle_map(const struct host_memory *memory, const struct host_handle *handle,
                             uint64_t address)
{
    struct host_extent whole = { .first = 0, .count = handle->bytes / HOST_GRANULE_BYTES };
    const struct host_extents own = { .items = &whole, .count = 1 };
    if (handle->descriptor >= 0)
        return extents_map(handle->descriptor, &own, address, handle->bytes);
    return extents_map(memory->file.descriptor, &handle->extents, address, handle->bytes);
}

static void table_set(const struct host_reservation *reservation, uint64_t address, uint64_t bytes,
                      struct host_mapping *mapping)
{
    struct host_mapping **slot = vmm__host_table_slot(reservation, address);
    for (uint64_t i = 0; i < bytes / HOST_GRANULE_BYTES; i++)
        slot[i] = mapping;
}

static bool table_is_empty(const struct host_reservation *reservation, uint64_t address,
                           uint64_t bytes)
{
    struct host_mapping **slot = vmm__host_table_slot(reservation, address);
    for (uint64_t i = 0; i < bytes / HOST_GRANULE_BYTES; i++)
        if (slot[i] != NULL)
            return false;
    return true;
}

static vmm_status argument_refuse(const char *call, uint64_t address, uint64_t bytes,
                                  const char *what)
{
    return vmm__error(VMM_ERR_DRIVER, "%s(0x%" PRIx64 ", %" PRIu64 "): %s", call, address, bytes,
                      what);
}

static vmm_status map_check(const struct host_reservation *reservation, uint64_t address,
                            uint64_t bytes, const struct host_handle *handle)
{
    if (handle == NULL || handle->bytes != bytes)
        return argument_refuse("map", address, bytes, "no such handle of that size");
    if (reservation == NULL || !vmm__is_aligned(address, HOST_GRANULE_BYTES))
        return argument_refuse("map", address, bytes, "not granules of one reservation");
    if (!table_is_empty(reservation, address, bytes))
        return argument_refuse("map", address, bytes, "already mapped");
    return VMM_OK;
}

vmm_status vmm__host_map_locked(struct host_memory *memory, uint64_t address, uint64_t bytes,
                                uint64_t id)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct host_handle *handle = vmm__host_handle_find_locked(memory, id);
    struct host_reservation *reservation =
        vmm__host_reservation_find_locked(memory, address, bytes);
    vmm_status status = map_check(reservation, address, bytes, handle);
    if (status != VMM_OK)
        return status;
    struct host_mapping *mapping = vmm__host_alloc(1, sizeof *mapping);
    if (mapping == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "map: out of host memory for the record");
    status = handle_map(memory, handle, address);
    if (status != VMM_OK) {
        vmm__host_free(mapping, sizeof *mapping);
        return status;
    }
    *mapping = (struct host_mapping){ .address = address, .bytes = bytes, .handle = handle };
    table_set(reservation, address, bytes, mapping);
    handle->mappings++;
    reservation->mappings++;
    return VMM_OK;
}

/* ---- Unmap and access: ranges of whole mappings ---------------------------------------------- */

/* Returns NULL and sets the error line unless the range consists of whole mappings. */
static struct host_reservation *whole_mappings_find(const struct host_memory *memory,
                                                    const char *call, uint64_t address,
                                                    uint64_t bytes)
{
    struct host_reservation *reservation =
        vmm__host_reservation_find_locked(memory, address, bytes);
    if (reservation == NULL || bytes == 0) {
        (void)argument_refuse(call, address, bytes, "not within one reservation");
        return NULL;
    }
    uint64_t at = address;
    while (at < address + bytes) {
        const struct host_mapping *mapping = *vmm__host_table_slot(reservation, at);
        if (mapping == NULL || mapping->address != at)
            break;
        at += mapping->bytes;
    }
    if (at != address + bytes) {
        (void)argument_refuse(call, address, bytes, "not created of whole mappings");
        return NULL;
    }
    return reservation;
}

/* After a partial failure, gives every mapping the access that its record states. */
static void access_restore(const struct host_reservation *reservation, uint64_t address,
                           uint64_t bytes)
{
    const struct host_mapping *mapping;
    for (uint64_t at = address; at < address + bytes; at += mapping->bytes) {
        mapping = *vmm__host_table_slot(reservation, at);
        int access = mapping->accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
        (void)mprotect(vmm__host_pointer(at), mapping->bytes, access);
    }
}

/* At the limit of mappings the kernel can refuse the cover. Then removes access instead; the next mapping there
 * replaces the remaining one. */
static vmm_status range_unmap(const struct host_reservation *reservation, uint64_t address,
                              uint64_t bytes)
{
    if (vmm__host_range_cover(address, bytes))
        return VMM_OK;
    int code = errno;
    if (mprotect(vmm__host_pointer(address), bytes, PROT_NONE) == 0)
        return VMM_OK;
    access_restore(reservation, address, bytes);
    return vmm__host_system_error("mmap", address, bytes, code);
}

static void mappings_delete(struct host_memory *memory, struct host_reservation *reservation,
                            uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address; at < address + bytes;) {
        struct host_mapping *mapping = *vmm__host_table_slot(reservation, at);
        at += mapping->bytes;
        table_set(reservation, mapping->address, mapping->bytes, NULL);
        reservation->mappings--;
        mapping->handle->mappings--;
        vmm__host_handle_end_locked(memory, mapping->handle);
        vmm__host_free(mapping, sizeof *mapping);
    }
}

vmm_status vmm__host_unmap_locked(struct host_memory *memory, uint64_t address, uint64_t bytes)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct host_reservation *reservation = whole_mappings_find(memory, "unmap", address, bytes);
    vmm_status status =
        reservation == NULL ? VMM_ERR_DRIVER : range_unmap(reservation, address, bytes);
    if (status == VMM_OK)
        mappings_delete(memory, reservation, address, bytes);
    return status;
}

/* Replaces one page fault for each page at the first access by one call. A hint only: kernels before 5.14 do not
 * support it. */
static void pages_populate(uint64_t address, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    (void)madvise(vmm__host_pointer(address), bytes, MADV_POPULATE_WRITE);
#else
    (void)address;
    (void)bytes;
#endif
}

vmm_status vmm__host_access_locked(struct host_memory *memory, uint64_t address, uint64_t bytes)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct host_reservation *reservation = whole_mappings_find(memory, "access", address, bytes);
    struct host_mapping *mapping;
    if (reservation == NULL)
        return VMM_ERR_DRIVER;
    for (uint64_t at = address; at < address + bytes; at += mapping->bytes) {
        mapping = *vmm__host_table_slot(reservation, at);
        if (mapping->accessible ||
            mprotect(vmm__host_pointer(at), mapping->bytes, PROT_READ | PROT_WRITE) == 0)
            continue;
        vmm_status status = vmm__host_system_error("mprotect", at, mapping->bytes, errno);
        access_restore(reservation, address, bytes);
        return status;
    }
    for (uint64_t at = address; at < address + bytes; at += mapping->bytes) {
        mapping = *vmm__host_table_slot(reservation, at);
        mapping->accessible = true;
    }
    pages_populate(address, bytes);
    return VMM_OK;
}

/* ---- Queries --------------------------------------------------------------------------------- */

bool vmm__host_memory_is_accessible(struct host_memory *memory, uint64_t address, uint64_t bytes)
{
    vmm__mutex_lock(&memory->lock);
    struct host_reservation *reservation =
        vmm__host_reservation_find_locked(memory, address, bytes);
    bool accessible = reservation != NULL;
    for (uint64_t at = address; accessible && at < address + bytes;) {
        const struct host_mapping *mapping = *vmm__host_table_slot(reservation, at);
        accessible = mapping != NULL && mapping->accessible;
        if (accessible)
            at = mapping->address + mapping->bytes;
    }
    vmm__mutex_unlock(&memory->lock);
    return accessible;
}

void vmm__host_mappings_close(struct host_memory *memory)
{
    struct host_reservation *at = memory->reservations;
    for (; at != NULL; at = at->next) {
        for (uint64_t done = 0; at->mappings != 0; done += HOST_GRANULE_BYTES) {
            struct host_mapping *mapping = *vmm__host_table_slot(at, at->address + done);
            if (mapping != NULL)
                mappings_delete(memory, at, mapping->address, mapping->bytes);
        }
    }
}
