/*
 * Memory that the sim drivers of one process share, and pinned memory.
 *
 * The descriptor of an exported handle is a file with a record that names the memory; a fabric handle is that record.
 * Nothing else crosses it, as the memory is only a shadow in this process: another process is refused. A driver that
 * uses memory after another one forgets who used it before, because the epochs of drivers cannot be compared: their
 * users order their work.
 *
 * Owns: the process-wide list of shared memory, and the shadows of pinned memory. Called by: sim.c, memory.c, work.c;
 * any thread. share_lock guards the list and all shared memory; it is taken after sim->mutex (I1). A child of fork()
 * begins with an empty list and a lock of its own.
 */
#define _GNU_SOURCE
#include "driver/seals.h"
#include "driver/sim/internal.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/hostmem.h"
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

static pthread_mutex_t share_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_share *shares;
static uint64_t last_share;
static uint64_t process; /* 0: not chosen yet */

/* ---- The list -------------------------------------------------------------------------------- */

/* The parent's memory stays the parent's. */
static void child_reset(void)
{
    share_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    shares = NULL;
    process = 0;
}

void vmm__sim_share_lock(void)
{
    (void)pthread_mutex_lock(&share_lock);
}

void vmm__sim_share_unlock(void)
{
    (void)pthread_mutex_unlock(&share_lock);
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
    struct sim_share **link = &shares;
    while (*link != share)
        link = &(*link)->next;
    *link = share->next;
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

static vmm_status record_export(const struct sim_share *share, int *descriptor)
{
    struct share_record record = record_make(share);
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

/* The memory of a handle that was created with at least this reach. */
static vmm_status share_of(struct sim *sim, const char *verb, uint64_t id, vmm_share_reach reach,
                           const struct sim_share **out)
{
    const struct sim_handle *handle = (struct sim_handle *)vmm__map_find(&sim->handles, id);
    if (handle == NULL)
        return vmm__sim_handle_refuse(sim, verb, id);
    if (handle->reach < reach)
        return vmm__error(VMM_ERR_DRIVER,
                          "sim: %s: handle %#" PRIx64 " was not created as exportable", verb, id);
    *out = handle->share;
    return VMM_OK;
}

vmm_status vmm__sim_share_export(struct sim *sim, uint64_t id, int *descriptor)
{
    const struct sim_share *share = NULL;
    vmm_status status = share_of(sim, "share export", id, VMM_SHARE_MACHINE, &share);
    if (status == VMM_OK)
        status = record_export(share, descriptor);
    if (status == VMM_OK)
        sim_charge(sim, SIM_COST_SHARE_EXPORT, share->bytes);
    return status;
}

vmm_status vmm__sim_fabric_check(struct sim *sim)
{
    (void)sim;
    return VMM_OK;
}

vmm_status vmm__sim_fabric_export(struct sim *sim, uint64_t id, struct driver_fabric *fabric)
{
    const struct sim_share *share = NULL;
    vmm_status status = share_of(sim, "fabric export", id, VMM_SHARE_FABRIC, &share);
    if (status != VMM_OK)
        return status;
    struct share_record record = record_make(share);
    *fabric = (struct driver_fabric){ { 0 } };
    memcpy(fabric->bytes, &record, sizeof record);
    sim_charge(sim, SIM_COST_SHARE_EXPORT, share->bytes);
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

static vmm_status record_import(struct sim *sim, const struct share_record *record, uint64_t bytes,
                                uint64_t *id)
{
    struct sim_share *share = NULL;
    vmm_status status = sharing_begin(sim);
    if (status == VMM_OK)
        status = share_find(record, bytes, &share);
    if (status != VMM_OK)
        return status;
    struct sim_handle *handle = vmm__host_alloc(1, sizeof *handle);
    if (handle == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sim: share import: out of host memory for its record");
    handle->bytes = bytes;
    handle->imported = true;
    handle->share = share;
    share->handles++;
    sim_charge(sim, SIM_COST_SHARE_IMPORT, bytes);
    *id = vmm__sim_handle_add(sim, handle);
    return VMM_OK;
}

vmm_status vmm__sim_share_import(struct sim *sim, int descriptor, uint64_t bytes, uint64_t *id)
{
    struct share_record record;
    if (!record_read(descriptor, &record))
        return import_refuse("is not one that a sim driver exports");
    return record_import(sim, &record, bytes, id);
}

vmm_status vmm__sim_fabric_import(struct sim *sim, const struct driver_fabric *fabric,
                                  uint64_t bytes, uint64_t *id)
{
    struct share_record record;
    memcpy(&record, fabric->bytes, sizeof record);
    return record_import(sim, &record, bytes, id);
}

vmm_status vmm__sim_share_release(struct sim *sim, uint64_t id, uint64_t bytes)
{
    return vmm__sim_handle_drop(sim, "share release", id, bytes, true);
}

/* ---- Pinned memory --------------------------------------------------------------------------- */

vmm_status vmm__sim_pin(struct sim *sim, void *host, uint64_t bytes)
{
    struct sim_pin *pinned = vmm__host_alloc(1, sizeof *pinned);
    if (pinned == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sim: pin: out of host memory for its record");
    vmm_status status = vmm__pins_add(&sim->pins, &pinned->pin, host, bytes);
    if (status != VMM_OK) {
        vmm__host_free(pinned, sizeof *pinned);
        return status;
    }
    sim->census.pinned_bytes += bytes;
    sim_charge(sim, SIM_COST_PIN, bytes);
    return VMM_OK;
}

static void pin_free(struct sim_pin *pinned)
{
    vmm__sim_shadow_free(&pinned->shadow);
    vmm__host_free(pinned, sizeof *pinned);
}

/* CUDA lets the pages go although a copy may still write to them. */
vmm_status vmm__sim_unpin(struct sim *sim, void *host, uint64_t bytes)
{
    struct sim_pin *pinned = (struct sim_pin *)vmm__pins_take(&sim->pins, host, bytes);
    if (pinned == NULL)
        return VMM_ERR_DRIVER;
    vmm__sim_report_work(sim, "unpin",
                         vmm__sim_shadow_uncovered(&pinned->shadow, sim->order.observed),
                         pinned->pin.address, pinned->pin.bytes);
    pin_free(pinned);
    sim->census.pinned_bytes -= bytes;
    sim_charge(sim, SIM_COST_UNPIN, bytes);
    return VMM_OK;
}

void vmm__sim_pins_free(struct sim *sim)
{
    struct pin *pin;
    while ((pin = vmm__pins_take_any(&sim->pins)) != NULL)
        pin_free((struct sim_pin *)pin);
}
