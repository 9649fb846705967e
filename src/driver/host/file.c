/*
 * Physical memory of the host driver: one memfd, divided into granules. An exportable handle has a memfd of its own, so
 * that a process that imports it sees no other memory; the handle's granules of the common file then stay without
 * memory, and only count.
 *
 * Owns: the descriptor, and the table of granules.
 * Invariants:
 *  1. a granule is taken if it lies in the extents of a handle, and never in those of two;
 *  2. free granules have no memory behind them: it was returned to the system.
 * A handle can consist of any free granules, so this memory never fragments.
 * Called by: soft, host.c, with memory_lock held.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Checks RLIMIT_FSIZE first: a file that grows beyond it kills the process with SIGXFSZ. */
static vmm_status file_limit_check(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= bytes)
        return VMM_OK;
    return vmm__error(VMM_ERR_DRIVER,
                      "host driver: the memory file needs %" PRIu64
                      " bytes, but RLIMIT_FSIZE allows %" PRIu64,
                      bytes, (uint64_t)limit.rlim_cur);
}

static vmm_status descriptor_error(int code)
{
    if (code == EMFILE || code == ENFILE)
        return vmm__error(VMM_ERR_DRIVER, "memfd_create: no file descriptor left (%s)",
                          code == EMFILE ? "EMFILE: RLIMIT_NOFILE of this process"
                                         : "ENFILE: limit of this system");
    if (code == ENOMEM)
        return vmm__error(VMM_ERR_HOST_OOM, "memfd_create: out of host memory");
    return vmm__error(VMM_ERR_DRIVER, "memfd_create: %s (%d)", strerror(code), code);
}

static vmm_status descriptor_open(uint64_t bytes, unsigned flags, int *descriptor)
{
    vmm_status status = file_limit_check(bytes);
    if (status != VMM_OK)
        return status;
    int opened = memfd_create("vmmcache", flags);
    if (opened < 0)
        return descriptor_error(errno);
    if (ftruncate(opened, (off_t)bytes) != 0) {
        status = vmm__error(VMM_ERR_DRIVER, "ftruncate(memory file, %" PRIu64 "): %s (%d)", bytes,
                            strerror(errno), errno);
        (void)close(opened);
        return status;
    }
    *descriptor = opened;
    return VMM_OK;
}

vmm_status vmm__host_file_open(struct host_file *file, uint64_t bytes)
{
    vmm_status status = descriptor_open(bytes, MFD_CLOEXEC, &file->descriptor);
    if (status != VMM_OK)
        return status;
    file->granules = bytes / SOFT_GRANULE_BYTES;
    file->taken = vmm__host_table_alloc(file->granules);
    if (file->taken == NULL) {
        (void)close(file->descriptor);
        return vmm__error(VMM_ERR_HOST_OOM,
                          "host driver: out of host memory for the table of granules");
    }
    return VMM_OK;
}

void vmm__host_file_close(struct host_file *file)
{
    vmm__host_table_free(file->taken, file->granules);
    (void)close(file->descriptor);
}

/* ---- Memory behind extents ------------------------------------------------------------------- */

static int extent_fallocate(int descriptor, struct host_extent extent, int mode)
{
    int result;
    do {
        result = fallocate(descriptor, mode, (off_t)(extent.first * SOFT_GRANULE_BYTES),
                           (off_t)(extent.count * SOFT_GRANULE_BYTES));
    } while (result != 0 && errno == EINTR);
    return result;
}

/* If this fails, the file keeps the memory and reuses it later. The only loss is that it is not zeroed, which no caller
 * relies on. */
