/* Private pools: whose requests they serve, and what they keep. */
#include "support/graph_support.h"

#include <string.h>

#define LARGE (8 * MIB)

/* ---- What is kept --------------------------------------------------------------------------- */

static void what_a_graph_freed_is_nobody_s(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_mixed(test, &graph, 1, 1);
    for (unsigned round = 0; round < 3; round++) {
        memory_exhausted(test, &graph);
        (void)cache_trimmed(test, 0);
        assert_ok(vmm_tick(test->cache));
        graph_replayed(test, &graph, round + 1);
        work_verified(test);
    }
    cache_verified(test);
    graph_emptied(test, &graph);
    (void)cache_trimmed(test, 0);
    assert_true(cache_stats(test).reserved_bytes.current >= LARGE);
    graph_released(test, &graph);
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

/* The thread's turn is with the private pool when the capture ends. */
static void requests_after_the_end_are_not_the_graph_s(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_begun(test, &graph, 1, 1);
    void *block = graph_taken(test, &graph, LARGE);
    void *small = graph_taken(test, &graph, 512);
    graph_given(test, &graph, block);
    graph_given(test, &graph, small);
    graph_ended(test, &graph);
    for (int i = 0; i < 4; i++) {
        void *after = block_taken(test, i % 2 == 0 ? LARGE : 512, 1);
        assert_false(graph_meets(&graph, after, 512));
        assert_true(pool_id_is(block_found(test, after).pool, 0, 0));
        block_given(test, after);
    }
    graph_released(test, &graph);
}

/* And so it is after a block of the private pool was given back. */
static void requests_after_a_free_are_not_the_graph_s(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_begun(test, &graph, 1, 1);
    void *block = graph_taken(test, &graph, LARGE);
    graph_ended(test, &graph);
    block_given(test, block_taken(test, LARGE, 1));
    block_given(test, block);
    void *after = block_taken(test, LARGE, 1);
    assert_ptr_not_equal(after, block);
    assert_true(pool_id_is(block_found(test, after).pool, 0, 0));
    block_given(test, after);
    graph_released(test, &graph);
}

static void decay_leaves_what_is_kept(void **state)
{
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT;
    config.decay_ms = 1;
    config.decay_thread = 1;
    cache_restart(test, &config);
    struct graph graph;
    graph_mixed(test, &graph, 1, 1);
    uint64_t end_ns = vmm__driver_clock(test->driver) + 20000000;
    for (int i = 0; i < 200 && vmm__driver_clock(test->driver) < end_ns; i++) {
        block_given(test, block_taken(test, LARGE, 2));
        assert_ok(vmm_tick(test->cache));
        graph_replayed(test, &graph, 3);
    }
    work_verified(test);
    graph_emptied(test, &graph);
    graph_released(test, &graph);
}

static void kept_bytes_are_neither_idle_nor_pinned(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_begun(test, &graph, 1, 1);
    graph_given(test, &graph, graph_taken(test, &graph, LARGE));
    graph_given(test, &graph, graph_taken(test, &graph, MIB));
    graph_ended(test, &graph);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.kept_bytes, stats.reserved_bytes.current);
    assert_int_equal(stats.kept_bytes, cache_survey(test).kept_bytes);
    assert_int_equal(stats.idle_bytes, 0);
    assert_int_equal(stats.pinned_bytes, 0);
    assert_int_equal(stats.largest_free_bytes, 0);
    graph_released(test, &graph);
    stats = cache_stats(test);
    assert_int_equal(stats.kept_bytes, 0);
    assert_int_equal(stats.idle_bytes, stats.reserved_bytes.current);
    cache_verified(test);
}

/* What is kept comes on top of the footprint target: others need not move chunks because of it. */
static void what_is_kept_is_no_reason_to_move(void **state)
{
    struct cache_test *test = *state;
    cache_restart(test, NULL);
    enum { PIECES = 8 };
    void *pieces[PIECES];
    struct graph graph;
    graph_begun(test, &graph, 1, 1);
    graph_given(test, &graph, graph_taken(test, &graph, 16 * LARGE));
    graph_ended(test, &graph);
    for (int i = 0; i < PIECES; i++)
        pieces[i] = block_taken(test, LARGE, 2);
    for (int i = 0; i < PIECES; i += 2)
        block_given(test, pieces[i]);
    uint64_t moves = cache_stats(test).map_calls - cache_stats(test).create_calls;
    void *whole = block_taken(test, PIECES / 2 * LARGE, 2);
    assert_int_equal(cache_stats(test).map_calls - cache_stats(test).create_calls, moves);
    block_given(test, whole);
    graph_released(test, &graph);
}

