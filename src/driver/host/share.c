/*
 * Handles of the host driver that processes share, and pinned memory.
 *
 * An exported descriptor is one more of the handle's own file. A fabric handle names the descriptor that the handle
 * itself has: another process of the same user opens it through /proc. Pinning changes nothing: the driver only records
 * it, to check the callers' guarantee P8.
 * Owns: the records of pinned memory. Called by: the driver table, any thread; handle.c. memory.lock guards everything.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"
#include "driver/seals.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first bytes of a fabric handle. The numbers of a file differ from those of any other, so a descriptor that was
 * closed, and opened again for another file, is found out. */
struct host_fabric {
    char magic[16];
    uint64_t device;
    uint64_t inode;
    int32_t process;
    int32_t descriptor;
};
_Static_assert(sizeof(struct host_fabric) <= DRIVER_FABRIC_BYTES, "a fabric handle has no room");

static const char fabric_magic[16] = "vmmcache host";

/* ---- Export ---------------------------------------------------------------------------------- */

static vmm_status descriptor_copy(const char *call, int descriptor, int *copy)
{
    int copied = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copied < 0)
        return vmm__error(VMM_ERR_DRIVER, "%s: fcntl(F_DUPFD_CLOEXEC) of descriptor %d: %s (%d)",
                          call, descriptor, strerror(errno), errno);
    *copy = copied;
    return VMM_OK;
}

/* The file of a handle that was created with at least this reach. */
static vmm_status file_of(const struct host_memory *memory, const char *call, uint64_t id,
                          vmm_share_reach reach, int *descriptor)
{
    const struct host_handle *handle = vmm__host_handle_find_locked(memory, id);
    if (handle == NULL || handle->reach < reach)
        return vmm__error(VMM_ERR_DRIVER, "%s(handle 0x%" PRIx64 "): not created as exportable",
                          call, id);
    *descriptor = handle->descriptor;
    return VMM_OK;
}

vmm_status vmm__host_share_export_locked(struct host_memory *memory, uint64_t id, int *descriptor)
{
    VMM_ASSERT_HELD(&memory->lock);
    int own = -1;
    vmm_status status = file_of(memory, "share_export", id, VMM_SHARE_MACHINE, &own);
    return status == VMM_OK ? descriptor_copy("share_export", own, descriptor) : status;
}

vmm_status vmm__host_fabric_check_locked(struct host_memory *memory)
{
    (void)memory;
    return VMM_OK;
}

vmm_status vmm__host_fabric_export_locked(struct host_memory *memory, uint64_t id,
                                          struct driver_fabric *fabric)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct stat file;
    struct host_fabric record = { .process = getpid() };
    vmm_status status = file_of(memory, "fabric_export", id, VMM_SHARE_FABRIC, &record.descriptor);
    if (status != VMM_OK)
        return status;
    if (fstat(record.descriptor, &file) != 0)
        return vmm__error(VMM_ERR_DRIVER, "fabric_export: fstat(%d): %s (%d)", record.descriptor,
                          strerror(errno), errno);
    memcpy(record.magic, fabric_magic, sizeof record.magic);
    record.device = file.st_dev;
    record.inode = file.st_ino;
    *fabric = (struct driver_fabric){ { 0 } };
    memcpy(fabric->bytes, &record, sizeof record);
    return VMM_OK;
}

/* ---- Import ---------------------------------------------------------------------------------- */

/* Only a file that create() made has these seals, so it cannot get shorter under its mappings. */
static vmm_status descriptor_check(int descriptor, uint64_t bytes)
{
    struct stat file;
    int mode = fcntl(descriptor, F_GETFL);
    if (mode < 0 || fstat(descriptor, &file) != 0)
        return vmm__error(VMM_ERR_DRIVER, "share_import: %d is not a file descriptor", descriptor);
    if (!vmm__seals_are(descriptor, HOST_SHARED_SEALS) || (mode & O_ACCMODE) != O_RDWR)
        return vmm__error(VMM_ERR_DRIVER,
                          "share_import: descriptor %d is not one that the host driver exports",
                          descriptor);
    if ((uint64_t)file.st_size != bytes)
        return vmm__error(VMM_ERR_DRIVER,
                          "share_import: descriptor %d has %" PRIu64 " bytes, not %" PRIu64,
                          descriptor, (uint64_t)file.st_size, bytes);
    return VMM_OK;
}

