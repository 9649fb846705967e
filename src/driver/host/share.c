/*
 * Handles of the host driver that processes share.
 *
 * An exported descriptor is one more of the handle's own file. A fabric handle names the descriptor that the handle
 * itself has: another process of the same user opens it through /proc.
 * Owns: nothing. Called by: soft, with memory_lock held.
 */
#define _GNU_SOURCE
#include "base/error.h"
#include "driver/host/internal.h"
#include "driver/soft/seals.h"

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

static int descriptor_of(const struct soft_handle *handle)
{
    return ((const struct host_handle *)(const void *)handle)->descriptor;
}

vmm_status vmm__host_share_export(const struct soft_handle *handle, int *descriptor)
{
    return descriptor_copy("share_export", descriptor_of(handle), descriptor);
}

vmm_status vmm__host_fabric_export(const struct soft_handle *handle, struct driver_fabric *fabric)
{
    struct stat file;
    struct host_fabric record = { .process = getpid(), .descriptor = descriptor_of(handle) };
    if (fstat(record.descriptor, &file) != 0)
        return vmm__error(VMM_ERR_DRIVER, "fabric_export: fstat(%d): %s (%d)", record.descriptor,
                          strerror(errno), errno);
    memcpy(record.magic, fabric_magic, sizeof record.magic);
    record.device = file.st_dev;
    record.inode = file.st_ino;
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

vmm_status vmm__host_share_import(struct soft *soft, int descriptor, struct soft_handle *handle)
{
    (void)soft;
    vmm_status status = descriptor_check(descriptor, handle->bytes);
    if (status != VMM_OK)
        return status;
    return descriptor_copy("share_import", descriptor, &((struct host_handle *)handle)->descriptor);
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

vmm_status vmm__host_fabric_import(struct soft *soft, const struct driver_fabric *fabric,
                                   struct soft_handle *handle)
{
    int opened = -1;
    vmm_status status = fabric_open(fabric, &opened);
    if (status != VMM_OK)
        return status;
    status = vmm__host_share_import(soft, opened, handle);
    (void)close(opened);
    return status;
}
