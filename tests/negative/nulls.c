/* NULL for each pointer that a call needs, and handles of destroyed caches. */
#define _GNU_SOURCE
#include "negative.h"
#include "support/visit_support.h"

#include <pthread.h>
#include <stdio.h>

enum call {
    ALLOC,
    FREE,
    USE,
    TRIM,
    WAIT,
    WAIT_STREAM,
    TICK,
    COMPACT,
    PIN,
    UNPIN,
    COMMIT,
    DECOMMIT,
    RESIZE,
    NAME,
    STREAM_END,
    PEERS_ADD,
    PEERS_GET,
    LIMIT_SET,
    POOL_CREATE,
    STATS_GET,
    DEVICE_MEMORY,
    STATS_RESET_PEAK,
    SUMMARY_WRITE,
    LOG_WRITE,
    WALK,
    NEIGHBOURS,
    AVAILABLE,
    PARTS,
    DMABUF,
    FIND,
    WATCH,
    DEBUG_CHECK,
    DEBUG_REPORT,
    DESTROY
};

static vmm_status call_memory(vmm_cache *cache, void *block, uint64_t call)
{
    void *out = &out;
    uint64_t devices;
    vmm_status status;
    switch (call) {
    case ALLOC:
        status = vmm_alloc(cache, 1, NULL, &out);
        must(out == &out);
        return status;
    case FREE:
        return vmm_free(cache, block);
    case USE:
        return vmm_record_stream(cache, block, NULL);
    case PIN:
        return vmm_pin(cache, block);
    case UNPIN:
        return vmm_unpin(cache, block);
    case COMMIT:
        return vmm_commit(cache, block, 0, 0);
    case DECOMMIT:
        return vmm_decommit(cache, block, 0, 0);
    case RESIZE:
        status = vmm_resize(cache, block, 1, &out);
        must(out == &out);
        return status;
    case NAME:
        return vmm_name(cache, block, "name");
    case TRIM:
        return vmm_trim(cache, 0, NULL);
    case WAIT:
        return vmm_wait(cache);
    case WAIT_STREAM:
        return vmm_wait_stream(cache, NULL);
    case TICK:
        return vmm_poll(cache);
    case COMPACT:
        return vmm_compact(cache, 0, NULL, NULL);
    case STREAM_END:
        return vmm_stream_end(cache, (vmm_stream)(uintptr_t)8);
    case PEERS_ADD:
        return vmm_peers_add(cache, 2);
    case PEERS_GET:
        return vmm_peers_get(cache, &devices);
    default:
        return vmm_limit_set(cache, 1);
    }
}

static vmm_status call_report(vmm_cache *cache, const void *block, uint64_t call)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_item item = VMM_ITEM_INIT;
    uint64_t bytes;
    int fd;
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
        return vmm_walk(cache, visit_continue, NULL);
    case NEIGHBOURS:
        return vmm_neighbours_walk(cache, neighbour_continue, NULL);
    case AVAILABLE:
        return vmm_available_get(cache, &bytes);
    case PARTS:
        return vmm_parts_walk(cache, block, part_continue, NULL);
    case DMABUF:
        return vmm_dmabuf_export(cache, block, 0, 4096, &fd);
    case FIND:
        return vmm_find(cache, block, &item);
    case DEBUG_CHECK:
        return vmm_debug_check(cache);
    case DEBUG_REPORT:
        return vmm_debug_report(cache, stderr);
    default:
        return vmm_listen(cache, NULL, NULL);
    }
}

static vmm_status call_any(vmm_cache *cache, void *block, uint64_t call)
{
    vmm_pool *pool = NULL;
    switch (call) {
    case POOL_CREATE:
        return vmm_pool_create(cache, NULL, &pool);
    case DESTROY:
        return vmm_destroy(cache);
    default:
        return call <= LIMIT_SET ? call_memory(cache, block, call)
                                 : call_report(cache, block, call);
    }
}

static vmm_status call_with_null_cache(struct stage *stage, uint64_t call)
{
    must(vmm_block_bytes(NULL, 1) == 0);
    must_ok(vmm_destroy(NULL));
    return call_any(NULL, stage->blocks[0].address, call);
}

static vmm_status call_with_destroyed_cache(struct stage *stage, uint64_t call)
{
    vmm_cache *destroyed;
    vmm_config config = stage_config();
    must_ok(vmm_create(&config, &destroyed));
    must_ok(vmm_destroy(destroyed));
    return call_any(destroyed, stage->blocks[0].address, call);
}

