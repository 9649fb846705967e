/* Pools with no_split: each block has chunks of its own, and a freed one serves only requests of its size. */
#include "support/pool_support.h"

#include <string.h>

enum { GRANULE = 2 << 20 };

static vmm_pool *whole_make(struct cache_test *test)
{
    return pool_make(test, .name = "whole", .no_split = 1);
}

/* ---- Chunks of its own --------------------------------------------------------------------- */

CACHE_TEST(blocks_share_no_chunk)
{
    vmm_pool *pool = whole_make(test);
    void *small = pool_alloc(test, pool, 100, 1);
    (void)pool_alloc(test, pool, 100, 1);
    assert_int_equal(block_find(test, small).bytes, GRANULE);
    assert_int_equal(pool_stats(pool).chunks.current, 2);
    void *large = pool_alloc(test, pool, 10 * MIB + 1, 1);
    assert_int_equal(block_find(test, large).bytes, 12 * MIB);
    assert_int_equal(pool_stats(pool).chunks.current, 3);
    assert_int_equal(pool_reserved(pool), 16 * MIB);
}

CACHE_TEST(a_freed_block_serves_only_its_size)
{
    vmm_pool *pool = whole_make(test);
    void *freed = pool_alloc(test, pool, 12 * MIB, 1);
    block_free(test, freed);
    (void)pool_alloc(test, pool, 5 * MIB, 1);
    (void)pool_alloc(test, pool, 8, 1);
    (void)pool_alloc(test, pool, 13 * MIB, 1);
    assert_int_equal(pool_stats(pool).chunks.current, 4);
    void *again = pool_alloc(test, pool, 10 * MIB + 1, 1); /* as many granules */
    assert_ptr_equal(again, freed);
    assert_int_equal(pool_stats(pool).chunks.current, 4);
}

/* The chunks that a trim leaves are those of live blocks, one each. */
CACHE_TEST(no_chunk_has_two_blocks_whatever_streams_do)
{
    enum { BLOCKS = 24, ROUNDS = 400 };
    vmm_pool *pool = whole_make(test);
    void *blocks[BLOCKS] = { NULL };
    uint64_t seed = 17;
    for (int round = 0; round < ROUNDS; round++) {
        void **slot = &blocks[random_next(&seed) % BLOCKS];
        bool is_pooled = random_next(&seed) % 4 != 0;
        block_free(test, *slot);
        *slot = NULL;
        vmm_status status =
            vmm_alloc_from(is_pooled ? pool : vmm_cache_pool(test->cache),
                           random_bytes(&seed, 12 * MIB), test->streams[round % 4], slot);
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
        if (round % 50 != 0)
            continue;
        work_verify(test);
        (void)pool_trim(pool, 0);
        assert_int_equal(pool_stats(pool).chunks.current, pool_stats(pool).allocations.current);
        assert_int_equal(pool_reserved(pool), pool_stats(pool).allocated_bytes.current);
        cache_verify(test);
    }
}

/* ---- Other pools --------------------------------------------------------------------------- */

CACHE_TEST(a_pool_with_no_split_keeps_its_idle_memory_while_there_is_other)
{
    vmm_pool *pool = whole_make(test);
    block_free(test, pool_alloc(test, pool, 32 * MIB, 1));
    work_verify(test);
    void *block = block_alloc(test, 32 * MIB, 1);
    assert_int_equal(pool_reserved(pool), 32 * MIB);
    block_free(test, block);
    work_verify(test);
    block_free(test, pool_alloc(test, pool, 24 * MIB, 2)); /* takes no idle memory either */
    assert_int_equal(pool_reserved(pool), 56 * MIB);
}

CACHE_TEST(requests_without_memory_release_it)
{
    vmm_pool *pool = whole_make(test);
    void *most = pool_alloc(test, pool, CACHE_LIMIT - 4 * MIB, 1);
    (void)pool_alloc(test, pool, 3 * MIB, 1);
    block_free(test, most);
    work_verify(test);
    void *others = block_alloc(test, CACHE_LIMIT - 4 * MIB, 2);
    assert_int_equal(pool_reserved(pool), 4 * MIB);
    block_free(test, others);
    work_verify(test);
    most = pool_alloc(test, pool, CACHE_LIMIT - 4 * MIB, 3);
    assert_int_equal(pool_stats(pool).chunks.current, 2);
}

CACHE_TEST(a_destroyed_pool_gives_its_memory_to_the_default_pool)
{
    vmm_pool *pool = whole_make(test);
    (void)pool_alloc(test, pool, 8 * MIB, 1);
    block_free(test, pool_alloc(test, pool, 32 * MIB, 1));
    assert_ok(vmm_pool_destroy(pool, 1));
    work_verify(test);
    uint64_t creates = cache_stats(test).create_calls;
    (void)block_alloc(test, 20 * MIB, 2);
    assert_int_equal(cache_stats(test).create_calls, creates);
}

