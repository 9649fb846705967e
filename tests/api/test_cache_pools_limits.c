/* Pools: limits, promises, trims, chunks that change pools, and retained memory. */
#include "support/pool_support.h"

#include "driver/sim/sim.h"

#include <string.h>

/* ---- Limits -------------------------------------------------------------------------------- */

static void alloc_is_refused(struct cache_test *test, vmm_pool *pool, size_t bytes, unsigned stream,
                             const char *words)
{
    void *block = test;
    assert_status(vmm_alloc_from(pool, bytes, test->streams[stream], &block), VMM_ERR_DEVICE_OOM);
    assert_ptr_equal(block, test);
    assert_non_null(strstr(vmm_last_error(), words));
}

CACHE_TEST(the_limit_of_a_pool_refuses_and_names_it)
{
    vmm_pool *pool = pool_make(test, .name = "tenant", .limit_bytes = 16 * MIB);
    (void)pool_alloc(test, pool, 12 * MIB, 1);
    alloc_is_refused(test, pool, 8 * MIB, 1, "the limit of pool tenant is 4.0 MiB too small");
    block_free(test, block_alloc(test, 64 * MIB, 1));
    assert_int_equal(pool_stats(pool).limit_bytes, 16 * MIB);
    assert_ok(vmm_pool_limit_set(pool, 20 * MIB));
    (void)pool_alloc(test, pool, 8 * MIB, 1);
}

/* vmm_pool_create() refuses it, too. */
CACHE_TEST(a_limit_below_the_promise_is_refused)
{
    vmm_pool *pool = pool_make(test, .name = "promised", .reserve_bytes = 16 * MIB);
    assert_refused(vmm_pool_limit_set(pool, 16 * MIB - 1), "pool promised has reserve_bytes");
    assert_int_equal(pool_stats(pool).limit_bytes, 0);
    assert_ok(vmm_pool_limit_set(pool, 16 * MIB));
    assert_refused(vmm_pool_limit_set(pool, 1), "16777216");
    assert_int_equal(pool_stats(pool).limit_bytes, 16 * MIB);
    assert_ok(vmm_pool_limit_set(pool, 0));
}

CACHE_TEST(a_limit_below_what_is_reserved_refuses_more)
{
    vmm_pool *pool = pool_make(test, .name = "shrunk");
    void *block = pool_alloc(test, pool, 12 * MIB, 1);
    assert_ok(vmm_pool_limit_set(pool, 4 * MIB));
    alloc_is_refused(test, pool, 2 * MIB, 1, "the limit of pool shrunk is 10.0 MiB too small");
    assert_ok(vmm_pool_limit_set(pool, 0));
    assert_ok(vmm_limit_set(test->cache, 4 * MIB));
    alloc_is_refused(test, pool, 2 * MIB, 1, "; the limit is 10.0 MiB too small");
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
    assert_ok(vmm_pool_limit_set(pool, 4 * MIB));
    block_free(test, block);
    block_free(test, pool_alloc(test, pool, 3 * MIB, 2));
}

/* Not the idle memory of others: it would not help. */
CACHE_TEST(a_pool_at_its_limit_reclaims_only_its_own_memory)
{
    vmm_pool *pool = pool_make(test, .name = "tenant", .limit_bytes = 16 * MIB);
    block_free(test, block_alloc(test, 32 * MIB, 2));
    work_verify(test);
    block_free(test, pool_alloc(test, pool, 8 * MIB, 1));
    (void)pool_alloc(test, pool, 16 * MIB, 3);
    assert_int_equal(pool_reserved(pool), 16 * MIB);
    uint64_t idle = pool_reserved(vmm_cache_pool(test->cache));
    assert_true(idle > 0);
    alloc_is_refused(test, pool, 2 * MIB, 1, "pool tenant");
    assert_int_equal(pool_reserved(vmm_cache_pool(test->cache)), idle);
}

