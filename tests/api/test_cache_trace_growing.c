/* vmm_trace_start(): blocks that grow, and reserved blocks, whose units are blocks of the trace. */
#include "support/recording_support.h"

enum { UNITS = 8 };
#define UNIT (2 * MIB)

static void *block_reserve(struct cache_test *test, unsigned stream)
{
    void *block = NULL;
    assert_ok(vmm_reserve(vmm_cache_pool(test->cache), UNITS * UNIT, UNIT, test->streams[stream],
                          &block));
    return block;
}

/* What is live in the trace is live in the cache, so far. */
static void recording_compare(struct cache_test *test, const char *path)
{
    vmm_stats stats = cache_stats(test);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.live_bytes, stats.requested_bytes.current);
    assert_int_equal(sum.mapped_bytes, stats.reserved_bytes.current - stats.limbo_bytes);
}

CACHE_TEST(units_of_reserved_blocks_are_recorded)
{
    const char *path = recording_begin(test);
    char *block = block_reserve(test, 1);
    assert_ok(vmm_commit(test->cache, block, 0, 4 * UNIT));
    assert_ok(vmm_decommit(test->cache, block, UNIT, UNIT));
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 4);
    assert_int_equal(sum.frees, 1);
    assert_int_equal(sum.live_bytes, 3 * UNIT);
    assert_int_equal(sum.last_bytes, UNIT);
    assert_int_equal(sum.last_address, (uintptr_t)block + 3 * UNIT);
    path = recording_begin(test); /* units that were there */
    assert_ok(vmm_commit(test->cache, block, 0, 2 * UNIT));
    recording_compare(test, path);
    path = recording_begin(test);
    block_free(test, block);
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 4);
    assert_int_equal(sum.frees, 4);
    assert_int_equal(sum.live_bytes, 0);
}

CACHE_TEST(units_of_a_freed_block_are_freed_although_their_pool_is_retained)
{
    vmm_pool *pool = vmm_cache_pool(test->cache);
    void *block = block_reserve(test, 0);
    assert_ok(vmm_commit(test->cache, block, 0, 3 * UNIT));
    assert_ok(vmm_pool_retain(pool));
    const char *path = recording_begin(test);
    block_free(test, block);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.frees, 3);
    path = recording_begin(test); /* its memory is still there */
    assert_ok(vmm_pool_drop(pool));
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 0);
    assert_int_equal(sum.mapped_bytes, 0);
}

/* A pool that sleeps with three units of a reserved block and a block of 3 MiB. */
static vmm_pool *sleeper_make(struct cache_test *test, void **reserved, void **block)
{
    vmm_pool *pool = pool_in_with(test->cache, NULL);
    assert_ok(vmm_reserve(pool, UNITS * UNIT, UNIT, test->streams[0], reserved));
    assert_ok(vmm_commit(test->cache, *reserved, UNIT, 3 * UNIT));
    assert_ok(vmm_alloc_from(pool, 3 * MIB, test->streams[1], block));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    return pool;
}

CACHE_TEST(what_sleeps_when_a_recording_begins_is_recorded)
{
    void *reserved;
    void *block;
    vmm_pool *pool = sleeper_make(test, &reserved, &block);
    const char *path = recording_begin(test);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 4);
    assert_int_equal(sum.live_bytes, 3 * UNIT + 3 * MIB);
    assert_int_equal(sum.mapped_bytes, cache_stats(test).reserved_bytes.current);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    path = recording_begin(test);
    block_free(test, reserved);
    block_free(test, block);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_ok(vmm_pool_destroy(pool, 0));
    assert_ok(vmm_wait(test->cache));
    (void)cache_trim(test, 0);
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 4);
    assert_int_equal(sum.frees, 4);
    assert_int_equal(sum.mapped_bytes, 0);
}

