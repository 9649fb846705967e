/* What places that share a chunk free, and who gets it: through the public header, on every driver. */
#include "support/cache_support.h"

#include "policy/cache.h"

#define KIB     ((size_t)1024)
#define GRANULE (2 * MIB)
/* A ring of two streams' granules, two granules that nothing can share, and a full one. */
#define RING_LIMIT (4 * GRANULE)

static void ring_cache(struct cache_test *test)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = RING_LIMIT;
    config.compaction = VMM_COMPACTION_ON;
    cache_restart(test, &config);
}

/* Blocks below 256 KiB come from the low end of a granule, larger ones from its high end. */
static void room_that_another_place_freed_is_found(void **state)
{
    struct cache_test *test = *state;
    ring_cache(test);
    void *kept = block_taken(test, 16 * KIB, 0);
    void *freed = block_taken(test, 200 * KIB, 0);
    void *high[2] = { block_taken(test, 700 * KIB, 1), block_taken(test, 800 * KIB, 1) };
    void *pinned[2] = { block_taken(test, 16 * KIB, 2), block_taken(test, 16 * KIB, 3) };
    for (int i = 0; i < 2; i++)
        assert_ok(vmm_pin(test->cache, pinned[i]));
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 3 * GRANULE);
    assert_int_equal(test->cache->memory.twins, 1);
    void *full = block_taken(test, GRANULE, 1);
    block_filled(test, kept, 16 * KIB, 1, 0);
    block_given(test, freed);
    void *found = block_taken(test, 500 * KIB, 1); /* partly where stream 0 had its block */
    block_filled(test, found, 500 * KIB, 2, 1);
    block_checked(test, kept, 16 * KIB, 1, 0);
    block_checked(test, found, 500 * KIB, 2, 1);
    work_verified(test);
    cache_verified(test);
    void *all[] = { kept, high[0], high[1], pinned[0], pinned[1], full, found };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        block_given(test, all[i]);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(room_that_another_place_freed_is_found),
    };
    CACHE_MAIN(tests);
}