/* ---- Calls on a block ---------------------------------------------------------------------- */

CACHE_TEST(calls_on_a_block_leave_it_whole)
{
    vmm_pool *pool = whole_make(test);
    vmm_share *share = NULL;
    void *aligned = NULL;
    void *grown = NULL;
    void *shrunk = NULL;
    char *block = pool_alloc(test, pool, 5 * MIB, 1);
    block_fill(test, block, 5 * MIB, 41, 1);
    assert_refused(vmm_share_export(test->cache, block, &share), "shareable");
    assert_status(vmm_alloc_aligned(pool, 100, 2 * GRANULE, test->streams[1], &aligned),
                  VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "pool whole"));
    assert_ok(vmm_alloc_aligned(pool, 100, GRANULE, test->streams[1], &aligned));
    assert_int_equal(block_find(test, aligned).bytes, GRANULE);
    assert_ok(vmm_resize(test->cache, block, 9 * MIB, &grown));
    assert_int_equal(block_find(test, grown).bytes, 10 * MIB);
    block_check(test, grown, 5 * MIB, 41, 1);
    block_fill(test, grown, 3 * MIB, 42, 1);
    assert_ok(vmm_resize(test->cache, grown, 3 * MIB, &shrunk));
    assert_ptr_not_equal(shrunk, grown);
    assert_int_equal(block_find(test, shrunk).bytes, 4 * MIB);
    block_check(test, shrunk, 3 * MIB, 42, 1);
    block_free(test, shrunk);
    assert_refused(vmm_pool_place(pool, shrunk, GRANULE, test->streams[1]), "begins there");
    assert_ok(vmm_pool_place(pool, shrunk, 3 * MIB, test->streams[1]));
}

CACHE_TEST(a_shareable_cache_exports_them)
{
    vmm_share *share = NULL;
    cache_restart_with(test, .shareable = VMM_ON, .limit_bytes = CACHE_LIMIT);
    vmm_pool *pool = whole_make(test);
    void *block = pool_alloc(test, pool, 100, 1);
    assert_ok(vmm_share_export(test->cache, block, &share));
    assert_ok(vmm_share_close(share, 0));
}

CACHE_TEST(blocks_sleep_and_wake_whole)
{
    vmm_pool *pool = whole_make(test);
    void *small = pool_alloc(test, pool, 1000, 1);
    void *large = pool_alloc(test, pool, 7 * MIB, 2);
    block_fill(test, small, 1000, 7, 1);
    block_fill(test, large, 7 * MIB, 8, 2);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_int_equal(pool_reserved(pool), 0);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    block_check(test, small, 1000, 7, 1);
    block_check(test, large, 7 * MIB, 8, 2);
    assert_int_equal(pool_stats(pool).chunks.current, 2);
}

/* ---- Captures, routes, modes --------------------------------------------------------------- */

/* The memory of a graph stays in place, and serves requests of its size. */
CACHE_TEST(a_graph_pool_may_have_no_split)
{
    vmm_pool *pool = pool_make(test, .name = "whole graph", .kind = VMM_POOL_GRAPH, .no_split = 1);
    assert_ok(vmm_pool_route(pool, NULL, NULL));
    capture_begin(test, 1);
    void *block = block_alloc(test, 3 * MIB, 1);
    assert_in_pool(test, block, pool);
    block_free(test, block);
    assert_ptr_equal(block_alloc(test, 4 * MIB, 1), block);
    void *other = block_alloc(test, 3 * MIB, 1);
    assert_int_equal(pool_stats(pool).chunks.current, 2);
    capture_end(test, 1);
    assert_ok(vmm_pool_unroute(pool));
    block_free(test, block);
    block_free(test, other);
    assert_int_equal(pool_trim(pool, 0), 0);
}

CACHE_TEST(a_push_leads_to_whole_blocks)
{
    vmm_pool *pool = whole_make(test);
    assert_ok(vmm_pool_push(pool));
    void *block = block_alloc(test, 512, 1);
    assert_ok(vmm_pool_pop(pool));
    assert_int_equal(block_find(test, block).bytes, GRANULE);
    assert_in_pool(test, block, pool);
}

CACHE_TEST(modes_serve_whole_blocks)
{
    const vmm_config configs[] = { CONFIG(.debug = VMM_DEBUG_ON), CONFIG(.debug = VMM_DEBUG_RECORD),
                                   CONFIG(.no_caching = VMM_ON), CONFIG(.zero = VMM_ON) };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        cache_restart(test, &configs[i]);
        vmm_pool *pool = whole_make(test);
        void *first = pool_alloc(test, pool, 512, 1);
        void *second = pool_alloc(test, pool, 3 * MIB, 1);
        assert_int_equal(pool_stats(pool).chunks.current, 2);
        block_free(test, first);
        block_free(test, second);
        pool_end(test, pool);
    }
}

CACHE_MAIN()
