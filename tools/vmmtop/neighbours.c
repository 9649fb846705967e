/* The records of neighbours: see neighbours.h. */
#define _GNU_SOURCE
#include "vmmtop/neighbours.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/size.h"
#include "base/time.h"
#include "neighbour/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BAR_COLUMNS = 20, NAME_COLUMNS = 20 };

static uint64_t columns(uint64_t bytes, double each, uint64_t most)
{
    return each > 0 ? vmm__min((uint64_t)((double)bytes / each + 0.5), most) : 0;
}

/* Live, idle, and other reserved memory, as parts of what the largest one has reserved. */
static void bar_print(FILE *out, const struct neighbour_slot *slot, uint64_t whole_bytes)
{
    double each = (double)whole_bytes / BAR_COLUMNS;
    uint64_t reserved = columns(slot->reserved_bytes, each, BAR_COLUMNS);
    uint64_t live = columns(slot->live_bytes, each, reserved);
    uint64_t idle = columns(slot->idle_bytes, each, reserved - live);
    (void)fputc('[', out);
    for (uint64_t i = 0; i < BAR_COLUMNS; i++)
        (void)fputc(i < live ? '#' : i < reserved - idle ? '+' : i < reserved ? '.' : ' ', out);
    (void)fputc(']', out);
}

static void slot_print(FILE *out, const struct neighbour_slot *slot, uint64_t whole_bytes)
{
    bool claims = slot->want_bytes > 0 && slot->end_ns > vmm__time_ns();
    (void)fprintf(out, "%8llu %-*.*s %4llu ", (unsigned long long)slot->pid, NAME_COLUMNS,
                  NAME_COLUMNS, slot->name, (unsigned long long)slot->priority);
    (void)fprintf(out, "%10s %10s %10s ", vmm__size_text(slot->reserved_bytes).text,
                  vmm__size_text(slot->live_bytes).text, vmm__size_text(slot->idle_bytes).text);
    (void)fprintf(out, "%10s %10s %10s %7llu ", vmm__size_text(slot->asleep_bytes).text,
                  vmm__size_text(slot->floor_bytes).text, vmm__size_text(slot->given_bytes).text,
                  (unsigned long long)slot->claims);
    bar_print(out, slot, whole_bytes);
    if (claims)
        (void)fprintf(out, " claims %s free", vmm__size_text(slot->want_bytes).text);
    (void)fputc('\n', out);
}

static bool head_is_known(int file)
{
    struct neighbour_head head;
    struct stat about;
    return fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
           pread(file, &head, sizeof head, 0) == (ssize_t)sizeof head &&
           memcmp(head.magic, NEIGHBOUR_MAGIC, sizeof head.magic) == 0 &&
           head.version == NEIGHBOUR_VERSION && head.slot_bytes == sizeof(struct neighbour_slot) &&
           head.slots == NEIGHBOUR_SLOTS;
}

static void record_print(FILE *out, int file, const char *device)
{
    const struct neighbour_record record = { .file = file, .slot = NEIGHBOUR_SLOTS };
    struct neighbour_slot slots[NEIGHBOUR_SLOTS];
    const uint64_t shown = vmm__neighbours_read(&record, slots);
    uint64_t most_bytes = 0;
    (void)fprintf(out, "device %s\n", device);
    (void)fprintf(out, "%8s %-*s %4s %10s %10s %10s %10s %10s %10s %7s\n", "PID", NAME_COLUMNS,
                  "NAME", "PRIO", "RESERVED", "LIVE", "IDLE", "ASLEEP", "FLOOR", "GIVEN", "CLAIMS");
    for (uint64_t set = shown; set != 0;)
        most_bytes = vmm__max(most_bytes, slots[vmm__neighbour_take(&set)].reserved_bytes);
    for (uint64_t set = shown; set != 0;)
        slot_print(out, &slots[vmm__neighbour_take(&set)], most_bytes);
}

/* False: it is no record, or another user's. */
static bool file_print(FILE *out, int folder, char *name)
{
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, NEIGHBOUR_PREFIX "%u.", (unsigned)geteuid());
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return false;
    vmm__line_make(name);
    if (head_is_known(file))
        record_print(out, file, name + strlen(prefix));
    else
        (void)fprintf(out, "refused %s: not a record of this version\n", name);
    (void)close(file);
    return true;
}

bool neighbours_print(FILE *out, const char *folder)
{
    DIR *listing = opendir(folder);
    if (listing == NULL)
        return false;
    bool has_record = false;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        has_record |= file_print(out, dirfd(listing), entry->d_name);
    (void)closedir(listing);
    if (!has_record)
        (void)fprintf(out, "no process of this user has neighbours in %s\n", folder);
    return true;
}
