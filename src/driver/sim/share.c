/*
 * Memory that the sim drivers of one process share.
 *
 * The descriptor of an exported handle is a file with a record that names the memory; a fabric handle is that record.
 * Nothing else crosses it, as the memory is only a shadow in this process: another process is refused. A driver that
 * uses memory after another one forgets who used it before, because the epochs of drivers cannot be compared: their
 * users order their work.
 *
 * Owns: the process-wide list of shared memory. Called by: sim.c, memory.c, work.c; any thread. share_lock guards the
 * list and all shared memory; it is taken after sim->mutex (I1). A child of fork() begins with an empty list and a lock
 * of its own.
 */
#define _GNU_SOURCE
#include "driver/sim/internal.h"
#include "driver/soft/seals.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/hostmem.h"
#include "base/list.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sim_share {
    struct sim_share *next;
    uint64_t id;
    uint64_t bytes;
    uint64_t handles;       /* that stand for it */
    const struct sim *user; /* the driver whose epochs the shadow has */
    struct sim_shadow shadow;
};

/* The contents of an exported descriptor's file, and the first bytes of a fabric handle. */
struct share_record {
    char magic[16];
    uint64_t process; /* differs in every process */
    uint64_t id;
    uint64_t bytes;
};
_Static_assert(sizeof(struct share_record) <= DRIVER_FABRIC_BYTES, "a fabric handle has no room");

static const char record_magic[16] = "vmmcache sim";

enum { RECORD_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

static struct mutex share_lock = VMM_MUTEX_INIT;
static struct sim_share *shares;
static uint64_t last_share;
static uint64_t process; /* 0: not chosen yet */

/* ---- The list -------------------------------------------------------------------------------- */

/* The parent's memory stays the parent's. */
static void child_reset(void)
{
    share_lock = (struct mutex)VMM_MUTEX_INIT;
    shares = NULL;
    process = 0;
}

void vmm__sim_share_lock(void)
{
    vmm__mutex_lock(&share_lock);
}

void vmm__sim_share_unlock(void)
{
    vmm__mutex_unlock(&share_lock);
}

/* From now on the driver's calls hold the lock; sim_unlock() releases it. */
static vmm_status sharing_begin(struct sim *sim)
{
    if (sim->is_sharing)
        return VMM_OK;
    vmm_status status = vmm__fork_watch(child_reset);
    if (status != VMM_OK)
        return status;
    vmm__sim_share_lock();
    sim->is_sharing = true;
    if (process == 0)
        process = vmm__time_ns() ^ (uint64_t)getpid() << 40;
    return VMM_OK;
}

struct sim_share *vmm__sim_share_new(struct sim *sim, uint64_t bytes)
{
    struct sim_share *share = vmm__host_alloc(1, sizeof *share);
    if (share == NULL || sharing_begin(sim) != VMM_OK) {
        vmm__host_free(share, sizeof *share);
        return NULL;
    }
    *share = (struct sim_share){ .next = shares, .id = ++last_share, .bytes = bytes, .handles = 1 };
    shares = share;
    return share;
}

void vmm__sim_share_drop(struct sim_share *share)
{
    if (--share->handles != 0)
        return;
    VMM_LIST_REMOVE(&shares, share, next);
    vmm__sim_shadow_free(&share->shadow);
    vmm__host_free(share, sizeof *share);
}

struct sim_shadow *vmm__sim_share_shadow(const struct sim *sim, struct sim_share *share)
{
    if (share->user != sim)
        vmm__sim_shadow_disown(&share->shadow);
    share->user = sim;
    return &share->shadow;
}

void vmm__sim_shares_leave(struct sim *sim)
{
    for (struct sim_share *share = sim->is_sharing ? shares : NULL; share != NULL;
         share = share->next) {
        if (share->user == sim)
            (void)vmm__sim_share_shadow(NULL, share);
    }
}

/* ---- Export ---------------------------------------------------------------------------------- */

static bool record_write(int descriptor, const struct share_record *record)
{
    return write(descriptor, record, sizeof *record) == (ssize_t)sizeof *record &&
           fcntl(descriptor, F_ADD_SEALS, RECORD_SEALS) == 0;
}

static struct share_record record_make(const struct sim_share *share)
{
    struct share_record record = { .process = process, .id = share->id, .bytes = share->bytes };
    memcpy(record.magic, record_magic, sizeof record.magic);
    return record;
}

static const struct sim_share *share_of(const struct soft_handle *handle)
{
    return ((const struct sim_handle *)(const void *)handle)->share;
}

vmm_status vmm__sim_share_export(const struct soft_handle *handle, int *descriptor)
{
    struct share_record record = record_make(share_of(handle));
    int created = memfd_create("vmmcache sim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (created >= 0 && record_write(created, &record)) {
        *descriptor = created;
        return VMM_OK;
    }
    int code = errno;
    if (created >= 0)
        (void)close(created);
    return vmm__error(VMM_ERR_DRIVER, "sim: share export: no file for the record: %s (%d)",
                      strerror(code), code);
}

vmm_status vmm__sim_fabric_export(const struct soft_handle *handle, struct driver_fabric *fabric)
{
    struct share_record record = record_make(share_of(handle));
    memcpy(fabric->bytes, &record, sizeof record);
    return VMM_OK;
}

/* ---- Import ---------------------------------------------------------------------------------- */

static vmm_status import_refuse(const char *why)
{
    return vmm__error(VMM_ERR_DRIVER, "sim: share import: the handle %s", why);
}

static bool record_read(int descriptor, struct share_record *record)
{
    struct stat file;
    return fstat(descriptor, &file) == 0 && file.st_size == (off_t)sizeof *record &&
           vmm__seals_are(descriptor, RECORD_SEALS) &&
           pread(descriptor, record, sizeof *record, 0) == (ssize_t)sizeof *record;
}

static vmm_status share_find(const struct share_record *record, uint64_t bytes,
                             struct sim_share **out)
{
    struct sim_share *share = shares;
    if (memcmp(record->magic, record_magic, sizeof record->magic) != 0)
        return import_refuse("is not one that a sim driver exports");
    if (record->process != process)
        return import_refuse("comes from another process, which has its own simulation");
    while (share != NULL && share->id != record->id)
        share = share->next;
    if (share == NULL)
        return import_refuse("names memory that no longer exists");
    if (share->bytes != bytes || record->bytes != bytes)
        return vmm__error(VMM_ERR_DRIVER,
                          "sim: share import: the handle has %" PRIu64 " bytes, not %" PRIu64,
                          share->bytes, bytes);
    *out = share;
    return VMM_OK;
}

static vmm_status record_import(struct soft *soft, const struct share_record *record,
                                struct soft_handle *handle)
{
    struct sim_handle *imported = (struct sim_handle *)handle;
    vmm_status status = sharing_begin((struct sim *)soft);
    if (status == VMM_OK)
        status = share_find(record, handle->bytes, &imported->share);
    if (status == VMM_OK)
        imported->share->handles++;
    return status;
}

vmm_status vmm__sim_share_import(struct soft *soft, int descriptor, struct soft_handle *handle)
{
    struct share_record record;
    if (!record_read(descriptor, &record))
        return import_refuse("is not one that a sim driver exports");
    return record_import(soft, &record, handle);
}

vmm_status vmm__sim_fabric_import(struct soft *soft, const struct driver_fabric *fabric,
                                  struct soft_handle *handle)
{
    struct share_record record;
    memcpy(&record, fabric->bytes, sizeof record);
    return record_import(soft, &record, handle);
}
