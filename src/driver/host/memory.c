/*
 * The backing of the host driver: mappings of a memory file over reserved addresses. See soft.h.
 *
 * Owns: nothing but the addresses themselves. Invariants:
 *  1. a reserved range stays reserved as a whole: inaccessible anonymous mappings cover all unmapped parts, so no other
 *     mmap can land there. MAP_FIXED overwrites no other memory, because soft checked P2 to P4 before;
 *  2. a new mapping is inaccessible until access;
 *  3. children created with fork() do not inherit mapped memory.
 * Called by: soft, with memory_lock held; run.c, any thread.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "driver/host/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- System calls ---------------------------------------------------------------------------- */

static vmm_status system_error(const char *call, uint64_t address, uint64_t bytes, int code)
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
static bool range_cover(uint64_t address, uint64_t bytes)
{
    return mmap(vmm__host_pointer(address), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

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
vmm_status vmm__host_reserve(struct soft *soft, uint64_t bytes, uint64_t hint, uint64_t *address)
{
    (void)soft;
    if (hint != 0 && hint_reserve(bytes, hint)) {
        *address = hint;
        return VMM_OK;
    }
    uint64_t padded;
    if (!vmm__add_checked(bytes, SOFT_GRANULE_BYTES, &padded))
        return reserve_error(bytes, ENOMEM);
    void *range = range_map(0, padded);
    if (range == MAP_FAILED)
        return reserve_error(bytes, errno);
    uint64_t start = (uint64_t)(uintptr_t)range;
    uint64_t aligned = vmm__align_up(start, SOFT_GRANULE_BYTES);
    if (aligned > start)
        (void)munmap(range, aligned - start);
    if (aligned < start + SOFT_GRANULE_BYTES)
        (void)munmap(vmm__host_pointer(aligned + bytes), start + SOFT_GRANULE_BYTES - aligned);
    *address = aligned;
    return VMM_OK;
}

vmm_status vmm__host_address_free(struct soft *soft, uint64_t address, uint64_t bytes)
{
    (void)soft;
    if (munmap(vmm__host_pointer(address), bytes) != 0)
        return system_error("munmap", address, bytes, errno);
    return VMM_OK;
}

/* ---- Map ------------------------------------------------------------------------------------- */

/* If covering the range after a failure also fails, an inaccessible mapping remains; the next one there replaces it. */
vmm_status vmm__host_map(struct soft *soft, struct soft_mapping *mapping)
{
    const struct host_handle *handle = (struct host_handle *)mapping->handle;
    void *at = vmm__host_pointer(mapping->address);
    (void)soft;
    if (mmap(at, mapping->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->descriptor,
             (off_t)handle->offset) == MAP_FAILED)
        return system_error("mmap", mapping->address, mapping->bytes, errno);
    if (madvise(at, mapping->bytes, MADV_DONTFORK) == 0)
        return VMM_OK;
    vmm_status status = system_error("madvise", mapping->address, mapping->bytes, errno);
    (void)range_cover(mapping->address, mapping->bytes);
    return status;
}

/* ---- Unmap and access ------------------------------------------------------------------------ */

/* After a partial failure, gives every mapping the access that its record states. */
static void access_restore(const struct soft_reservation *reservation, uint64_t address,
                           uint64_t bytes)
{
    const struct soft_mapping *mapping;
    for (uint64_t at = address; at < address + bytes; at += mapping->bytes) {
        mapping = *soft_granule(reservation, at);
        int access = mapping->accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
        (void)mprotect(vmm__host_pointer(at), mapping->bytes, access);
    }
}

/* At the limit of mappings the kernel can refuse the cover. Then removes access instead; the next mapping there
 * replaces the remaining one. */
static vmm_status backing_unmap(struct soft *soft, const struct soft_reservation *reservation,
                                uint64_t address, uint64_t bytes)
{
    (void)soft;
    if (range_cover(address, bytes))
        return VMM_OK;
    int code = errno;
    if (mprotect(vmm__host_pointer(address), bytes, PROT_NONE) == 0)
        return VMM_OK;
    access_restore(reservation, address, bytes);
    return system_error("mmap", address, bytes, code);
}

vmm_status vmm__host_access(struct soft *soft, const struct soft_reservation *reservation,
                            uint64_t address, uint64_t bytes)
{
    const struct soft_mapping *mapping;
    (void)soft;
    for (uint64_t at = address; at < address + bytes; at += mapping->bytes) {
        mapping = *soft_granule(reservation, at);
        if (mapping->accessible ||
            mprotect(vmm__host_pointer(at), mapping->bytes, PROT_READ | PROT_WRITE) == 0)
            continue;
        vmm_status status = system_error("mprotect", at, mapping->bytes, errno);
        access_restore(reservation, address, bytes);
        return status;
    }
    return VMM_OK;
}

static bool mapping_is_accessible(const struct soft_reservation *reservation, uint64_t address,
                                  uint64_t bytes)
{
    bool accessible = bytes <= reservation->bytes - (address - reservation->address);
    for (uint64_t at = address; accessible && at < address + bytes;) {
        const struct soft_mapping *mapping = *soft_granule(reservation, at);
        accessible = mapping != NULL && mapping->accessible;
        if (accessible)
            at = mapping->address + mapping->bytes;
    }
    return accessible;
}

/* Whether the process has mapped a range; msync() with MS_ASYNC does nothing else on Linux. */
static bool range_is_mapped(uint64_t address, uint64_t bytes)
{
    uint64_t ahead = address % (uint64_t)sysconf(_SC_PAGESIZE);
    return bytes <= UINT64_MAX - address &&
           msync(vmm__host_pointer(address - ahead), ahead + bytes, MS_ASYNC) == 0;
}

bool vmm__host_memory_is_accessible(struct host_driver *host, uint64_t address, uint64_t bytes)
{
    struct soft_space *space = &host->soft.space;
    vmm__mutex_lock(&host->memory_lock);
    const struct soft_reservation *reservation = vmm__soft_reservation_at(space, address);
    bool is_own = reservation != NULL;
    bool accessible = is_own && mapping_is_accessible(reservation, address, bytes);
    bool reaches_own = vmm__soft_reservation_at(space, address + bytes - 1) != NULL;
    vmm__mutex_unlock(&host->memory_lock);
    return is_own || reaches_own ? accessible : range_is_mapped(address, bytes);
}

#define BACKING(type, name, parameters) .name = vmm__host_##name,
/* clang-format off */
const struct soft_backing vmm__host_backing = {
    .handle_bytes = sizeof(struct host_handle),
    .mapping_bytes = sizeof(struct soft_mapping),
    .pin_bytes = sizeof(struct soft_pin),
    .position_bytes = sizeof(struct host_position),
    SOFT_BACKING_MAP(BACKING)
    .unmap = backing_unmap,
    .has_memory = true,
};
/* clang-format on */