vmm_status vmm__host_share_import_locked(struct host_memory *memory, int descriptor, uint64_t bytes,
                                         uint64_t *id)
{
    VMM_ASSERT_HELD(&memory->lock);
    if (bytes == 0 || !vmm__is_aligned(bytes, HOST_GRANULE_BYTES))
        return vmm__error(VMM_ERR_DRIVER, "share_import(%" PRIu64 "): not whole granules", bytes);
    vmm_status status = descriptor_check(descriptor, bytes);
    if (status != VMM_OK)
        return status;
    struct host_handle *handle = vmm__host_alloc(1, sizeof *handle);
    if (handle == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "share_import: out of host memory for the record");
    handle->bytes = bytes;
    handle->imported = true;
    status = descriptor_copy("share_import", descriptor, &handle->descriptor);
    if (status != VMM_OK) {
        vmm__host_free(handle, sizeof *handle);
        return status;
    }
    *id = vmm__host_handle_add_locked(memory, handle);
    return VMM_OK;
}

/* Opens the file of another process, or of this one. */
static vmm_status fabric_open(const struct driver_fabric *fabric, int *descriptor)
{
    char path[64];
    struct stat file;
    struct host_fabric record;
    memcpy(&record, fabric->bytes, sizeof record);
    if (memcmp(record.magic, fabric_magic, sizeof record.magic) != 0)
        return vmm__error(VMM_ERR_DRIVER, "fabric_import: not a handle of the host driver");
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)record.process,
                   (int)record.descriptor);
    int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0)
        return vmm__error(VMM_ERR_DRIVER, "fabric_import: open(%s): %s (%d)", path, strerror(errno),
                          errno);
    if (fstat(opened, &file) == 0 && file.st_dev == record.device && file.st_ino == record.inode) {
        *descriptor = opened;
        return VMM_OK;
    }
    (void)close(opened);
    return vmm__error(VMM_ERR_DRIVER, "fabric_import: the memory behind %s no longer exists", path);
}

vmm_status vmm__host_fabric_import_locked(struct host_memory *memory,
                                          const struct driver_fabric *fabric, uint64_t bytes,
                                          uint64_t *id)
{
    VMM_ASSERT_HELD(&memory->lock);
    int opened = -1;
    vmm_status status = fabric_open(fabric, &opened);
    if (status != VMM_OK)
        return status;
    status = vmm__host_share_import_locked(memory, opened, bytes, id);
    (void)close(opened);
    return status;
}

vmm_status vmm__host_share_release_locked(struct host_memory *memory, uint64_t id, uint64_t bytes)
{
    return vmm__host_handle_drop_locked(memory, "share_release", id, bytes, true);
}

/* ---- Pinned memory --------------------------------------------------------------------------- */

vmm_status vmm__host_pin_locked(struct host_memory *memory, void *host, uint64_t bytes)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct pin *pin = vmm__host_alloc(1, sizeof *pin);
    if (pin == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "pin: out of host memory for the record");
    vmm_status status = vmm__pins_add(&memory->pins, pin, host, bytes);
    if (status != VMM_OK)
        vmm__host_free(pin, sizeof *pin);
    return status;
}

vmm_status vmm__host_unpin_locked(struct host_memory *memory, void *host, uint64_t bytes)
{
    VMM_ASSERT_HELD(&memory->lock);
    struct pin *pin = vmm__pins_take(&memory->pins, host, bytes);
    if (pin == NULL)
        return VMM_ERR_DRIVER;
    vmm__host_free(pin, sizeof *pin);
    return VMM_OK;
}

void vmm__host_pins_close(struct host_memory *memory)
{
    struct pin *pin;
    while ((pin = vmm__pins_take_any(&memory->pins)) != NULL)
        vmm__host_free(pin, sizeof *pin);
}