/* Where each block has chunks of its own, a free one beside does not grow into the new one. */
CACHE_TEST(the_limit_of_a_pool_of_whole_blocks_refuses_and_names_it)
{
    vmm_pool *pool = pool_make(test, .name = "whole", .kind = VMM_POOL_GRAPH, .no_split = 1,
                               .limit_bytes = 24 * MIB);
    void *other = block_alloc(test, 12 * MIB, 2);
    block_free(test, pool_alloc(test, pool, 16 * MIB, 1));
    block_free(test, other);
    work_verify(test);
    alloc_is_refused(test, pool, 18 * MIB, 1, "the limit of pool whole is 10.0 MiB too small");
    assert_int_equal(cache_stats(test).reserved_bytes.current, 28 * MIB);
}

CACHE_TEST(the_default_pool_has_a_limit_of_its_own)
{
    vmm_pool *pool = pool_make(test, .name = "other");
    assert_ok(vmm_pool_limit_set(vmm_cache_pool(test->cache), 8 * MIB));
    void *block = NULL;
    assert_status(vmm_alloc(test->cache, 10 * MIB, test->streams[1], &block), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "pool default"));
    block_free(test, pool_alloc(test, pool, 10 * MIB, 1));
    assert_ok(vmm_pool_limit_set(vmm_cache_pool(test->cache), 0));
    block_free(test, block_alloc(test, 10 * MIB, 1));
}

/* Adopted memory may exceed the limit of the default pool, which then refuses more. */
CACHE_TEST(adoption_may_exceed_a_limit)
{
    vmm_pool *pool = pool_make(test, .name = "large");
    void *block = pool_alloc(test, pool, 20 * MIB, 1);
    assert_ok(vmm_pool_limit_set(vmm_cache_pool(test->cache), 8 * MIB));
    assert_ok(vmm_pool_destroy(pool, 1));
    assert_int_equal(pool_reserved(vmm_cache_pool(test->cache)), 20 * MIB);
    alloc_is_refused(test, vmm_cache_pool(test->cache), 4 * MIB, 2, "pool default");
    block_free(test, block);
    block_free(test, block_alloc(test, 4 * MIB, 2));
}

struct asked {
    vmm_pool *pool;
    size_t bytes;
    unsigned calls;
};

static int pressure_note(void *context, vmm_pool *pool, size_t bytes)
{
    struct asked *asked = context;
    *asked = (struct asked){ pool, bytes, asked->calls + 1 };
    return 0;
}

CACHE_TEST(the_pressure_function_learns_the_pool)
{
    struct asked asked = { NULL, 0, 0 };
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .pressure = pressure_note,
                       .pressure_context = &asked);
    vmm_pool *pool = pool_make(test, .name = "tenant", .limit_bytes = 16 * MIB);
    (void)pool_alloc(test, pool, 12 * MIB, 1);
    alloc_is_refused(test, pool, 8 * MIB, 1, "pool tenant");
    assert_int_equal(asked.calls, 1);
    assert_ptr_equal(asked.pool, pool);
    assert_int_equal(asked.bytes, 4 * MIB);
}

CACHE_TEST(work_of_other_pools_does_not_delay_a_refusal)
{
    vmm_pool *pool = pool_make(test, .name = "tenant", .limit_bytes = 8 * MIB);
    (void)pool_alloc(test, pool, 8 * MIB, 1);
    void *other = block_alloc(test, 16 * MIB, 2);
    void *idle = block_alloc(test, 16 * MIB, 3);
    bool is_certain = flight_begin(test, other, 16 * MIB, 3);
    block_use(test, other, 3);
    block_free(test, other);
    block_free(test, idle);
    uint64_t stalls = cache_stalls(test);
    alloc_is_refused(test, pool, 2 * MIB, 1, "pool tenant");
    assert_true(!is_certain || cache_stalls(test) == stalls);
}

/* ---- Promises ------------------------------------------------------------------------------ */

