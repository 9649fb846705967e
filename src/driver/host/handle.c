/*
 * Handles of the host driver; opens and closes its memory.
 *
 * Owns: the table of handles, and the list of file extents of each handle.
 * Invariant: a handle's memory is freed when it is released and its last mapping is unmapped.
 * Checks the callers' guarantee about handles (P6): ids are never reused.
 * Called by: the driver table, any thread; mapping.c; host.c. memory.lock guards everything.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

#include <inttypes.h>

#define HOST_NO_SLOT UINT64_MAX

/* ---- Handles --------------------------------------------------------------------------------- */

/* The table has one slot for each granule, so a handle that has memory always gets a slot. */
static struct host_handle *handle_slot_take(struct host_memory *memory)
{
    uint64_t slot = memory->handle_free;
    if (slot == HOST_NO_SLOT)
        slot = memory->handles_used++;
    else
        memory->handle_free = memory->handles[slot].next_free;
    memory->handle_generation++;
    struct host_handle *handle = &memory->handles[slot];
    *handle = (struct host_handle){ .id = memory->handle_generation << 32 | (slot + 1) };
    return handle;
}

void vmm__host_handle_end_locked(struct host_memory *memory, struct host_handle *handle)
{
    if (!handle->released || handle->mappings != 0)
        return;
    vmm__host_file_release(&memory->file, &handle->extents);
    handle->id = 0;
    handle->next_free = memory->handle_free;
    memory->handle_free = (uint64_t)(handle - memory->handles);
}

struct host_handle *vmm__host_handle_find_locked(const struct host_memory *memory, uint64_t id)
{
    uint64_t slot = (id & UINT32_MAX) - 1;
    if (slot >= memory->handles_used)
        return NULL;
    struct host_handle *handle = &memory->handles[slot];
    return handle->id == id && !handle->released ? handle : NULL;
}

vmm_status vmm__host_create_locked(struct host_memory *memory, uint64_t bytes, uint64_t *id)
{
    if (bytes == 0 || !vmm__is_aligned(bytes, HOST_GRANULE_BYTES))
        return vmm__error(VMM_ERR_DRIVER, "create(%" PRIu64 "): not whole granules", bytes);
    struct host_extents extents;
    vmm_status status =
        vmm__host_file_allocate(&memory->file, bytes / HOST_GRANULE_BYTES, &extents);
    if (status != VMM_OK)
        return status;
    struct host_handle *handle = handle_slot_take(memory);
    handle->bytes = bytes;
    handle->extents = extents;
    *id = handle->id;
    return VMM_OK;
}

vmm_status vmm__host_release_locked(struct host_memory *memory, uint64_t id, uint64_t bytes)
{
    struct host_handle *handle = vmm__host_handle_find_locked(memory, id);
    if (handle == NULL || handle->bytes != bytes)
        return vmm__error(VMM_ERR_DRIVER,
                          "release(handle 0x%" PRIx64 ", %" PRIu64
                          "): no such handle of that size, or released before",
                          id, bytes);
    handle->released = true;
    vmm__host_handle_end_locked(memory, handle);
    return VMM_OK;
}

vmm_status vmm__host_memory_info_locked(struct host_memory *memory, uint64_t *free_bytes,
                                        uint64_t *total_bytes)
{
    *free_bytes = memory->file.free_granules * HOST_GRANULE_BYTES;
    *total_bytes = memory->file.granules * HOST_GRANULE_BYTES;
    return VMM_OK;
}

/* ---- Open and close -------------------------------------------------------------------------- */

static size_t handle_table_bytes(const struct host_memory *memory)
{
    return memory->file.granules * sizeof *memory->handles;
}

vmm_status vmm__host_memory_open(struct host_memory *memory, uint64_t bytes)
{
    vmm_status status = vmm__host_file_open(&memory->file, bytes);
    if (status != VMM_OK)
        return status;
    memory->handle_free = HOST_NO_SLOT;
    memory->handles = vmm__host_table_alloc(handle_table_bytes(memory));
    if (memory->handles == NULL) {
        vmm__host_file_close(&memory->file);
        return vmm__error(VMM_ERR_HOST_OOM,
                          "host driver: out of host memory for the table of handles");
    }
    if (pthread_mutex_init(&memory->lock, NULL) != 0) {
        vmm__host_table_free(memory->handles, handle_table_bytes(memory));
        vmm__host_file_close(&memory->file);
        return vmm__error(VMM_ERR_HOST_OOM, "host driver: out of host memory for a lock");
    }
    return VMM_OK;
}

static void handles_close(struct host_memory *memory)
{
    for (uint64_t slot = 0; slot < memory->handles_used; slot++) {
        struct host_handle *handle = &memory->handles[slot];
        if (handle->id == 0)
            continue;
        handle->released = true;
        vmm__host_handle_end_locked(memory, handle);
    }
}

void vmm__host_memory_close(struct host_memory *memory)
{
    vmm__host_mappings_close(memory);
    vmm__host_reservations_close(memory);
    handles_close(memory);
    vmm__host_table_free(memory->handles, handle_table_bytes(memory));
    vmm__host_file_close(&memory->file);
    (void)pthread_mutex_destroy(&memory->lock);
}
