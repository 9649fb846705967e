/*
 * A device that processes share without a GPU: a file of the device's size, in which a process locks as many granules
 * as it has. Nothing is written there, and each process keeps its memory in a file of its own: the kernel does the
 * counting, and gives back what a killed process had. Which granules a process locks means nothing.
 *
 * Owns: the locks, which belong to the open file, not to the process: two drivers of one process are two, and a child
 * of fork() keeps its parent's until it ends or calls exec(). And the table of its own granules.
 * Invariants:
 *  1. the granules that this driver has locked are those that its table says are taken;
 *  2. a process takes granules only during its turn, while it has one further lock behind those of all granules. So of
 *     two processes that need the same granules one gets them all. A process that is stopped during its turn makes the
 *     others wait.
 * Called by: soft, file.c, host.c, with memory_lock held.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/file_limit.h"
#include "base/file_lock.h"
#include "base/hostmem.h"
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
    if (about->st_size == 0) {
        if (!vmm__file_may_have(*bytes) || ftruncate(device, (off_t)*bytes) != 0)
            return device_error(path, strerror(errno));
        about->st_size = (off_t)*bytes;
    }
    uint64_t size = (uint64_t)about->st_size;
    if (size == 0 || size % SOFT_GRANULE_BYTES != 0)
        return device_error(path, "its size is not a number of granules (2 MiB)");
    *bytes = size;
    return VMM_OK;
}

vmm_status vmm__host_device_open(const char *path, struct driver *driver,
                                 struct host_device *device)
{
    struct stat about;
    int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (opened < 0)
        return device_error(path, strerror(errno));
    vmm__file_lock(opened, turn);
    vmm_status status = size_settle(path, opened, &driver->total_bytes, &about);
    vmm__file_unlock(opened, turn);
    device->granules = driver->total_bytes / SOFT_GRANULE_BYTES;
    if (status == VMM_OK) {
        device->taken = vmm__host_table_alloc(device->granules);
        if (device->taken == NULL)
            status = vmm__error(VMM_ERR_HOST_OOM,
                                "host driver: out of host memory for the granules of %.200s", path);
    }
    if (status != VMM_OK) {
        (void)close(opened);
        return status;
    }
    uint64_t identity[] = { (uint64_t)about.st_dev, (uint64_t)about.st_ino };
    memcpy(driver->uuid, identity, sizeof driver->uuid);
    driver->is_shared = true;
    device->descriptor = opened;
    return VMM_OK;
}

/* The kernel gives all locks back. */
void vmm__host_device_close(struct host_device *device)
{
    if (device->descriptor < 0)
        return;
    (void)close(device->descriptor);
    vmm__host_table_free(device->taken, device->granules);
}

/* ---- Granules -------------------------------------------------------------------------------- */

/* Returns the bytes of a range that other processes have locked. The kernel names one of their locks. */
static uint64_t locked_bytes(const struct host_device *device, struct file_range range)
{
    struct file_range locked;
    uint64_t bytes = 0;
    while (range.first < range.end && vmm__file_is_locked(device->descriptor, range, &locked)) {
        struct file_range before = { range.first, vmm__max(range.first, locked.first) };
        range.first = vmm__min(range.end, locked.end);
        bytes += range.first - before.end + locked_bytes(device, before);
    }
    return bytes;
}

uint64_t vmm__host_others_bytes(struct soft *soft)
{
    const struct host_device *device = &vmm__host_of(&soft->driver)->device;
    struct file_range whole = { 0, device->granules * SOFT_GRANULE_BYTES };
    return device->descriptor < 0 ? 0 : locked_bytes(device, whole);
}

static struct file_range granule_range(uint64_t granule)
{
    return (struct file_range){ granule * SOFT_GRANULE_BYTES, (granule + 1) * SOFT_GRANULE_BYTES };
}

void vmm__host_device_give(struct host_device *device, uint64_t bytes)
{
    uint64_t left = device->descriptor < 0 ? 0 : bytes / SOFT_GRANULE_BYTES;
    for (uint64_t granule = 0; left > 0; granule++) {
        if (!device->taken[granule])
            continue;
        vmm__file_unlock(device->descriptor, granule_range(granule));
        device->taken[granule] = false;
        left--;
    }
}

vmm_status vmm__host_device_take(struct host_device *device, uint64_t bytes)
{
    uint64_t found_bytes = 0;
    if (device->descriptor < 0)
        return VMM_OK;
    vmm__file_lock(device->descriptor, turn);
    for (uint64_t granule = 0; granule < device->granules && found_bytes < bytes; granule++) {
        if (device->taken[granule] ||
            !vmm__file_try_lock(device->descriptor, granule_range(granule)))
            continue;
        device->taken[granule] = true;
        found_bytes += SOFT_GRANULE_BYTES;
    }
    if (found_bytes < bytes)
        vmm__host_device_give(device, found_bytes);
    vmm__file_unlock(device->descriptor, turn);
    if (found_bytes == bytes)
        return VMM_OK;
    return vmm__error(VMM_ERR_DEVICE_OOM,
                      "host: create of %" PRIu64 " bytes: %" PRIu64
                      " bytes of the shared device are free",
                      bytes, found_bytes);
}
