/* NULL wherever a call takes a pointer that it needs, and handles of caches that are gone. */
#define _GNU_SOURCE
#include "misuse.h"

#include <pthread.h>
#include <stdio.h>

static const vmm_pool_id some_id = { 1, 1 };

static int visit_nothing(void *context, const vmm_item *item)
{
    (void)context;
    (void)item;
    return 0;
}

enum call {
    ALLOC,
    FREE,
    USE,
    TRIM,
    WAIT,
    TICK,
    PIN,
    UNPIN,
    STREAM_END,
    LIMIT_SET,
    POOL_BEGIN,
    POOL_END,
    POOL_RELEASE,
    STATS_GET,
    DEVICE_MEMORY,
    STATS_RESET_PEAK,
    SUMMARY_WRITE,
    LOG_WRITE,
    WALK,
    FIND,
    WATCH,
    GUARD_CHECK,
    MISUSE_WRITE,
    DESTROY
};

static vmm_status call_memory(vmm_cache *cache, void *block, uint64_t call)
{
    void *out = &out;
    vmm_status status;
    switch (call) {
    case ALLOC:
        status = vmm_alloc(cache, 1, NULL, &out);
        must(out == &out);
        return status;
    case FREE:
        return vmm_free(cache, block);
    case USE:
        return vmm_use(cache, block, NULL);
    case PIN:
        return vmm_pin(cache, block);
    case UNPIN:
        return vmm_unpin(cache, block);
    case TRIM:
        return vmm_trim(cache, 0, NULL);
    case WAIT:
        return vmm_wait(cache);
    case TICK:
        return vmm_tick(cache);
    case STREAM_END:
        return vmm_stream_end(cache, (vmm_stream)(uintptr_t)8);
    default:
        return vmm_limit_set(cache, 1);
    }
}

static vmm_status call_report(vmm_cache *cache, const void *block, uint64_t call)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_item item = VMM_ITEM_INIT;
    uint64_t bytes;
    switch (call) {
    case STATS_GET:
        return vmm_stats_get(cache, &stats);
    case DEVICE_MEMORY:
        return vmm_device_memory(cache, &bytes, &bytes);
    case STATS_RESET_PEAK:
        return vmm_stats_reset_peak(cache);
    case SUMMARY_WRITE:
        return vmm_summary_write(cache, stderr);
    case LOG_WRITE:
        return vmm_log_write(cache, "line");
    case WALK:
        return vmm_walk(cache, visit_nothing, NULL);
    case FIND:
        return vmm_find(cache, block, &item);
    case GUARD_CHECK:
        return vmm_guard_check(cache);
    case MISUSE_WRITE:
        return vmm_misuse_write(cache, stderr);
    default:
        return vmm_watch(cache, NULL, NULL);
    }
}

static vmm_status call_any(vmm_cache *cache, void *block, uint64_t call)
{
    switch (call) {
    case POOL_BEGIN:
        return vmm_pool_begin(cache, some_id, NULL, NULL);
    case POOL_END:
        return vmm_pool_end(cache, some_id);
    case POOL_RELEASE:
        return vmm_pool_release(cache, some_id);
    case DESTROY:
        return vmm_destroy(cache);
    default:
        return call <= LIMIT_SET ? call_memory(cache, block, call)
                                 : call_report(cache, block, call);
    }
}

static vmm_status call_of_no_cache(struct stage *stage, uint64_t call)
{
    must(vmm_block_bytes(NULL, 1) == 0);
    must_ok(vmm_destroy(NULL));
    return call_any(NULL, stage->blocks[0].address, call);
}

static vmm_status call_of_a_gone_cache(struct stage *stage, uint64_t call)
{
    vmm_cache *gone;
    vmm_config config = stage_config();
    must_ok(vmm_create(&config, &gone));
    must_ok(vmm_destroy(gone));
    return call_any(gone, stage->blocks[0].address, call);
}

static vmm_status call_of_what_is_no_cache(struct stage *stage, uint64_t call)
{
    return call_any((vmm_cache *)&stage->blocks, stage->blocks[0].address, call);
}

/* More caches than the roll has places for, each of which ends once. A GPU has no addresses for so many. */
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

enum { ENDERS = 4 };

struct end {
    vmm_cache *cache;
    pthread_barrier_t barrier;
    _Atomic unsigned ended;
};

