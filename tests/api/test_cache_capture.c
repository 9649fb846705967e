/* While a stream is being captured: nothing breaks the capture, and nothing that it forbids is missed after it. */
#define _GNU_SOURCE
#include "api/waits.h"
#include "driver/sim/sim.h"
#include "support/graph_support.h"
#include "support/pool_calls.h"
#include "support/thread_support.h"
#include "support/visit_support.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define LARGE (8 * MIB)

static void lag_set(uint64_t operations, struct cache_test *test)
{
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(test->driver, operations);
}

static void all_reported(struct cache_test *test)
{
    vmm_item item = VMM_ITEM_INIT;
    FILE *sink = tmpfile();
    uint64_t bytes;
    assert_non_null(sink);
    assert_ok(vmm_summary_write(test->cache, sink));
    assert_int_equal(fclose(sink), 0);
    assert_ok(vmm_walk(test->cache, visit_continue, NULL));
    assert_status(vmm_find(test->cache, &item, &item), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_device_memory(test->cache, &bytes, &bytes));
    assert_ok(vmm_stats_reset_peak(test->cache));
    cache_verify(test);
}

/* Blocks between live ones, freed while work on them is under way, on all streams but a captured one. */
static void pieces_create(struct cache_test *test, unsigned captured)
{
    enum { PIECES = 12 };
    void *pieces[PIECES];
    for (unsigned i = 0; i < PIECES; i++) {
        unsigned stream = i % CACHE_STREAMS;
        pieces[i] = block_alloc(test, 3 * MIB, stream);
        if (i % 3 == 0)
            block_use(test, pieces[i], (stream + i) % CACHE_STREAMS);
        if (stream != captured)
            block_fill(test, pieces[i], 3 * MIB, i, stream);
    }
    for (unsigned i = 0; i < PIECES; i += 3)
        block_free(test, pieces[i]);
    for (unsigned i = 0; i < PIECES; i++) {
        if (i % 3 != 0)
            block_free(test, pieces[i]);
    }
}

static void everything_done(struct cache_test *test, const struct graph *graph)
{
    for (unsigned round = 0; round < 2; round++) {
        pieces_create(test, graph->stream);
        memory_exhaust(test, graph);
        (void)cache_trim(test, 0);
        assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT / 2));
        memory_exhaust(test, graph);
        assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
        pieces_create(test, graph->stream);
        assert_ok(vmm_poll(test->cache));
        all_reported(test);
    }
}

static void capture_survives(struct cache_test *test, const vmm_config *config, uint64_t lag)
{
    cache_restart(test, config);
    lag_set(lag, test);
    pieces_create(test, CACHE_STREAMS);
    struct graph graph;
    graph_begin(test, &graph, 1, 2);
    void *before = graph_alloc(test, &graph, LARGE);
    graph_free(test, &graph, graph_alloc(test, &graph, 5 * MIB));
    everything_done(test, &graph);
    graph_free(test, &graph, before);
    if (cache_stats(test).clock_pauses == 0) /* else it gets nothing that was freed meanwhile */
        (void)graph_alloc(test, &graph, MIB);
    graph_end(test, &graph);
    for (unsigned stream = 1; stream < CACHE_STREAMS; stream++) {
        graph_replay(test, &graph, stream);
        work_verify(test);
    }
    graph_discard(test, &graph);
    work_verify(test);
    cache_trim_all(test);
}

CACHE_TEST(nothing_breaks_a_capture)
{
    static const uint64_t lags[] = { 0, 5, 1000 };
    for (unsigned i = 0; i < 12; i++) {
        vmm_config config = VMM_CONFIG_INIT;
        config.limit_bytes = CACHE_LIMIT;
        config.reuse = i % 2 == 0 ? VMM_REUSE_ANY_USE : VMM_REUSE_STREAM_WAIT;
        config.compaction = (vmm_switch)(i / 2 % 3);
        config.decay_ms = i / 6;
        config.decay_thread = (vmm_switch)(i / 6);
        capture_survives(test, &config, lags[i % 3]);
    }
}

