/* A recorded trace, read back: see trace_support.h. */
#define _GNU_SOURCE
#include "support/trace_support.h"

#include "trace/gzip.h"

#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[128];
static unsigned paths;

static const char *path_write(unsigned number, const char *ending)
{
    (void)snprintf(path, sizeof path, "/tmp/vmm-%ld-%u.trace%s", (long)getpid(), number, ending);
    return path;
}

/* Also what recordings have added to a path: the number of a process, or of a device. */
static void paths_remove(void)
{
    glob_t found;
    (void)snprintf(path, sizeof path, "/tmp/vmm-%ld-*", (long)getpid());
    if (glob(path, GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        (void)unlink(found.gl_pathv[i]);
    globfree(&found);
}

static const char *path_add(const char *ending)
{
    if (paths == 0)
        (void)atexit(paths_remove);
    return path_write(paths++, ending);
}

const char *trace_path(void)
{
    return path_add("");
}

const char *trace_path_packed(void)
{
    return path_add(GZIP_ENDING);
}

FILE *trace_open(const char *name)
{
    char command[512];
    if (name[vmm__gzip_stem(name)] == '\0')
        return fopen(name, "r");
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)snprintf(command, sizeof command, "gzip -cd '%s' >/proc/%ld/fd/%d 2>/dev/null", name,
                   (long)getpid(), fileno(file));
    (void)!system(command);
    return file;
}

static uint64_t *sizes; /* by id; 0: not live */

static void alloc_read(struct trace_sum *sum, const char *line)
{
    uint64_t id;
    uint64_t bytes;
    int end = 0;
    assert_int_equal(sscanf(line, "+ %" SCNu64 " %" SCNu64 " %" SCNu64 "%n", &id, &bytes,
                            &sum->last_stream, &end),
                     3);
    assert_int_equal(line[end], '\0');
    assert_true(id < TRACE_IDS && bytes > 0 && sum->last_stream < 1024);
    assert_int_equal(sizes[id], 0);
    sizes[id] = bytes;
    sum->last_bytes = bytes;
    sum->allocations++;
    sum->live_bytes += bytes;
    if (sum->live_bytes > sum->peak_bytes)
        sum->peak_bytes = sum->live_bytes;
}

static void free_read(struct trace_sum *sum, const char *line)
{
    uint64_t id;
    int end = 0;
    assert_int_equal(sscanf(line, "- %" SCNu64 "%n", &id, &end), 1);
    assert_int_equal(line[end], '\0');
    assert_true(id < TRACE_IDS && sizes[id] > 0);
    sum->live_bytes -= sizes[id];
    sizes[id] = 0;
    sum->frees++;
}

static uint64_t field_of(const char *line, const char *name, uint64_t otherwise)
{
    const char *field = strstr(line, name);
    return field == NULL ? otherwise : strtoull(field + strlen(name), NULL, 10);
}

static void next_read(struct trace_sum *sum, const char *line)
{
    uint64_t us = field_of(line, " time=", sum->last_us);
    assert_true(us >= sum->last_us);
    sum->last_us = us;
    sum->last_address = field_of(line, " address=", sum->last_address);
    sum->last_pool = field_of(line, " pool=", 0);
    sum->last_frame = field_of(line, " frame=", 0);
}

static void note_read(struct trace_sum *sum, const char *line)
{
    char word[TRACE_WORD] = "";
    uint64_t first = 0;
    uint64_t second = 0;
    (void)sscanf(line, "#@ %63s %" SCNu64 " %" SCNu64, word, &first, &second);
    if (strcmp(word, "next") == 0)
        next_read(sum, line);
    else if (strcmp(word, "map") == 0)
        sum->mapped_bytes += second;
    else if (strcmp(word, "unmap") == 0)
        sum->mapped_bytes -= second;
    sum->waits += strcmp(word, "wait") == 0;
    sum->uses += strcmp(word, "use") == 0;
    sum->frames += strcmp(word, "frame") == 0;
    sum->pools += strcmp(word, "pool") == 0;
    if (strcmp(word, "name") == 0)
        (void)snprintf(sum->last_name, sizeof sum->last_name, "%s", line + strlen("#@ name "));
    if (strcmp(word, "note") == 0) {
        sum->notes++;
        (void)snprintf(sum->last_note, sizeof sum->last_note, "%s", line + strlen("#@ note "));
    }
}

struct trace_sum trace_sum_of(const char *name)
{
    struct trace_sum sum = { .allocations = 0 };
    char line[TRACE_LINE + 2];
    FILE *file = trace_open(name);
    assert_non_null(file);
    sizes = calloc(TRACE_IDS, sizeof *sizes);
    assert_non_null(sizes);
    while (fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(line);
        assert_int_equal(line[length - 1], '\n');
        line[length - 1] = '\0';
        if (*line == '+')
            alloc_read(&sum, line);
        else if (*line == '-')
            free_read(&sum, line);
        else if (strncmp(line, "#@ ", 3) == 0)
            note_read(&sum, line);
        else
            assert_true(*line == '\0' || *line == '#');
    }
    (void)fclose(file);
    free(sizes);
    return sum;
}

unsigned trace_count(const char *name, const char *text)
{
    char line[512];
    unsigned count = 0;
    FILE *file = trace_open(name);
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        count += strstr(line, text) != NULL ? 1 : 0;
    (void)fclose(file);
    return count;
}