static void *cache_end(void *context)
{
    struct end *end = context;
    (void)pthread_barrier_wait(&end->barrier);
    vmm_status status = vmm_destroy(end->cache);
    must(status == VMM_OK || status == VMM_ERR_INVALID_ARGUMENT);
    end->ended += status == VMM_OK;
    return NULL;
}

static vmm_status end_by_all_at_once(struct stage *stage, uint64_t value)
{
    (void)value;
    struct end end = { .ended = 0 };
    pthread_t threads[ENDERS];
    must_ok(vmm__cache_create_on(NULL, stage->driver, &end.cache));
    must(pthread_barrier_init(&end.barrier, NULL, ENDERS) == 0);
    for (int i = 0; i < ENDERS; i++)
        must(pthread_create(&threads[i], NULL, cache_end, &end) == 0);
    for (int i = 0; i < ENDERS; i++)
        must(pthread_join(threads[i], NULL) == 0);
    must(end.ended == 1 && pthread_barrier_destroy(&end.barrier) == 0);
    return vmm_destroy(end.cache);
}

static vmm_status create_into_nothing(struct stage *stage, uint64_t has_config)
{
    (void)stage;
    vmm_config config = stage_config();
    return vmm_create(has_config ? &config : NULL, NULL);
}

static vmm_status alloc_into_nothing(struct stage *stage, uint64_t bytes)
{
    return vmm_alloc(stage->cache, bytes, NULL, NULL);
}

static vmm_status stats_into_nothing(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_stats_get(stage->cache, NULL);
}

/* Which of the two is missing; what is there stays as it was. */
static vmm_status device_memory_into_nothing(struct stage *stage, uint64_t which)
{
    uint64_t bytes = 77;
    vmm_status status =
        vmm_device_memory(stage->cache, which == 0 ? NULL : &bytes, which == 1 ? NULL : &bytes);
    must(bytes == 77);
    return status;
}

static vmm_status find_into_nothing(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_find(stage->cache, stage->blocks[0].address, NULL);
}

static vmm_status walk_with_nobody(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_walk(stage->cache, NULL, NULL);
}

static vmm_status log_nothing(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_log_write(stage->cache, NULL);
}

static vmm_status summary_into_nothing(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_summary_write(stage->cache, NULL);
}

/* A file that is full, and one that is open for reading only. */
static vmm_status summary_that_is_lost(struct stage *stage, uint64_t is_full)
{
    FILE *file = is_full ? fopen("/dev/full", "we") : fopen("/dev/null", "re");
    must(file != NULL);
    vmm_status status = vmm_summary_write(stage->cache, file);
    (void)fclose(file);
    return status;
}

static vmm_status free_nothing(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_free(stage->cache, NULL);
}

static vmm_status watch_by_nobody(struct stage *stage, uint64_t value)
{
    (void)value;
    must_ok(vmm_watch(stage->cache, NULL, stage));
    return vmm_watch(stage->cache, NULL, NULL);
}

#define NO_CACHE(function, call)                                                                   \
    {                                                                                              \
        function " of no cache", NULL, call_of_no_cache, call, VMM_ERR_INVALID_ARGUMENT,           \
            function ": cache is NULL", false                                                      \
    }
#define GONE(function, call)                                                                       \
    {                                                                                              \
        function " of a cache that is gone", NULL, call_of_a_gone_cache, call,                     \
            VMM_ERR_INVALID_ARGUMENT, function ": ", false                                         \
    }
#define NOTHING(name, misuse, value, words)                                                        \
    {                                                                                              \
        name, NULL, misuse, value, VMM_ERR_INVALID_ARGUMENT, words, false                          \
    }