/* The cache sees the capture, because the stream has a live block. */
CACHE_TEST(nothing_breaks_an_unannounced_capture)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .compaction = VMM_ON);
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    void *seen = block_alloc(test, LARGE, 2);
    capture_begin_silently(test, 2);
    graph_discard(test, &graph);
    pieces_create(test, 2);
    void *pieces[3];
    for (unsigned i = 0; i < 3; i++)
        pieces[i] = block_alloc(test, 3 * MIB, 3);
    block_free(test, pieces[1]);
    (void)cache_trim(test, 0);
    capture_end(test, 2);
    block_free(test, seen);
    assert_int_equal(cache_stats(test).clock_kind, VMM_CLOCK_STREAMS);
    void *block = block_alloc(test, CACHE_LIMIT - 16 * MIB, 3); /* which takes what was released */
    block_free(test, block);
    block_free(test, pieces[0]);
    block_free(test, pieces[2]);
}

/* ---- Uses ------------------------------------------------------------------------------------ */

CACHE_TEST(blocks_wait_for_a_stream_that_is_captured)
{
    for (int i = 0; i < MIXED; i++) {
        struct graph graph;
        void *block = block_alloc(test, mixed_sizes[i], 1);
        block_use(test, block, 2);
        graph_begin(test, &graph, 1, 2);
        block_free(test, block);
        assert_int_equal(cache_scan(test).waiting_blocks, 1);
        void *other = block_alloc(test, mixed_sizes[i], 1);
        assert_ptr_not_equal(other, block);
        (void)cache_trim(test, 0);
        assert_int_equal(cache_scan(test).waiting_blocks, 1);
        graph_end(test, &graph);
        work_verify(test);
        (void)cache_trim(test, SIZE_MAX);
        assert_int_equal(cache_scan(test).waiting_blocks, 0);
        block_free(test, other);
        graph_release(test, &graph);
    }
}

CACHE_TEST(blocks_of_a_graph_wait_for_others)
{
    struct graph graph;
    graph_begin(test, &graph, 1, 2);
    void *block = graph_alloc(test, &graph, LARGE);
    block_use(test, block, 3);
    lag_set(UINT64_C(1) << 40, test);
    block_fill(test, block, LARGE, 3, 3);
    graph_free(test, &graph, block);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        assert_ptr_not_equal(graph_alloc(test, &graph, LARGE), block);
    stream_finish(test, 3);
    assert_ptr_equal(graph_alloc(test, &graph, LARGE), block);
    graph_end(test, &graph);
    graph_discard(test, &graph);
}

/* What waits for the captured stream is no reason not to wait for the rest. */
CACHE_TEST(an_oom_waits_for_streams_that_are_not_captured)
{
    struct graph graph;
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .reuse = VMM_REUSE_DECLARED);
    void *stuck = block_alloc(test, MIB, 0); /* in the pool that is asked first */
    void *block = block_alloc(test, CACHE_LIMIT / 2, 1);
    block_use(test, stuck, 2);
    block_use(test, block, 3);
    graph_begin(test, &graph, 1, 2);
    lag_set(UINT64_C(1) << 40, test);
    block_fill(test, block, CACHE_LIMIT / 2, 1, 3);
    block_free(test, stuck);
    block_free(test, block);
    (void)block_alloc(test, CACHE_LIMIT / 4 * 3, 1);
    graph_end(test, &graph);
    graph_release(test, &graph);
}

CACHE_TEST(an_oom_waits_for_memory_outside_captures)
{
    struct graph graph;
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .reuse = VMM_REUSE_DECLARED);
    void *stuck = block_alloc(test, LARGE, 2);
    void *block = block_alloc(test, CACHE_LIMIT / 2, 3);
    lag_set(UINT64_C(1) << 40, test);
    graph_begin(test, &graph, 1, 2);
    block_fill(test, block, CACHE_LIMIT / 2, 1, 3);
    block_free(test, stuck);
    block_free(test, block);
    (void)block_alloc(test, CACHE_LIMIT / 4 * 3, 1);
    graph_free(test, &graph, graph_alloc(test, &graph, LARGE));
    graph_end(test, &graph);
    graph_release(test, &graph);
}

