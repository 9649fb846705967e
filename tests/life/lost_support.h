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

enum { REFUSED_CALLS = 25, REFUSED_TIMES = 1000, REFUSED_ROUNDS = 100 };

/* The pool exists, and no block or share does. */
static inline vmm_status refused_pool_call(vmm_cache *cache, unsigned number)
{
    vmm_pool *pool = vmm_cache_pool(cache);
    vmm_share *share;
    int fd;
    void *out = cache;
    switch (number) {
    case 0:
        return vmm_pool_create(cache, NULL, &pool);
    case 1:
        return vmm_alloc_from(pool, 600, NULL, &out);
    case 2:
        return vmm_alloc_aligned(pool, 600, 4096, NULL, &out);
    case 3:
        return vmm_reserve(pool, 2 * MIB, 0, NULL, &out);
    case 4:
        return vmm_commit(cache, out, 0, 0);
    case 5:
        return vmm_resize(cache, out, 1, &out);
    case 6:
        return vmm_pool_trim(pool, 0, NULL);
    case 7:
        return vmm_pool_place(pool, out, 1, NULL);
    case 8:
        return vmm_pool_sleep(&pool, 1, NULL, NULL);
    case 9:
        return vmm_pool_wake(&pool, 1, NULL, NULL);
    case 10:
        return vmm_peers_add(cache, 2);
    case 11:
        return vmm_share_export(cache, out, &share);
    case 12:
        return vmm_dmabuf_export(cache, out, 0, 4096, &fd);
    default:
        return vmm_share_import(cache, NULL, NULL, &out);
    }
}

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
    case 9:
        return graph_pool_begin(cache, id, NULL, NULL);
    case 10:
        return vmm_wait_stream(cache, (vmm_stream)16);
    default:
        return refused_pool_call(cache, number - 11);
    }
}

/* Returns NULL if the call fails each time, at once and with this error; else a message that says what is wrong. A
 * virtual machine may stand still for longer than all calls of a round take, so the best round counts. */
static inline const char *refused_call_check(vmm_cache *cache, unsigned number, const char *line)
{
    uint64_t each = UINT64_MAX;
    for (unsigned round = 0; round < REFUSED_ROUNDS && each >= REFUSED_NS; round++) {
        uint64_t begin = thread_ns();
        for (int i = 0; i < REFUSED_TIMES; i++) {
            if (refused_call(cache, number) != VMM_ERR_LOST)
                return "a call did not fail with VMM_ERR_LOST";
        }
        each = (thread_ns() - begin) / REFUSED_TIMES;
        if (strcmp(vmm_last_error(), line) != 0)
            return "a call failed with another error";
    }
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
