/*
 * The calls that fail once a device is lost: see vmmcache.h. For tests of drivers that can lose a device.
 *
 * Define _GNU_SOURCE before the first header.
 */
#ifndef VMM_LIFE_LOST_SUPPORT_H
#define VMM_LIFE_LOST_SUPPORT_H

#include "life/child.h"
#include "support/pool_calls.h"

#include <string.h>

/* Each call fails in less than a microsecond of the thread's own time. */
enum { REFUSED_NS = IS_SLOW_BUILD ? 100000 : 1000 };

enum { REFUSED_CALLS = 10, REFUSED_TIMES = 1000 };

/* The streams do not exist: no call may pass them to the driver. */
static inline vmm_status refused_call(vmm_cache *cache, unsigned number)
{
    void *out;
    uint64_t bytes;
    vmm_pool_id id = { 2, 0 };
    switch (number) {
    case 0:
        return vmm_alloc(cache, 600, NULL, &out);
    case 1:
        return vmm_alloc(cache, 64 * MIB, (vmm_stream)16, &out);
    case 2:
        return vmm_alloc(cache, 1, (vmm_stream)704, &out);
    case 3:
        return vmm_trim(cache, 0, NULL);
    case 4:
        return vmm_wait(cache);
    case 5:
        return vmm_poll(cache);
    case 6:
        return vmm_device_memory(cache, &bytes, &bytes);
    case 7:
        return vmm_stream_end(cache, (vmm_stream)16);
    case 8:
        return vmm_compact(cache, 0, NULL, NULL);
    default:
        return graph_pool_begin(cache, id, NULL, NULL);
    }
}

/* Returns NULL if the call fails each time, at once and with this error; else a message that says what is wrong. */
static inline const char *refused_call_check(vmm_cache *cache, unsigned number, const char *line)
{
    uint64_t begin = thread_ns();
    for (int i = 0; i < REFUSED_TIMES; i++) {
        if (refused_call(cache, number) != VMM_ERR_LOST)
            return "a call did not fail with VMM_ERR_LOST";
    }
    uint64_t each = (thread_ns() - begin) / REFUSED_TIMES;
    if (strcmp(vmm_last_error(), line) != 0)
        return "a call failed with another error";
    return each < REFUSED_NS ? NULL : "a call took too long to fail";
}

/* The same for all calls. */
static inline const char *refused_calls_check(vmm_cache *cache, const char *line)
{
    const char *fault = NULL;
    for (unsigned number = 0; number < REFUSED_CALLS && fault == NULL; number++)
        fault = refused_call_check(cache, number, line);
    return fault;
}

#endif
