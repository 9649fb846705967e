/*
 * A device that processes share without a GPU: a file of the device's size, in which a process locks the bytes of each
 * granule that it has. Nothing is written there, and each process keeps its memory in a file of its own: the kernel
 * does the counting, and gives back what a killed process had.
 *
 * Owns: the locks, which belong to the open file, not to the process: two drivers of one process are two, and a child
 * of fork() keeps its parent's until it ends or calls exec().
 * Invariants:
 *  1. the granules that this driver has locked are those that its own table says are taken;
 *  2. a process takes granules during its turn, a lock behind those of all granules, so that of two that need the same
 *     ones one gets them all. A process that is stopped during its turn makes the others wait.
 * Called by: soft, file.c, host.c, with memory_lock held.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "driver/host/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct file_range turn = { INT64_MAX - 1, INT64_MAX };

/* ---- Open ------------------------------------------------------------------------------------ */

static vmm_status device_error(const char *path, const char *why)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_HOST_DEVICE=%.200s: %s", path, why);
}

/* The first process makes the file as large as its device. */
static vmm_status size_settle(const char *path, int device, uint64_t *bytes, struct stat *about)
{
    if (fstat(device, about) != 0 || !S_ISREG(about->st_mode))
        return device_error(path, "not a file");
    if (about->st_size == 0 && ftruncate(device, (off_t)*bytes) == 0)
        about->st_size = (off_t)*bytes;
    uint64_t size = (uint64_t)about->st_size;
    if (size == 0 || size % SOFT_GRANULE_BYTES != 0)
        return device_error(path, "its size is not a number of granules (2 MiB)");
    *bytes = size;
    return VMM_OK;
}

vmm_status vmm__host_device_open(const char *path, struct driver *driver, int *device)
{
    struct stat about;
    int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (opened < 0)
        return device_error(path, strerror(errno));
    vmm__file_lock(opened, turn);
    vmm_status status = size_settle(path, opened, &driver->total_bytes, &about);
    vmm__file_unlock(opened, turn);
    if (status != VMM_OK) {
        (void)close(opened);
        return status;
    }
    uint64_t identity[] = { (uint64_t)about.st_dev, (uint64_t)about.st_ino };
    memcpy(driver->uuid, identity, sizeof driver->uuid);
    driver->is_shared = true;
    *device = opened;
    return VMM_OK;
}

/* The kernel gives all locks back. */
void vmm__host_device_close(struct host_file *file)
{
    if (file->device >= 0)
        (void)close(file->device);
}

/* ---- Granules -------------------------------------------------------------------------------- */

static struct file_range extent_range(struct host_extent extent)
{
    return (struct file_range){ .first = extent.first * SOFT_GRANULE_BYTES,
                                .end = (extent.first + extent.count) * SOFT_GRANULE_BYTES };
}

/* Without such a file no other process has any. */
bool vmm__host_device_find(const struct host_file *file, struct host_extent extent,
                           struct host_extent *found)
{
    struct file_range whole = extent_range(extent);
    struct file_range range = whole;
    struct file_range locked;
    while (file->device >= 0 && range.first < whole.end &&
           vmm__file_is_locked(file->device, range, &locked)) {
        uint64_t before = vmm__align_down(locked.first, SOFT_GRANULE_BYTES);
        if (before > range.first) { /* it may not be the first lock */
            range.end = before;
        } else {
            range.first = vmm__align_up(locked.end, SOFT_GRANULE_BYTES);
            range.end = whole.end;
        }
    }
    found->first = range.first / SOFT_GRANULE_BYTES;
    found->count = (range.end - vmm__min(range.first, range.end)) / SOFT_GRANULE_BYTES;
    return found->count > 0;
}

uint64_t vmm__host_others_bytes(struct soft *soft)
{
    const struct host_file *file = &vmm__host_of(&soft->driver)->file;
    struct host_extent rest = { .first = 0, .count = file->granules };
    struct host_extent found;
    uint64_t others = file->granules;
    while (vmm__host_device_find(file, rest, &found)) {
        others -= found.count;
        rest.first = found.first + found.count;
        rest.count = file->granules - rest.first;
    }
    return others * SOFT_GRANULE_BYTES;
}

void vmm__host_device_turn_begin(const struct host_file *file)
{
    if (file->device >= 0)
        vmm__file_lock(file->device, turn);
}

void vmm__host_device_turn_end(const struct host_file *file)
{
    if (file->device >= 0)
        vmm__file_unlock(file->device, turn);
}

bool vmm__host_device_take(const struct host_file *file, struct host_extent extent)
{
    return file->device < 0 || vmm__file_try_lock(file->device, extent_range(extent));
}

void vmm__host_device_give(const struct host_file *file, struct host_extent extent)
{
    if (file->device >= 0)
        vmm__file_unlock(file->device, extent_range(extent));
}
