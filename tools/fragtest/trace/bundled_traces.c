/*
 * Where bundled traces lie: at one place relative to the program, the same in the build tree and
 * once installed, so that a moved installation still works.
 */
#include "fragtest/trace/bundled_traces.h"

#include "fragtest/trace/trace.h"

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

void bundled_trace_find(const char *name, char *path, size_t capacity)
{
    char folder[PATH_BYTES];

    if (strcmp(name, TRACE_STDIN) != 0 && strchr(name, '/') == NULL && access(name, F_OK) != 0) {
        program_folder(folder, sizeof(folder));
        int length =
            snprintf(path, capacity, "%s/../share/vmmcache/traces/%s.trace.gz", folder, name);
        if (length > 0 && (size_t)length < capacity && access(path, R_OK) == 0)
            return;
    }
    (void)snprintf(path, capacity, "%s", name);
}
