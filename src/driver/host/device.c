/*
 * A device that processes share without a GPU: a file of the device's size, in which a process locks the bytes of each
 * granule that it has. Nothing is written there, and each process keeps its memory in a file of its own: the kernel
 * does the counting, and gives back what a killed process had.
 *
 * Owns: the locks, which belong to the open file, not to the process: two drivers of one process are two, and a child
 * of fork() keeps its parent's until it ends or calls exec().
 * Invariants:
 *  1. the granules that this driver has locked are those that are not in its list of free extents;
 *  2. a process takes granules during its turn, a lock behind those of all granules, so that of two that need the same
 *     ones one gets them all. A process that is stopped during its turn makes the others wait.
 * Called by: soft, file.c, host.c, with memory_lock held.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
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
    if (about->st_size == 0 && ftruncate(device, (off_t)*bytes) == 0)
        about->st_size = (off_t)*bytes;
    uint64_t size = (uint64_t)about->st_size;
    if (size == 0 || size % SOFT_GRANULE_BYTES != 0)
        return device_error(path, "its size is not a number of granules (2 MiB)");
    *bytes = size;
    return VMM_OK;
}

vmm_status vmm__host_device_open(const char *path, uint64_t *bytes, struct driver *driver,
                                 int *device)
{
    struct stat about;
    int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (opened < 0)
        return device_error(path, strerror(errno));
    vmm__file_lock(opened, turn);
    vmm_status status = size_settle(path, opened, bytes, &about);
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

/* Finds the first granules of an extent that no other process has. False: there are none. */
static bool others_next(int device, struct host_extent extent, struct host_extent *found)
{
    struct file_range whole = extent_range(extent);
    struct file_range range = whole;
    struct file_range locked;
    while (range.first < whole.end && vmm__file_is_locked(device, range, &locked)) {
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

static struct host_extent rest_behind(struct host_extent range, struct host_extent piece)
{
    uint64_t at = piece.first + piece.count;
    return (struct host_extent){ .first = at, .count = range.first + range.count - at };
}

uint64_t vmm__host_device_others_bytes(struct soft *soft)
{
    const struct host_file *file = &vmm__host_of(&soft->driver)->file;
    struct host_extent range = { .first = 0, .count = file->granules };
    struct host_extent piece;
    uint64_t others = file->granules;
    for (; file->device >= 0 && others_next(file->device, range, &piece);
         range = rest_behind(range, piece))
        others -= piece.count;
    return file->device < 0 ? 0 : others * SOFT_GRANULE_BYTES;
}

/* Grows by one piece at a time, so that its size is that of its record. */
static bool pieces_add(struct host_extents *pieces, struct host_extent piece)
{
    size_t bytes = pieces->count * sizeof piece;
    struct host_extent *grown = vmm__host_resize(pieces->items, bytes, bytes + sizeof piece);
    if (grown == NULL)
        return false;
    pieces->items = grown;
    pieces->items[pieces->count++] = piece;
    return true;
}

/* Locks granules of one free extent. Returns how many. */
static uint64_t extent_take(int device, struct host_extent range, uint64_t granules,
                            struct host_extents *pieces)
{
    uint64_t taken = 0;
    struct host_extent piece;
    for (; taken < granules && others_next(device, range, &piece);
         range = rest_behind(range, piece)) {
        piece.count = vmm__min(piece.count, granules - taken);
        if (!vmm__file_try_lock(device, extent_range(piece)))
            continue;
        if (!pieces_add(pieces, piece)) {
            vmm__file_unlock(device, extent_range(piece));
            break;
        }
        taken += piece.count;
    }
    return taken;
}

vmm_status vmm__host_device_take(struct host_file *file, uint64_t granules,
                                 struct host_extents *out)
{
    struct host_extents pieces = { .items = NULL };
    uint64_t taken = 0;
    vmm__file_lock(file->device, turn);
    for (size_t i = 0; i < file->free_count && taken < granules; i++)
        taken += extent_take(file->device, file->free[i], granules - taken, &pieces);
    if (taken < granules) {
        for (size_t i = 0; i < pieces.count; i++)
            vmm__file_unlock(file->device, extent_range(pieces.items[i]));
        vmm__host_free(pieces.items, pieces.count * sizeof *pieces.items);
    }
    vmm__file_unlock(file->device, turn);
    if (taken < granules)
        return vmm__error(VMM_ERR_DEVICE_OOM,
                          "host: create of %" PRIu64 " bytes: %" PRIu64
                          " bytes of the shared device are free",
                          granules * SOFT_GRANULE_BYTES, taken * SOFT_GRANULE_BYTES);
    for (size_t i = 0; i < pieces.count; i++)
        vmm__host_free_cut(file, pieces.items[i]);
    *out = pieces;
    return VMM_OK;
}

void vmm__host_device_give(const struct host_file *file, struct host_extent extent)
{
    if (file->device >= 0)
        vmm__file_unlock(file->device, extent_range(extent));
}
