/*
 * Every call of the public header that takes a cache or a pool and returns a status, each once, with arguments that do
 * no harm. calls.py compares the table with the header.
 */
#ifndef VMM_NEGATIVE_CALLS_H
#define VMM_NEGATIVE_CALLS_H

#include "stage.h"

/* What a call works on. */
struct call_target {
    vmm_cache *cache;
    vmm_pool *pool;
    void *block;
    vmm_stream stream;
};

/* A place for each result. */
struct call_results {
    void *block;
    size_t bytes;
    uint64_t numbers[2];
    int fd;
    vmm_pool *pool;
    vmm_ticket *ticket;
    vmm_share *share;
    vmm_pool_phase phase;
    vmm_stats stats;
    vmm_item item;
};

/*
 * CACHE(function, status, (arguments)); FAST for those that do not look whether the cache lives; POOL(function,
 * (arguments)) for those that take no cache. The arguments are made of the target `to` and the results `out`. The
 * status is that of a new cache, which does not know the block; calls.c has the short names.
 */
#define CALL_MAP(FAST, CACHE, POOL)                                                                \
    FAST(vmm_alloc, OK, (to->cache, 1, NULL, &out->block))                                         \
    FAST(vmm_free, UNKNOWN, (to->cache, to->block))                                                \
    CACHE(vmm_pin, UNKNOWN, (to->cache, to->block))                                                \
    CACHE(vmm_unpin, UNKNOWN, (to->cache, to->block))                                              \
    CACHE(vmm_limit_set, OK, (to->cache, 1))                                                       \
    CACHE(vmm_peers_add, OK, (to->cache, 0))                                                       \
    CACHE(vmm_peers_get, OK, (to->cache, out->numbers))                                            \
    CACHE(vmm_trim, OK, (to->cache, 0, &out->bytes))                                               \
    CACHE(vmm_compact, OK, (to->cache, 0, &out->numbers[0], &out->bytes))                          \
    CACHE(vmm_poll, OK, (to->cache))                                                               \
    CACHE(vmm_record_stream, UNKNOWN, (to->cache, to->block, to->stream))                          \
    CACHE(vmm_stream_end, OK, (to->cache, to->stream))                                             \
    CACHE(vmm_wait, OK, (to->cache))                                                               \
    CACHE(vmm_wait_stream, OK, (to->cache, NULL))                                                  \
    CACHE(vmm_capture_announce, OK, (to->cache, to->stream))                                       \
    CACHE(vmm_capture_retract, OK, (to->cache, to->stream))                                        \
    CACHE(vmm_pool_create, OK, (to->cache, NULL, &out->pool))                                      \
    POOL(vmm_pool_destroy, (to->pool, 1))                                                          \
    POOL(vmm_pool_free_all, (to->pool))                                                            \
    POOL(vmm_alloc_from, (to->pool, 1, NULL, &out->block))                                         \
    POOL(vmm_pool_push, (to->pool))                                                                \
    POOL(vmm_pool_pop, (to->pool))                                                                 \
    POOL(vmm_pool_route, (to->pool, NULL, NULL))                                                   \
    POOL(vmm_pool_unroute, (to->pool))                                                             \
    POOL(vmm_pool_retain, (to->pool))                                                              \
    POOL(vmm_pool_drop, (to->pool))                                                                \
    POOL(vmm_pool_limit_set, (to->pool, 1))                                                        \
    POOL(vmm_pool_trim, (to->pool, 0, &out->bytes))                                                \
    POOL(vmm_pool_sleep, (&to->pool, 1, NULL, &out->ticket))                                       \
    POOL(vmm_pool_wake, (&to->pool, 1, NULL, &out->ticket))                                        \
    POOL(vmm_pool_state, (to->pool, &out->phase))                                                  \
    POOL(vmm_backup_find, (to->pool, to->block, &out->block))                                      \
    POOL(vmm_backup_drop, (to->pool))                                                              \
    POOL(vmm_alloc_aligned, (to->pool, 1, 4096, NULL, &out->block))                                \
    POOL(vmm_reserve, (to->pool, 1, 0, NULL, &out->block))                                         \
    CACHE(vmm_commit, UNKNOWN, (to->cache, to->block, 0, 2 * MIB))                                 \
    CACHE(vmm_decommit, UNKNOWN, (to->cache, to->block, 0, 2 * MIB))                               \
    CACHE(vmm_resize, UNKNOWN, (to->cache, to->block, 9 * MIB, &out->block))                       \
    CACHE(vmm_name, UNKNOWN, (to->cache, to->block, "name"))                                       \
    CACHE(vmm_share_export, UNKNOWN, (to->cache, to->block, &out->share))                          \
    CACHE(vmm_share_import, INVALID, (to->cache, out->share, NULL, &out->block))                   \
    CACHE(vmm_parts_walk, UNKNOWN, (to->cache, to->block, part_continue, NULL))                    \
    CACHE(vmm_dmabuf_export, UNKNOWN, (to->cache, to->block, 0, SIZE_MAX, &out->fd))               \
    CACHE(vmm_stats_get, OK, (to->cache, &out->stats))                                             \
    POOL(vmm_pool_stats_get, (to->pool, &out->stats))                                              \
    CACHE(vmm_stats_reset_peak, OK, (to->cache))                                                   \
    CACHE(vmm_device_memory, OK, (to->cache, &out->numbers[0], &out->numbers[1]))                  \
    CACHE(vmm_summary_write, OK, (to->cache, stderr))                                              \
    CACHE(vmm_log_write, OK, (to->cache, "\xa5\n%s%n"))                                            \
    CACHE(vmm_debug_check, OK, (to->cache))                                                        \
    CACHE(vmm_debug_report, OK, (to->cache, stderr))                                               \
    CACHE(vmm_trace_start, INVALID, (to->cache, "/nowhere/a.trace", NULL))                         \
    CACHE(vmm_trace_stop, INVALID, (to->cache))                                                    \
    CACHE(vmm_trace_note, OK, (to->cache, "note"))                                                 \
    CACHE(vmm_walk, OK, (to->cache, visit_continue, NULL))                                         \
    POOL(vmm_pool_walk, (to->pool, visit_continue, NULL))                                          \
    POOL(vmm_pool_place, (to->pool, to->block, 1, NULL))                                           \
    CACHE(vmm_find, UNKNOWN, (to->cache, to->block, &out->item))                                   \
    CACHE(vmm_listen, OK, (to->cache, NULL, NULL))                                                 \
    CACHE(vmm_neighbours_walk, OK, (to->cache, neighbour_continue, NULL))                          \
    CACHE(vmm_available_get, OK, (to->cache, out->numbers))

enum call {
#define CALL_OF_CACHE(function, status, arguments) CALL_##function,
#define CALL_OF_POOL(function, arguments)          CALL_##function,
    CALL_MAP(CALL_OF_CACHE, CALL_OF_CACHE, CALL_OF_POOL)
#undef CALL_OF_CACHE
#undef CALL_OF_POOL
        CALLS
};

/* For a parameter that a user of CALL_MAP does without. */
#define CALL_LEFT_OUT(...)

struct call_about {
    const char *function;
    bool takes_pool;
    vmm_status on_new;
};
extern const struct call_about call_abouts[CALLS];

/* Makes a call. One that is refused must not write a result. */
vmm_status call_make(enum call call, const struct call_target *to);

#endif
