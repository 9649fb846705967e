/* What the monitor publishes is what vmm_stats_get() says, and reading it takes no lock and changes nothing. */
#define _GNU_SOURCE
#include "support/growing_support.h"
#include "support/pool_support.h"

#include "api/monitor.h"
#include "cache/cache.h"

#include <pthread.h>
#include <string.h>

/* The records of the cache, read with room for so many bytes. */
struct view {
    const struct monitor_cache *cache;
    const struct monitor_pool *pools;
    const struct monitor_lane *lanes;
    char *end;
};

static uint64_t buffer[MONITOR_MOST_BYTES / sizeof(uint64_t)];

static struct view view_read(vmm_cache *cache, size_t room)
{
    struct view view = { .cache = (const struct monitor_cache *)(void *)buffer };
    memset(buffer, 0xEE, sizeof buffer);
    view.end = vmm__monitor_read(cache, (char *)buffer, room);
    if (view.end == NULL)
        return view;
    view.pools = (const struct monitor_pool *)(const void *)(view.cache + 1);
    view.lanes = (const struct monitor_lane *)(const void *)(view.pools + view.cache->pools);
    assert_ptr_equal(view.end, view.lanes + view.cache->lanes);
    assert_true(view.end <= (char *)buffer + room);
    return view;
}

static void stat_compare(const vmm_stat *read, const vmm_stat *stat, const char *name)
{
    assert_int_equal(read->current, stat->current);
    assert_int_equal(read->allocated, stat->allocated);
    assert_int_equal(read->freed, stat->freed);
    if (read->peak < read->current || read->peak > stat->peak)
        fail_msg("the peak of %s is wrong", name);
}

/* All that the monitor has. */
static void stats_compare(const vmm_stats *read, const vmm_stats *stats)
{
    const vmm_stat_description *stat;
    assert_int_equal(read->struct_size, sizeof *read);
    for (unsigned i = 0; (stat = vmm_stat_describe(i)) != NULL; i++) {
        const char *left = (const char *)read + stat->offset;
        const char *right = (const char *)stats + stat->offset;
        if (stat->kind == VMM_STAT_OVER_TIME)
            stat_compare((const void *)left, (const void *)right, stat->name);
        else if (stat->kind != VMM_STAT_SCAN && memcmp(left, right, sizeof(uint64_t)) != 0)
            fail_msg("%s is wrong", stat->name);
    }
}

/* What a call that locks the lanes may change, because it frees what waited. */
static void changes_forget(vmm_stats *stats)
{
    stats->driver_ns = stats->driver_calls = stats->event_calls = stats->host_bytes = 0;
}

/* The statistics are read last, because they flush what the monitor must find unflushed. */
static void cache_compare(struct cache_test *test)
{
    uint64_t driver_calls = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        driver_calls += vmm__driver_calls(test->driver, (enum driver_call)call);
    struct view view = view_read(test->cache, sizeof buffer);
    vmm_stats read = view.cache->stats;
    assert_int_equal(read.driver_calls, driver_calls);
    vmm_stats stats = cache_stats(test);
    changes_forget(&read);
    changes_forget(&stats);
    stats_compare(&read, &stats);
}

