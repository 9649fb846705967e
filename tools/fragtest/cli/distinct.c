/* Files that must differ: see distinct.h. */
#include "fragtest/cli/distinct.h"

#include "fragtest/cli/output.h"
#include "fragtest/trace/bundled_traces.h"

#include "base/error.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The path of a file that is yet to be made, in a folder that is there. */
static bool path_resolve(const char *name, char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(name, '/');
    const char *last = slash == NULL ? name : slash + 1;
    size_t length = (size_t)(last - name);

    if (length >= sizeof(folder))
        return false;
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)length, name);
    if (realpath(length == 0 ? "." : folder, path) == NULL)
        return false;
    size_t used = strlen(path);
    return (size_t)snprintf(path + used, PATH_MAX - used, "/%s", last) < PATH_MAX - used;
}

/* Whether to write one would replace the other. A pipe or a device takes both. */
static bool is_same(const char *name, const char *other)
{
    struct stat status;
    struct stat other_status;
    bool is_there = stat(name, &status) == 0;
    bool other_is_there = stat(other, &other_status) == 0;
    char path[PATH_MAX];
    char other_path[PATH_MAX];

    if (is_there && other_is_there)
        return S_ISREG(status.st_mode) && status.st_dev == other_status.st_dev &&
               status.st_ino == other_status.st_ino;
    return !is_there && !other_is_there && path_resolve(name, path) &&
           path_resolve(other, other_path) && strcmp(path, other_path) == 0;
}

static bool is_trace(const char *name, const struct options_source *source)
{
    char path[PATH_MAX];

    if (source->is_workload)
        return false;
    (void)bundled_trace_find(source->name, path, sizeof(path));
    return is_same(name, strcmp(path, TRACE_STDIN) == 0 ? "/dev/stdin" : path);
}

static bool output_check(const struct options *options, const char *option, const char *name,
                         struct trace_error *error)
{
    if (name == NULL || output_is_stdout(name))
        return true;
    for (unsigned i = 0; i < options->source_count; i++) {
        if (!is_trace(name, &options->sources[i]))
            continue;
        (void)snprintf(error->text, sizeof(error->text),
                       "%.200s: it is a trace; %s would replace it", name, option);
        vmm__line_make(error->text);
        return false;
    }
    return true;
}

bool distinct_check(const struct options *options, struct trace_error *error)
{
    const char *json = options->json;
    const char *timeline = options->timeline;

    if (!output_check(options, "--json", json, error) ||
        !output_check(options, "--timeline", timeline, error))
        return false;
    if (json == NULL || timeline == NULL || output_is_stdout(json) || output_is_stdout(timeline) ||
        !is_same(json, timeline))
        return true;
    (void)snprintf(error->text, sizeof(error->text),
                   "%.200s: --json and --timeline are the same file", timeline);
    vmm__line_make(error->text);
    return false;
}