CACHE_TEST(others_leave_room_for_a_promise)
{
    vmm_pool *pool = pool_make(test, .name = "promised", .reserve_bytes = 64 * MIB);
    vmm_pool *other = pool_make(test, .name = "other");
    void *half = pool_alloc(test, other, CACHE_LIMIT - 64 * MIB, 1);
    alloc_is_refused(test, other, 4 * MIB, 1,
                     "the rest is 4.0 MiB too small, because other pools were promised some of it");
    alloc_is_refused(test, vmm_cache_pool(test->cache), 4 * MIB, 1, "were promised");
    (void)pool_alloc(test, pool, 64 * MIB, 1);
    alloc_is_refused(test, pool, 4 * MIB, 1, "limit");
    block_free(test, half);
    (void)pool_alloc(test, pool, 16 * MIB, 2);
}

CACHE_TEST(idle_memory_of_a_promise_stays)
{
    vmm_pool *pool = pool_make(test, .name = "promised", .reserve_bytes = 64 * MIB);
    block_free(test, pool_alloc(test, pool, 64 * MIB, 1));
    work_verify(test);
    (void)block_alloc(test, CACHE_LIMIT - 64 * MIB, 1);
    uint64_t creates = cache_stats(test).create_calls;
    alloc_is_refused(test, vmm_cache_pool(test->cache), 4 * MIB, 1, "limit");
    assert_int_equal(pool_reserved(pool), 64 * MIB);
    (void)pool_alloc(test, pool, 64 * MIB, 1);
    assert_int_equal(cache_stats(test).create_calls, creates);
}

CACHE_TEST(what_exceeds_a_promise_may_be_reclaimed)
{
    vmm_pool *pool = pool_make(test, .name = "promised", .reserve_bytes = 32 * MIB);
    void *blocks[12];
    for (int i = 0; i < 12; i++)
        blocks[i] = pool_alloc(test, pool, 8 * MIB, 1);
    for (int i = 0; i < 12; i++)
        block_free(test, blocks[i]);
    work_verify(test);
    (void)block_alloc(test, CACHE_LIMIT - 32 * MIB, 2);
    assert_true(pool_reserved(pool) <= 32 * MIB);
}

/* Of a chunk that lies partly above it, what lies below goes, too: the pool may have as much again. */
CACHE_TEST(a_chunk_that_exceeds_a_promise_may_be_reclaimed)
{
    vmm_pool *pool = pool_make(test, .name = "promised", .reserve_bytes = 32 * MIB, .no_split = 1);
    void *live = pool_alloc(test, pool, 8 * MIB, 1);
    block_free(test, pool_alloc(test, pool, 48 * MIB, 1));
    work_verify(test);
    (void)block_alloc(test, CACHE_LIMIT - 48 * MIB, 2);
    (void)block_alloc(test, 16 * MIB, 2);
    assert_int_equal(pool_reserved(pool), 8 * MIB);
    alloc_is_refused(test, vmm_cache_pool(test->cache), 4 * MIB, 2, "were promised");
    (void)pool_alloc(test, pool, 24 * MIB, 1);
    block_free(test, live);
}

CACHE_TEST(promises_beyond_the_limit_are_refused)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *out = NULL;
    vmm_pool *pool = pool_make(test, .name = "most", .reserve_bytes = CACHE_LIMIT - 8 * MIB);
    options.reserve_bytes = 9 * MIB;
    assert_status(vmm_pool_create(test->cache, &options, &out), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "reserve_bytes of 9437184"));
    options.reserve_bytes = UINT64_MAX;
    assert_status(vmm_pool_create(test->cache, &options, &out), VMM_ERR_DEVICE_OOM);
    options.limit_bytes = 4 * MIB;
    options.reserve_bytes = 5 * MIB;
    assert_refused(vmm_pool_create(test->cache, &options, &out), "above limit_bytes");
    assert_null(out);
    assert_ok(vmm_pool_destroy(pool, 0));
    assert_ok(vmm_pool_destroy(pool_make(test, .reserve_bytes = CACHE_LIMIT), 0));
    cache_restart(test, NULL);
    options =
        (vmm_pool_options){ .struct_size = sizeof options, .reserve_bytes = UINT64_C(1) << 50 };
    assert_status(vmm_pool_create(test->cache, &options, &out), VMM_ERR_DEVICE_OOM);
    assert_null(out);
}

