/*
 * Handles of the host driver; opens and closes its memory.
 *
 * Owns: the handles, the list of file extents of each, and the files of exportable and imported ones.
 * Invariant: a handle's memory is freed when it is released and its last mapping is unmapped. Checks the callers'
 * guarantee about handles (P6): ids are never reused.
 * Called by: the driver table, any thread; mapping.c; host.c. memory.lock guards everything.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

#include <inttypes.h>
#include <unistd.h>

/* ---- Handles --------------------------------------------------------------------------------- */

void vmm__host_handle_end_locked(struct host_memory *memory, struct host_handle *handle)
{
    VMM_ASSERT_HELD(&memory->lock);
    if (!handle->released || handle->mappings != 0)
        return;
    if (handle->descriptor < 0) {
        vmm__host_file_release(&memory->file, &handle->extents);
    } else { /* the memory goes when the last process closes the file */
        (void)close(handle->descriptor);
        vmm__host_file_give(&memory->file, &handle->extents);
    }
    vmm__map_remove(&memory->handles, &handle->node);
    vmm__host_free(handle, sizeof *handle);
}

struct host_handle *vmm__host_handle_find_locked(const struct host_memory *memory, uint64_t id)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct host_handle *handle = (struct host_handle *)vmm__map_find(&memory->handles, id);
    return handle != NULL && !handle->released ? handle : NULL;
}

uint64_t vmm__host_handle_add_locked(struct host_memory *memory, struct host_handle *handle)
{
    VMM_ASSERT_HELD(&memory->lock);
    handle->node.key = ++memory->last_handle;
    vmm__map_add(&memory->handles, &handle->node);
    return handle->node.key;
}

static vmm_status memory_take(struct host_file *file, struct host_handle *handle)
{
    uint64_t granules = handle->bytes / HOST_GRANULE_BYTES;
    handle->descriptor = -1;
    if (handle->reach == VMM_SHARE_NONE)
        return vmm__host_file_allocate(file, granules, &handle->extents);
    vmm_status status = vmm__host_file_take(file, granules, &handle->extents);
    if (status != VMM_OK)
        return status;
    status = vmm__host_file_create_shared(handle->bytes, &handle->descriptor);
    if (status != VMM_OK)
        vmm__host_file_give(file, &handle->extents);
    return status;
}

vmm_status vmm__host_create_locked(struct host_memory *memory, uint64_t bytes,
                                   vmm_share_reach reach, uint64_t *id)
{
    VMM_ASSERT_HELD(&memory->lock);
    if (bytes == 0 || !vmm__is_aligned(bytes, HOST_GRANULE_BYTES))
        return vmm__error(VMM_ERR_DRIVER, "create(%" PRIu64 "): not whole granules", bytes);
    struct host_handle *handle = vmm__host_alloc(1, sizeof *handle);
    if (handle == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "create: out of host memory for the record");
    handle->bytes = bytes;
    handle->reach = reach;
    vmm_status status = memory_take(&memory->file, handle);
    if (status != VMM_OK) {
        vmm__host_free(handle, sizeof *handle);
        return status;
    }
    *id = vmm__host_handle_add_locked(memory, handle);
    return VMM_OK;
}

vmm_status vmm__host_handle_drop_locked(struct host_memory *memory, const char *call, uint64_t id,
                                        uint64_t bytes, bool imported)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct host_handle *handle = vmm__host_handle_find_locked(memory, id);
    if (handle == NULL || handle->bytes != bytes || handle->imported != imported)
        return vmm__error(VMM_ERR_DRIVER,
                          "%s(handle 0x%" PRIx64 ", %" PRIu64
                          "): no such handle of that size, or released before",
                          call, id, bytes);
    handle->released = true;
    vmm__host_handle_end_locked(memory, handle);
    return VMM_OK;
}

vmm_status vmm__host_release_locked(struct host_memory *memory, uint64_t id, uint64_t bytes)
{
    return vmm__host_handle_drop_locked(memory, "release", id, bytes, false);
}

vmm_status vmm__host_memory_info_locked(struct host_memory *memory, uint64_t *free_bytes,
                                        uint64_t *total_bytes)
{
    VMM_ASSERT_HELD(&memory->lock);
    *free_bytes = memory->file.free_granules * HOST_GRANULE_BYTES;
    *total_bytes = memory->file.granules * HOST_GRANULE_BYTES;
    return VMM_OK;
}

vmm_status vmm__host_peers_check_locked(struct host_memory *memory, uint64_t devices)
{
    (void)memory;
    (void)devices;
    return VMM_OK;
}

/* ---- Open and close -------------------------------------------------------------------------- */

vmm_status vmm__host_memory_open(struct host_memory *memory, uint64_t bytes)
{
    vmm_status status = vmm__host_file_open(&memory->file, bytes);
    if (status != VMM_OK)
        return status;
    if (pthread_mutex_init(&memory->lock.mutex, NULL) != 0) {
        vmm__host_file_close(&memory->file);
        return vmm__error(VMM_ERR_HOST_OOM, "host driver: out of host memory for a lock");
    }
    VMM_LOCK_SET_RANK(&memory->lock, LOCK_RANK_LEAF);
    return VMM_OK;
}

/* The file's memory goes with the file. */
static void handle_free(struct map_node *node)
{
    struct host_handle *handle = (struct host_handle *)node;
    if (handle->descriptor >= 0)
        (void)close(handle->descriptor);
    vmm__host_extents_free(&handle->extents);
    vmm__host_free(handle, sizeof *handle);
}

void vmm__host_memory_close(struct host_memory *memory)
{
    vmm__mutex_lock(&memory->lock);
    vmm__host_mappings_close(memory);
    vmm__mutex_unlock(&memory->lock);
    vmm__host_reservations_close(memory);
    vmm__map_clear(&memory->handles, handle_free);
    vmm__host_pins_close(memory);
    vmm__host_file_close(&memory->file);
    vmm__mutex_fini(&memory->lock);
}
