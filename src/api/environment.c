/* Finds misspelt environment variables: see internal.h. */
#define _GNU_SOURCE
#include "api/internal.h"

#include <string.h>
#include <unistd.h>

#define PREFIX "VMM_"

static const char *const known[] = {
    "VMM_ANNOUNCES_CAPTURES",
    "VMM_CLOCK",
    "VMM_COMPACTION",
    "VMM_DECAY_MS",
    "VMM_DRIVER",
    "VMM_FOOTPRINT",
    "VMM_DEBUG",
    "VMM_HOST_DEVICE",
    "VMM_LIMIT",
    "VMM_LOG",
    "VMM_MONITOR",
    "VMM_NEIGHBOURS",
    "VMM_NEIGHBOURS_DIR",
    "VMM_NEIGHBOURS_FLOOR",
    "VMM_NEIGHBOURS_NAME",
    "VMM_NEIGHBOURS_PRESSURE",
    "VMM_NEIGHBOURS_PRIORITY",
    "VMM_NEIGHBOURS_WAIT_MS",
    "VMM_NO_CACHING",
    "VMM_NVTX",
    "VMM_PRELOAD",
    "VMM_REQUIRE_GPU",
    "VMM_REUSE",
    "VMM_SHAREABLE",
    "VMM_TEST_MEMBER",
    "VMM_TRACE",
    "VMM_TRACE_STACKS",
    "VMM_VIEWS",
    "VMM_ZERO",
};

static bool is_known(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i]) == length && memcmp(known[i], name, length) == 0)
            return true;
    }
    return false;
}

void vmm__environment_check(struct vmm_cache *cache)
{
    static atomic_bool is_checked;
    bool has_log = cache->log != NULL || cache->log_file != NULL;
    if (!has_log || environ == NULL || atomic_exchange(&is_checked, true))
        return;
    for (char **variable = environ; *variable != NULL; variable++) {
        size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, PREFIX, strlen(PREFIX)) == 0 && !is_known(*variable, length))
            vmm__cache_log(cache, "environment: nothing reads %.*s: is it misspelt?",
                           (int)(length < 100 ? length : 100), *variable);
    }
}
