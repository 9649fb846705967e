/* Graph pools: which requests they serve, and which memory they retain. */
#include "support/graph_support.h"
#include "support/pool_calls.h"

#include <string.h>

#define LARGE (8 * MIB)

/* ---- What is kept --------------------------------------------------------------------------- */

CACHE_TEST(memory_freed_by_a_graph_is_retained)
{
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    for (unsigned round = 0; round < 3; round++) {
        memory_exhaust(test, &graph);
        (void)cache_trim(test, 0);
        assert_ok(vmm_poll(test->cache));
        graph_replay(test, &graph, round + 1);
        work_verify(test);
    }
    cache_verify(test);
    graph_empty(test, &graph);
    (void)cache_trim(test, 0);
    assert_true(cache_stats(test).reserved_bytes.current >= LARGE);
    graph_release(test, &graph);
}

/* The thread's turn is with the graph pool when the capture ends. */
CACHE_TEST(requests_after_the_end_do_not_use_graph_memory)
{
    struct graph graph;
    graph_begin(test, &graph, 1, 1);
    void *block = graph_alloc(test, &graph, LARGE);
    void *small = graph_alloc(test, &graph, 512);
    graph_free(test, &graph, block);
    graph_free(test, &graph, small);
    graph_end(test, &graph);
    for (int i = 0; i < 4; i++) {
        void *after = block_alloc(test, i % 2 == 0 ? LARGE : 512, 1);
        assert_false(graph_overlaps(&graph, after, 512));
        assert_true(pool_id_is(block_find(test, after).pool_id, 0, 0));
        block_free(test, after);
    }
    graph_release(test, &graph);
}

/* And so it is after a block of the graph pool was given back. */
CACHE_TEST(requests_after_a_free_do_not_use_graph_memory)
{
    struct graph graph;
    graph_begin(test, &graph, 1, 1);
    void *block = graph_alloc(test, &graph, LARGE);
    graph_end(test, &graph);
    block_free(test, block_alloc(test, LARGE, 1));
    block_free(test, block);
    void *after = block_alloc(test, LARGE, 1);
    assert_ptr_not_equal(after, block);
    assert_true(pool_id_is(block_find(test, after).pool_id, 0, 0));
    block_free(test, after);
    graph_release(test, &graph);
}

CACHE_TEST(decay_leaves_retained_memory)
{
    cache_restart_with(test, .decay_ms = 1, .decay_thread = 1);
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    uint64_t end_ns = vmm__driver_clock(test->driver) + 20000000;
    for (int i = 0; i < 200 && vmm__driver_clock(test->driver) < end_ns; i++) {
        block_free(test, block_alloc(test, LARGE, 2));
        assert_ok(vmm_poll(test->cache));
        graph_replay(test, &graph, 3);
    }
    work_verify(test);
    graph_discard(test, &graph);
}

CACHE_TEST(retained_bytes_are_neither_idle_nor_pinned)
{
    struct graph graph;
    graph_begin(test, &graph, 1, 1);
    graph_free(test, &graph, graph_alloc(test, &graph, LARGE));
    graph_free(test, &graph, graph_alloc(test, &graph, MIB));
    graph_end(test, &graph);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.retained_bytes, stats.reserved_bytes.current);
    assert_int_equal(stats.retained_bytes, cache_scan(test).retained_bytes);
    assert_int_equal(stats.idle_bytes, 0);
    assert_int_equal(stats.pinned_bytes, 0);
    assert_int_equal(stats.largest_free_bytes, 0);
    graph_release(test, &graph);
    stats = cache_stats(test);
    assert_int_equal(stats.retained_bytes, 0);
    assert_int_equal(stats.idle_bytes, stats.reserved_bytes.current);
}

/* What is kept comes on top of the footprint target: others need not move chunks because of it. */
CACHE_TEST(retained_memory_does_not_cause_compaction)
{
    cache_restart(test, NULL);
    enum { PIECES = 8 };
    void *pieces[PIECES];
    struct graph graph;
    graph_begin(test, &graph, 1, 1);
    graph_free(test, &graph, graph_alloc(test, &graph, 16 * LARGE));
    graph_end(test, &graph);
    for (int i = 0; i < PIECES; i++)
        pieces[i] = block_alloc(test, LARGE, 2);
    for (int i = 0; i < PIECES; i += 2)
        block_free(test, pieces[i]);
    uint64_t moves = cache_stats(test).map_calls - cache_stats(test).create_calls;
    void *whole = block_alloc(test, PIECES / 2 * LARGE, 2);
    assert_int_equal(cache_stats(test).map_calls - cache_stats(test).create_calls, moves);
    block_free(test, whole);
    graph_release(test, &graph);
}

