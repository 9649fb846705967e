/* Identifies a process: see process.h. */
#define _GNU_SOURCE
#include "monitor/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of /proc/PID/stat, counted from 1; the second is the name, which may contain blanks and brackets. */
enum { FIELD_STATE = 3, FIELD_START = 22, STAT_BYTES = 1024 };

/* Reads the beginning of a file into a text of zeros. */
static bool file_read(const char *path, char *text, size_t bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t count = read(file, text, bytes - 1);
    (void)close(file);
    return count > 0;
}

uint64_t vmm__process_start(uint64_t pid)
{
    char path[40];
    char text[STAT_BYTES] = "";
    (void)snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    if (!file_read(path, text, sizeof text))
        return 0;
    const char *at = strrchr(text, ')');
    for (int field = FIELD_STATE; at != NULL && field <= FIELD_START; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

/* A process of another user may be hidden in /proc, but not from getpgid(). */
bool vmm__process_has_ended(uint64_t pid, uint64_t start)
{
    uint64_t now = vmm__process_start(pid);
    if (start == 0 || now != 0)
        return start != 0 && now != start;
    return getpgid((pid_t)pid) < 0 && errno == ESRCH;
}

uint64_t vmm__process_pid_space(void)
{
    struct stat about;
    return stat("/proc/self/ns/pid", &about) == 0 ? (uint64_t)about.st_ino : 0;
}

void vmm__process_name(char *name, size_t name_bytes)
{
    (void)snprintf(name, name_bytes, "%s", program_invocation_short_name);
}
