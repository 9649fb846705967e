/*
 * Physical memory of the host driver: one memfd, in which each handle has a run of granules. The system allocates a
 * page when it is first used, as with malloc(). An exportable handle has a memfd of its own, so that a process that
 * imports it sees no other memory.
 *
 * Owns: the descriptor, and the table of granules.
 * Invariants:
 *  1. a granule is taken if it lies in the run of a handle, and never in those of two;
 *  2. at most KEPT_MOST free granules have memory behind them, for the next handle there; that of the others was
 *     returned to the system.
 * The file is FILE_DEVICES times as long as the device, whose size soft.h and device.c enforce. With first fit such a
 * file always has a run that is long enough, so the memory does not fragment; but RLIMIT_FSIZE may allow no more than
 * the device. Called by: soft, host.c, with memory_lock held.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "base/error.h"
#include "base/file_limit.h"
#include "base/hostmem.h"
#include "driver/host/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* First fit never needs more addresses than the memory times the logarithm of the largest run (Robson 1977). */
enum { FILE_DEVICES = 16 };

/* 64 MiB: to return a granule and get it again, zeroed, takes the system a millisecond. */
enum { KEPT_MOST = 32 };

/* ---- Files ----------------------------------------------------------------------------------- */

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
    if (bytes > vmm__file_bytes_most())
        return vmm__error(VMM_ERR_DRIVER,
                          "host driver: the memory file needs %" PRIu64
                          " bytes, but RLIMIT_FSIZE allows %" PRIu64,
                          bytes, vmm__file_bytes_most());
    int opened = memfd_create("vmmcache", flags);
    if (opened < 0)
        return descriptor_error(errno);
    if (ftruncate(opened, (off_t)bytes) != 0) {
        vmm_status status =
            vmm__error(VMM_ERR_DRIVER, "ftruncate(memory file, %" PRIu64 "): %s (%d)", bytes,
                       strerror(errno), errno);
        (void)close(opened);
        return status;
    }
    *descriptor = opened;
    return VMM_OK;
}

vmm_status vmm__host_file_open(struct host_file *file, uint64_t device_bytes)
{
    uint64_t most = vmm__align_down(vmm__file_bytes_most(), SOFT_GRANULE_BYTES);
    uint64_t wanted = device_bytes > most / FILE_DEVICES ? most : device_bytes * FILE_DEVICES;
    uint64_t bytes = vmm__max(device_bytes, wanted);
    vmm_status status = descriptor_open(bytes, MFD_CLOEXEC, &file->descriptor);
    if (status != VMM_OK)
        return status;
    file->granules = bytes / SOFT_GRANULE_BYTES;
    file->taken = vmm__host_table_alloc(2 * file->granules);
    if (file->taken == NULL) {
        (void)close(file->descriptor);
        return vmm__error(VMM_ERR_HOST_OOM,
                          "host driver: out of host memory for the table of granules");
    }
    file->kept = file->taken + file->granules;
    return VMM_OK;
}

void vmm__host_file_close(struct host_file *file)
{
    vmm__host_table_free(file->taken, 2 * file->granules);
    (void)close(file->descriptor);
}

/* ---- Memory of a handle ---------------------------------------------------------------------- */

static int handle_fallocate(const struct host_handle *handle, int mode)
{
    int result;
    do {
        result =
            fallocate(handle->descriptor, mode, (off_t)handle->offset, (off_t)handle->soft.bytes);
    } while (result != 0 && errno == EINTR);
    return result;
}

/* Allocates the memory now: another process may count on it. */
static vmm_status handle_commit(const struct host_handle *handle)
{
    if (handle_fallocate(handle, 0) == 0)
        return VMM_OK;
    int code = errno;
    bool is_full = code == ENOSPC || code == ENOMEM;
    return vmm__error(is_full ? VMM_ERR_DEVICE_OOM : VMM_ERR_DRIVER,
                      "fallocate(memory file, %" PRIu64 " bytes): %s%s (%d)", handle->soft.bytes,
                      is_full ? "this machine has no memory left: " : "", strerror(code), code);
}

