/* While a stream is being captured: nothing breaks the capture, and nothing that it forbids is missed after it. */
#define _GNU_SOURCE
#include "driver/sim.h"
#include "support/graph_support.h"

#include <string.h>
#include <unistd.h>

#define LARGE (8 * MIB)

static void lag_set(uint64_t operations, struct cache_test *test)
{
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(test->driver, operations);
}

static int nothing_visited(void *context, const vmm_item *item)
{
    (void)context;
    (void)item;
    return 0;
}

static void all_reported(struct cache_test *test)
{
    vmm_item item = VMM_ITEM_INIT;
    FILE *sink = tmpfile();
    uint64_t bytes;
    assert_non_null(sink);
    assert_ok(vmm_summary_write(test->cache, sink));
    assert_int_equal(fclose(sink), 0);
    assert_ok(vmm_walk(test->cache, nothing_visited, NULL));
    assert_status(vmm_find(test->cache, &item, &item), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_device_memory(test->cache, &bytes, &bytes));
    assert_ok(vmm_stats_reset_peak(test->cache));
    cache_verified(test);
}

/* Blocks between live ones, freed while work on them is under way, on all streams but a captured one. */
static void pieces_made(struct cache_test *test, unsigned captured)
{
    enum { PIECES = 12 };
    void *pieces[PIECES];
    for (unsigned i = 0; i < PIECES; i++) {
        unsigned stream = i % CACHE_STREAMS;
        pieces[i] = block_taken(test, 3 * MIB, stream);
        if (i % 3 == 0)
            block_used(test, pieces[i], (stream + i) % CACHE_STREAMS);
        if (stream != captured)
            block_filled(test, pieces[i], 3 * MIB, i, stream);
    }
    for (unsigned i = 0; i < PIECES; i += 3)
        block_given(test, pieces[i]);
    for (unsigned i = 0; i < PIECES; i++) {
        if (i % 3 != 0)
            block_given(test, pieces[i]);
    }
}

static void everything_done(struct cache_test *test, const struct graph *graph)
{
    for (unsigned round = 0; round < 2; round++) {
        pieces_made(test, graph->stream);
        memory_exhausted(test, graph);
        (void)cache_trimmed(test, 0);
        assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT / 2));
        memory_exhausted(test, graph);
        assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
        pieces_made(test, graph->stream);
        assert_ok(vmm_tick(test->cache));
        all_reported(test);
    }
}