/* The limit of the cache may have fallen below the promises of others. */
CACHE_TEST(a_pool_without_a_promise_needs_no_room)
{
    (void)pool_make(test, .name = "promised", .reserve_bytes = CACHE_LIMIT);
    assert_ok(vmm_limit_set(test->cache, MIB));
    assert_ok(vmm_pool_destroy(pool_make(test, .name = "plain"), 0));
}

/* ---- Trims --------------------------------------------------------------------------------- */

CACHE_TEST(a_trim_releases_memory_of_its_pool_alone)
{
    vmm_pool *pool = pool_make(test, .name = "trimmed");
    (void)pool_alloc(test, pool, 4 * MIB, 1);
    void *idle = pool_alloc(test, pool, 24 * MIB, 1);
    block_free(test, block_alloc(test, 24 * MIB, 1));
    block_free(test, idle);
    work_verify(test);
    uint64_t others = pool_reserved(vmm_cache_pool(test->cache));
    uint64_t before = pool_reserved(pool);
    size_t released = pool_trim(pool, 16 * MIB);
    assert_int_equal(before - pool_reserved(pool), released);
    assert_true(released > 0 && pool_reserved(pool) <= 16 * MIB);
    (void)pool_trim(pool, 0);
    assert_int_equal(pool_reserved(pool), 4 * MIB);
    assert_int_equal(pool_reserved(vmm_cache_pool(test->cache)), others);
}

CACHE_TEST(a_trim_leaves_memory_with_work_in_flight)
{
    vmm_pool *pool = pool_make(test, .name = "busy");
    void *block = pool_alloc(test, pool, 8 * MIB, 1);
    bool is_certain = flight_begin(test, block, 8 * MIB, 1);
    block_free(test, block);
    size_t released = pool_trim(pool, 0);
    if (is_certain)
        assert_int_equal(released, 0);
    flight_end(test);
    (void)pool_trim(pool, 0);
    assert_int_equal(pool_reserved(pool), 0);
}

/* ---- Chunks that change pools ---------------------------------------------------------------- */

CACHE_TEST(idle_chunks_go_from_pool_to_pool_and_back)
{
    vmm_pool *pools[2] = { pool_make(test, .name = "a"), pool_make(test, .name = "b") };
    block_free(test, pool_alloc(test, pools[0], CACHE_LIMIT, 1));
    work_verify(test);
    uint64_t creates = cache_stats(test).create_calls;
    for (int round = 0; round < 6; round++) {
        vmm_pool *pool = pools[round % 2];
        void *block = pool_alloc(test, pool, CACHE_LIMIT, 1);
        assert_int_equal(pool_reserved(pool), CACHE_LIMIT);
        assert_int_equal(pool_reserved(pools[1 - round % 2]), 0);
        cache_verify(test);
        block_free(test, block);
        work_verify(test);
    }
    assert_int_equal(cache_stats(test).create_calls, creates);
}

CACHE_TEST(a_limit_bounds_what_comes_from_other_pools)
{
    vmm_pool *pool = pool_make(test, .name = "tenant", .limit_bytes = 24 * MIB);
    uint64_t seed = 3;
    void *blocks[12] = { NULL };
    for (int round = 0; round < 300; round++) {
        void **slot = &blocks[random_next(&seed) % 12];
        bool is_pooled = random_next(&seed) % 2 == 0;
        block_free(test, *slot);
        *slot = NULL;
        vmm_status status =
            vmm_alloc_from(is_pooled ? pool : vmm_cache_pool(test->cache),
                           random_bytes(&seed, 20 * MIB), test->streams[round % 4], slot);
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
        assert_true(pool_reserved(pool) <= 24 * MIB);
        if (round % 25 == 0)
            work_verify(test);
    }
}