static void a_shortage_tells_what_is_kept(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_begun(test, &graph, 1, 1);
    graph_given(test, &graph, graph_taken(test, &graph, CACHE_LIMIT / 2));
    graph_ended(test, &graph);
    void *block = NULL;
    assert_status(vmm_alloc(test->cache, CACHE_LIMIT, test->streams[1], &block),
                  VMM_ERR_DEVICE_OOM);
    assert_null(block);
    assert_non_null(strstr(vmm_last_error(), "64.0 MiB kept for captured graphs"));
    graph_released(test, &graph);
    block_given(test, block_taken(test, CACHE_LIMIT, 1));
}

/* ---- Whose requests ------------------------------------------------------------------------- */

static void a_filter_tells_whose_requests(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_begun(test, &graph, 7, 2);
    for (unsigned stream = 0; stream < CACHE_STREAMS; stream++) {
        for (int i = 0; i < MIXED; i++) {
            void *block = block_taken(test, mixed_sizes[i], stream);
            vmm_item item = block_found(test, block);
            assert_true(pool_id_is(item.pool, stream == 2 ? 7 : 0, stream == 2 ? 1 : 0));
            assert_ptr_equal(item.stream, test->streams[stream]);
            assert_int_equal(item.is_small, mixed_sizes[i] <= MIB);
            block_given(test, block);
        }
    }
    graph_ended(test, &graph);
    graph_released(test, &graph);
}

static uint64_t pool_of_next(struct cache_test *test, unsigned stream)
{
    void *block = block_taken(test, LARGE, stream);
    vmm_item item = block_found(test, block);
    block_given(test, block);
    return item.pool.first;
}

static void who_began_last_is_asked_first(void **state)
{
    struct cache_test *test = *state;
    static const vmm_pool_id all = { 1, 0 };
    static const vmm_pool_id some = { 2, 0 };
    static const vmm_pool_id last = { 3, 0 };
    assert_ok(vmm_pool_begin(test->cache, all, NULL, NULL));
    assert_int_equal(pool_of_next(test, 0), 1);
    assert_ok(vmm_pool_begin(test->cache, some, graph_filter, &test->streams[1]));
    assert_int_equal(pool_of_next(test, 1), 2);
    assert_int_equal(pool_of_next(test, 2), 1);
    assert_ok(vmm_pool_begin(test->cache, last, NULL, NULL));
    assert_int_equal(pool_of_next(test, 1), 3);
    assert_ok(vmm_pool_end(test->cache, some));
    assert_int_equal(pool_of_next(test, 1), 3);
    assert_ok(vmm_pool_end(test->cache, last));
    assert_int_equal(pool_of_next(test, 1), 1);
    assert_ok(vmm_pool_end(test->cache, all));
    assert_int_equal(pool_of_next(test, 1), 0);
    assert_ok(vmm_pool_release(test->cache, all));
    assert_ok(vmm_pool_release(test->cache, some));
    assert_ok(vmm_pool_release(test->cache, last));
    cache_verified(test);
}

/* Graphs of one pool run one after the other and use the same memory. */
static void captures_share_a_pool_and_its_uses_count(void **state)
{
    struct cache_test *test = *state;
    struct graph first;
    struct graph second;
    graph_begun(test, &first, 5, 1);
    void *block = graph_taken(test, &first, LARGE);
    graph_given(test, &first, block);
    graph_ended(test, &first);
    graph_begun(test, &second, 5, 1);
    assert_ptr_equal(graph_taken(test, &second, LARGE), block);
    graph_given(test, &second, block);
    graph_ended(test, &second);
    graph_released(test, &first);
    memory_exhausted(test, &second);
    graph_replayed(test, &second, 3);
    work_verified(test);
    assert_true(cache_stats(test).kept_bytes >= LARGE);
    graph_released(test, &second);
    assert_int_equal(cache_stats(test).kept_bytes, 0);
    assert_status(vmm_pool_release(test->cache, second.id), VMM_ERR_INVALID_ARGUMENT);
}

static void a_block_s_own_stream_is_no_other(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    block_given(test, block_taken(test, 512, 1)); /* the stream has a pool of its own */
    graph_begun(test, &graph, 1, 1);
    for (int i = 0; i < MIXED; i++) {
        void *block = graph_taken(test, &graph, mixed_sizes[i]);
        block_used(test, block, 1);
        graph_given(test, &graph, block);
        assert_int_equal(cache_survey(test).waiting_blocks, 0);
        assert_ptr_equal(graph_taken(test, &graph, mixed_sizes[i]), block);
    }
    graph_ended(test, &graph);
    graph_emptied(test, &graph);
    graph_released(test, &graph);
}

/* ---- Misuse --------------------------------------------------------------------------------- */

