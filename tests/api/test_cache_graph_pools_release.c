/* The release of graph pools: which blocks become free, when, and for which streams. */
#include "support/graph_support.h"
#include "support/pool_support.h"

#include "driver/sim/sim.h"

#include <string.h>

#define LARGE (8 * MIB)

CACHE_TEST(blocks_outlive_their_graph_pool)
{
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    graph_replay(test, &graph, 2);
    graph_release(test, &graph);
    assert_status(vmm_wait(test->cache), VMM_OK); /* the release does not */
    assert_int_equal(cache_stats(test).retained_bytes, 0);
    (void)cache_trim(test, 0);
    assert_true(cache_stats(test).allocations.current == MIXED);
    void *other = block_alloc(test, 4 * LARGE, 2);
    for (unsigned i = 0; i < graph.count; i++) {
        const struct graph_step *step = &graph.steps[i];
        vmm_item item = VMM_ITEM_INIT;
        if (vmm_find(test->cache, step->block, &item) == VMM_OK && !step->is_check) {
            assert_true(pool_id_is(item.pool_id, 0, 0));
            block_fill(test, step->block, step->bytes, i, 1);
        }
    }
    block_free(test, other);
    graph_empty(test, &graph);
    work_verify(test);
}

/* A graph may be under way on a stream that the cache does not know of. */
CACHE_TEST(a_release_waits_for_launches)
{
    struct graph graph;
    graph_begin(test, &graph, 1, 1);
    graph_free(test, &graph, graph_alloc(test, &graph, CACHE_LIMIT));
    graph_end(test, &graph);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(test->driver, UINT64_C(1) << 40);
    graph_replay(test, &graph, 3);
    graph_release(test, &graph);
    void *block = block_alloc(test, CACHE_LIMIT, 2);
    block_fill(test, block, CACHE_LIMIT, 3, 2);
    block_check(test, block, CACHE_LIMIT, 3, 2);
}

/* The release waits for the device, so it needs none of the events that the driver refuses. */
CACHE_TEST(a_release_that_succeeds_leaves_no_line)
{
    unsigned tolerated = 0;
    bool has_failed = driver_choice_kind() == VMM_DRIVER_SIM;
    for (uint64_t call = 1; has_failed; call++) {
        struct graph graph;
        graph_begin(test, &graph, 1, 1);
        void *block = graph_alloc(test, &graph, LARGE);
        block_use(test, block, 2);
        graph_free(test, &graph, block);
        graph_end(test, &graph);
        assert_status(vmm_free(test->cache, test), VMM_ERR_UNKNOWN_POINTER);
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = graph_pool_release(test->cache, graph.id);
        has_failed = vmm__sim_faults_fired(test->driver) > 0;
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        if (status == VMM_OK)
            assert_non_null(strstr(vmm_last_error(), "vmm_free"));
        tolerated += has_failed && status == VMM_OK;
        cache_restart(test, NULL);
    }
    assert_true(tolerated > 0 || driver_choice_kind() != VMM_DRIVER_SIM);
}

CACHE_TEST(a_released_pool_id_can_begin_again)
{
    for (unsigned round = 0; round < 20; round++) {
        struct graph graph;
        graph_mix(test, &graph, 9, 1 + round % 3);
        graph_replay(test, &graph, 1 + (round + 1) % 3);
        if (round % 2 == 0)
            memory_exhaust(test, &graph);
        work_verify(test);
        graph_discard(test, &graph);
        cache_verify(test);
    }
}

CACHE_TEST(many_captures_use_the_same_pools)
{
    cache_restart(test, NULL);
    uint64_t seed = 5;
    uint64_t most = 0;
    void *kept[8] = { NULL };
    unsigned rounds = driver_choice_kind() == VMM_DRIVER_CUDA ? 100 : 1000;
    for (uint64_t round = 0; round < rounds; round++) {
        struct graph graph;
        graph_begin(test, &graph, round + 1, 1 + (unsigned)(round % 2));
        for (int i = 0; i < 6; i++) {
            void *block = graph_alloc(test, &graph, random_bytes(&seed, 12 * MIB));
            if (i == 5 && round % 3 == 0) {
                if (kept[round % 8] != NULL)
                    block_free(test, kept[round % 8]);
                kept[round % 8] = block; /* what a graph left is given back much later */
            } else {
                graph_free(test, &graph, block);
            }
        }
        graph_end(test, &graph);
        graph_release(test, &graph);
        uint64_t streams = cache_stats(test).streams;
        most = streams > most ? streams : most;
    }
    assert_true(most <= 32);
    assert_true(cache_stats(test).reserved_bytes.peak <= 96 * MIB);
    for (int i = 0; i < 8; i++)
        block_free(test, kept[i]);
}

CACHE_TEST(no_caching_retains_graph_pools)
{
    cache_restart_with(test, .no_caching = 1);
    struct graph graph;
    graph_mix(test, &graph, 1, 1);
    for (int i = 0; i < 20; i++) {
        void *block = block_alloc(test, mixed_sizes[i % MIXED], 1);
        assert_false(graph_overlaps(&graph, block, mixed_sizes[i % MIXED]));
        block_fill(test, block, mixed_sizes[i % MIXED], 5, 1);
        block_free(test, block);
    }
    graph_replay(test, &graph, 2);
    work_verify(test);
    graph_empty(test, &graph);
    assert_true(cache_stats(test).retained_bytes > 0);
    graph_release(test, &graph);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

/* A program that releases a graph pool when a commit in the pool's own block runs out of memory. */
struct releaser {
    struct cache_test *test;
    void *block; /* of the pool */
    vmm_status status;
};

static int pool_release_at_pressure(void *context, vmm_pool *pool, size_t bytes)
{
    struct releaser *releaser = context;
    (void)bytes;
    block_fill(releaser->test, releaser->block, LARGE, 5, 2); /* the pool is leaving for a while */
    releaser->status = vmm_pool_destroy(pool, 1);
    return 0;
}

CACHE_TEST(a_commit_goes_on_in_the_default_pool)
{
    struct releaser releaser = { .test = test, .status = VMM_ERR_INTERNAL };
    cache_restart_with(test, .compaction = VMM_ON, .pressure = pool_release_at_pressure,
                       .pressure_context = &releaser);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(test->driver, UINT64_C(1) << 40);
    vmm_pool *pool = pool_make(test, .kind = VMM_POOL_GRAPH, .limit_bytes = 5 * LARGE);
    void *block = NULL;
    assert_ok(vmm_reserve(pool, 4 * LARGE, LARGE, test->streams[1], &block));
    releaser.block = pool_alloc(test, pool, LARGE, 1);
    block_free(test, pool_alloc(test, pool, 3 * LARGE, 1));
    assert_ok(vmm_commit(test->cache, block, 0, 2 * LARGE)); /* the limit of the pool refuses */
    assert_ok(releaser.status);
    assert_in_pool(test, block, vmm_cache_pool(test->cache));
}

CACHE_MAIN()