/* Finds and takes the first run of free granules that is long enough. */
static vmm_status run_take(struct host_file *file, struct host_handle *handle)
{
    uint64_t granules = handle->soft.bytes / SOFT_GRANULE_BYTES;
    unsigned char *end = file->taken + file->granules;
    unsigned char *first = memchr(file->taken, 0, file->granules);
    unsigned char *behind = NULL;
    while (first != NULL && granules <= (uint64_t)(end - first) &&
           (behind = memchr(first, 1, granules)) != NULL)
        first = memchr(behind, 0, (size_t)(end - behind));
    if (first == NULL || granules > (uint64_t)(end - first))
        return vmm__error(VMM_ERR_DEVICE_OOM,
                          "host: create of %" PRIu64
                          " bytes: no such run in the memory file of %" PRIu64
                          " bytes, which RLIMIT_FSIZE limits",
                          handle->soft.bytes, file->granules * SOFT_GRANULE_BYTES);
    uint64_t place = (uint64_t)(first - file->taken);
    memset(first, 1, granules);
    for (uint64_t granule = place; granule < place + granules; granule++) {
        file->kept_count -= file->kept[granule];
        file->kept[granule] = 0;
    }
    handle->descriptor = file->descriptor;
    handle->offset = place * SOFT_GRANULE_BYTES;
    return VMM_OK;
}

/* If the punch fails, the file keeps the memory and reuses it later. The only loss is that it is not zeroed, which no
 * caller relies on. */
static void run_give(struct host_file *file, const struct host_handle *handle)
{
    uint64_t place = handle->offset / SOFT_GRANULE_BYTES;
    uint64_t granules = handle->soft.bytes / SOFT_GRANULE_BYTES;
    memset(file->taken + place, 0, granules);
    if (file->kept_count + granules > KEPT_MOST) {
        (void)handle_fallocate(handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
        return;
    }
    memset(file->kept + place, 1, granules);
    file->kept_count += granules;
}

/* Creates the file of an exportable handle. */
static vmm_status file_create(struct host_handle *handle)
{
    vmm_status status =
        descriptor_open(handle->soft.bytes, MFD_CLOEXEC | MFD_ALLOW_SEALING, &handle->descriptor);
    if (status != VMM_OK)
        return status;
    status = handle_commit(handle);
    if (status == VMM_OK && fcntl(handle->descriptor, F_ADD_SEALS, HOST_SHARED_SEALS) != 0)
        status = vmm__error(VMM_ERR_DRIVER, "fcntl(seal a memory file): %s (%d)", strerror(errno),
                            errno);
    if (status != VMM_OK)
        (void)close(handle->descriptor);
    return status;
}

vmm_status vmm__host_create(struct soft *soft, struct soft_handle *handle)
{
    struct host_driver *host = vmm__host_of(&soft->driver);
    struct host_handle *created = (struct host_handle *)handle;
    vmm_status status = vmm__host_device_take(&host->device, handle->bytes);
    if (status != VMM_OK)
        return status;
    status =
        handle->reach == VMM_SHARE_NONE ? run_take(&host->file, created) : file_create(created);
    if (status != VMM_OK)
        vmm__host_device_give(&host->device, handle->bytes);
    return status;
}

/* The memory of an exportable or imported handle goes when the last process closes its file. */
void vmm__host_handle_end(struct soft *soft, struct soft_handle *handle)
{
    struct host_driver *host = vmm__host_of(&soft->driver);
    struct host_handle *ended = (struct host_handle *)handle;
    if (ended->descriptor == host->file.descriptor)
        run_give(&host->file, ended);
    else
        (void)close(ended->descriptor);
    if (!handle->imported)
        vmm__host_device_give(&host->device, handle->bytes);
}
