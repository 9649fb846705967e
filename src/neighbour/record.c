/* The record of a device: see record.h. */
#define _GNU_SOURCE
#include "neighbour/record.h"
#include "base/error.h"
#include "base/file_limit.h"
#include "base/file_lock.h"
#include "base/fork.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/time.h"
#include "monitor/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Others join or leave within microseconds, unless one is stopped there. */
enum { TURN_MS = 100 };

/* A slot is a few lines of memory: a writer is done before the second try. */
enum { READ_TRIES = 4 };

static struct mutex lock = VMM_MUTEX_INIT; /* guards these */
static struct neighbour_record *records;
static bool is_exit_watched;

/* The locks need no bytes in the file: one for each slot, and the turn. */
static const struct file_range turn = { NEIGHBOUR_SLOTS, NEIGHBOUR_SLOTS + 1 };

static struct file_range slot_range(unsigned slot)
{
    return (struct file_range){ .first = slot, .end = slot + 1 };
}

static off_t slot_offset(unsigned slot)
{
    return (off_t)(offsetof(struct neighbour_file, slots) + slot * sizeof(struct neighbour_slot));
}

static vmm_status record_refuse(const struct neighbour_record *record, const char *why)
{
    return vmm__error(VMM_ERR_UNSUPPORTED, "neighbours: %.400s: %s", record->path, why);
}

static bool turn_begin(int file)
{
    bool has_turn = vmm__file_try_lock(file, turn);
    for (int tries = 0; !has_turn && tries < TURN_MS; tries++) {
        vmm__time_pause(1000000);
        has_turn = vmm__file_try_lock(file, turn);
    }
    return has_turn;
}

/* A write beyond the limit would end the process. A short one means a full file system, but sets no errno. */
static bool file_write(int file, const void *bytes, size_t count, off_t offset)
{
    if (!vmm__file_may_have((uint64_t)offset + count))
        return false;
    ssize_t written = pwrite(file, bytes, count, offset);
    if (written >= 0 && (size_t)written < count)
        errno = ENOSPC;
    return written == (ssize_t)count;
}

static bool is_last(int file)
{
    struct file_range locked;
    return !vmm__file_is_locked(file, (struct file_range){ 0, NEIGHBOUR_SLOTS }, &locked);
}

/* Removes the file if no other process has a slot. The caller has the turn. */
static void file_remove(const struct neighbour_record *record, int file)
{
    struct stat about;
    if (is_last(file) && fstat(file, &about) == 0 && about.st_nlink > 0)
        (void)unlink(record->path);
}

/* ---- Join ------------------------------------------------------------------------------------ */

/* After a failed call: a file that no process has must not stay. The caller has the turn. */
static vmm_status join_fail(const struct neighbour_record *record, int file)
{
    vmm_status status = record_refuse(record, strerror(errno));
    file_remove(record, file);
    return status;
}

static vmm_status head_make(const struct neighbour_record *record, int file)
{
    const struct neighbour_head head = { .magic = NEIGHBOUR_MAGIC,
                                         .version = NEIGHBOUR_VERSION,
                                         .slot_bytes = sizeof(struct neighbour_slot),
                                         .slots = NEIGHBOUR_SLOTS };
    bool is_made = ftruncate(file, sizeof(struct neighbour_file)) == 0 &&
                   file_write(file, &head, sizeof head, 0);
    return is_made ? VMM_OK : join_fail(record, file);
}

/* A file whose maker was killed has no head yet. The caller has the turn. */
static vmm_status head_check(const struct neighbour_record *record, int file)
{
    static const char nothing[MONITOR_MAGIC_BYTES];
    struct neighbour_head head = { .version = 0 };
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        return record_refuse(record, "not a file");
    if (about.st_uid != geteuid() || (about.st_mode & 0077) != 0)
        return record_refuse(record, "another user owns or may open it");
    ssize_t count = pread(file, &head, sizeof head, 0);
    if (count >= 0 && memcmp(head.magic, nothing, sizeof nothing) == 0)
        return head_make(record, file);
    if (memcmp(head.magic, NEIGHBOUR_MAGIC, sizeof head.magic) != 0)
        return record_refuse(record, "not a record; remove it");
    if (head.version != NEIGHBOUR_VERSION)
        return record_refuse(record, "another version of the library made it");
    if (head.slot_bytes != sizeof(struct neighbour_slot) || head.slots != NEIGHBOUR_SLOTS ||
        about.st_size != sizeof(struct neighbour_file))
        return record_refuse(record, "damaged; remove it");
    return VMM_OK;
}

