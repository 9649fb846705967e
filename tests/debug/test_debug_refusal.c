/*
 * Debug mode with a driver that refuses calls: each call once, and each call and all that follow. A refused read may
 * still run (D1 of driver.h). So the test reuses the memory, and the sim driver reports work that is not ordered, and
 * memory that is unmapped under work. No misuse may be reported, as the program makes none.
 */
#include "debug_support.h"

#include "driver/sim/sim.h"
#include "support/pool_calls.h"

enum { BLOCKS = 6, LAG = 100000, CALLS_MOST = 400 };

static const size_t sizes[BLOCKS] = { 1, 700, 9000, 300000, 3 * MIB + 512, 4 * MIB };

struct fixture {
    struct cache_test *test;
    void *blocks[BLOCKS]; /* NULL: freed */
    unsigned found;       /* misuses */
};

static void misuse_count(void *context, const char *line)
{
    struct fixture *fixture = context;
    (void)line;
    fixture->found++;
}

/* Allocates blocks of a stream, with work that runs until a call waits for it. */
static void blocks_fill(struct fixture *fixture, unsigned stream)
{
    for (int i = 0; i < BLOCKS; i++) {
        fixture->blocks[i] = block_alloc(fixture->test, sizes[i], stream);
        block_fill(fixture->test, fixture->blocks[i], sizes[i], 7, stream);
    }
}

static void fixture_begin(struct fixture *fixture, struct cache_test *test)
{
    assert_int_equal(driver_choice_kind(), VMM_DRIVER_SIM); /* no other refuses numbered calls */
    *fixture = (struct fixture){ .test = test };
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .debug = VMM_DEBUG_ON,
                       .misuse = misuse_count, .misuse_context = fixture);
    vmm__sim_lag_set(test->driver, LAG);
    blocks_fill(fixture, 1);
}

/* Frees all blocks; debug mode must not make a free fail. */
static void blocks_free(struct fixture *fixture)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (fixture->blocks[i] != NULL)
            block_free(fixture->test, fixture->blocks[i]);
        fixture->blocks[i] = NULL;
    }
}

static void fixture_verify(const struct fixture *fixture)
{
    const char *violation;
    assert_int_equal(fixture->found, 0);
    if (vmm__soft_violations(fixture->test->driver, &violation) != 0)
        fail_msg("%s", violation);
    assert_ok(vmm__cache_check(fixture->test->cache));
}

/* Reuses the memory on the same stream and on others, then releases it. */
static void fixture_end(struct fixture *fixture)
{
    struct cache_test *test = fixture->test;
    blocks_free(fixture);
    for (unsigned stream = 1; stream < 3; stream++) {
        assert_ok(vmm_trim(test->cache, SIZE_MAX, NULL)); /* empties only the quarantine */
        blocks_fill(fixture, stream);
        fixture_verify(fixture);
        blocks_free(fixture);
    }
    assert_ok(vmm_debug_check(test->cache));
    assert_ok(vmm_wait(test->cache));
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).active_bytes.current, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    fixture_verify(fixture);
    vmm__sim_lag_set(test->driver, 0);
}

/* The part of a test that runs while calls are refused. */
typedef void (*fixture_act)(struct fixture *fixture);

static void refuse_calls(struct cache_test *test, fixture_act prepare, fixture_act act,
                         bool all_after)
{
    struct fixture fixture;
    bool was_refused = true;
    for (uint64_t call = 1; was_refused; call++) {
        assert_true(call < CALLS_MOST);
        fixture_begin(&fixture, test);
        prepare(&fixture);
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, all_after);
        act(&fixture);
        was_refused = vmm__sim_faults_fired(test->driver) != 0;
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        fixture_verify(&fixture);
        fixture_end(&fixture);
    }
}

static void refuse_each_call(struct cache_test *test, fixture_act prepare, fixture_act act)
{
    refuse_calls(test, prepare, act, false);
    refuse_calls(test, prepare, act, true);
}

static void assert_may_refuse(vmm_status status)
{
    assert_true(status == VMM_OK || status == VMM_ERR_DRIVER);
}

static void do_nothing(struct fixture *fixture)
{
    (void)fixture;
}

static void quarantine_empty(struct fixture *fixture)
{
    assert_may_refuse(vmm_trim(fixture->test->cache, 0, NULL));
}

CACHE_TEST(blocks_stay_in_quarantine_until_checked)
{
    refuse_each_call(test, blocks_free, quarantine_empty);
}