CACHE_TEST(figures_are_those_of_the_statistics)
{
    enum { SLOTS = 100, ROUNDS = 5000 };
    void *slots[SLOTS] = { NULL };
    uint64_t seed = 3;
    cache_compare(test);
    for (unsigned round = 0; round < ROUNDS; round++) {
        void **slot = &slots[random_next(&seed) % SLOTS];
        if (*slot != NULL) {
            block_free(test, *slot);
            *slot = NULL;
        } else {
            (void)!vmm_alloc(test->cache, random_bytes(&seed, 4 * MIB),
                             test->streams[random_next(&seed) % CACHE_STREAMS], slot);
        }
        if (round % 50 == 0)
            cache_compare(test);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        assert_ok(vmm_free(test->cache, slots[i]));
    (void)cache_trim(test, 0);
    cache_compare(test);
    assert_status(vmm_alloc(test->cache, 2 * CACHE_LIMIT, test->streams[0], slots),
                  VMM_ERR_DEVICE_OOM);
    assert_true(cache_stats(test).retries > 0 && cache_stats(test).ooms > 0);
    cache_compare(test);
}

/* A lane allocates and frees blocks between the moments at which the monitor reads two values. */
CACHE_TEST(values_of_different_moments_make_sense)
{
    (void)block_alloc(test, 3 * MIB, 1);
    (void)cache_stats(test); /* flushes the counters */
    struct counters *counters = &test->cache->lanes.stocked.first->counters;
    const struct counters flushed = *counters;
    counters->requested_bytes.current -= 3 * MIB + 1;
    counters->allocated_bytes.current -= 3 * MIB + 1;
    counters->allocations.current -= 2;
    struct view view = view_read(test->cache, sizeof buffer);
    assert_int_equal(view.cache->stats.requested_bytes.current, 0);
    assert_int_equal(view.cache->stats.allocated_bytes.current, 0);
    assert_int_equal(view.cache->stats.active_bytes.current, 0);
    assert_int_equal(view.cache->stats.allocations.current, 0);
    assert_int_equal(view.cache->stats.allocations.freed, view.cache->stats.allocations.allocated);
    counters->allocations.current = flushed.allocations.current + 2;
    view = view_read(test->cache, sizeof buffer);
    assert_int_equal(view.cache->stats.allocations.current, 3);
    assert_int_equal(view.cache->stats.allocations.allocated, 3);
    assert_int_equal(view.cache->stats.allocations.freed, 0);
    *counters = flushed;
}

static int pressure_ignore(void *context, vmm_pool *pool, size_t bytes)
{
    (void)context;
    (void)pool;
    (void)bytes;
    return 0;
}

/* Memory runs out, live bytes move, a pool sleeps, a chunk loses a place. */
CACHE_TEST(figures_of_rare_events_are_those_of_the_statistics)
{
    enum { PIECES = 32 };
    void *pieces[PIECES];
    void *out = NULL;
    cache_restart_with(test, .footprint_permille = 50, .pressure = pressure_ignore);
    large_chunks_make(test, 96 * MIB, 1);
    for (int i = 0; i < PIECES; i++)
        pieces[i] = block_alloc(test, 3 * MIB, 1);
    for (int i = 0; i < PIECES; i += 2)
        block_free(test, pieces[i]);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
    assert_status(vmm_alloc(test->cache, CACHE_LIMIT, test->streams[1], &out), VMM_ERR_DEVICE_OOM);
    vmm_pool *pool = pool_make(test, .name = "sleeper");
    (void)pool_alloc(test, pool, 1000, 1);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    test->cache->counts.evictions = 3; /* it takes more places than a short test can make */
    vmm_stats stats = cache_stats(test);
    assert_true(stats.pressure_calls > 0 && stats.compactions > 0 && stats.asleep_bytes > 0);
    assert_int_equal(stats.evictions, 3);
    cache_compare(test);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
}

CACHE_TEST(device_and_driver_are_named)
{
    struct view view = view_read(test->cache, sizeof buffer);
    assert_string_equal(view.cache->driver, test->driver->ops->name);
    assert_string_equal(view.cache->device_name, test->driver->device_name);
    assert_int_equal(view.cache->device_bytes, test->driver->total_bytes);
    assert_int_equal(view.cache->pools, 1);
    assert_string_equal(view.pools[0].name, "default");
}

CACHE_TEST(pools_have_figures_of_their_own)
{
    vmm_pool *pool = pool_in(test->cache, .name = "weights", .limit_bytes = 64 * MIB);
    void *block = block_in_pool(pool, 5 * MIB, test->streams[1]);
    void *other = block_alloc(test, 3 * MIB, 0);
    struct view view = view_read(test->cache, sizeof buffer);
    assert_int_equal(view.cache->pools, 2);
    assert_string_equal(view.pools[1].name, "weights");
    assert_int_equal(view.pools[1].is_graph, 0);
    assert_int_equal(view.pools[1].phase, VMM_POOL_AWAKE);
    vmm_stats stats = pool_stats(pool);
    stats_compare(&view.pools[1].stats, &stats);
    assert_ok(vmm_pool_stats_get(vmm_cache_pool(test->cache), &stats));
    stats_compare(&view.pools[0].stats, &stats);
    block_free(test, other);
    assert_ok(vmm_free(test->cache, block));
    assert_ok(vmm_pool_destroy(pool, 0));
    assert_int_equal(view_read(test->cache, sizeof buffer).cache->pools, 1);
}

CACHE_TEST(streams_show_what_they_have)
{
    (void)block_alloc(test, 3 * MIB, 1);
    void *freed = block_alloc(test, 2 * MIB, 2);
    block_free(test, freed);
    struct view view = view_read(test->cache, sizeof buffer);
    assert_int_equal(view.cache->lanes, 2);
    for (unsigned i = 0; i < 2; i++) {
        const struct monitor_lane *lane = &view.lanes[i];
        bool is_first = lane->stream == (uintptr_t)test->streams[1];
        assert_true(is_first || lane->stream == (uintptr_t)test->streams[2]);
        assert_int_equal(lane->blocks, is_first ? 1 : 0);
        assert_true(lane->allocated_bytes >= (is_first ? 3 * MIB : 0));
        assert_true(lane->reserved_bytes >= (is_first ? 3 * MIB : 2 * MIB));
        assert_int_equal(lane->pool, 0);
    }
}

CACHE_TEST(streams_show_memory_of_reserved_blocks)
{
    void *block = block_reserve(test, 64 * MIB, 2 * MIB, 1);
    assert_ok(vmm_commit(test->cache, block, 0, 6 * MIB));
    struct view view = view_read(test->cache, sizeof buffer);
    assert_int_equal(view.cache->lanes, 1);
    assert_true(view.lanes[0].allocated_bytes >= 6 * MIB);
    assert_int_equal(view.lanes[0].reserved_bytes, view.cache->stats.reserved_bytes.current);
}

/* What does not fit is counted, and nothing is written beyond the room. */
CACHE_TEST(records_that_do_not_fit_are_counted)
{
    enum { POOLS = 4 };
    vmm_pool *pools[POOLS];
    (void)block_alloc(test, MIB, 0);
    for (unsigned i = 0; i < POOLS; i++)
        assert_ok(vmm_pool_create(test->cache, NULL, &pools[i]));
    assert_null(view_read(test->cache, sizeof(struct monitor_cache)).end);
    size_t whole = sizeof(struct monitor_cache) + (POOLS + 1) * sizeof(struct monitor_pool) +
                   sizeof(struct monitor_lane);
    for (size_t room = sizeof(struct monitor_cache) + sizeof(struct monitor_pool); room <= whole;
         room += sizeof(uint64_t)) {
        struct view view = view_read(test->cache, room);
        assert_non_null(view.end);
        assert_int_equal(view.cache->pools + view.cache->pools_omitted, POOLS + 1);
        assert_int_equal(view.cache->lanes + view.cache->lanes_omitted, 1);
        assert_true(((char *)buffer)[room] == (char)0xEE);
        assert_true(view.cache->stats.allocated_bytes.current >= MIB);
    }
    assert_int_equal(view_read(test->cache, whole).cache->lanes_omitted, 0);
}

/* ---- While threads work --------------------------------------------------------------------- */

enum { THREADS = 4, PAIRS = 20000 };

struct busy {
    struct cache_test *test;
    unsigned number;
};

static void *busy_main(void *context)
{
    const struct busy *busy = context;
    uint64_t seed = busy->number + 1;
    for (unsigned i = 0; i < PAIRS; i++) {
        vmm_stream stream = busy->test->streams[busy->number % CACHE_STREAMS];
        void *block = block_in(busy->test->cache, random_bytes(&seed, MIB), stream);
        assert_ok(vmm_free(busy->test->cache, block));
        if (i % 1000 != 0)
            continue;
        vmm_pool *pool = pool_in_with(busy->test->cache, NULL);
        assert_ok(vmm_alloc_from(pool, MIB, stream, &block));
        assert_ok(vmm_pool_destroy(pool, 1));
        assert_ok(vmm_free(busy->test->cache, block));
    }
    return NULL;
}

CACHE_TEST(figures_stay_plausible_while_threads_work)
{
    pthread_t threads[THREADS];
    struct busy busy[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        busy[i] = (struct busy){ test, i };
        assert_int_equal(pthread_create(&threads[i], NULL, busy_main, &busy[i]), 0);
    }
    for (unsigned round = 0; round < 2000; round++) {
        struct view view = view_read(test->cache, sizeof buffer);
        assert_true(view.cache->stats.reserved_bytes.current <= CACHE_LIMIT);
        assert_true(view.cache->stats.allocated_bytes.current <= 2 * (uint64_t)CACHE_LIMIT);
        assert_true(view.cache->stats.allocations.freed <= view.cache->stats.allocations.allocated);
        assert_true(view.cache->pools <= THREADS + 1);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)cache_stats(test); /* drains the magazines, whose blocks count as live */
    cache_compare(test);
}

/* A thread that holds the grow lock, as one does that waits for the device. */
CACHE_TEST(reading_waits_for_no_lock_of_the_cache)
{
    (void)block_alloc(test, 3 * MIB, 0);
    vmm__fair_lock(&test->cache->grow_lock);
    vmm__cache_lanes_lock(test->cache, NULL);
    struct view view = view_read(test->cache, sizeof buffer);
    vmm__cache_lanes_unlock(test->cache, NULL);
    vmm__fair_unlock(&test->cache->grow_lock);
    assert_int_equal(view.cache->stats.allocations.current, 1);
}

CACHE_MAIN()
