/* Pools with use_on_oom: their free memory serves requests of other pools that would fail. */
#include "support/pool_support.h"

#include "base/hostmem.h"
#include "driver/sim/sim.h"

#include <string.h>

/* A pool whose free memory no reclaim touches: it is retained. */
static vmm_pool *lender_make(struct cache_test *test, const vmm_pool_options *options)
{
    vmm_pool *pool = pool_in_with(test->cache, options);
    assert_ok(vmm_pool_retain(pool));
    return pool;
}

#define lender(test, ...)                                                                          \
    lender_make(test, &POOL_OPTIONS(.name = "lender", .use_on_oom = 1, __VA_ARGS__))

/* A pool with all memory of the cache, all of it free. */
static vmm_pool *lender_of_all(struct cache_test *test)
{
    vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
    block_free(test, pool_alloc(test, pool, CACHE_LIMIT, 1));
    return pool;
}

static void lender_end(struct cache_test *test, vmm_pool *pool)
{
    assert_ok(vmm_pool_drop(pool));
    pool_end(test, pool);
}

static void request_is_refused(struct cache_test *test, vmm_pool *pool, size_t bytes,
                               unsigned stream)
{
    void *block = test;
    assert_status(vmm_alloc_from(pool, bytes, test->streams[stream], &block), VMM_ERR_DEVICE_OOM);
    assert_ptr_equal(block, test);
}

/* ---- What is borrowed ------------------------------------------------------------------------ */

CACHE_TEST(a_retained_pool_lends_what_is_free)
{
    vmm_pool *pool = lender(test, .limit_bytes = CACHE_LIMIT);
    block_free(test, pool_alloc(test, pool, 96 * MIB, 1));
    uint64_t creates = cache_stats(test).create_calls;
    void *block = block_alloc(test, 64 * MIB, 2);
    assert_in_pool(test, block, pool);
    assert_int_equal(cache_stats(test).create_calls, creates);
    assert_int_equal(pool_stats(pool).allocations.current, 1);
    block_fill(test, block, 64 * MIB, 5, 2);
    block_check(test, block, 64 * MIB, 5, 2);
    cache_verify(test);
    block_free(test, block);
    work_verify(test);
    block_free(test, pool_alloc(test, pool, 96 * MIB, 1));
    assert_int_equal(cache_stats(test).create_calls, creates);
}

CACHE_TEST(a_pool_without_the_option_lends_nothing)
{
    vmm_pool *pool = pool_make(test, .name = "retained");
    assert_ok(vmm_pool_retain(pool));
    block_free(test, pool_alloc(test, pool, 96 * MIB, 1));
    request_is_refused(test, vmm_cache_pool(test->cache), 64 * MIB, 2);
}

CACHE_TEST(nothing_is_borrowed_while_there_is_other_memory)
{
    vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
    block_free(test, pool_alloc(test, pool, 32 * MIB, 1));
    void *block = block_alloc(test, 32 * MIB, 1);
    assert_in_pool(test, block, vmm_cache_pool(test->cache));
    block_free(test, block);
    work_verify(test);
    block = block_alloc(test, 90 * MIB, 2); /* releases what is idle elsewhere */
    assert_in_pool(test, block, vmm_cache_pool(test->cache));
}

CACHE_TEST(a_graph_pool_lends)
{
    vmm_pool *pool = lender(test, .kind = VMM_POOL_GRAPH);
    block_free(test, pool_alloc(test, pool, CACHE_LIMIT, 1));
    void *block = block_alloc(test, 48 * MIB, 1);
    assert_in_pool(test, block, pool);
}

CACHE_TEST(a_promise_is_borrowed)
{
    vmm_pool *pool =
        pool_make(test, .name = "lender", .reserve_bytes = CACHE_LIMIT, .use_on_oom = 1);
    block_free(test, pool_alloc(test, pool, CACHE_LIMIT, 1));
    work_verify(test);
    void *block = block_alloc(test, 48 * MIB, 1);
    assert_in_pool(test, block, pool);
}

CACHE_TEST(free_bytes_beside_live_blocks_are_borrowed)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .compaction = VMM_OFF);
    vmm_pool *pool = pool_make(test, .name = "lender", .use_on_oom = 1);
    void *blocks[64];
    for (int i = 0; i < 64; i++)
        blocks[i] = pool_alloc(test, pool, 1200 << 10, 1);
    (void)block_alloc(test, CACHE_LIMIT - pool_reserved(pool), 2);
    for (int i = 0; i < 64; i += 2) {
        block_free(test, blocks[i]);
        blocks[i] = NULL;
    }
    work_verify(test);
    void *borrowed = block_alloc(test, 1200 << 10, 3);
    assert_in_pool(test, borrowed, pool);
}

