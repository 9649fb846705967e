/* NULL for each pointer that a call needs, and handles of destroyed caches. */
#define _GNU_SOURCE
#include "calls.h"
#include "negative.h"

#include <pthread.h>
#include <stdio.h>

static struct call_target target_make(const struct stage *stage, vmm_cache *cache)
{
    return (struct call_target){ .cache = cache, .block = stage->blocks[0].address };
}

static vmm_status call_with_null_cache(struct stage *stage, uint64_t call)
{
    struct call_target target = target_make(stage, NULL);
    must(vmm_block_bytes(NULL, 1) == 0 && vmm_cache_pool(NULL) == NULL);
    must_ok(vmm_destroy(NULL));
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_free(NULL, NULL));
    return call_make((enum call)call, &target);
}

static vmm_cache *destroyed_make(void)
{
    vmm_cache *destroyed;
    vmm_config config = stage_config();
    must_ok(vmm_create(&config, &destroyed));
    must_ok(vmm_destroy(destroyed));
    return destroyed;
}

static vmm_status call_with_destroyed_cache(struct stage *stage, uint64_t call)
{
    struct call_target target = target_make(stage, destroyed_make());
    return call_make((enum call)call, &target);
}

static vmm_status destroy_twice(struct stage *stage, uint64_t value)
{
    (void)stage;
    (void)value;
    return vmm_destroy(destroyed_make());
}

static vmm_status destroy_another_object(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_destroy((vmm_cache *)&stage->blocks);
}

/* More caches than the registry has places for; each is destroyed once. A GPU has fewer addresses, so fewer there. */
static vmm_status many_caches(struct stage *stage, uint64_t count)
{
    vmm_cache *caches[400];
    vmm_config config = VMM_CONFIG_INIT;
    if (stage_config().driver == VMM_DRIVER_CUDA)
        count = 20;
    config.arena_bytes = 1;
    for (uint64_t i = 0; i < count; i++)
        must_ok(vmm__cache_create_on(&config, stage->driver, &caches[i]));
    for (uint64_t i = 0; i < count; i++)
        must_ok(vmm_wait(caches[i]));
    for (uint64_t i = 0; i < count; i++)
        must_ok(vmm_destroy(caches[i]));
    return vmm_destroy(caches[0]);
}

enum { THREADS = 4 };

struct race {
    vmm_cache *cache;
    pthread_barrier_t barrier;
    _Atomic unsigned ended;
};

static void *cache_destroy(void *context)
{
    struct race *race = context;
    (void)pthread_barrier_wait(&race->barrier);
    vmm_status status = vmm_destroy(race->cache);
    must(status == VMM_OK || status == VMM_ERR_INVALID_ARGUMENT);
    race->ended += status == VMM_OK;
    return NULL;
}

static void destroy_race(struct stage *stage, struct race *race)
{
    pthread_t threads[THREADS];
    race->ended = 0;
    must_ok(vmm__cache_create_on(NULL, stage->driver, &race->cache));
    must(pthread_barrier_init(&race->barrier, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, cache_destroy, race) == 0);
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
    must(race->ended == 1 && pthread_barrier_destroy(&race->barrier) == 0);
}

static vmm_status destroy_by_all_at_once(struct stage *stage, uint64_t races)
{
    struct race race;
    for (uint64_t i = 0; i < races; i++)
        destroy_race(stage, &race);
    return vmm_destroy(race.cache);
}

static vmm_status create_into_null(struct stage *stage, uint64_t has_config)
{
    (void)stage;
    vmm_config config = stage_config();
    return vmm_create(has_config ? &config : NULL, NULL);
}

/* One of the two pointers is NULL; the value at the other one does not change. */
static vmm_status device_memory_into_null(struct stage *stage, uint64_t which)
{
    uint64_t bytes = 77;
    vmm_status status =
        vmm_device_memory(stage->cache, which == 0 ? NULL : &bytes, which == 1 ? NULL : &bytes);
    must(bytes == 77);
    return status;
}