static vmm_status slot_take(struct neighbour_record *record, int file)
{
    static const struct neighbour_slot nothing;
    unsigned slot = 0;
    while (slot < NEIGHBOUR_SLOTS && !vmm__file_try_lock(file, slot_range(slot)))
        slot++;
    if (slot == NEIGHBOUR_SLOTS)
        return record_refuse(record, "all slots are taken");
    /* a process that was killed may have left a claim in the slot */
    if (!file_write(file, &nothing, sizeof nothing, slot_offset(slot)))
        return join_fail(record, file);
    record->bells =
        mmap(NULL, sizeof(struct neighbour_head), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (record->bells == MAP_FAILED)
        return join_fail(record, file);
    (void)madvise(record->bells, sizeof(struct neighbour_head), MADV_DONTFORK);
    record->slot = slot;
    return VMM_OK;
}

/* *is_gone: the last one that left has removed the file meanwhile. */
static vmm_status file_enter(struct neighbour_record *record, int file, bool *is_gone)
{
    struct stat about;
    if (!turn_begin(file))
        return record_refuse(record, "another process joins or leaves, and does not end");
    *is_gone = fstat(file, &about) == 0 && about.st_nlink == 0;
    vmm_status status = *is_gone ? VMM_OK : head_check(record, file);
    if (status == VMM_OK && !*is_gone)
        status = slot_take(record, file);
    vmm__file_unlock(file, turn);
    return status;
}

static void file_close(struct neighbour_record *record)
{
    (void)close(atomic_exchange(&record->file, -1));
}

/* A child of a fork() meanwhile finds the file in the record, and closes it, unless the fork() comes between the open()
 * and the store. */
static vmm_status file_join(struct neighbour_record *record)
{
    bool is_gone = true;
    if (vmm__file_bytes_most() < sizeof(struct neighbour_file))
        return record_refuse(record, "RLIMIT_FSIZE allows no file of its size");
    while (is_gone) {
        record->file =
            open(record->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (record->file < 0)
            return record_refuse(record, strerror(errno));
        is_gone = false;
        vmm_status status = file_enter(record, record->file, &is_gone);
        if (status != VMM_OK || is_gone)
            file_close(record);
        if (status != VMM_OK)
            return status;
    }
    return VMM_OK;
}

static vmm_status path_make(struct neighbour_record *record, const char *folder,
                            const unsigned char *uuid, size_t uuid_bytes)
{
    if (*folder != '/') /* chdir() would change which file the process removes */
        return vmm__error(VMM_ERR_UNSUPPORTED, "VMM_NEIGHBOURS_DIR=%.40s: does not begin with /",
                          folder);
    int length = snprintf(record->path, sizeof record->path, "%s/" NEIGHBOUR_PREFIX "%u.", folder,
                          (unsigned)geteuid());
    if (length > NEIGHBOUR_FOLDER_MOST)
        return vmm__error(VMM_ERR_UNSUPPORTED, "VMM_NEIGHBOURS_DIR: the name is too long");
    for (size_t i = 0; i < uuid_bytes; i++)
        length +=
            snprintf(record->path + length, sizeof record->path - (size_t)length, "%02x", uuid[i]);
    return VMM_OK;
}

/* ---- Bells ----------------------------------------------------------------------------------- */

static off_t bell_offset(enum neighbour_bell bell)
{
    return (off_t)(offsetof(struct neighbour_head, bells) + bell * sizeof(uint32_t));
}

/* The address of a bell, for the kernel. The library reads no bell there, because the file may have been cut. */
static void *bell_address(const struct neighbour_record *record, enum neighbour_bell bell)
{
    return (char *)record->bells + bell_offset(bell);
}

uint32_t vmm__neighbour_bell(const struct neighbour_record *record, enum neighbour_bell bell)
{
    uint32_t state = 0;
    (void)!pread(record->file, &state, sizeof state, bell_offset(bell));
    return state;
}

/* The new state is the time: with a counter, two processes that ring at once could leave a state that a waiter has read
 * already, and it would miss the second ring. Wakes waiters even if the file can no longer be written. */
void vmm__neighbour_ring(const struct neighbour_record *record, enum neighbour_bell bell)
{
    uint32_t state = (uint32_t)vmm__time_ns();
    (void)file_write(record->file, &state, sizeof state, bell_offset(bell));
    (void)syscall(SYS_futex, bell_address(record, bell), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* If the kernel refuses, because the file was cut, pauses instead: the caller waits in a loop, and would spin. */
void vmm__neighbour_wait(const struct neighbour_record *record, enum neighbour_bell bell,
                         uint32_t state, uint64_t ns)
{
    struct timespec time = { .tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000) };
    long result = syscall(SYS_futex, bell_address(record, bell), FUTEX_WAIT, state, &time, NULL, 0);
    if (result != 0 && errno == EFAULT)
        vmm__time_pause(ns);
}

/* ---- Leave ----------------------------------------------------------------------------------- */

/* If the process does not get its turn, the file stays for the next process that leaves. */
static void file_leave(const struct neighbour_record *record)
{
    vmm__file_unlock(record->file, slot_range(record->slot));
    if (!turn_begin(record->file))
        return;
    file_remove(record, record->file);
    vmm__file_unlock(record->file, turn);
}

/* The open file, which has the slot, is the parent's and the child's: closes the child's, or the slot would stay taken
 * after the parent's end. */
VMM_FORK_CHILD static void child_begin(void)
{
    lock = (struct mutex)VMM_MUTEX_INIT;
    for (struct neighbour_record *record = records; record != NULL; record = record->next)
        file_close(record);
    records = NULL;
}

/* Gives back the slots of caches that are not destroyed before exit(). Their threads sleep from now on. A later handler
 * of exit() may destroy the caches, so the files stay open, and the bells go on working. If another thread joins or
 * leaves meanwhile, does nothing: a file may stay, and the next process that leaves removes it. */
static void exit_leave(void)
{
    if (!vmm__mutex_try_lock(&lock))
        return;
    for (struct neighbour_record *record = records; record != NULL; record = record->next) {
        atomic_store(&record->is_left, true);
        for (int tries = 0; atomic_load(&record->writers) > 0 && tries < TURN_MS; tries++)
            vmm__time_pause(1000000);
        vmm__neighbour_ring(record, BELL_ASKED); /* the cache's thread wakes, and sees is_left */
        file_leave(record);
    }
    records = NULL;
    is_exit_watched = false;
    vmm__mutex_unlock(&lock);
}

static vmm_status exit_watch_locked(void)
{
    if (!is_exit_watched && atexit(exit_leave) != 0)
        return vmm__error(VMM_ERR_HOST_OOM, "neighbours: no host memory for an exit handler");
    is_exit_watched = true;
    return vmm__fork_watch(child_begin);
}

vmm_status vmm__neighbour_join(struct neighbour_record *record, const char *folder,
                               const unsigned char *uuid, size_t uuid_bytes)
{
    record->file = -1;
    record->is_left = false;
    record->writers = 0;
    vmm_status status = path_make(record, folder, uuid, uuid_bytes);
    if (status != VMM_OK)
        return status;
    VMM_HOLD(&lock);
    status = exit_watch_locked();
    if (status != VMM_OK)
        return status;
    record->next = records;
    records = record;
    status = file_join(record);
    if (status != VMM_OK)
        records = record->next;
    return status;
}

void vmm__neighbour_leave(struct neighbour_record *record)
{
    VMM_HOLD(&lock);
    if (record->file >= 0) {
        if (!record->is_left)
            file_leave(record);
        file_close(record);
        (void)munmap(record->bells, sizeof(struct neighbour_head));
    }
    VMM_LIST_REMOVE(&records, record, next);
}

bool vmm__neighbour_is_joined(const struct neighbour_record *record)
{
    return record->file >= 0 && !record->is_left;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static uint64_t slot_checksum(const struct neighbour_slot *slot)
{
    return vmm__monitor_checksum((const char *)slot + sizeof slot->checksum,
                                 sizeof *slot - sizeof slot->checksum);
}

void vmm__neighbour_write(struct neighbour_record *record, struct neighbour_slot *slot)
{
    if (slot->pid == 0) {
        slot->pid = (uint64_t)getpid();
        slot->pid_space = vmm__process_pid_space();
        slot->start_ticks = vmm__process_start(slot->pid);
    }
    slot->revision++;
    slot->checksum = slot_checksum(slot);
    atomic_fetch_add(&record->writers, 1);
    if (vmm__neighbour_is_joined(record)) /* else another process may have the slot */
        (void)file_write(record->file, slot, sizeof *slot, slot_offset(record->slot));
    atomic_fetch_sub(&record->writers, 1);
}

/* Reads a damaged one again: its writer is done before the second try. */
static bool slot_is_whole(const struct neighbour_record *record, unsigned index,
                          struct neighbour_slot *slot)
{
    bool is_whole = slot->checksum == slot_checksum(slot);
    for (int tries = 1; !is_whole && tries < READ_TRIES; tries++) {
        ssize_t count = pread(record->file, slot, sizeof *slot, slot_offset(index));
        is_whole = count == (ssize_t)sizeof *slot && slot->checksum == slot_checksum(slot);
    }
    slot->name[sizeof slot->name - 1] = '\0';
    vmm__line_make(slot->name);
    return is_whole;
}

static bool slot_counts(const struct neighbour_record *record, unsigned index,
                        struct neighbour_slot *slot)
{
    struct file_range locked;
    return index != record->slot && slot->pid != 0 && slot_is_whole(record, index, slot) &&
           vmm__file_is_locked(record->file, slot_range(index), &locked);
}

uint64_t vmm__neighbours_read(const struct neighbour_record *record,
                              struct neighbour_slot slots[NEIGHBOUR_SLOTS])
{
    size_t bytes = NEIGHBOUR_SLOTS * sizeof *slots;
    uint64_t set = 0;
    if (!vmm__neighbour_is_joined(record) ||
        pread(record->file, slots, bytes, slot_offset(0)) != (ssize_t)bytes)
        return 0;
    for (unsigned i = 0; i < NEIGHBOUR_SLOTS; i++)
        set |= (uint64_t)slot_counts(record, i, &slots[i]) << i;
    return set;
}
