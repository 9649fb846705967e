/* The segments that processes left: see left.h. */
#define _GNU_SOURCE
#include "monitor/left.h"
#include "monitor/format.h"
#include "monitor/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads a number, which ends with `end`. NULL: there is none. */
static const char *number_read(const char *text, char end, uint64_t *number)
{
    char *rest;
    if (*text < '0' || *text > '9')
        return NULL;
    errno = 0;
    *number = strtoull(text, &rest, 10);
    return errno != 0 || *rest != end ? NULL : rest + (end != '\0');
}

bool vmm__left_name_read(const char *name, uint64_t *pid, uint64_t *number)
{
    size_t prefix = strlen(MONITOR_PREFIX);
    if (strncmp(name, MONITOR_PREFIX, prefix) != 0)
        return false;
    const char *rest = number_read(name + prefix, '.', pid);
    return rest != NULL && number_read(rest, '\0', number) != NULL;
}

/* Whether the file is a segment of this user, of a process with this pid that has ended. */
static bool is_left(int file, uint64_t pid)
{
    struct stat about;
    struct monitor_head head;
    return fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
           (about.st_mode & (S_IRWXG | S_IRWXO)) == 0 &&
           pread(file, &head, sizeof head, 0) == (ssize_t)sizeof head &&
           memcmp(head.magic, MONITOR_MAGIC, sizeof head.magic) == 0 &&
           head.version == MONITOR_VERSION && head.pid == pid &&
           head.pid_space == vmm__process_pid_space() &&
           vmm__process_has_ended(pid, head.start_ticks);
}

bool vmm__left_unlink(int folder, const char *name, int file, uint64_t pid)
{
    struct stat named;
    struct stat opened;
    return is_left(file, pid) && flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &opened) == 0 &&
           fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_ino == opened.st_ino && named.st_dev == opened.st_dev &&
           unlinkat(folder, name, 0) == 0;
}

bool vmm__left_remove(int folder, const char *name, uint64_t pid)
{
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return false;
    bool is_removed = vmm__left_unlink(folder, name, file, pid);
    (void)close(file);
    return is_removed;
}

void vmm__left_sweep(const char *folder)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry = NULL;
    int looked_at = 0;
    if (entries == NULL)
        return;
    for (int i = 0; i < LEFT_ENTRIES_MOST && looked_at < LEFT_LOOKED_AT_MOST &&
                    (entry = readdir(entries)) != NULL;
         i++) {
        uint64_t pid;
        uint64_t number;
        if (!vmm__left_name_read(entry->d_name, &pid, &number))
            continue;
        (void)vmm__left_remove(dirfd(entries), entry->d_name, pid);
        looked_at++;
    }
    (void)closedir(entries);
}