/* Pools used in turn by one thread share what is idle: the footprint is that of the largest. */
CACHE_TEST(pools_used_in_turn_share_their_memory)
{
    cache_restart(test, NULL);
    vmm_pool *pools[4];
    for (int i = 0; i < 4; i++)
        pools[i] = pool_make(test, .name = NULL);
    for (int round = 0; round < 20; round++) {
        void *blocks[8];
        for (int i = 0; i < 8; i++)
            blocks[i] = pool_alloc(test, pools[round % 4], 8 * MIB, 1);
        for (int i = 0; i < 8; i++)
            block_free(test, blocks[i]);
        work_verify(test);
    }
    assert_true(cache_stats(test).reserved_bytes.peak <= 72 * MIB);
}

CACHE_TEST(compaction_keeps_chunks_in_their_pools)
{
    enum { BLOCKS = 24 };
    vmm_pool *pools[2] = { pool_make(test, .name = "a"), vmm_cache_pool(test->cache) };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = pool_alloc(test, pools[i % 2], 3 * MIB, 1);
        block_fill(test, blocks[i], 3 * MIB, (uint32_t)i, 1);
    }
    for (int i = 0; i < BLOCKS; i += 4) {
        block_free(test, blocks[i]);
        block_free(test, blocks[i + 1]);
    }
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    cache_verify(test);
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 4 < 2)
            continue;
        assert_in_pool(test, blocks[i], pools[i % 2]);
        block_check(test, blocks[i], 3 * MIB, (uint32_t)i, 1);
        block_free(test, blocks[i]);
    }
}

/* ---- Retained pools ------------------------------------------------------------------------ */

/* Does everything that takes idle memory from a pool, then expects it to be where it was. */
static void idle_memory_take(struct cache_test *test, const void *block, size_t bytes)
{
    struct graph none = { .count = 1 };
    none.steps[0] = (struct graph_step){ .block = (void *)(uintptr_t)block, .bytes = bytes };
    memory_exhaust(test, &none);
    (void)cache_trim(test, 0);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    assert_ok(vmm_poll(test->cache));
}

static void retained_check(struct cache_test *test, vmm_pool *pool)
{
    void *live = pool_alloc(test, pool, MIB, 1);
    void *freed = pool_alloc(test, pool, 16 * MIB, 1);
    void *small = pool_alloc(test, pool, 3000, 1);
    block_fill(test, freed, 16 * MIB, 4, 1);
    block_fill(test, small, 3000, 5, 1);
    assert_ok(vmm_pool_retain(pool));
    assert_ok(vmm_pool_retain(pool));
    assert_int_equal(vmm_pool_uses(pool), 2);
    block_free(test, freed);
    block_free(test, small);
    uint64_t reserved = pool_reserved(pool);
    (void)pool_trim(pool, 0);
    assert_ok(vmm_pool_drop(pool));
    idle_memory_take(test, freed, 16 * MIB);
    assert_int_equal(pool_reserved(pool), reserved);
    assert_true(pool_stats(pool).retained_bytes >= 16 * MIB);
    stream_follow(test, 2, 1);
    block_check(test, freed, 16 * MIB, 4, 2);
    block_check(test, small, 3000, 5, 2);
    assert_ok(vmm_pool_drop(pool));
    assert_refused(vmm_pool_drop(pool), "is not retained");
    assert_ok(vmm_wait(test->cache)); /* vmm_pool_drop() does not wait for the work */
    assert_int_equal(pool_stats(pool).retained_bytes, 0);
    block_free(test, live);
}

CACHE_TEST(nothing_of_a_retained_pool_goes)
{
    vmm_pool *pool = pool_make(test, .name = "kept");
    retained_check(test, pool);
    assert_true(pool_trim(pool, 0) > 0);
}