CACHE_TEST(a_pool_with_no_split_lends_its_smallest_block_that_fits)
{
    vmm_pool *pool = lender(test, .no_split = 1);
    void *most = pool_alloc(test, pool, CACHE_LIMIT - 16 * MIB, 1);
    void *middle = pool_alloc(test, pool, 12 * MIB, 1);
    void *small = pool_alloc(test, pool, 4 * MIB, 1);
    block_free(test, most);
    block_free(test, small);
    block_free(test, middle);
    assert_ptr_equal(block_alloc(test, 5 * MIB, 1), middle);
    assert_int_equal(block_find(test, middle).bytes, 12 * MIB);
    assert_int_equal(block_find(test, middle).requested_bytes, 5 * MIB);
    assert_ptr_equal(block_alloc(test, 100, 1), small);
}

CACHE_TEST(small_blocks_come_from_small_memory)
{
    static const size_t sizes[] = { 1, 600, 8192, 100 << 10, MIB };
    vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = pool_alloc(test, pool, MIB, 1);
    (void)block_alloc(test, CACHE_LIMIT - pool_reserved(pool), 1);
    request_is_refused(test, vmm_cache_pool(test->cache), MIB, 1);
    for (int i = 0; i < 8; i++)
        block_free(test, blocks[i]);
    request_is_refused(test, vmm_cache_pool(test->cache), 2 * MIB, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        blocks[i] = block_alloc(test, sizes[i], 1 + (unsigned)i % 3);
        assert_in_pool(test, blocks[i], pool);
        block_fill(test, blocks[i], sizes[i], 70 + (uint32_t)i, 1 + (unsigned)i % 3);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        block_check(test, blocks[i], sizes[i], 70 + (uint32_t)i, 1 + (unsigned)i % 3);
        block_free(test, blocks[i]);
    }
}

/* ---- What is not ---------------------------------------------------------------------------- */

CACHE_TEST(a_request_that_its_own_limit_refuses_gets_nothing)
{
    vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
    vmm_pool *tenant = pool_make(test, .name = "tenant", .limit_bytes = 8 * MIB);
    block_free(test, pool_alloc(test, pool, CACHE_LIMIT, 1));
    request_is_refused(test, tenant, 16 * MIB, 1);
    assert_non_null(strstr(vmm_last_error(), "pool tenant"));
    void *block = block_in_pool(tenant, 7 * MIB, test->streams[1]);
    assert_in_pool(test, block, pool);
}

CACHE_TEST(pools_that_need_memory_of_their_own_get_nothing)
{
    vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
    vmm_pool *whole = pool_make(test, .name = "whole", .no_split = 1);
    vmm_pool *graph = pool_make(test, .name = "graph", .kind = VMM_POOL_GRAPH);
    void *aligned = NULL;
    block_free(test, pool_alloc(test, pool, CACHE_LIMIT, 1));
    request_is_refused(test, whole, 4 * MIB, 1);
    request_is_refused(test, graph, 4 * MIB, 1);
    assert_status(
        vmm_alloc_aligned(vmm_cache_pool(test->cache), MIB, 4096, test->streams[1], &aligned),
        VMM_ERR_DEVICE_OOM);
}

CACHE_TEST(a_pool_lends_nothing_to_itself)
{
    vmm_pool *pool = lender_of_all(test);
    request_is_refused(test, pool, 4 * MIB, 2); /* of another stream: a graph may use it */
}

CACHE_TEST(debug_modes_and_zeros_lend_nothing)
{
    const vmm_config configs[] = {
        CONFIG(.debug = VMM_DEBUG_RECORD, .limit_bytes = CACHE_LIMIT),
        CONFIG(.debug = VMM_DEBUG_ON, .limit_bytes = CACHE_LIMIT),
        CONFIG(.zero = VMM_ON, .limit_bytes = CACHE_LIMIT),
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        cache_restart(test, &configs[i]);
        vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
        void *block = block_in_pool(pool, 96 * MIB, test->streams[1]);
        block_free(test, block);
        request_is_refused(test, vmm_cache_pool(test->cache), 64 * MIB, 2);
        lender_end(test, pool);
    }
}

/* ---- Order ---------------------------------------------------------------------------------- */