/* For its own requests a pool has that memory: it joins the pieces in a view before it creates any. */
CACHE_TEST(a_pool_uses_what_it_retains_before_new_memory)
{
    cache_restart(test, NULL);
    enum { PIECES = 8 };
    void *pieces[PIECES];
    struct graph graph;
    graph_begin(test, &graph, 1, 1);
    for (int i = 0; i < PIECES; i++)
        pieces[i] = graph_alloc(test, &graph, LARGE);
    for (int i = 0; i < PIECES; i += 2)
        graph_free(test, &graph, pieces[i]);
    uint64_t reserved = cache_stats(test).reserved_bytes.current;
    (void)graph_alloc(test, &graph, PIECES / 2 * LARGE);
    assert_in_range(cache_stats(test).reserved_bytes.current, reserved, reserved + 2 * MIB);
    graph_end(test, &graph);
    graph_empty(test, &graph);
    graph_release(test, &graph);
}

CACHE_TEST(an_oom_reports_retained_bytes)
{
    struct graph graph;
    graph_begin(test, &graph, 1, 1);
    graph_free(test, &graph, graph_alloc(test, &graph, CACHE_LIMIT / 2));
    graph_end(test, &graph);
    void *block = NULL;
    assert_status(vmm_alloc(test->cache, CACHE_LIMIT, test->streams[1], &block),
                  VMM_ERR_DEVICE_OOM);
    assert_null(block);
    assert_non_null(strstr(vmm_last_error(), "64.0 MiB retained for captured graphs"));
    graph_release(test, &graph);
    block_free(test, block_alloc(test, CACHE_LIMIT, 1));
}

/* ---- Whose requests ------------------------------------------------------------------------- */

CACHE_TEST(a_filter_selects_the_streams_of_a_pool)
{
    struct graph graph;
    graph_begin(test, &graph, 7, 2);
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++) {
        for (int i = 0; i < MIXED; i++) {
            void *block = block_alloc(test, mixed_sizes[i], stream);
            vmm_item item = block_find(test, block);
            assert_true(pool_id_is(item.pool_id, stream == 2 ? 7 : 0, stream == 2 ? 1 : 0));
            assert_ptr_equal(item.stream, test->streams[stream]);
            assert_int_equal(item.is_small, mixed_sizes[i] <= MIB);
            block_free(test, block);
        }
    }
    graph_end(test, &graph);
    graph_release(test, &graph);
}

static uint64_t pool_of_next(struct cache_test *test, unsigned stream)
{
    void *block = block_alloc(test, LARGE, stream);
    vmm_item item = block_find(test, block);
    block_free(test, block);
    return item.pool_id.first;
}

CACHE_TEST(the_latest_pool_is_asked_first)
{
    static const vmm_pool_id all = { 1, 0 };
    static const vmm_pool_id some = { 2, 0 };
    static const vmm_pool_id last = { 3, 0 };
    assert_ok(graph_pool_begin(test->cache, all, NULL, NULL));
    assert_int_equal(pool_of_next(test, 0), 1);
    assert_ok(graph_pool_begin(test->cache, some, graph_filter, &test->streams[1]));
    assert_int_equal(pool_of_next(test, 1), 2);
    assert_int_equal(pool_of_next(test, 2), 1);
    assert_ok(graph_pool_begin(test->cache, last, NULL, NULL));
    assert_int_equal(pool_of_next(test, 1), 3);
    assert_ok(graph_pool_end(test->cache, some));
    assert_int_equal(pool_of_next(test, 1), 3);
    assert_ok(graph_pool_end(test->cache, last));
    assert_int_equal(pool_of_next(test, 1), 1);
    assert_ok(graph_pool_end(test->cache, all));
    assert_int_equal(pool_of_next(test, 1), 0);
    assert_ok(graph_pool_release(test->cache, all));
    assert_ok(graph_pool_release(test->cache, some));
    assert_ok(graph_pool_release(test->cache, last));
}