/* In whatever order the streams came. */
static void idle_is_waited_for(struct cache_test *test, unsigned first)
{
    struct graph graph;
    void *blocks[3];
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .reuse = VMM_REUSE_DECLARED);
    blocks[first] = block_alloc(test, CACHE_LIMIT / 2, first);
    blocks[3 - first] = block_alloc(test, CACHE_LIMIT / 2, 3 - first);
    lag_set(UINT64_C(1) << 40, test);
    block_fill(test, blocks[2], CACHE_LIMIT / 2, 1, 2);
    graph_begin(test, &graph, 1, 1);
    block_free(test, blocks[2]);
    block_free(test, blocks[1]);
    graph_free(test, &graph, graph_alloc(test, &graph, 2 * LARGE));
    graph_end(test, &graph);
    graph_release(test, &graph);
    lag_set(0, test);
}

CACHE_TEST(an_oom_waits_for_idle_memory_whatever_capture_came_first)
{
    idle_is_waited_for(test, 1);
    idle_is_waited_for(test, 2);
}

/* A stream that the cache does not know may read it, so nothing is waited for. */
CACHE_TEST(an_oom_names_the_capture_that_stops_the_clock)
{
    struct graph graph;
    void *none = NULL;
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT);
    void *block = block_alloc(test, CACHE_LIMIT / 2, 3);
    graph_begin(test, &graph, 1, 2);
    block_free(test, block);
    assert_status(vmm_alloc(test->cache, CACHE_LIMIT / 4 * 3, test->streams[1], &none),
                  VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "until a capture ends"));
    assert_true(cache_stats(test).clock_pauses > 0);
    graph_end(test, &graph);
    graph_release(test, &graph);
    block_free(test, block_alloc(test, CACHE_LIMIT / 4 * 3, 1));
}

/* ---- What a graph gets ------------------------------------------------------------------------ */

/* A graph would not wait again when it is launched. */
CACHE_TEST(graphs_reuse_completed_blocks)
{
    cache_restart_with(test, .reuse = VMM_REUSE_STREAM_WAIT);
    for (unsigned stream = 1; stream < 3; stream++) {
        struct graph graph;
        void *busy = block_alloc(test, 4 * LARGE, stream);
        bool is_sure = flight_begin(test, busy, 4 * LARGE, stream);
        block_free(test, busy);
        uint64_t waits = cache_stats(test).stream_waits;
        graph_begin(test, &graph, stream, 1);
        for (int i = 0; i < 4; i++) {
            char *block = graph_alloc(test, &graph, mixed_sizes[i]);
            assert_true(!is_sure || (size_t)(block - (char *)busy) >= 4 * LARGE);
        }
        assert_int_equal(cache_stats(test).stream_waits, waits);
        graph_end(test, &graph);
        graph_replay(test, &graph, 3);
        flight_end(test);
        graph_discard(test, &graph);
    }
}

/* The pool has begun, and its stream is not captured yet: the stream could wait, but launches would not. */
CACHE_TEST(graphs_reuse_blocks_completed_before_the_capture)
{
    static const vmm_pool_id id = { 1, 1 };
    cache_restart_with(test, .reuse = VMM_REUSE_STREAM_WAIT, .limit_bytes = CACHE_LIMIT);
    for (unsigned round = 0; round < 2; round++) {
        void *busy = block_alloc(test, CACHE_LIMIT / 2, 2);
        lag_set(UINT64_C(1) << 40, test);
        block_fill(test, busy, CACHE_LIMIT / 2, 1, 2);
        block_free(test, busy);
        uint64_t waits = cache_stats(test).stream_waits;
        assert_ok(graph_pool_begin(test->cache, id, graph_filter, &test->streams[1]));
        size_t bytes = round == 0 ? 16 * MIB : CACHE_LIMIT / 4 * 3; /* then there is no other */
        void *block = block_alloc(test, bytes, 1);
        assert_int_equal(cache_stats(test).stream_waits, waits);
        block_fill(test, block, bytes, 2, 3); /* a launch elsewhere */
        assert_ok(graph_pool_end(test->cache, id));
        block_free(test, block);
        assert_ok(graph_pool_release(test->cache, id));
        lag_set(0, test);
    }
}