CACHE_TEST(the_stream_waits_on_the_device_for_the_lender)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .reuse = VMM_REUSE_DECLARED);
    vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
    void *first = pool_alloc(test, pool, CACHE_LIMIT, 1);
    bool is_certain = flight_begin(test, first, CACHE_LIMIT, 1);
    block_free(test, first);
    uint64_t stalls = cache_stalls(test);
    void *borrowed = block_alloc(test, CACHE_LIMIT, 2);
    assert_true(!is_certain || cache_stalls(test) == stalls);
    block_fill(test, borrowed, CACHE_LIMIT, 6, 2);
    flight_end(test);
    block_check(test, borrowed, CACHE_LIMIT, 6, 2);
    block_free(test, borrowed);
    void *again = pool_alloc(test, pool, CACHE_LIMIT, 1); /* after the work of both streams */
    block_fill(test, again, CACHE_LIMIT, 7, 1);
    block_check(test, again, CACHE_LIMIT, 7, 1);
}

/* It cannot wait for a stream that is being captured, and takes nothing. */
CACHE_TEST(a_captured_stream_lends_nothing_with_work)
{
    vmm_pool *pool = lender(test, .kind = VMM_POOL_GRAPH);
    assert_ok(vmm_pool_route(pool, NULL, NULL));
    capture_begin(test, 1);
    block_free(test, block_alloc(test, CACHE_LIMIT, 1));
    assert_ok(vmm_pool_push(vmm_cache_pool(test->cache)));
    request_is_refused(test, vmm_cache_pool(test->cache), 4 * MIB, 2);
    assert_int_equal(pool_stats(pool).allocations.current, 0);
    cache_verify(test);
    capture_end(test, 1);
    assert_ok(vmm_pool_unroute(pool));
    block_free(test, block_alloc(test, 4 * MIB, 2));
    assert_ok(vmm_pool_pop(vmm_cache_pool(test->cache)));
}

static int pressure_count(void *context, vmm_pool *pool, size_t bytes)
{
    (void)pool;
    (void)bytes;
    ++*(unsigned *)context;
    return 0;
}

CACHE_TEST(the_pressure_function_is_asked_before)
{
    unsigned calls = 0;
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .pressure = pressure_count,
                       .pressure_context = &calls);
    (void)lender_of_all(test);
    block_free(test, block_alloc(test, 4 * MIB, 1));
    assert_int_equal(calls, 1);
}

/* ---- Calls on a borrowed block ---------------------------------------------------------- */

CACHE_TEST(a_pool_with_a_borrowed_block_ends_by_adoption)
{
    vmm_pool *pool = lender_of_all(test);
    void *block = block_alloc(test, 24 * MIB, 2);
    block_fill(test, block, 24 * MIB, 9, 2);
    work_verify(test); /* else the pool is leaving for a while */
    assert_ok(vmm_pool_drop(pool));
    assert_refused(vmm_pool_destroy(pool, 0), "live blocks");
    assert_ok(vmm_pool_destroy(pool, 1));
    assert_in_pool(test, block, vmm_cache_pool(test->cache));
    block_check(test, block, 24 * MIB, 9, 2);
}

CACHE_TEST(a_borrowed_block_sleeps_with_its_pool)
{
    vmm_pool *pool = lender_of_all(test);
    void *block = block_alloc(test, 24 * MIB, 2);
    block_fill(test, block, 24 * MIB, 10, 2);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    void *others = block_alloc(test, CACHE_LIMIT - 32 * MIB, 1);
    assert_in_pool(test, others, vmm_cache_pool(test->cache));
    request_is_refused(test, vmm_cache_pool(test->cache), 48 * MIB, 1); /* it lends nothing now */
    block_free(test, others);
    work_verify(test);
    assert_ok(vmm_trim(test->cache, 0, NULL));
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    block_check(test, block, 24 * MIB, 10, 2);
}

/* What lies behind it may still be in use by the lender's stream: a longer one is a copy. */
CACHE_TEST(a_borrowed_block_of_another_size)
{
    (void)lender_of_all(test);
    void *block = block_alloc(test, 16 * MIB, 2);
    void *longer = NULL;
    void *shorter = NULL;
    block_fill(test, block, 16 * MIB, 11, 2);
    vmm_status status = vmm_resize(test->cache, block, 24 * MIB, &longer);
    if (status == VMM_OK) {
        assert_ptr_not_equal(longer, block);
        block_check(test, longer, 16 * MIB, 11, 2);
        block = longer;
    } else {
        assert_int_equal(status, VMM_ERR_DEVICE_OOM); /* the pool gives nothing to another stream */
        block_check(test, block, 16 * MIB, 11, 2);
    }
    assert_ok(vmm_resize(test->cache, block, 8 * MIB, &shorter));
}