static void capture_survives(struct cache_test *test, const vmm_config *config, uint64_t lag)
{
    cache_restart(test, config);
    lag_set(lag, test);
    pieces_made(test, CACHE_STREAMS);
    struct graph graph;
    graph_begun(test, &graph, 1, 2);
    void *before = graph_taken(test, &graph, LARGE);
    graph_given(test, &graph, graph_taken(test, &graph, 5 * MIB));
    everything_done(test, &graph);
    graph_given(test, &graph, before);
    (void)graph_taken(test, &graph, MIB);
    graph_ended(test, &graph);
    for (unsigned stream = 1; stream < CACHE_STREAMS; stream++) {
        graph_replayed(test, &graph, stream);
        work_verified(test);
    }
    graph_emptied(test, &graph);
    graph_released(test, &graph);
    work_verified(test);
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

static void nothing_breaks_a_capture(void **state)
{
    struct cache_test *test = *state;
    static const uint64_t lags[] = { 0, 5, 1000 };
    for (unsigned i = 0; i < 12; i++) {
        vmm_config config = VMM_CONFIG_INIT;
        config.limit_bytes = CACHE_LIMIT;
        config.sharing = i % 2 == 0 ? VMM_SHARING_FINISHED : VMM_SHARING_WAIT;
        config.compaction = (vmm_compaction)(i / 2 % 3);
        config.decay_ms = i / 6;
        config.decay_thread = (int)i / 6;
        capture_survives(test, &config, lags[i % 3]);
    }
}

/* Nobody told the cache of this capture. */
static void nothing_breaks_a_capture_that_was_not_told(void **state)
{
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = CACHE_LIMIT;
    config.compaction = VMM_COMPACTION_ON;
    cache_restart(test, &config);
    struct graph graph;
    graph_mixed(test, &graph, 1, 1);
    block_given(test, block_taken(test, LARGE, 2));
    capture_begun(test, 2);
    graph_emptied(test, &graph);
    graph_released(test, &graph);
    pieces_made(test, 2);
    void *pieces[3];
    for (unsigned i = 0; i < 3; i++)
        pieces[i] = block_taken(test, 3 * MIB, 3);
    block_given(test, pieces[1]);
    (void)cache_trimmed(test, 0);
    capture_ended(test, 2);
    void *block = block_taken(test, CACHE_LIMIT - 16 * MIB, 3); /* which takes what was released */
    block_given(test, block);
    block_given(test, pieces[0]);
    block_given(test, pieces[2]);
    cache_verified(test);
}

/* ---- Uses ------------------------------------------------------------------------------------ */

static void blocks_wait_for_a_stream_that_is_captured(void **state)
{
    struct cache_test *test = *state;
    for (int i = 0; i < MIXED; i++) {
        struct graph graph;
        void *block = block_taken(test, mixed_sizes[i], 1);
        block_used(test, block, 2);
        graph_begun(test, &graph, 1, 2);
        block_given(test, block);
        assert_int_equal(cache_survey(test).waiting_blocks, 1);
        void *other = block_taken(test, mixed_sizes[i], 1);
        assert_ptr_not_equal(other, block);
        (void)cache_trimmed(test, 0);
        assert_int_equal(cache_survey(test).waiting_blocks, 1);
        graph_ended(test, &graph);
        work_verified(test);
        (void)cache_trimmed(test, SIZE_MAX);
        assert_int_equal(cache_survey(test).waiting_blocks, 0);
        block_given(test, other);
        graph_released(test, &graph);
    }
}

static void blocks_of_a_graph_wait_for_others(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_begun(test, &graph, 1, 2);
    void *block = graph_taken(test, &graph, LARGE);
    block_used(test, block, 3);
    lag_set(UINT64_C(1) << 40, test);
    block_filled(test, block, LARGE, 3, 3);
    graph_given(test, &graph, block);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        assert_ptr_not_equal(graph_taken(test, &graph, LARGE), block);
    stream_finished(test, 3);
    assert_ptr_equal(graph_taken(test, &graph, LARGE), block);
    graph_ended(test, &graph);
    graph_emptied(test, &graph);
    graph_released(test, &graph);
}

/* What waits for the captured stream is no reason not to wait for the rest. */
static void a_shortage_waits_for_streams_that_are_not_captured(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    void *stuck = block_taken(test, MIB, 0); /* in the pool that is asked first */
    void *block = block_taken(test, CACHE_LIMIT / 2, 1);
    block_used(test, stuck, 2);
    block_used(test, block, 3);
    graph_begun(test, &graph, 1, 2);
    lag_set(UINT64_C(1) << 40, test);
    block_filled(test, block, CACHE_LIMIT / 2, 1, 3);
    block_given(test, stuck);
    block_given(test, block);
    void *large = block_taken(test, CACHE_LIMIT / 4 * 3, 1);
    graph_ended(test, &graph);
    graph_released(test, &graph);
    block_given(test, large);
}

static void a_shortage_waits_for_memory_that_no_capture_holds(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    void *stuck = block_taken(test, LARGE, 2);
    void *block = block_taken(test, CACHE_LIMIT / 2, 3);
    lag_set(UINT64_C(1) << 40, test);
    graph_begun(test, &graph, 1, 2);
    block_filled(test, block, CACHE_LIMIT / 2, 1, 3);
    block_given(test, stuck);
    block_given(test, block);
    void *large = block_taken(test, CACHE_LIMIT / 4 * 3, 1);
    graph_given(test, &graph, graph_taken(test, &graph, LARGE));
    graph_ended(test, &graph);
    graph_released(test, &graph);
    block_given(test, large);
}

/* ---- What a graph gets ------------------------------------------------------------------------ */

/* A graph would not wait again when it is launched. */
static void graphs_get_what_has_finished(void **state)
{
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT;
    config.sharing = VMM_SHARING_WAIT;
    cache_restart(test, &config);
    for (unsigned stream = 1; stream < 3; stream++) {
        struct graph graph;
        void *busy = block_taken(test, 4 * LARGE, stream);
        bool is_sure = flight_begin(test, busy, 4 * LARGE, stream);
        block_given(test, busy);
        uint64_t waits = cache_stats(test).stream_waits;
        graph_begun(test, &graph, stream, 1);
        for (int i = 0; i < 4; i++) {
            char *block = graph_taken(test, &graph, mixed_sizes[i]);
            assert_true(!is_sure || (size_t)(block - (char *)busy) >= 4 * LARGE);
        }
        assert_int_equal(cache_stats(test).stream_waits, waits);
        graph_ended(test, &graph);
        graph_replayed(test, &graph, 3);
        flight_end(test);
        graph_emptied(test, &graph);
        graph_released(test, &graph);
    }
}

/* The pool has begun, and its stream is not captured yet: the stream could wait, but launches would not. */
static void graphs_get_what_has_finished_before_their_capture(void **state)
{
    struct cache_test *test = *state;
    static const vmm_pool_id id = { 1, 1 };
    vmm_config config = VMM_CONFIG_INIT;
    config.sharing = VMM_SHARING_WAIT;
    config.limit_bytes = CACHE_LIMIT;
    cache_restart(test, &config);
    for (unsigned round = 0; round < 2; round++) {
        void *busy = block_taken(test, CACHE_LIMIT / 2, 2);
        lag_set(UINT64_C(1) << 40, test);
        block_filled(test, busy, CACHE_LIMIT / 2, 1, 2);
        block_given(test, busy);
        uint64_t waits = cache_stats(test).stream_waits;
        assert_ok(vmm_pool_begin(test->cache, id, graph_filter, &test->streams[1]));
        size_t bytes = round == 0 ? 16 * MIB : CACHE_LIMIT / 4 * 3; /* then there is no other */
        void *block = block_taken(test, bytes, 1);
        assert_int_equal(cache_stats(test).stream_waits, waits);
        block_filled(test, block, bytes, 2, 3); /* a launch elsewhere */
        assert_ok(vmm_pool_end(test->cache, id));
        block_given(test, block);
        assert_ok(vmm_pool_release(test->cache, id));
        lag_set(0, test);
    }
}

/* What was freed before the capture began and has finished meanwhile need not be taken anew. */
static void graphs_get_what_finishes_meanwhile(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    void *block = block_taken(test, CACHE_LIMIT, 1);
    block_filled(test, block, CACHE_LIMIT, 1, 1);
    block_given(test, block);
    graph_begun(test, &graph, 1, 1);
    (void)usleep(50000); /* nobody may wait for a device in a capture */
    assert_ptr_equal(graph_taken(test, &graph, CACHE_LIMIT), block);
    graph_ended(test, &graph);
    graph_emptied(test, &graph);
    graph_released(test, &graph);
}

/* ---- Release ---------------------------------------------------------------------------------- */

static void a_release_waits_for_captures_to_end(void **state)
{
    struct cache_test *test = *state;
    struct graph first;
    struct graph second;
    struct graph third;
    graph_begun(test, &first, 1, 1);
    graph_given(test, &first, graph_taken(test, &first, CACHE_LIMIT / 2));
    graph_ended(test, &first);
    graph_begun(test, &second, 2, 2);
    graph_begun(test, &third, 3, 3);
    graph_released(test, &first);
    assert_status(vmm_pool_release(test->cache, first.id), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(cache_stats(test).kept_bytes, CACHE_LIMIT / 2);
    void *block = NULL;
    assert_status(vmm_alloc(test->cache, CACHE_LIMIT, NULL, &block), VMM_ERR_DEVICE_OOM);
    graph_ended(test, &second);
    assert_int_equal(cache_stats(test).kept_bytes, CACHE_LIMIT / 2);
    graph_ended(test, &third);
    assert_int_equal(cache_stats(test).kept_bytes, 0);
    block = block_taken(test, CACHE_LIMIT, 0);
    block_given(test, block);
    graph_released(test, &second);
    graph_released(test, &third);
}

static void a_name_that_leaves_can_begin_again(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    struct graph other;
    graph_mixed(test, &graph, 1, 1);
    graph_begun(test, &other, 2, 2);
    graph_released(test, &graph);
    assert_ok(vmm_pool_begin(test->cache, graph.id, graph_filter, &test->streams[1]));
    assert_ok(vmm_pool_end(test->cache, graph.id));
    graph_ended(test, &other);
    memory_exhausted(test, &graph);
    graph_replayed(test, &graph, 3);
    work_verified(test);
    graph_emptied(test, &graph);
    graph_released(test, &graph);
    graph_released(test, &other);
    assert_int_equal(cache_stats(test).kept_bytes, 0);
}

/* The use ends with the capture that is under way still. */
static void a_pool_can_be_released_while_it_is_begun(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_begun(test, &graph, 1, 1);
    graph_given(test, &graph, graph_taken(test, &graph, LARGE));
    graph_released(test, &graph);
    block_given(test, block_taken(test, LARGE, 1));
    cache_verified(test);
    graph_ended(test, &graph);
    assert_int_equal(cache_stats(test).kept_bytes, 0);
    assert_status(vmm_pool_release(test->cache, graph.id), VMM_ERR_INVALID_ARGUMENT);
}

static void a_cache_can_end_during_a_capture(void **state)
{
    struct cache_test *test = *state;
    for (unsigned told = 0; told < 2; told++) {
        struct graph graph = { .stream = 1 };
        void *block = block_taken(test, LARGE, 2);
        if (told == 1) {
            graph_begun(test, &graph, 1, 1);
            (void)graph_taken(test, &graph, LARGE);
        } else {
            block_given(test, block_taken(test, LARGE, 1));
            capture_begun(test, 1);
        }
        lag_set(1000, test);
        block_filled(test, block, LARGE, 1, 2);
        if (driver_choice_kind() == VMM_DRIVER_CUDA)
            stream_finished(test, 2);
        cache_restart(test, NULL);
        capture_ended(test, 1);
        lag_set(0, test);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(nothing_breaks_a_capture),
        CACHE_TEST(nothing_breaks_a_capture_that_was_not_told),
        CACHE_TEST(blocks_wait_for_a_stream_that_is_captured),
        CACHE_TEST(blocks_of_a_graph_wait_for_others),
        CACHE_TEST(a_shortage_waits_for_streams_that_are_not_captured),
        CACHE_TEST(a_shortage_waits_for_memory_that_no_capture_holds),
        CACHE_TEST(graphs_get_what_has_finished),
        CACHE_TEST(graphs_get_what_has_finished_before_their_capture),
        CACHE_TEST(graphs_get_what_finishes_meanwhile),
        CACHE_TEST(a_release_waits_for_captures_to_end),
        CACHE_TEST(a_name_that_leaves_can_begin_again),
        CACHE_TEST(a_pool_can_be_released_while_it_is_begun),
        CACHE_TEST(a_cache_can_end_during_a_capture),
    };
    CACHE_MAIN(tests);
}
