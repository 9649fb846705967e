/* The segment of this process: see segment.h. */
#define _GNU_SOURCE
#include "monitor/segment.h"
#include "base/file_limit.h"
#include "base/time.h"
#include "monitor/left.h"
#include "monitor/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A process may have several copies of the library, each with a segment. */
enum { SEGMENTS_MOST = 16 };

static uint64_t own_pid(void)
{
    return (uint64_t)getpid();
}

/* Returns a file, or -1. */
static int file_make(const char *path)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int file = open(path, flags, 0600);
    if (file >= 0 || errno != EEXIST)
        return file;
    if (vmm__left_remove(AT_FDCWD, path, own_pid()))
        file = open(path, flags, 0600);
    else
        errno = EEXIST;
    return file;
}

vmm_status vmm__segment_open(struct segment *segment, const char *folder)
{
    segment->file = -1;
    vmm__left_sweep(folder);
    errno = EEXIST;
    for (int number = 0; number < SEGMENTS_MOST && segment->file < 0 && errno == EEXIST; number++) {
        int length = snprintf(segment->path, sizeof segment->path, "%s/" MONITOR_PREFIX "%llu.%d",
                              folder, (unsigned long long)own_pid(), number);
        if (length >= (int)sizeof segment->path)
            return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_MONITOR: the name is too long");
        segment->file = file_make(segment->path);
    }
    /* The umask may have taken bits from the mode, but adds none. */
    if (segment->file >= 0)
        return VMM_OK;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "VMM_MONITOR: cannot make %.200s: %s",
                      segment->path, strerror(errno));
}

static void head_complete(struct monitor_head *head)
{
    memcpy(head->magic, MONITOR_MAGIC, sizeof head->magic);
    head->version = MONITOR_VERSION;
    head->head_bytes = sizeof *head;
    head->cache_bytes = sizeof(struct monitor_cache);
    head->pool_bytes = sizeof(struct monitor_pool);
    head->lane_bytes = sizeof(struct monitor_lane);
    head->sequence++;
    if (head->pid == 0) {
        head->pid = own_pid();
        head->pid_space = vmm__process_pid_space();
        head->start_ticks = vmm__process_start(head->pid);
        vmm__process_name(head->program, sizeof head->program);
        (void)snprintf(head->library, sizeof head->library, "%s", vmm_version());
    }
    head->time_ns = vmm__time_ns();
    head->checksum =
        vmm__monitor_checksum((char *)head + MONITOR_COVERED, head->bytes - MONITOR_COVERED);
}

bool vmm__segment_write(struct segment *segment, struct monitor_head *head)
{
    head_complete(head);
    if (!vmm__file_may_have(head->bytes))
        return false;
    ssize_t written = pwrite(segment->file, head, head->bytes, 0);
    if (written >= 0 && (uint64_t)written < head->bytes)
        errno = ENOSPC;
    return written == (ssize_t)head->bytes;
}

void vmm__segment_close(struct segment *segment)
{
    if (segment->file < 0)
        return;
    (void)unlink(segment->path);
    vmm__segment_forget(segment);
}

void vmm__segment_forget(struct segment *segment)
{
    if (segment->file >= 0)
        (void)close(segment->file);
    segment->file = -1;
}