/* Graphs of one pool run one after the other and use the same memory. */
CACHE_TEST(captures_share_a_pool_and_its_uses_count)
{
    struct graph first;
    struct graph second;
    graph_begin(test, &first, 5, 1);
    void *block = graph_alloc(test, &first, LARGE);
    graph_free(test, &first, block);
    graph_end(test, &first);
    graph_begin(test, &second, 5, 1);
    assert_ptr_equal(graph_alloc(test, &second, LARGE), block);
    graph_free(test, &second, block);
    graph_end(test, &second);
    graph_release(test, &first);
    memory_exhaust(test, &second);
    graph_replay(test, &second, 3);
    work_verify(test);
    assert_true(cache_stats(test).retained_bytes >= LARGE);
    graph_release(test, &second);
    assert_int_equal(cache_stats(test).retained_bytes, 0);
    assert_status(graph_pool_release(test->cache, second.id), VMM_ERR_INVALID_ARGUMENT);
}

CACHE_TEST(recording_the_own_stream_changes_nothing)
{
    struct graph graph;
    block_free(test, block_alloc(test, 512, 1)); /* the stream has a pool of its own */
    graph_begin(test, &graph, 1, 1);
    for (int i = 0; i < MIXED; i++) {
        void *block = graph_alloc(test, &graph, mixed_sizes[i]);
        block_use(test, block, 1);
        graph_free(test, &graph, block);
        assert_int_equal(cache_scan(test).waiting_blocks, 0);
        assert_ptr_equal(graph_alloc(test, &graph, mixed_sizes[i]), block);
    }
    graph_end(test, &graph);
    graph_discard(test, &graph);
}

/* ---- Misuse --------------------------------------------------------------------------------- */

static void assert_misuse(vmm_status status, const char *part)
{
    assert_status(status, VMM_ERR_INVALID_ARGUMENT);
    if (strstr(vmm_last_error(), part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, vmm_last_error());
}

CACHE_TEST(misuse_is_reported)
{
    static const vmm_pool_id id = { 0, 3 };
    assert_misuse(graph_pool_begin(NULL, id, NULL, NULL), "vmm_pool_create: cache is NULL");
    assert_misuse(graph_pool_end(NULL, id), "vmm_pool_unroute: (nil) is not a pool");
    assert_misuse(graph_pool_release(NULL, id), "vmm_pool_destroy: (nil) is not a pool");
    assert_misuse(graph_pool_end(test->cache, id), "is not a pool");
    assert_misuse(graph_pool_release(test->cache, id), "is not a pool");
    assert_misuse(vmm_limit_set(NULL, 0), "vmm_limit_set: cache is NULL");
    assert_ok(graph_pool_begin(test->cache, id, NULL, NULL));
    assert_misuse(graph_pool_begin(test->cache, id, NULL, NULL), "has a route already");
    assert_ok(graph_pool_end(test->cache, id));
    assert_misuse(graph_pool_end(test->cache, id), "has no route");
    assert_ok(graph_pool_release(test->cache, id));
    assert_misuse(graph_pool_release(test->cache, id), "is not a pool");
    assert_int_equal(pool_of_next(test, 1), 0);
}

/* The failed begin is no use, and leaves the filter of the first one. */
CACHE_TEST(a_second_begin_changes_nothing)
{
    static const vmm_pool_id id = { 8, 0 };
    assert_ok(graph_pool_begin(test->cache, id, graph_filter, &test->streams[1]));
    assert_status(graph_pool_begin(test->cache, id, graph_filter, &test->streams[2]),
                  VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(pool_of_next(test, 1), 8);
    assert_int_equal(pool_of_next(test, 2), 0);
    assert_ok(graph_pool_end(test->cache, id));
    assert_ok(graph_pool_release(test->cache, id));
    assert_status(graph_pool_release(test->cache, id), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(cache_stats(test).retained_bytes, 0);
}

/* It counts from then on; what is held stays. */
CACHE_TEST(a_limit_can_change)
{
    void *block = block_alloc(test, CACHE_LIMIT / 2, 1);
    void *more = NULL;
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT / 4));
    assert_int_equal(cache_stats(test).limit_bytes, CACHE_LIMIT / 4);
    assert_int_equal(cache_stats(test).reserved_bytes.current, CACHE_LIMIT / 2);
    assert_status(vmm_alloc(test->cache, 4 * MIB, NULL, &more), VMM_ERR_DEVICE_OOM);
    block_free(test, block);
    more = block_alloc(test, CACHE_LIMIT / 4, 0); /* for which the rest goes back */
    assert_true(cache_stats(test).reserved_bytes.current <= CACHE_LIMIT / 2);
    block_free(test, more);
    assert_ok(vmm_limit_set(test->cache, 0));
    block = block_alloc(test, 2 * CACHE_LIMIT, 1);
    block_free(test, block);
}

CACHE_MAIN()
