/* Private pools that are released: what comes free, when, and who has it then. */
#include "support/graph_support.h"

#include "driver/sim.h"

#define LARGE (8 * MIB)

static void blocks_outlive_their_private_pool(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_mixed(test, &graph, 1, 1);
    graph_replayed(test, &graph, 2);
    graph_released(test, &graph);
    assert_int_equal(cache_stats(test).kept_bytes, 0);
    (void)cache_trimmed(test, 0);
    assert_true(cache_stats(test).allocations.current == MIXED);
    void *other = block_taken(test, 4 * LARGE, 2);
    for (unsigned i = 0; i < graph.count; i++) {
        const struct graph_step *step = &graph.steps[i];
        vmm_item item = VMM_ITEM_INIT;
        if (vmm_find(test->cache, step->block, &item) == VMM_OK && !step->is_check) {
            assert_true(pool_id_is(item.pool, 0, 0));
            block_filled(test, step->block, step->bytes, i, 1);
        }
    }
    block_given(test, other);
    graph_emptied(test, &graph);
    work_verified(test);
    cache_verified(test);
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

/* A graph may be under way on a stream that the cache does not know of. */
static void a_release_waits_for_launches(void **state)
{
    struct cache_test *test = *state;
    struct graph graph;
    graph_begun(test, &graph, 1, 1);
    graph_given(test, &graph, graph_taken(test, &graph, CACHE_LIMIT));
    graph_ended(test, &graph);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(test->driver, UINT64_C(1) << 40);
    graph_replayed(test, &graph, 3);
    graph_released(test, &graph);
    void *block = block_taken(test, CACHE_LIMIT, 2);
    block_filled(test, block, CACHE_LIMIT, 3, 2);
    block_checked(test, block, CACHE_LIMIT, 3, 2);
    work_verified(test);
    block_given(test, block);
}

static void a_name_can_begin_again(void **state)
{
    struct cache_test *test = *state;
    for (unsigned round = 0; round < 20; round++) {
        struct graph graph;
        graph_mixed(test, &graph, 9, 1 + round % 3);
        graph_replayed(test, &graph, 1 + (round + 1) % 3);
        if (round % 2 == 0)
            memory_exhausted(test, &graph);
        work_verified(test);
        graph_emptied(test, &graph);
        graph_released(test, &graph);
        cache_verified(test);
    }
}

static void many_captures_use_the_same_pools(void **state)
{
    struct cache_test *test = *state;
    cache_restart(test, NULL);
    uint64_t seed = 5;
    uint64_t most = 0;
    void *kept[8] = { NULL };
    unsigned rounds = driver_choice_kind() == VMM_DRIVER_CUDA ? 100 : 1000;
    for (uint64_t round = 0; round < rounds; round++) {
        struct graph graph;
        graph_begun(test, &graph, round + 1, 1 + (unsigned)(round % 2));
        for (int i = 0; i < 6; i++) {
            void *block = graph_taken(test, &graph, random_bytes(&seed, 12 * MIB));
            if (i == 5 && round % 3 == 0) {
                if (kept[round % 8] != NULL)
                    block_given(test, kept[round % 8]);
                kept[round % 8] = block; /* what a graph left is given back much later */
            } else {
                graph_given(test, &graph, block);
            }
        }
        graph_ended(test, &graph);
        graph_released(test, &graph);
        uint64_t streams = cache_stats(test).streams;
        most = streams > most ? streams : most;
    }
    assert_true(most <= 32);
    assert_true(cache_stats(test).reserved_bytes.peak <= 96 * MIB);
    for (int i = 0; i < 8; i++)
        block_given(test, kept[i]);
    cache_verified(test);
}

static void a_cache_that_does_not_cache_keeps_graphs_too(void **state)
{
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT;
    config.no_caching = 1;
    cache_restart(test, &config);
    struct graph graph;
    graph_mixed(test, &graph, 1, 1);
    for (int i = 0; i < 20; i++) {
        void *block = block_taken(test, mixed_sizes[i % MIXED], 1);
        assert_false(graph_meets(&graph, block, mixed_sizes[i % MIXED]));
        block_filled(test, block, mixed_sizes[i % MIXED], 5, 1);
        block_given(test, block);
    }
    graph_replayed(test, &graph, 2);
    work_verified(test);
    graph_emptied(test, &graph);
    assert_true(cache_stats(test).kept_bytes > 0);
    graph_released(test, &graph);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(blocks_outlive_their_private_pool),
        CACHE_TEST(a_release_waits_for_launches),
        CACHE_TEST(a_name_can_begin_again),
        CACHE_TEST(many_captures_use_the_same_pools),
        CACHE_TEST(a_cache_that_does_not_cache_keeps_graphs_too),
    };
    CACHE_MAIN(tests);
}