CACHE_TEST(a_freed_reserved_block_that_sleeps_has_no_units)
{
    void *reserved;
    void *block;
    vmm_pool *pool = sleeper_make(test, &reserved, &block);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_ok(vmm_pool_retain(pool));
    block_free(test, reserved);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    const char *path = recording_begin(test);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
}

CACHE_TEST(a_reserved_block_that_moves_is_recorded)
{
    void *block = block_reserve(test, 0);
    (void)block_reserve(test, 1); /* behind it */
    assert_ok(vmm_commit(test->cache, block, 0, 3 * UNIT));
    const char *path = recording_begin(test);
    vmm_status status = vmm_resize(test->cache, block, 40 * UNIT, &block);
    assert_true(status == VMM_OK || status == VMM_ERR_UNSUPPORTED);
    assert_ok(vmm_resize(test->cache, block, 2 * UNIT, &block));
    recording_compare(test, path);
}

CACHE_TEST(a_block_of_another_size_is_recorded)
{
    void *block = block_alloc(test, 8 * MIB, 0);
    assert_ok(vmm_name(test->cache, block, "KV"));
    const char *path = recording_begin(test);
    assert_ok(vmm_resize(test->cache, block, 5 * MIB, &block));
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.live_bytes, 5 * MIB);
    assert_int_equal(sum.peak_bytes, 8 * MIB);
    assert_int_equal(sum.last_address, (uintptr_t)block);
    assert_string_equal(sum.last_name, "2 KV");
    path = recording_begin(test);
    assert_ok(vmm_resize(test->cache, block, 5 * MIB, &block)); /* nothing changes */
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1);
    assert_int_equal(sum.frees, 0);
}

CACHE_TEST(random_sizes_are_recorded)
{
    enum { SLOTS = 8, ROUNDS = 400 };
    void *slots[SLOTS];
    bool is_reserved[SLOTS];
    uint64_t seed = 11;
    for (unsigned i = 0; i < SLOTS; i++) {
        is_reserved[i] = i % 2 == 0;
        slots[i] = is_reserved[i] ? block_reserve(test, i % CACHE_STREAMS)
                                  : block_alloc(test, 3 * MIB, i % CACHE_STREAMS);
    }
    const char *path = recording_begin(test);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned i = (unsigned)(random_next(&seed) % SLOTS);
        size_t unit = random_next(&seed) % UNITS;
        size_t bytes = (unit + 1) * UNIT - (is_reserved[i] ? 0 : round);
        vmm_status status;
        if (!is_reserved[i] || round % 16 == 0)
            status = vmm_resize(test->cache, slots[i], bytes, &slots[i]);
        else if (random_next(&seed) % 2 == 0)
            status = vmm_commit(test->cache, slots[i], unit * UNIT, UNIT);
        else
            status = vmm_decommit(test->cache, slots[i], unit * UNIT, UNIT);
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM ||
                    status == VMM_ERR_INVALID_ARGUMENT || status == VMM_ERR_UNSUPPORTED);
    }
    recording_compare(test, path);
}

/* Each unit with memory is a block of the trace, whenever it got its memory and the block its name. */
CACHE_TEST(units_of_a_reserved_block_have_its_name)
{
    void *block;
    const char *path = recording_begin(test);
    assert_ok(vmm_reserve(vmm_cache_pool(test->cache), 8 * MIB, 2 * MIB, test->streams[0], &block));
    assert_ok(vmm_name(test->cache, block, "weights"));
    assert_ok(vmm_commit(test->cache, block, 2 * MIB, 4 * MIB));
    assert_ok(vmm_decommit(test->cache, block, 2 * MIB, 2 * MIB));
    assert_ok(vmm_commit(test->cache, block, 2 * MIB, 2 * MIB));
    assert_ok(vmm_name(test->cache, block, "moved"));
    assert_ok(vmm_free(test->cache, block));
    (void)recording_end(test, path);
    assert_int_equal(trace_count(path, " weights"), 3);
    assert_int_equal(trace_count(path, " moved"), 2);
}

CACHE_MAIN()
