/*
 * Physical memory of the host driver: one memfd, divided into granules. An exportable handle has a memfd of its own, so
 * that a process that imports it sees no other memory; the handle's granules of the common file then stay without
 * memory, and only count.
 *
 * Owns: the descriptor and the list of free extents.
 * Invariants:
 *  1. free extents are sorted, do not overlap and are never adjacent (adjacent ones are merged);
 *  2. free granules have no memory behind them: it was returned to the system.
 * A handle can consist of any free extents, so this memory never fragments.
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

static size_t free_table_bytes(const struct host_file *file)
{
    return (file->granules / 2 + 1) * sizeof *file->free;
}

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
    file->free = vmm__host_table_alloc(free_table_bytes(file));
    if (file->free == NULL) {
        (void)close(file->descriptor);
        return vmm__error(VMM_ERR_HOST_OOM,
                          "host driver: out of host memory for the list of extents");
    }
    file->free[0] = (struct host_extent){ .first = 0, .count = file->granules };
    file->free_count = 1;
    return VMM_OK;
}

void vmm__host_file_close(struct host_file *file)
{
    vmm__host_table_free(file->free, free_table_bytes(file));
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

/* ---- Free granules --------------------------------------------------------------------------- */

/* Returns the first free extent that holds all the granules; if none does, the first extent, to combine several. */
static size_t free_start(const struct host_file *file, uint64_t granules)
{
    for (size_t i = 0; i < file->free_count; i++)
        if (file->free[i].count >= granules)
            return i;
    return 0;
}

/* Returns how many extents from `start` on are needed. Enough granules are free. */
static size_t free_spread(const struct host_file *file, size_t start, uint64_t granules)
{
    size_t spread = 0;
    for (uint64_t found = 0; found < granules; spread++)
        found += file->free[start + spread].count;
    return spread;
}

/* Moves the granules from the free extents at `start` to `extents`, which has enough room. */
static void free_take(struct host_file *file, size_t start, uint64_t granules,
                      struct host_extents *extents)
{
    size_t emptied = 0;
    for (size_t i = 0; i < extents->count; i++) {
        struct host_extent *from = &file->free[start + i];
        uint64_t taken = vmm__min(from->count, granules);
        extents->items[i] = (struct host_extent){ .first = from->first, .count = taken };
        from->first += taken;
        from->count -= taken;
        granules -= taken;
        emptied += from->count == 0;
    }
    file->free_count -= emptied;
    memmove(&file->free[start], &file->free[start + emptied],
            (file->free_count - start) * sizeof *file->free);
}

/* Returns the index of the first free extent that begins after `granule`. */
static size_t free_after(const struct host_file *file, uint64_t granule)
{
    size_t low = 0;
    size_t high = file->free_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (file->free[middle].first > granule)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void free_insert(struct host_file *file, struct host_extent extent)
{
    struct host_extent *free = file->free;
    size_t at = free_after(file, extent.first);
    bool touches_before = at > 0 && free[at - 1].first + free[at - 1].count == extent.first;
    bool touches_after = at < file->free_count && extent.first + extent.count == free[at].first;
    if (touches_before && touches_after) {
        free[at - 1].count += extent.count + free[at].count;
        file->free_count--;
        memmove(&free[at], &free[at + 1], (file->free_count - at) * sizeof *free);
    } else if (touches_before) {
        free[at - 1].count += extent.count;
    } else if (touches_after) {
        free[at].first = extent.first;
        free[at].count += extent.count;
    } else {
        memmove(&free[at + 1], &free[at], (file->free_count - at) * sizeof *free);
        free[at] = extent;
        file->free_count++;
    }
}

/* The extent that becomes two ends where it is cut. The list has room: it is never longer than the worst case. */
void vmm__host_free_cut(struct host_file *file, struct host_extent extent)
{
    size_t at = free_after(file, extent.first) - 1;
    struct host_extent whole = file->free[at];
    uint64_t before = extent.first - whole.first;
    file->free_count--;
    memmove(&file->free[at], &file->free[at + 1], (file->free_count - at) * sizeof *file->free);
    if (before > 0)
        free_insert(file, (struct host_extent){ .first = whole.first, .count = before });
    if (before + extent.count < whole.count)
        free_insert(file, (struct host_extent){ .first = extent.first + extent.count,
                                                .count = whole.count - before - extent.count });
}

static void file_give(struct host_file *file, struct host_extents *extents)
{
    for (size_t i = 0; i < extents->count; i++) {
        free_insert(file, extents->items[i]);
        vmm__host_device_give(file, extents->items[i]);
    }
    vmm__host_free(extents->items, extents->count * sizeof *extents->items);
}

static vmm_status file_take(struct host_file *file, uint64_t granules, struct host_extents *out)
{
    if (file->device >= 0)
        return vmm__host_device_take(file, granules, out);
    size_t start = free_start(file, granules);
    struct host_extents extents = { .items = NULL, .count = free_spread(file, start, granules) };
    extents.items = vmm__host_alloc(extents.count, sizeof *extents.items);
    if (extents.items == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "host driver: out of host memory to list %zu extents",
                          extents.count);
    free_take(file, start, granules, &extents);
    *out = extents;
    return VMM_OK;
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

vmm_status vmm__host_handle_create(struct soft *soft, struct soft_handle *handle)
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