/* A pointer that a call needs is NULL: X(function, argument, arguments). */
#define NULL_MAP(X)                                                                                \
    X(vmm_alloc, "out", (stage->cache, 1, NULL, NULL))                                             \
    X(vmm_stats_get, "out", (stage->cache, NULL))                                                  \
    X(vmm_peers_get, "devices", (stage->cache, NULL))                                              \
    X(vmm_find, "item", (stage->cache, stage->blocks[0].address, NULL))                            \
    X(vmm_walk, "visit", (stage->cache, NULL, NULL))                                               \
    X(vmm_neighbours_walk, "visit", (stage->cache, NULL, NULL))                                    \
    X(vmm_available_get, "bytes", (stage->cache, NULL))                                            \
    X(vmm_parts_walk, "visit", (stage->cache, stage->blocks[0].address, NULL, NULL))               \
    X(vmm_dmabuf_export, "fd", (stage->cache, stage->blocks[0].address, 0, 4096, NULL))            \
    X(vmm_log_write, "line", (stage->cache, NULL))                                                 \
    X(vmm_summary_write, "out", (stage->cache, NULL))

#define NULL_CALL(function, argument, arguments)                                                   \
    static vmm_status function##_null(struct stage *stage, uint64_t value)                         \
    {                                                                                              \
        (void)value;                                                                               \
        return function arguments;                                                                 \
    }
NULL_MAP(NULL_CALL)

/* A full device, and a file that is open for reading only. */
static vmm_status into_unwritable_file(struct stage *stage, uint64_t is_full,
                                       vmm_status (*write)(vmm_cache *cache, FILE *out))
{
    FILE *file = is_full ? fopen("/dev/full", "we") : fopen("/dev/null", "re");
    must(file != NULL);
    vmm_status status = write(stage->cache, file);
    (void)fclose(file);
    return status;
}

static vmm_status summary_into_unwritable_file(struct stage *stage, uint64_t is_full)
{
    return into_unwritable_file(stage, is_full, vmm_summary_write);
}

static vmm_status report_into_unwritable_file(struct stage *stage, uint64_t is_full)
{
    return into_unwritable_file(stage, is_full, vmm_debug_report);
}

static vmm_status free_null(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_free(stage->cache, NULL);
}

static vmm_status listener_null(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_listen(stage->cache, NULL, stage));
    return vmm_listen(stage->cache, NULL, NULL);
}

#define NO_CACHE(function, status, arguments)                                                      \
    WRONG(#function " of NULL", call_with_null_cache, CALL_##function, #function ": cache is NULL"),
#define DESTROYED(function, status, arguments)                                                     \
    WRONG(#function " of a destroyed cache", call_with_destroyed_cache, CALL_##function,           \
          #function ": "),
#define NULL_ROW(function, argument, arguments)                                                    \
    WRONG(#function ", " argument " is NULL", function##_null, 0,                                  \
          #function ": " argument " is NULL"),

static const struct negative_case cases[] = {
    WRONG("vmm_create, out is NULL", create_into_null, 0, "vmm_create: out is NULL"),
    WRONG("vmm_create with a config, out is NULL", create_into_null, 1, "out is NULL"),
    WRONG("vmm_device_memory, no free_bytes", device_memory_into_null, 0, "free_bytes is NULL"),
    WRONG("vmm_device_memory, no total_bytes", device_memory_into_null, 1, "total_bytes is NULL"),
    WRONG("vmm_summary_write, full device", summary_into_unwritable_file, 1,
          "cannot write to the file"),
    WRONG("vmm_summary_write, read only", summary_into_unwritable_file, 0,
          "cannot write to the file"),
    WRONG("vmm_debug_report, full device", report_into_unwritable_file, 1,
          "cannot write to the file"),
    WRONG("vmm_debug_report, read only", report_into_unwritable_file, 0,
          "cannot write to the file"),
    WRONG("vmm_destroy of a destroyed cache", destroy_twice, 0, "vmm_destroy: "),
    WRONG("vmm_destroy of another object", destroy_another_object, 0,
          "is not a cache, or was destroyed"),
    { "vmm_destroy by four threads", NULL, destroy_by_all_at_once, 100, VMM_ERR_INVALID_ARGUMENT,
      "is not a cache, or was destroyed", true },
    { "vmm_destroy of 400 caches, one twice", NULL, many_caches, 400, VMM_ERR_INVALID_ARGUMENT,
      "is not a cache, or was destroyed", true },
    { "vmm_free of NULL", NULL, free_null, 0, VMM_OK, NULL, false },
    { "vmm_listen with NULL, twice", NULL, listener_null, 0, VMM_OK, NULL, false },
    CALL_MAP(NO_CACHE, NO_CACHE, CALL_LEFT_OUT) CALL_MAP(CALL_LEFT_OUT, DESTROYED, CALL_LEFT_OUT)
        NULL_MAP(NULL_ROW)
};

NEGATIVE_GROUP(negative_nulls, "NULL and destroyed");
