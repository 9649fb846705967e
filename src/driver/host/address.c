/*
 * Address ranges of the host driver.
 *
 * Owns: the reserved ranges, and for each a table from granule to mapping.
 * Invariant: a reserved range stays reserved as a whole: inaccessible anonymous mappings cover all unmapped parts, so
 * no other mmap can land there.
 * Called by: the driver table, any thread; mapping.c, handle.c. memory.lock guards the list and the tables.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* ---- System calls ---------------------------------------------------------------------------- */

vmm_status vmm__host_system_error(const char *call, uint64_t address, uint64_t bytes, int code)
{
    if (code == ENOMEM)
        return vmm__error(VMM_ERR_HOST_OOM,
                          "%s(0x%" PRIx64 ", %" PRIu64 "): ENOMEM: out of host memory, or more "
                          "mappings than vm.max_map_count allows",
                          call, address, bytes);
    return vmm__error(VMM_ERR_DRIVER, "%s(0x%" PRIx64 ", %" PRIu64 "): %s (%d)", call, address,
                      bytes, strerror(code), code);
}

/* Makes addresses of a reservation inaccessible; they stay reserved throughout. */
bool vmm__host_range_cover(uint64_t address, uint64_t bytes)
{
    return mmap(vmm__host_pointer(address), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* ---- Reservations ---------------------------------------------------------------------------- */

static size_t table_bytes(uint64_t bytes)
{
    return bytes / HOST_GRANULE_BYTES * sizeof(struct host_mapping *);
}

static vmm_status reserve_error(uint64_t bytes, int code)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return vmm__error(VMM_ERR_ADDRESS_SPACE,
                          "mmap(reserve %" PRIu64 " bytes): %s (%d); RLIMIT_AS is %" PRIu64, bytes,
                          strerror(code), code, (uint64_t)limit.rlim_cur);
    return vmm__error(VMM_ERR_ADDRESS_SPACE, "mmap(reserve %" PRIu64 " bytes): %s (%d)", bytes,
                      strerror(code), code);
}

static void *range_map(uint64_t hint, uint64_t bytes)
{
    return mmap(vmm__host_pointer(hint), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* The kernel picks another address if the range at the hint is in use. */
static bool hint_reserve(uint64_t bytes, uint64_t hint)
{
    void *range = range_map(hint, bytes);
    if (range == vmm__host_pointer(hint))
        return true;
    if (range != MAP_FAILED)
        (void)munmap(range, bytes);
    return false;
}

/* mmap aligns to pages only: reserves one granule more and unmaps both ends. */
static vmm_status range_reserve(uint64_t bytes, uint64_t hint, uint64_t *address)
{
    if (hint != 0 && hint_reserve(bytes, hint)) {
        *address = hint;
        return VMM_OK;
    }
    uint64_t padded;
    if (!vmm__add_checked(bytes, HOST_GRANULE_BYTES, &padded))
        return reserve_error(bytes, ENOMEM);
    void *range = range_map(0, padded);
    if (range == MAP_FAILED)
        return reserve_error(bytes, errno);
    uint64_t start = (uint64_t)(uintptr_t)range;
    uint64_t aligned = vmm__align_up(start, HOST_GRANULE_BYTES);
    if (aligned > start)
        (void)munmap(range, aligned - start);
    if (aligned < start + HOST_GRANULE_BYTES)
        (void)munmap(vmm__host_pointer(aligned + bytes), start + HOST_GRANULE_BYTES - aligned);
    *address = aligned;
    return VMM_OK;
}

static vmm_status reservation_new(uint64_t bytes, uint64_t hint, struct host_reservation **out)
{
    struct host_reservation *created = vmm__host_alloc(1, sizeof *created);
    if (created == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "reserve: out of host memory for the record");
    created->bytes = bytes;
    vmm_status status = range_reserve(bytes, hint, &created->address);
    if (status != VMM_OK)
        goto fail_range;
    created->table = vmm__host_table_alloc(table_bytes(bytes));
    if (created->table == NULL) {
        status =
            vmm__error(VMM_ERR_HOST_OOM, "reserve: out of host memory for a table of %zu bytes",
                       table_bytes(bytes));
        goto fail_table;
    }
    *out = created;
    return VMM_OK;

fail_table:
    (void)munmap(vmm__host_pointer(created->address), bytes);
fail_range:
    vmm__host_free(created, sizeof *created);
    return status;
}

static void reservation_delete(struct host_reservation *reservation)
{
    vmm__host_table_free(reservation->table, table_bytes(reservation->bytes));
    vmm__host_free(reservation, sizeof *reservation);
}

vmm_status vmm__host_reserve_locked(struct host_memory *memory, uint64_t bytes, uint64_t hint,
                                    uint64_t *address)
{
    VMM_ASSERT_HELD(&memory->lock);
    if (bytes == 0 || !vmm__is_aligned(bytes, HOST_GRANULE_BYTES))
        return vmm__error(VMM_ERR_DRIVER, "reserve(%" PRIu64 "): not whole granules", bytes);
    struct host_reservation *created = NULL;
    vmm_status status = reservation_new(bytes, hint, &created);
    if (status != VMM_OK)
        return status;
    *address = created->address;
    created->next = memory->reservations;
    memory->reservations = created;
    return VMM_OK;
}

/* Returns NULL unless the whole range lies in one reservation. */
struct host_reservation *vmm__host_reservation_find_locked(const struct host_memory *memory,
                                                           uint64_t address, uint64_t bytes)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct host_reservation *at = memory->reservations;
    for (; at != NULL; at = at->next)
        if (address >= at->address && address - at->address < at->bytes)
            return bytes <= at->bytes - (address - at->address) ? at : NULL;
    return NULL;
}

struct host_mapping **vmm__host_table_slot(const struct host_reservation *reservation,
                                           uint64_t address)
{
    return &reservation->table[(address - reservation->address) / HOST_GRANULE_BYTES];
}

void vmm__host_reservations_close(struct host_memory *memory)
{
    while (memory->reservations != NULL) {
        struct host_reservation *reservation = memory->reservations;
        memory->reservations = reservation->next;
        (void)munmap(vmm__host_pointer(reservation->address), reservation->bytes);
        reservation_delete(reservation);
    }
}

vmm_status vmm__host_address_free_locked(struct host_memory *memory, uint64_t address,
                                         uint64_t bytes)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct host_reservation **link = &memory->reservations;
    while (*link != NULL && (*link)->address != address)
        link = &(*link)->next;
    struct host_reservation *found = *link;
    if (found == NULL || found->bytes != bytes)
        return vmm__error(VMM_ERR_DRIVER,
                          "address_free(0x%" PRIx64 ", %" PRIu64 "): not exactly one reservation",
                          address, bytes);
    if (found->mappings != 0)
        return vmm__error(VMM_ERR_DRIVER,
                          "address_free(0x%" PRIx64 ", %" PRIu64 "): %" PRIu64 " mappings in it",
                          address, bytes, found->mappings);
    if (munmap(vmm__host_pointer(address), bytes) != 0)
        return vmm__host_system_error("munmap", address, bytes, errno);
    *link = found->next;
    reservation_delete(found);
    return VMM_OK;
}
