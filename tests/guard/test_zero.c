/* vmm_config.zero: what one owner wrote is never seen by the next. */
#include "guard_support.h"

#include "driver/sim.h"

enum { CANARY_WORD = 0x7777 };

static const size_t sizes[] = { 1, 512, 1000, 8192, 70000, MIB, MIB + 1, 5 * MIB };
enum { SIZES = sizeof sizes / sizeof *sizes };

/* A block that reads as zeros to its end, and is full of something else after that. */
static void *clean_taken(struct cache_test *test, size_t bytes, unsigned stream)
{
    void *block = block_taken(test, bytes, stream);
    size_t whole = vmm_block_bytes(test->cache, bytes);
    assert_true(bytes_are(test, block, whole, 0, stream));
    bytes_written(test, block, 0, whole, stream);
    block_filled(test, block, whole, CANARY_WORD, stream);
    return block;
}

static void blocks_of_every_size_are_zeros(void **state)
{
    struct cache_test *test = *state;
    for (int guard = VMM_GUARD_OFF; guard <= VMM_GUARD_RECORD; guard++) {
        guard_begun(test, (vmm_guard)guard, 1);
        for (size_t i = 0; i < SIZES * 3; i++)
            block_given(test, clean_taken(test, sizes[i % SIZES], 1));
        work_verified(test);
        cache_verified(test);
    }
}

/* With canaries a block's own bytes are zeros. */
static void guarded_blocks_are_zeros(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 1);
    for (size_t i = 0; i < SIZES * 3; i++) {
        void *block = block_taken(test, sizes[i % SIZES], 1);
        assert_true(bytes_are(test, block, sizes[i % SIZES], 0, 1));
        bytes_written(test, block, 0, sizes[i % SIZES], 1);
        block_given(test, block);
    }
}

/* Neither memory that crosses to another stream, nor what went back to the driver, tells anything. */
static void streams_and_trims_tell_nothing(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_OFF, 1);
    uint64_t seed = 5;
    for (unsigned round = 0; round < 12; round++) {
        void *blocks[6];
        for (unsigned i = 0; i < 6; i++)
            blocks[i] = clean_taken(test, random_bytes(&seed, 12 * MIB), (round + i) % 4);
        block_used(test, blocks[1], (round + 3) % 4);
        for (unsigned i = 0; i < 6; i++)
            block_given(test, blocks[i]);
        if (round % 3 == 0)
            (void)cache_trimmed(test, 0);
        if (round % 3 == 1)
            assert_ok(vmm_wait(test->cache));
    }
    work_verified(test);
    cache_verified(test);
}

static void private_pools_tell_nothing(void **state)
{
    struct cache_test *test = *state;
    vmm_pool_id id = { 1, 2 };
    guard_begun(test, VMM_GUARD_OFF, 1);
    block_given(test, clean_taken(test, 8 * MIB, 1));
    assert_ok(vmm_pool_begin(test->cache, id, NULL, NULL));
    void *block = clean_taken(test, 8 * MIB, 1);
    void *small = clean_taken(test, 3000, 2);
    block_given(test, block);
    block_given(test, clean_taken(test, 4 * MIB, 1));
    assert_ok(vmm_pool_end(test->cache, id));
    block_given(test, small);
    assert_ok(vmm_pool_release(test->cache, id));
    block_given(test, clean_taken(test, 8 * MIB, 1));
    block_given(test, clean_taken(test, 3000, 2));
    work_verified(test);
}

/* On cuda the zeros are part of the graph; nothing breaks the capture. */
static void captures_take_zeros(void **state)
{
    struct cache_test *test = *state;
    vmm_pool_id id = { 1, 2 };
    guard_begun(test, VMM_GUARD_ON, 1);
    assert_ok(vmm_pool_begin(test->cache, id, NULL, NULL));
    capture_begun(test, 1);
    void *block = block_taken(test, 3000, 1);
    void *large = block_taken(test, 5 * MIB, 1);
    block_given(test, block);
    capture_ended(test, 1);
    assert_ok(vmm_pool_end(test->cache, id));
    block_given(test, large);
    assert_ok(vmm_pool_release(test->cache, id));
    assert_ok(vmm_guard_check(test->cache));
}

/* Live bytes that move under their own addresses, in pages that others had, bring nothing else along. */
static void compaction_tells_nothing(void **state)
{
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = 32 * MIB;
    config.zero = 1;
    config.compaction = VMM_COMPACTION_ON;
    cache_restart(test, &config);
    void *blocks[16];
    for (int i = 0; i < 16; i++)
        blocks[i] = clean_taken(test, 2 * MIB - 4096, 1);
    for (int i = 0; i < 16; i += 2)
        block_given(test, blocks[i]);
    void *large = clean_taken(test, 12 * MIB, 1);
    for (int i = 1; i < 16; i += 2) {
        block_checked(test, blocks[i], vmm_block_bytes(test->cache, 2 * MIB - 4096), CANARY_WORD,
                      1);
        block_given(test, blocks[i]);
    }
    block_given(test, large);
    work_verified(test);
}

/* An allocation whose zeros cannot be had fails, and has changed nothing. */
static void without_zeros_there_is_no_block(void **state)
{
    struct cache_test *test = *state;
    if (driver_choice_kind() != VMM_DRIVER_SIM) {
        assert_true(driver_choice_kind() != VMM_DRIVER_AUTO); /* only sim fails numbered calls */
        return;
    }
    for (int guard = VMM_GUARD_OFF; guard <= VMM_GUARD_ON; guard++) {
        for (size_t i = 0; i < SIZES; i++) {
            guard_begun(test, (vmm_guard)guard, 1);
            void *block = test;
            vmm_status status = VMM_ERR_DRIVER;
            for (uint64_t call = 1; status != VMM_OK; call++) {
                vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
                status = vmm_alloc(test->cache, sizes[i], test->streams[1], &block);
                vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
                assert_true(call < 100);
                assert_true(status == VMM_OK || block == (void *)test);
                assert_int_equal(cache_stats(test).allocations.current, status == VMM_OK);
                assert_ok(vmm__cache_check(test->cache));
            }
            block_given(test, block);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(blocks_of_every_size_are_zeros),
        CACHE_TEST(guarded_blocks_are_zeros),
        CACHE_TEST(streams_and_trims_tell_nothing),
        CACHE_TEST(private_pools_tell_nothing),
        CACHE_TEST(captures_take_zeros),
        CACHE_TEST(compaction_tells_nothing),
        CACHE_TEST(without_zeros_there_is_no_block),
    };
    CACHE_MAIN(tests);
}