/* What was freed before the capture began and has finished meanwhile need not be taken anew. */
CACHE_TEST(graphs_reuse_blocks_that_complete_during_the_capture)
{
    struct graph graph;
    void *block = block_alloc(test, CACHE_LIMIT, 1);
    block_fill(test, block, CACHE_LIMIT, 1, 1);
    block_free(test, block);
    graph_begin(test, &graph, 1, 1);
    (void)usleep(50000); /* a capture forbids waits for the device */
    assert_ptr_equal(graph_alloc(test, &graph, CACHE_LIMIT), block);
    graph_end(test, &graph);
    graph_discard(test, &graph);
}

/* ---- Release ---------------------------------------------------------------------------------- */

CACHE_TEST(a_release_waits_for_captures_to_end)
{
    struct graph first;
    struct graph second;
    struct graph third;
    graph_begin(test, &first, 1, 1);
    graph_free(test, &first, graph_alloc(test, &first, CACHE_LIMIT / 2));
    graph_end(test, &first);
    graph_begin(test, &second, 2, 2);
    graph_begin(test, &third, 3, 3);
    graph_release(test, &first);
    assert_status(graph_pool_release(test->cache, first.id), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(cache_stats(test).retained_bytes, CACHE_LIMIT / 2);
    void *block = NULL;
    assert_status(vmm_alloc(test->cache, CACHE_LIMIT, NULL, &block), VMM_ERR_DEVICE_OOM);
    graph_end(test, &second);
    assert_int_equal(cache_stats(test).retained_bytes, CACHE_LIMIT / 2);
    graph_end(test, &third);
    assert_int_equal(cache_stats(test).retained_bytes, 0);
    block = block_alloc(test, CACHE_LIMIT, 0);
    block_free(test, block);
    graph_release(test, &second);
    graph_release(test, &third);
}

CACHE_TEST(a_pool_id_can_begin_again_during_its_release)
{
    struct graph graph;
    struct graph other;
    struct graph again;
    graph_mix(test, &graph, 1, 1);
    graph_begin(test, &other, 2, 2);
    graph_release(test, &graph);
    graph_end(test, &other);
    graph_mix(test, &again, 1, 1);
    memory_exhaust(test, &again);
    graph_replay(test, &again, 3);
    work_verify(test);
    graph_empty(test, &graph);
    graph_discard(test, &again);
    graph_release(test, &other);
    assert_int_equal(cache_stats(test).retained_bytes, 0);
}

CACHE_TEST(a_pool_cannot_be_destroyed_while_a_route_leads_to_it)
{
    struct graph graph;
    graph_begin(test, &graph, 1, 1);
    graph_free(test, &graph, graph_alloc(test, &graph, LARGE));
    assert_status(graph_pool_release(test->cache, graph.id), VMM_ERR_INVALID_ARGUMENT);
    void *block = graph_alloc(test, &graph, LARGE);
    assert_true(pool_id_is(block_find(test, block).pool_id, graph.id.first, graph.id.second));
    graph_end(test, &graph);
    graph_discard(test, &graph);
    assert_int_equal(cache_stats(test).retained_bytes, 0);
    assert_status(graph_pool_release(test->cache, graph.id), VMM_ERR_INVALID_ARGUMENT);
}

/* A freed block that another captured stream uses waits for the end of the capture, unless the caller knows from the
 * graph that the use comes before all that its own stream does next. */
CACHE_TEST(a_caller_can_end_the_wait_of_a_block)
{
    for (size_t bytes = 512; bytes <= LARGE; bytes *= LARGE / 512) {
        vmm_stream streams[4] = { 0 };
        void *block = block_alloc(test, bytes, 1);
        capture_begin(test, 1);
        capture_begin(test, 2);
        block_use(test, block, 2);
        assert_int_equal(vmm__wait_streams(test->cache, block, streams, 4), 0);
        block_free(test, block);
        assert_int_equal(vmm__wait_streams(test->cache, block, streams, 4), 2);
        assert_ptr_equal(streams[0], test->streams[1]);
        assert_ptr_equal(streams[1], test->streams[2]);
        void *beside = block_alloc(test, bytes, 1);
        assert_ptr_not_equal(beside, block);
        assert_true(vmm__wait_end(test->cache, block));
        assert_false(vmm__wait_end(test->cache, block));
        assert_ptr_equal(block_alloc(test, bytes, 1), block);
        block_free(test, block);
        block_free(test, beside);
        capture_end(test, 2);
        capture_end(test, 1);
    }
}

CACHE_TEST(a_cache_can_end_during_a_capture)
{
    for (unsigned told = 0; told < 2; told++) {
        struct graph graph = { .stream = 1 };
        void *block = block_alloc(test, LARGE, 2);
        if (told == 1) {
            graph_begin(test, &graph, 1, 1);
            (void)graph_alloc(test, &graph, LARGE);
        } else {
            block_free(test, block_alloc(test, LARGE, 1));
            capture_begin(test, 1);
        }
        lag_set(1000, test);
        block_fill(test, block, LARGE, 1, 2);
        if (driver_choice_kind() == VMM_DRIVER_CUDA)
            stream_finish(test, 2);
        cache_restart(test, NULL);
        capture_end(test, 1);
        lag_set(0, test);
    }
}

static void *announce_main(void *context)
{
    struct cache_test *test = context;
    assert_ok(vmm_capture_announce(test->cache, test->streams[1]));
    return NULL;
}

/* Another thread has announced a capture of the stream, and has not begun it. */
CACHE_TEST(a_wait_covers_work_from_before_an_announcement)
{
    const size_t bytes = 48 * MIB;
    struct staying_thread announcer;
    void *block = block_alloc(test, bytes, 1);
    void *out;
    if (driver_choice_kind() != VMM_DRIVER_HOST)
        return;
    memset(block, 7, bytes);
    assert_ok(vmm_record_stream(test->cache, block, test->streams[2]));
    (void)block_alloc(test, 2 * MIB, 1); /* behind it, so that it is copied */
    assert_ok(vmm_resize(test->cache, block, bytes + 8 * MIB, &out));
    thread_stay(&announcer, announce_main, test);
    assert_ok(vmm_wait(test->cache));
    const char *copy = out;
    bool is_copied = copy[0] == 7 && memcmp(copy, copy + 1, bytes - 1) == 0;
    assert_ok(vmm_capture_retract(test->cache, test->streams[1]));
    (void)thread_leave(&announcer);
    assert_true(is_copied);
    assert_ptr_not_equal(block, out);
}

static void *capture_main(void *context)
{
    struct cache_test *test = context;
    assert_ok(vmm_capture_announce(test->cache, test->streams[2]));
    assert_ok(vmm__driver_capture_begin(test->driver, test->streams[2]));
    assert_ok(vmm__driver_capture_end(test->driver, test->streams[2]));
    return NULL;
}

/* No call of the cache has seen the capture, and no retract follows. */
CACHE_TEST(an_announcement_ends_with_its_thread)
{
    void *block = block_alloc(test, LARGE, 1);
    block_use(test, block, 2);
    (void)thread_run(capture_main, test);
    block_free(test, block);
    work_verify(test);
    for (int i = 0; i < 1000 && cache_stats(test).active_bytes.current > 0; i++) {
        (void)usleep(1000); /* the system lets go of it after the join */
        assert_ok(vmm_wait(test->cache));
        assert_ok(vmm_poll(test->cache));
    }
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).active_bytes.current, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

CACHE_MAIN()