CACHE_TEST(the_default_pool_may_be_retained)
{
    vmm_pool *pool = vmm_cache_pool(test->cache);
    void *freed = block_alloc(test, 16 * MIB, 1);
    block_fill(test, freed, 16 * MIB, 4, 1);
    assert_ok(vmm_pool_retain(pool));
    block_free(test, freed);
    (void)cache_trim(test, 0);
    assert_int_equal(pool_reserved(pool), 16 * MIB);
    void *other = block_alloc(test, 16 * MIB, 2);
    assert_ptr_not_equal(other, freed);
    stream_follow(test, 2, 1);
    block_check(test, freed, 16 * MIB, 4, 2);
    assert_ok(vmm_pool_drop(pool));
}

CACHE_TEST(a_retained_pool_is_not_destroyed)
{
    vmm_pool *pool = pool_make(test, .name = "kept");
    vmm_pool *graph = pool_make(test, .name = "graph", .kind = VMM_POOL_GRAPH);
    assert_ok(vmm_pool_retain(pool));
    assert_ok(vmm_pool_retain(graph));
    assert_refused(vmm_pool_destroy(pool, 1), "pool kept is retained");
    assert_refused(vmm_pool_destroy(graph, 1), "pool graph is retained");
    assert_ok(vmm_pool_drop(pool));
    assert_ok(vmm_pool_drop(graph));
    assert_refused(vmm_pool_drop(graph), "pool graph is not retained");
}

/* A drop waits for graphs on streams that the cache has never seen. */
CACHE_TEST(a_drop_waits_for_the_device)
{
    vmm_pool *pool = pool_make(test, .name = "kept");
    void *block = pool_alloc(test, pool, 8 * MIB, 1);
    assert_ok(vmm_pool_retain(pool));
    block_free(test, block);
    block_fill(test, block, 8 * MIB, 6, 3);
    assert_ok(vmm_pool_drop(pool));
    void *other = block_alloc(test, 8 * MIB, 2);
    block_fill(test, other, 8 * MIB, 7, 2);
    block_check(test, other, 8 * MIB, 7, 2);
}

/* During a capture nothing may wait: the pool leaves after it. */
CACHE_TEST(a_drop_during_a_capture_is_finished_later)
{
    vmm_pool *pool = pool_make(test, .name = "kept");
    vmm_pool *gone = pool_make(test, .name = "gone");
    void *adopted = pool_alloc(test, gone, 8 * MIB, 1);
    block_free(test, pool_alloc(test, pool, 8 * MIB, 1));
    block_free(test, block_alloc(test, 100, 2)); /* the cache knows the stream that is captured */
    assert_ok(vmm_pool_retain(pool));
    assert_ok(vmm_pool_retain(gone));
    capture_begin(test, 2);
    assert_ok(vmm_pool_drop(pool));
    assert_ok(vmm_pool_drop(gone));
    assert_ok(vmm_pool_destroy(gone, 1));
    assert_true(pool_stats(pool).retained_bytes > 0);
    assert_null(block_find(test, adopted).pool);
    capture_end(test, 2);
    assert_ok(vmm_wait(test->cache));
    assert_int_equal(pool_stats(pool).retained_bytes, 0);
    assert_in_pool(test, adopted, vmm_cache_pool(test->cache));
}

CACHE_TEST(a_pool_may_be_retained_again_while_it_leaves)
{
    vmm_pool *pool = pool_make(test, .name = "kept");
    block_free(test, pool_alloc(test, pool, 8 * MIB, 2));
    assert_ok(vmm_pool_retain(pool));
    capture_begin(test, 2);
    assert_ok(vmm_pool_drop(pool));
    assert_ok(vmm_pool_retain(pool));
    capture_end(test, 2);
    assert_ok(vmm_wait(test->cache));
    (void)cache_trim(test, 0);
    assert_int_equal(pool_reserved(pool), 8 * MIB);
}

CACHE_MAIN()
