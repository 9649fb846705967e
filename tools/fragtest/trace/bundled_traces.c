/*
 * Where bundled traces lie: at one place relative to the program, the same in the build tree and
 * once installed, so that a moved installation still works.
 */
#include "fragtest/trace/bundled_traces.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

const char *const bundled_trace_names[BUNDLED_TRACES] = {
    "detection", "encoder_streams", "gnn", "llm_generate", "llm_train_varlen",
};

/* The folder of the running program, or "". */
static void program_folder(char *folder, size_t capacity)
{
    ssize_t length = readlink("/proc/self/exe", folder, capacity - 1);

    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
}

static bool name_is_bundled(const char *name)
{
    for (unsigned i = 0; i < BUNDLED_TRACES; i++) {
        if (strcmp(name, bundled_trace_names[i]) == 0)
            return true;
    }
    return false;
}

bool bundled_trace_find(const char *name, char *path, size_t capacity)
{
    char folder[PATH_BYTES];

    if (name_is_bundled(name) && access(name, F_OK) != 0) {
        program_folder(folder, sizeof(folder));
        (void)snprintf(path, capacity, "%s/../share/vmmcache/traces/%s.trace.gz", folder, name);
        return true;
    }
    (void)snprintf(path, capacity, "%s", name);
    return false;
}