/* Each allocation of host memory fails in turn. */
CACHE_TEST(what_cannot_be_borrowed_stays_free)
{
    vmm_pool *pool = lender_of_all(test);
    uint64_t call = 0;
    vmm_status status = VMM_ERR_HOST_OOM;
    while (status != VMM_OK && ++call < 64) {
        void *block = NULL;
        (void)vmm__host_fail_at(call);
        status = vmm_alloc(test->cache, 24 * MIB, test->streams[2], &block);
        (void)vmm__host_fail_at(0);
        cache_verify(test);
        assert_int_equal(pool_stats(pool).allocations.current, status == VMM_OK ? 1 : 0);
        assert_int_equal(pool_stats(pool).active_bytes.current, status == VMM_OK ? 24 * MIB : 0);
        block_free(test, block);
    }
    assert_true(call > 1);
    assert_int_equal(status, VMM_OK);
}

/* So does each call of the driver: to record an event, to query it, to make a stream wait for it. */
CACHE_TEST(a_driver_that_fails_lends_nothing)
{
    static const vmm_status codes[] = { VMM_ERR_DRIVER, VMM_ERR_HOST_OOM };
    unsigned failed = 0;
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return; /* only sim can make a call fail */
    for (unsigned variant = 0; variant < 4; variant++) {
        uint64_t fired = 1;
        cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .reuse = VMM_REUSE_DECLARED);
        for (uint64_t call = 1; fired > 0; call++) {
            vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
            void *first = pool_alloc(test, pool, CACHE_LIMIT, 1);
            void *block = NULL;
            (void)flight_begin(test, first, CACHE_LIMIT, 1);
            block_free(test, first);
            vmm__sim_fail_at(test->driver, call, codes[variant / 2], variant % 2 != 0);
            vmm_status status = vmm_alloc(test->cache, 24 * MIB, test->streams[2], &block);
            fired = vmm__sim_faults_fired(test->driver);
            vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
            failed += status != VMM_OK;
            assert_int_equal(pool_stats(pool).allocations.current, status == VMM_OK ? 1 : 0);
            cache_verify(test);
            flight_end(test);
            block_free(test, block);
            lender_end(test, pool);
        }
    }
    assert_true(failed >= 4);
}

/* ---- Modes, and many requests ---------------------------------------------------------------- */

CACHE_TEST(other_modes_lend)
{
    const vmm_config configs[] = { CONFIG(.no_caching = VMM_ON, .limit_bytes = CACHE_LIMIT),
                                   CONFIG(.compaction = VMM_ON, .limit_bytes = CACHE_LIMIT) };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        cache_restart(test, &configs[i]);
        vmm_pool *pool = lender(test, .kind = VMM_POOL_GENERAL);
        void *block = pool_alloc(test, pool, CACHE_LIMIT, 1);
        block_fill(test, block, CACHE_LIMIT, 12, 1);
        block_free(test, block);
        block = block_alloc(test, 4 * MIB, 2);
        assert_in_pool(test, block, pool);
        work_verify(test);
        block_free(test, block);
        lender_end(test, pool);
    }
}

CACHE_TEST(many_requests_borrow_and_return)
{
    enum { BLOCKS = 24, ROUNDS = 600 };
    struct held {
        void *block;
        size_t bytes;
        uint32_t word;
        unsigned stream;
    } held[BLOCKS] = { { NULL, 0, 0, 0 } };
    uint64_t seed = 29;
    unsigned borrowed = 0;
    vmm_pool *pools[2] = { lender(test, .kind = VMM_POOL_GENERAL),
                           lender(test, .kind = VMM_POOL_GENERAL, .no_split = 1) };
    for (int round = 0; round < ROUNDS; round++) {
        struct held *slot = &held[random_next(&seed) % BLOCKS];
        vmm_pool *from[3] = { pools[0], pools[1], vmm_cache_pool(test->cache) };
        vmm_pool *pool = from[random_next(&seed) % 3];
        if (slot->block != NULL)
            block_check(test, slot->block, slot->bytes, slot->word, slot->stream);
        block_free(test, slot->block);
        *slot = (struct held){ .bytes = random_bytes(&seed, 16 * MIB),
                               .word = 1000 + (uint32_t)round,
                               .stream = (unsigned)round % CACHE_STREAMS };
        vmm_status status =
            vmm_alloc_from(pool, slot->bytes, test->streams[slot->stream], &slot->block);
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
        if (status != VMM_OK)
            continue;
        borrowed += block_find(test, slot->block).pool != pool;
        block_fill(test, slot->block, slot->bytes, slot->word, slot->stream);
        if (round % 50 == 0) {
            work_verify(test);
            cache_verify(test);
        }
    }
    assert_true(borrowed > 0);
    for (int i = 0; i < BLOCKS; i++)
        block_free(test, held[i].block);
    assert_ok(vmm_pool_drop(pools[1]));
    assert_ok(vmm_pool_destroy(pools[1], 0));
    lender_end(test, pools[0]);
}

CACHE_MAIN()