static const struct misuse cases[] = {
    NO_CACHE("vmm_alloc", ALLOC),
    NO_CACHE("vmm_free", FREE),
    NO_CACHE("vmm_use", USE),
    NO_CACHE("vmm_trim", TRIM),
    NO_CACHE("vmm_wait", WAIT),
    NO_CACHE("vmm_tick", TICK),
    NO_CACHE("vmm_pin", PIN),
    NO_CACHE("vmm_unpin", UNPIN),
    NO_CACHE("vmm_stream_end", STREAM_END),
    NO_CACHE("vmm_limit_set", LIMIT_SET),
    NO_CACHE("vmm_pool_begin", POOL_BEGIN),
    NO_CACHE("vmm_pool_end", POOL_END),
    NO_CACHE("vmm_pool_release", POOL_RELEASE),
    NO_CACHE("vmm_stats_get", STATS_GET),
    NO_CACHE("vmm_device_memory", DEVICE_MEMORY),
    NO_CACHE("vmm_stats_reset_peak", STATS_RESET_PEAK),
    NO_CACHE("vmm_summary_write", SUMMARY_WRITE),
    NO_CACHE("vmm_log_write", LOG_WRITE),
    NO_CACHE("vmm_walk", WALK),
    NO_CACHE("vmm_find", FIND),
    NO_CACHE("vmm_watch", WATCH),
    NO_CACHE("vmm_guard_check", GUARD_CHECK),
    NO_CACHE("vmm_misuse_write", MISUSE_WRITE),
    NOTHING("vmm_create into nothing", create_into_nothing, 0, "vmm_create: out is NULL"),
    NOTHING("vmm_create of a config into nothing", create_into_nothing, 1, "out is NULL"),
    NOTHING("vmm_alloc into nothing", alloc_into_nothing, 1, "vmm_alloc: out is NULL"),
    NOTHING("vmm_stats_get into nothing", stats_into_nothing, 0, "vmm_stats_get: out is NULL"),
    NOTHING("vmm_device_memory, no free", device_memory_into_nothing, 0, "free_bytes is NULL"),
    NOTHING("vmm_device_memory, no total", device_memory_into_nothing, 1, "total_bytes is NULL"),
    NOTHING("vmm_find into nothing", find_into_nothing, 0, "vmm_find: item is NULL"),
    NOTHING("vmm_walk with nobody", walk_with_nobody, 0, "vmm_walk: visit is NULL"),
    NOTHING("vmm_log_write of nothing", log_nothing, 0, "vmm_log_write: line is NULL"),
    NOTHING("vmm_summary_write into nothing", summary_into_nothing, 0, "out is NULL"),
    NOTHING("vmm_summary_write, full device", summary_that_is_lost, 1, "takes no output"),
    NOTHING("vmm_summary_write, read only", summary_that_is_lost, 0, "takes no output"),
    GONE("vmm_use", USE),
    GONE("vmm_trim", TRIM),
    GONE("vmm_wait", WAIT),
    GONE("vmm_tick", TICK),
    GONE("vmm_pin", PIN),
    GONE("vmm_unpin", UNPIN),
    GONE("vmm_stream_end", STREAM_END),
    GONE("vmm_limit_set", LIMIT_SET),
    GONE("vmm_pool_begin", POOL_BEGIN),
    GONE("vmm_pool_end", POOL_END),
    GONE("vmm_pool_release", POOL_RELEASE),
    GONE("vmm_stats_get", STATS_GET),
    GONE("vmm_device_memory", DEVICE_MEMORY),
    GONE("vmm_stats_reset_peak", STATS_RESET_PEAK),
    GONE("vmm_summary_write", SUMMARY_WRITE),
    GONE("vmm_log_write", LOG_WRITE),
    GONE("vmm_walk", WALK),
    GONE("vmm_find", FIND),
    GONE("vmm_watch", WATCH),
    GONE("vmm_guard_check", GUARD_CHECK),
    GONE("vmm_misuse_write", MISUSE_WRITE),
    GONE("vmm_destroy", DESTROY),
    { "vmm_destroy of what is no cache", NULL, call_of_what_is_no_cache, DESTROY,
      VMM_ERR_INVALID_ARGUMENT, "is no cache, or none any more", false },
    { "vmm_destroy by four threads", NULL, end_by_all_at_once, 0, VMM_ERR_INVALID_ARGUMENT,
      "is no cache, or none any more", true },
    { "vmm_destroy of 400 caches, one twice", NULL, many_caches, 400, VMM_ERR_INVALID_ARGUMENT,
      "is no cache, or none any more", true },
    { "vmm_free of NULL", NULL, free_nothing, 0, VMM_OK, NULL, false },
    { "vmm_watch by nobody, twice", NULL, watch_by_nobody, 0, VMM_OK, NULL, false },
};

MISUSE_GROUP(misuse_nulls, "NULL and gone");
