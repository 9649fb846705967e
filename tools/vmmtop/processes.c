/* The processes that publish: see processes.h. */
#define _GNU_SOURCE
#include "vmmtop/processes.h"

#include "base/error.h"
#include "base/hostmem.h"
#include "base/time.h"
#include "monitor/left.h"
#include "monitor/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A process writes for microseconds, twice a second. */
enum { TRIES = 20, NAP_NS = 1000000 };

/* One file of a scan. */
struct candidate {
    struct processes *processes;
    int folder;
    int file;
    const char *name;
    uint64_t pid;
    uint64_t number;
};

/* ---- Lists ---------------------------------------------------------------------------------- */

static void refuse(const struct candidate *candidate, const char *why)
{
    struct processes *processes = candidate->processes;
    if (!vmm__host_array_grow((void **)&processes->refused, &processes->refused_capacity,
                              processes->refused_count, sizeof *processes->refused))
        return;
    struct refused *refused = &processes->refused[processes->refused_count++];
    (void)snprintf(refused->file, sizeof refused->file, "%s", candidate->name);
    (void)snprintf(refused->why, sizeof refused->why, "%s", why);
    vmm__line_make(refused->file);
}

static void process_free(struct process *process)
{
    snapshot_free(&process->now);
    snapshot_free(&process->before);
}

/* The place of a process in the list; adds it if it is not there. NULL: no memory. */
static struct process *process_place(struct processes *processes, uint64_t pid, uint64_t number)
{
    unsigned at = 0;
    while (at < processes->count &&
           (processes->items[at].pid < pid ||
            (processes->items[at].pid == pid && processes->items[at].number < number)))
        at++;
    bool is_there = at < processes->count && processes->items[at].pid == pid &&
                    processes->items[at].number == number;
    if (is_there)
        return &processes->items[at];
    if (!vmm__host_array_grow((void **)&processes->items, &processes->capacity, processes->count,
                              sizeof *processes->items))
        return NULL;
    struct process *place = &processes->items[at];
    memmove(place + 1, place, (processes->count - at) * sizeof *place);
    *place = (struct process){ .pid = pid, .number = number };
    processes->count++;
    return place;
}

/* Keeps a new state, and the one before it if it is of the same process. */
static void process_take(struct process *process, struct snapshot *snapshot)
{
    const struct monitor_head *last = process->now.head;
    bool is_same = last != NULL && last->start_ticks == snapshot->head->start_ticks;
    process->is_seen = true;
    if (is_same && last->sequence == snapshot->head->sequence) {
        snapshot_free(snapshot);
    } else {
        snapshot_free(&process->before);
        if (is_same)
            process->before = process->now;
        else
            snapshot_free(&process->now);
        process->now = *snapshot;
    }
    uint64_t now_ns = vmm__time_ns();
    uint64_t then_ns = process->now.head->time_ns;
    process->age_seconds = now_ns > then_ns ? (double)(now_ns - then_ns) / 1e9 : 0;
}

/* ---- One file ------------------------------------------------------------------------------- */

/* Copies the file as a whole. */
static enum snapshot_outcome file_read(int file, struct snapshot *snapshot,
                                       struct snapshot_error *error)
{
    static uint64_t bytes[MONITOR_MOST_BYTES / sizeof(uint64_t)];
    enum snapshot_outcome outcome = SNAPSHOT_TORN;
    for (int i = 0; i < TRIES && outcome == SNAPSHOT_TORN; i++) {
        ssize_t count = pread(file, bytes, sizeof bytes, 0);
        outcome = snapshot_make(snapshot, bytes, count < 0 ? 0 : (uint64_t)count, error);
        if (outcome == SNAPSHOT_TORN)
            (void)nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    }
    return outcome;
}

/* The user of a process; -1: there is no such process. */
static uid_t process_user(uint64_t pid)
{
    char path[40];
    struct stat about;
    (void)snprintf(path, sizeof path, "/proc/%llu", (unsigned long long)pid);
    return stat(path, &about) == 0 ? about.st_uid : (uid_t)-1;
}