static vmm_status call_with_another_object(struct stage *stage, uint64_t call)
{
    return call_any((vmm_cache *)&stage->blocks, stage->blocks[0].address, call);
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

static vmm_status alloc_into_null(struct stage *stage, uint64_t bytes)
{
    return vmm_alloc(stage->cache, bytes, NULL, NULL);
}

static vmm_status stats_into_null(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_stats_get(stage->cache, NULL);
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

static vmm_status peers_into_null(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_peers_get(stage->cache, NULL);
}

static vmm_status find_into_null(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_find(stage->cache, stage->blocks[0].address, NULL);
}

static vmm_status walk_without_visitor(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_walk(stage->cache, NULL, NULL);
}

static vmm_status neighbours_without_visitor(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_neighbours_walk(stage->cache, NULL, NULL);
}

static vmm_status available_into_null(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_available_get(stage->cache, NULL);
}

static vmm_status parts_without_visitor(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_parts_walk(stage->cache, stage->blocks[0].address, NULL, NULL);
}

static vmm_status dmabuf_into_null(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_dmabuf_export(stage->cache, stage->blocks[0].address, 0, 4096, NULL);
}

static vmm_status log_null(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_log_write(stage->cache, NULL);
}

static vmm_status summary_into_null(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_summary_write(stage->cache, NULL);
}

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

#define NO_CACHE(function, call)                                                                   \
    {                                                                                              \
        function " of NULL", NULL, call_with_null_cache, call, VMM_ERR_INVALID_ARGUMENT,           \
            function ": cache is NULL", false                                                      \
    }
#define DESTROYED(function, call)                                                                  \
    {                                                                                              \
        function " of a destroyed cache", NULL, call_with_destroyed_cache, call,                   \
            VMM_ERR_INVALID_ARGUMENT, function ": ", false                                         \
    }

static const struct negative_case cases[] = {
    NO_CACHE("vmm_alloc", ALLOC),
    NO_CACHE("vmm_free", FREE),
    NO_CACHE("vmm_record_stream", USE),
    NO_CACHE("vmm_trim", TRIM),
    NO_CACHE("vmm_wait", WAIT),
    NO_CACHE("vmm_wait_stream", WAIT_STREAM),
    NO_CACHE("vmm_poll", TICK),
    NO_CACHE("vmm_compact", COMPACT),
    NO_CACHE("vmm_pin", PIN),
    NO_CACHE("vmm_unpin", UNPIN),
    NO_CACHE("vmm_commit", COMMIT),
    NO_CACHE("vmm_decommit", DECOMMIT),
    NO_CACHE("vmm_resize", RESIZE),
    NO_CACHE("vmm_name", NAME),
    NO_CACHE("vmm_stream_end", STREAM_END),
    NO_CACHE("vmm_peers_add", PEERS_ADD),
    NO_CACHE("vmm_peers_get", PEERS_GET),
    NO_CACHE("vmm_limit_set", LIMIT_SET),
    NO_CACHE("vmm_pool_create", POOL_CREATE),
    NO_CACHE("vmm_stats_get", STATS_GET),
    NO_CACHE("vmm_device_memory", DEVICE_MEMORY),
    NO_CACHE("vmm_stats_reset_peak", STATS_RESET_PEAK),
    NO_CACHE("vmm_summary_write", SUMMARY_WRITE),
    NO_CACHE("vmm_log_write", LOG_WRITE),
    NO_CACHE("vmm_walk", WALK),
    NO_CACHE("vmm_find", FIND),
    NO_CACHE("vmm_neighbours_walk", NEIGHBOURS),
    NO_CACHE("vmm_available_get", AVAILABLE),
    NO_CACHE("vmm_parts_walk", PARTS),
    NO_CACHE("vmm_dmabuf_export", DMABUF),
    NO_CACHE("vmm_listen", WATCH),
    NO_CACHE("vmm_debug_check", DEBUG_CHECK),
    NO_CACHE("vmm_debug_report", DEBUG_REPORT),
    WRONG("vmm_create, out is NULL", create_into_null, 0, "vmm_create: out is NULL"),
    WRONG("vmm_create with a config, out is NULL", create_into_null, 1, "out is NULL"),
    WRONG("vmm_alloc, out is NULL", alloc_into_null, 1, "vmm_alloc: out is NULL"),
    WRONG("vmm_stats_get, out is NULL", stats_into_null, 0, "vmm_stats_get: out is NULL"),
    WRONG("vmm_device_memory, no free_bytes", device_memory_into_null, 0, "free_bytes is NULL"),
    WRONG("vmm_device_memory, no total_bytes", device_memory_into_null, 1, "total_bytes is NULL"),
    WRONG("vmm_peers_get, devices is NULL", peers_into_null, 0, "devices is NULL"),
    WRONG("vmm_find, item is NULL", find_into_null, 0, "vmm_find: item is NULL"),
    WRONG("vmm_walk, visit is NULL", walk_without_visitor, 0, "vmm_walk: visit is NULL"),
    WRONG("vmm_neighbours_walk, visit is NULL", neighbours_without_visitor, 0, "visit is NULL"),
    WRONG("vmm_available_get, bytes is NULL", available_into_null, 0, "bytes is NULL"),
    WRONG("vmm_parts_walk, visit is NULL", parts_without_visitor, 0, "visit is NULL"),
    WRONG("vmm_dmabuf_export, fd is NULL", dmabuf_into_null, 0, "fd is NULL"),
    WRONG("vmm_log_write, line is NULL", log_null, 0, "vmm_log_write: line is NULL"),
    WRONG("vmm_summary_write, out is NULL", summary_into_null, 0, "out is NULL"),
    WRONG("vmm_summary_write, full device", summary_into_unwritable_file, 1,
          "cannot write to the file"),
    WRONG("vmm_summary_write, read only", summary_into_unwritable_file, 0,
          "cannot write to the file"),
    WRONG("vmm_debug_report, full device", report_into_unwritable_file, 1,
          "cannot write to the file"),
    WRONG("vmm_debug_report, read only", report_into_unwritable_file, 0,
          "cannot write to the file"),
    DESTROYED("vmm_record_stream", USE),
    DESTROYED("vmm_trim", TRIM),
    DESTROYED("vmm_wait", WAIT),
    DESTROYED("vmm_wait_stream", WAIT_STREAM),
    DESTROYED("vmm_poll", TICK),
    DESTROYED("vmm_compact", COMPACT),
    DESTROYED("vmm_pin", PIN),
    DESTROYED("vmm_unpin", UNPIN),
    DESTROYED("vmm_commit", COMMIT),
    DESTROYED("vmm_decommit", DECOMMIT),
    DESTROYED("vmm_resize", RESIZE),
    DESTROYED("vmm_name", NAME),
    DESTROYED("vmm_stream_end", STREAM_END),
    DESTROYED("vmm_peers_add", PEERS_ADD),
    DESTROYED("vmm_peers_get", PEERS_GET),
    DESTROYED("vmm_limit_set", LIMIT_SET),
    DESTROYED("vmm_pool_create", POOL_CREATE),
    DESTROYED("vmm_stats_get", STATS_GET),
    DESTROYED("vmm_device_memory", DEVICE_MEMORY),
    DESTROYED("vmm_stats_reset_peak", STATS_RESET_PEAK),
    DESTROYED("vmm_summary_write", SUMMARY_WRITE),
    DESTROYED("vmm_log_write", LOG_WRITE),
    DESTROYED("vmm_walk", WALK),
    DESTROYED("vmm_neighbours_walk", NEIGHBOURS),
    DESTROYED("vmm_available_get", AVAILABLE),
    DESTROYED("vmm_find", FIND),
    DESTROYED("vmm_parts_walk", PARTS),
    DESTROYED("vmm_dmabuf_export", DMABUF),
    DESTROYED("vmm_listen", WATCH),
    DESTROYED("vmm_debug_check", DEBUG_CHECK),
    DESTROYED("vmm_debug_report", DEBUG_REPORT),
    DESTROYED("vmm_destroy", DESTROY),
    { "vmm_destroy of another object", NULL, call_with_another_object, DESTROY,
      VMM_ERR_INVALID_ARGUMENT, "is not a cache, or was destroyed", false },
    { "vmm_destroy by four threads", NULL, destroy_by_all_at_once, 100, VMM_ERR_INVALID_ARGUMENT,
      "is not a cache, or was destroyed", true },
    { "vmm_destroy of 400 caches, one twice", NULL, many_caches, 400, VMM_ERR_INVALID_ARGUMENT,
      "is not a cache, or was destroyed", true },
    { "vmm_free of NULL", NULL, free_null, 0, VMM_OK, NULL, false },
    { "vmm_listen with NULL, twice", NULL, listener_null, 0, VMM_OK, NULL, false },
};

NEGATIVE_GROUP(negative_nulls, "NULL and destroyed");