static void extents_punch(int descriptor, const struct host_extent *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)extent_fallocate(descriptor, items[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
}

/* Allocates the memory now: otherwise missing memory causes SIGBUS at the first access. */
static vmm_status extents_commit(int descriptor, const struct host_extents *extents)
{
    for (size_t i = 0; i < extents->count; i++) {
        if (extent_fallocate(descriptor, extents->items[i], 0) == 0)
            continue;
        int code = errno;
        extents_punch(descriptor, extents->items, i);
        if (code == ENOSPC || code == ENOMEM)
            return vmm__error(VMM_ERR_DEVICE_OOM,
                              "fallocate(memory file, %" PRIu64
                              " granules): this machine has no memory left (%s)",
                              extents->items[i].count, code == ENOSPC ? "ENOSPC" : "ENOMEM");
        return vmm__error(VMM_ERR_DRIVER, "fallocate(memory file, %" PRIu64 " granules): %s (%d)",
                          extents->items[i].count, strerror(code), code);
    }
    return VMM_OK;
}

/* ---- Granules -------------------------------------------------------------------------------- */

/* Finds the first granules from `at` on, at most so many, that no handle has. False: there are none. */
static bool free_find(const struct host_file *file, uint64_t at, uint64_t most,
                      struct host_extent *found)
{
    const unsigned char *end = file->taken + file->granules;
    const unsigned char *first = file->taken + at;
    while ((first = memchr(first, 0, (size_t)(end - first))) != NULL) {
        size_t room = vmm__min(most, (uint64_t)(end - first));
        const unsigned char *behind = memchr(first, 1, room);
        struct host_extent own = { .first = (uint64_t)(first - file->taken),
                                   .count = behind != NULL ? (uint64_t)(behind - first) : room };
        if (vmm__host_device_find(file, own, found))
            return true;
        first += own.count;
    }
    return false;
}

/* Grows by one extent at a time, so that its size is that of its record. */
static vmm_status extents_add(struct host_extents *extents, struct host_extent added)
{
    size_t bytes = extents->count * sizeof added;
    struct host_extent *grown = vmm__host_resize(extents->items, bytes, bytes + sizeof added);
    if (grown == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "host driver: out of host memory to list %zu extents",
                          extents->count + 1);
    extents->items = grown;
    extents->items[extents->count++] = added;
    return VMM_OK;
}

static void extent_give(struct host_file *file, struct host_extent extent)
{
    memset(file->taken + extent.first, 0, extent.count);
    vmm__host_device_give(file, extent);
}

static void file_give(struct host_file *file, struct host_extents *extents)
{
    for (size_t i = 0; i < extents->count; i++)
        extent_give(file, extents->items[i]);
    vmm__host_free(extents->items, extents->count * sizeof *extents->items);
}

/* Takes the first run of free granules that is long enough; if none is, several from the first on. Fails with what it
 * has taken until then. */
static vmm_status granules_take(struct host_file *file, uint64_t granules,
                                struct host_extents *extents)
{
    struct host_extent run = { .count = 0 };
    while (run.count < granules && free_find(file, run.first + run.count, granules, &run))
        continue;
    uint64_t at = run.count < granules ? 0 : run.first;
    uint64_t left = granules;
    for (; left > 0 && free_find(file, at, left, &run); at = run.first + run.count) {
        if (!vmm__host_device_take(file, run))
            continue;
        memset(file->taken + run.first, 1, run.count);
        vmm_status status = extents_add(extents, run);
        if (status != VMM_OK) {
            extent_give(file, run);
            return status;
        }
        left -= run.count;
    }
    if (left == 0)
        return VMM_OK;
    return vmm__error(VMM_ERR_DEVICE_OOM,
                      "host: create of %" PRIu64 " bytes: %" PRIu64
                      " bytes of the shared device are free",
                      granules * SOFT_GRANULE_BYTES, (granules - left) * SOFT_GRANULE_BYTES);
}

static vmm_status file_take(struct host_file *file, uint64_t granules, struct host_extents *out)
{
    struct host_extents extents = { .items = NULL };
    vmm__host_device_turn_begin(file);
    vmm_status status = granules_take(file, granules, &extents);
    if (status == VMM_OK)
        *out = extents;
    else
        file_give(file, &extents);
    vmm__host_device_turn_end(file);
    return status;
}

/* ---- Handles --------------------------------------------------------------------------------- */

/* Creates the file of an exportable handle, with its memory. */
static vmm_status shared_create(uint64_t bytes, int *descriptor)
{
    struct host_extent whole = { .first = 0, .count = bytes / SOFT_GRANULE_BYTES };
    const struct host_extents extents = { .items = &whole, .count = 1 };
    int created = -1;
    vmm_status status = descriptor_open(bytes, MFD_CLOEXEC | MFD_ALLOW_SEALING, &created);
    if (status != VMM_OK)
        return status;
    status = extents_commit(created, &extents);
    if (status == VMM_OK && fcntl(created, F_ADD_SEALS, HOST_SHARED_SEALS) != 0)
        status = vmm__error(VMM_ERR_DRIVER, "fcntl(seal a memory file): %s (%d)", strerror(errno),
                            errno);
    if (status == VMM_OK)
        *descriptor = created;
    else
        (void)close(created);
    return status;
}

vmm_status vmm__host_create(struct soft *soft, struct soft_handle *handle)
{
    struct host_file *file = &vmm__host_of(&soft->driver)->file;
    struct host_handle *created = (struct host_handle *)handle;
    vmm_status status = file_take(file, handle->bytes / SOFT_GRANULE_BYTES, &created->extents);
    if (status != VMM_OK)
        return status;
    created->descriptor = -1;
    if (handle->reach == VMM_SHARE_NONE)
        status = extents_commit(file->descriptor, &created->extents);
    else
        status = shared_create(handle->bytes, &created->descriptor);
    if (status != VMM_OK)
        file_give(file, &created->extents);
    return status;
}

/* The memory of an exportable or imported handle goes when the last process closes its file. */
void vmm__host_handle_end(struct soft *soft, struct soft_handle *handle)
{
    struct host_file *file = &vmm__host_of(&soft->driver)->file;
    struct host_handle *ended = (struct host_handle *)handle;
    if (ended->descriptor >= 0)
        (void)close(ended->descriptor);
    else
        extents_punch(file->descriptor, ended->extents.items, ended->extents.count);
    file_give(file, &ended->extents);
}