/* NULL: the file may be read. */
static const char *file_fault(const struct candidate *candidate, const struct stat *about)
{
    uid_t user = process_user(candidate->pid);
    if (!S_ISREG(about->st_mode))
        return "not a regular file";
    if ((about->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return "other users may open it";
    if (user != (uid_t)-1 && user != about->st_uid)
        return "it does not belong to the user of its process";
    return NULL;
}

static void snapshot_judge(const struct candidate *candidate, enum snapshot_outcome outcome,
                           struct snapshot *snapshot, const char *why)
{
    struct processes *processes = candidate->processes;
    const struct monitor_head *head = snapshot->head;
    struct process *process = NULL;
    if (vmm__left_unlink(candidate->folder, candidate->name, candidate->file, candidate->pid))
        processes->removed++;
    else if (outcome != SNAPSHOT_OK)
        refuse(candidate, why);
    else if (head->pid != candidate->pid)
        refuse(candidate, "it names another process than its file does");
    else if (head->pid_space != vmm__process_pid_space())
        refuse(candidate, "its process is in another pid namespace");
    else if (vmm__process_has_ended(candidate->pid, head->start_ticks))
        refuse(candidate, "its process has ended, and it cannot be removed");
    else
        process = process_place(processes, candidate->pid, candidate->number);
    if (process != NULL)
        process_take(process, snapshot);
    else
        snapshot_free(snapshot);
}

static void candidate_read(struct candidate *candidate)
{
    struct stat about;
    struct snapshot snapshot;
    struct snapshot_error error;
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int file = openat(candidate->folder, candidate->name, flags);
    candidate->file = file;
    if (file < 0 && errno == EACCES)
        candidate->processes->foreign++;
    else if (file < 0 && errno != ENOENT)
        refuse(candidate, errno == ELOOP ? "a symbolic link" : strerror(errno));
    if (file < 0)
        return;
    const char *fault = fstat(file, &about) == 0 ? file_fault(candidate, &about) : strerror(errno);
    if (fault != NULL)
        refuse(candidate, fault);
    else
        snapshot_judge(candidate, file_read(file, &snapshot, &error), &snapshot, error.text);
    (void)close(file);
}

/* ---- All files ------------------------------------------------------------------------------ */

static void unseen_drop(struct processes *processes)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < processes->count; i++) {
        if (processes->items[i].is_seen)
            processes->items[kept++] = processes->items[i];
        else
            process_free(&processes->items[i]);
    }
    processes->count = kept;
}

bool processes_scan(struct processes *processes)
{
    struct candidate candidate = { .processes = processes };
    DIR *folder = opendir(processes->folder);
    if (folder == NULL)
        return false;
    candidate.folder = dirfd(folder);
    processes->refused_count = 0;
    processes->foreign = 0;
    processes->removed = 0;
    for (unsigned i = 0; i < processes->count; i++)
        processes->items[i].is_seen = false;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        bool is_segment = vmm__left_name_read(entry->d_name, &candidate.pid, &candidate.number);
        candidate.name = entry->d_name;
        if (is_segment && (processes->only == 0 || processes->only == candidate.pid))
            candidate_read(&candidate);
    }
    (void)closedir(folder);
    unseen_drop(processes);
    return true;
}

void processes_free(struct processes *processes)
{
    for (unsigned i = 0; i < processes->count; i++)
        process_free(&processes->items[i]);
    vmm__host_free(processes->items, processes->capacity * sizeof *processes->items);
    vmm__host_free(processes->refused, processes->refused_capacity * sizeof *processes->refused);
    *processes = (struct processes){ .folder = processes->folder, .only = processes->only };
}

double process_rate(const struct process *process, uint64_t now, uint64_t before)
{
    if (process->before.head == NULL)
        return -1;
    uint64_t ns = process->now.head->time_ns - process->before.head->time_ns;
    return ns == 0 || now < before ? 0 : (double)(now - before) * 1e9 / (double)ns;
}
