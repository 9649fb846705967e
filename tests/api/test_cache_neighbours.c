/* What a cache tells of its neighbours, if it has none: tests/life/test_life_claims.c has some. */
#include "support/cache_support.h"

static int neighbour_count(void *context, const vmm_neighbour *neighbour)
{
    (void)neighbour;
    ++*(unsigned *)context;
    return 0;
}

static uint64_t available(struct cache_test *test)
{
    uint64_t bytes;
    assert_ok(vmm_available_get(test->cache, &bytes));
    return bytes;
}

CACHE_TEST(a_cache_alone_has_no_neighbours)
{
    unsigned count = 0;
    assert_ok(vmm_neighbours_walk(test->cache, neighbour_count, &count));
    assert_int_equal(count, 0);
    assert_int_equal(cache_stats(test).neighbour_claims, 0);
}

/* Idle memory counts, and live memory does not. */
CACHE_TEST(what_is_available_is_below_the_limit)
{
    assert_int_equal(available(test), CACHE_LIMIT);
    void *block = block_alloc(test, CACHE_LIMIT / 2, 0);
    assert_int_equal(available(test), CACHE_LIMIT / 2);
    block_free(test, block);
    work_verify(test);
    assert_int_equal(available(test), CACHE_LIMIT);
}

/* Without a limit it is what the device has. */
CACHE_TEST(what_is_available_is_on_the_device)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    cache_restart(test, NULL);
    (void)block_alloc(test, 64 * MIB, 0);
    assert_ok(vmm_device_memory(test->cache, &free_bytes, &total_bytes));
    assert_in_range(available(test), free_bytes - 64 * MIB, free_bytes + 64 * MIB);
}

CACHE_MAIN()