static void blocks_check(struct fixture *fixture)
{
    assert_may_refuse(vmm_debug_check(fixture->test->cache));
}

/* And again once the blocks are freed. */
static void blocks_check_and_free(struct fixture *fixture)
{
    blocks_check(fixture);
    blocks_free(fixture);
    blocks_check(fixture);
}

CACHE_TEST(blocks_are_freed_after_a_refused_check)
{
    refuse_each_call(test, do_nothing, blocks_check);
    refuse_each_call(test, do_nothing, blocks_check_and_free);
    refuse_each_call(test, blocks_free, blocks_check);
}

CACHE_TEST(blocks_are_freed_while_calls_are_refused)
{
    refuse_each_call(test, do_nothing, blocks_free);
}

static void stream_close(struct fixture *fixture)
{
    assert_may_refuse(vmm_stream_end(fixture->test->cache, fixture->test->streams[1]));
}

static void stream_close_and_blocks_free(struct fixture *fixture)
{
    stream_close(fixture);
    blocks_free(fixture);
}

/* The stream's last event is recorded before. Its handle still exists, and is a new stream to the cache afterwards. */
CACHE_TEST(blocks_of_a_closed_stream_are_freed)
{
    refuse_each_call(test, do_nothing, stream_close);
    refuse_each_call(test, stream_close, blocks_free);
    refuse_each_call(test, do_nothing, stream_close_and_blocks_free);
}

/* A capture keeps vmm_destroy() from waiting for the device, so it must wait for the work of debug mode itself. */
CACHE_TEST(destroy_waits_for_the_work_of_debug_mode)
{
    struct fixture fixture;
    bool was_refused = true;
    for (uint64_t call = 1; was_refused; call++) {
        vmm_pool_id id = { 5, 6 };
        assert_true(call < CALLS_MOST);
        fixture_begin(&fixture, test);
        block_free(test, fixture.blocks[1]);
        assert_ok(graph_pool_begin(test->cache, id, NULL, NULL));
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
        assert_ok(vmm_destroy(test->cache));
        was_refused = vmm__sim_faults_fired(test->driver) != 0;
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        assert_int_equal(fixture.found, 0);
        driver_choice_census_is_zero(test->driver);
        assert_ok(vmm__cache_create_on(NULL, test->driver, &test->cache));
    }
}

/* The call that could not check reports it, and the blocks stay in quarantine until a later check. */
CACHE_TEST(refused_check_is_reported)
{
    struct fixture fixture;
    fixture_begin(&fixture, test);
    assert_ok(vmm_wait(test->cache));
    uint64_t before = cache_stats(test).active_bytes.current;
    assert_ok(vmm_debug_check(test->cache));
    uint64_t reads = vmm__driver_calls(test->driver, DRIVER_CALL_read);
    assert_ok(vmm_debug_check(test->cache));
    reads = vmm__driver_calls(test->driver, DRIVER_CALL_read) - reads;
    vmm__sim_fail_at(test->driver, 1, VMM_OK, false);
    assert_ok(vmm_debug_check(test->cache));
    uint64_t calls = vmm__sim_calls(test->driver);
    vmm__sim_fail_at(test->driver, calls - reads + 1, VMM_ERR_DRIVER, true);
    assert_status(vmm_debug_check(test->cache), VMM_ERR_DRIVER);
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    blocks_free(&fixture);
    /* Only the block of 4 MiB, which has no canaries, has left the quarantine. */
    assert_int_equal(cache_stats(test).allocations.current, 0);
    assert_int_equal(cache_stats(test).active_bytes.current, before - 4 * MIB);
    assert_ok(vmm_debug_check(test->cache));
    fixture_end(&fixture);
}

/* A large block whose zeros or canaries cannot be written fails, and the memory that was mapped for it is released. */
CACHE_TEST(a_refused_allocation_maps_nothing)
{
    bool was_refused = true;
    for (uint64_t call = 1; was_refused; call++) {
        void *block = NULL;
        assert_true(call < CALLS_MOST);
        debug_restart(test, VMM_DEBUG_ON, VMM_ON);
        vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm_alloc(test->cache, 4 * MIB + 512, test->streams[1], &block);
        was_refused = vmm__sim_faults_fired(test->driver) != 0;
        vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
        assert_may_refuse(status);
        vmm_stats stats = cache_stats(test);
        if (status == VMM_OK)
            block_free(test, block);
        else /* only what a refused call of the release left waits for the next */
            assert_int_equal(stats.reserved_bytes.current, stats.limbo_bytes);
    }
}

CACHE_MAIN()