static void misuse_told(vmm_status status, const char *part)
{
    assert_status(status, VMM_ERR_INVALID_ARGUMENT);
    if (strstr(vmm_last_error(), part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, vmm_last_error());
}

static void misuse_is_told(void **state)
{
    struct cache_test *test = *state;
    static const vmm_pool_id none = { 0, 0 };
    static const vmm_pool_id id = { 0, 3 };
    misuse_told(vmm_pool_begin(NULL, id, NULL, NULL), "vmm_pool_begin: cache is NULL");
    misuse_told(vmm_pool_end(NULL, id), "vmm_pool_end: cache is NULL");
    misuse_told(vmm_pool_release(NULL, id), "vmm_pool_release: cache is NULL");
    misuse_told(vmm_pool_begin(test->cache, none, NULL, NULL), "vmm_pool_begin: the id is zeros");
    misuse_told(vmm_pool_end(test->cache, none), "vmm_pool_end: the id is zeros");
    misuse_told(vmm_pool_release(test->cache, none), "vmm_pool_release: the id is zeros");
    misuse_told(vmm_pool_end(test->cache, id), "(0, 3) is not begun");
    misuse_told(vmm_pool_release(test->cache, id), "(0, 3) has no use left");
    misuse_told(vmm_limit_set(NULL, 0), "vmm_limit_set: cache is NULL");
    assert_ok(vmm_pool_begin(test->cache, id, NULL, NULL));
    misuse_told(vmm_pool_begin(test->cache, id, NULL, NULL), "(0, 3) is begun already");
    assert_ok(vmm_pool_end(test->cache, id));
    misuse_told(vmm_pool_end(test->cache, id), "(0, 3) is not begun");
    assert_ok(vmm_pool_release(test->cache, id));
    misuse_told(vmm_pool_release(test->cache, id), "(0, 3) has no use left");
    assert_int_equal(pool_of_next(test, 1), 0);
}

/* The failed begin is no use, and leaves the filter of the first one. */
static void a_second_begin_changes_nothing(void **state)
{
    struct cache_test *test = *state;
    static const vmm_pool_id id = { 8, 0 };
    assert_ok(vmm_pool_begin(test->cache, id, graph_filter, &test->streams[1]));
    assert_status(vmm_pool_begin(test->cache, id, graph_filter, &test->streams[2]),
                  VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(pool_of_next(test, 1), 8);
    assert_int_equal(pool_of_next(test, 2), 0);
    assert_ok(vmm_pool_end(test->cache, id));
    assert_ok(vmm_pool_release(test->cache, id));
    assert_status(vmm_pool_release(test->cache, id), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(cache_stats(test).kept_bytes, 0);
}

/* It counts from then on; what is held stays. */
static void a_limit_can_change(void **state)
{
    struct cache_test *test = *state;
    void *block = block_taken(test, CACHE_LIMIT / 2, 1);
    void *more = NULL;
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT / 4));
    assert_int_equal(cache_stats(test).limit_bytes, CACHE_LIMIT / 4);
    assert_int_equal(cache_stats(test).reserved_bytes.current, CACHE_LIMIT / 2);
    assert_status(vmm_alloc(test->cache, 4 * MIB, NULL, &more), VMM_ERR_DEVICE_OOM);
    block_given(test, block);
    more = block_taken(test, CACHE_LIMIT / 4, 0); /* for which the rest goes back */
    assert_true(cache_stats(test).reserved_bytes.current <= CACHE_LIMIT / 2);
    block_given(test, more);
    assert_ok(vmm_limit_set(test->cache, 0));
    block = block_taken(test, 2 * CACHE_LIMIT, 1);
    block_given(test, block);
    cache_verified(test);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(what_a_graph_freed_is_nobody_s),
        CACHE_TEST(requests_after_the_end_are_not_the_graph_s),
        CACHE_TEST(requests_after_a_free_are_not_the_graph_s),
        CACHE_TEST(decay_leaves_what_is_kept),
        CACHE_TEST(kept_bytes_are_neither_idle_nor_pinned),
        CACHE_TEST(what_is_kept_is_no_reason_to_move),
        CACHE_TEST(a_shortage_tells_what_is_kept),
        CACHE_TEST(a_filter_tells_whose_requests),
        CACHE_TEST(who_began_last_is_asked_first),
        CACHE_TEST(captures_share_a_pool_and_its_uses_count),
        CACHE_TEST(a_block_s_own_stream_is_no_other),
        CACHE_TEST(misuse_is_told),
        CACHE_TEST(a_second_begin_changes_nothing),
        CACHE_TEST(a_limit_can_change),
    };
    CACHE_MAIN(tests);
}
