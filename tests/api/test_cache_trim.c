/* vmm_trim: what goes back, what stays, and that it never waits. */
#include "support/cache_support.h"

#define LARGE (8 * MIB)
enum { MANY = 12 };

static void many_taken(struct cache_test *test, void *blocks[MANY], size_t bytes)
{
    for (uint32_t i = 0; i < MANY; i++) {
        blocks[i] = block_taken(test, bytes, i % CACHE_STREAMS);
        block_filled(test, blocks[i], bytes, i, i % CACHE_STREAMS);
    }
}

static void many_checked(struct cache_test *test, void *blocks[MANY], size_t bytes)
{
    for (uint32_t i = 0; i < MANY; i++)
        block_checked(test, blocks[i], bytes, i, i % CACHE_STREAMS);
    work_verified(test);
}

static void an_empty_cache_has_nothing_to_give(void **state)
{
    struct cache_test *test = *state;
    assert_int_equal(cache_trimmed(test, 0), 0);
    assert_int_equal(cache_trimmed(test, SIZE_MAX), 0);
    assert_ok(vmm_trim(test->cache, 0, NULL));
}

static void all_that_is_idle_goes(void **state)
{
    struct cache_test *test = *state;
    static const size_t sizes[] = { LARGE, 900000, 8192, 1 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *blocks[MANY];
        many_taken(test, blocks, sizes[i]);
        for (int j = 0; j < MANY; j++)
            block_given(test, blocks[j]);
        work_verified(test);
        uint64_t reserved = cache_stats(test).reserved_bytes.current;
        uint64_t stalls = cache_stalls(test);
        assert_int_equal(cache_trimmed(test, 0), reserved);
        assert_int_equal(cache_stalls(test), stalls);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        assert_int_equal(test->driver->handles, 0);
        assert_int_equal(cache_trimmed(test, 0), 0);
        cache_verified(test);
    }
}

static void live_blocks_stay_where_they_are(void **state)
{
    struct cache_test *test = *state;
    static const size_t sizes[] = { LARGE / 2, 900000, 8192, 3 * MIB };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *live[MANY];
        void *gone[MANY];
        for (uint32_t j = 0; j < MANY; j++) {
            live[j] = block_taken(test, sizes[i], j % CACHE_STREAMS);
            gone[j] = block_taken(test, sizes[i] / 2 + 1, j % CACHE_STREAMS);
            block_filled(test, live[j], sizes[i], j, j % CACHE_STREAMS);
        }
        for (int j = 0; j < MANY; j++)
            block_given(test, gone[j]);
        work_verified(test);
        (void)cache_trimmed(test, 0);
        cache_verified(test);
        assert_int_equal(cache_stats(test).idle_bytes, 0);
        many_checked(test, live, sizes[i]);
        for (int j = 0; j < MANY; j++)
            block_given(test, live[j]);
        (void)cache_trimmed(test, 0);
    }
}

static void keep_bytes_are_kept(void **state)
{
    struct cache_test *test = *state;
    void *blocks[MANY];
    many_taken(test, blocks, LARGE);
    for (int i = 0; i < MANY; i++)
        block_given(test, blocks[i]);
    work_verified(test);
    uint64_t reserved = cache_stats(test).reserved_bytes.current;
    assert_int_equal(cache_trimmed(test, reserved), 0);
    assert_int_equal(cache_trimmed(test, SIZE_MAX), 0);
    uint64_t gone = cache_trimmed(test, reserved - 1);
    assert_true(gone > 0 && gone <= LARGE);
    for (uint64_t keep = reserved - LARGE; keep > 0; keep -= LARGE / 2) {
        (void)cache_trimmed(test, keep);
        uint64_t now = cache_stats(test).reserved_bytes.current;
        assert_true(now <= keep);
        assert_true(now + LARGE > keep);
        cache_verified(test);
    }
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

static void live_memory_is_more_than_what_may_be_kept(void **state)
{
    struct cache_test *test = *state;
    void *live = block_taken(test, 2 * LARGE, 0);
    void *gone = block_taken(test, 2 * LARGE, 1);
    block_given(test, gone);
    assert_int_equal(cache_trimmed(test, 3 * LARGE), LARGE);
    assert_int_equal(cache_trimmed(test, LARGE), LARGE);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 2 * LARGE);
    block_given(test, live);
}

static void work_in_flight_is_not_waited_for(void **state)
{
    struct cache_test *test = *state;
    void *blocks[MANY];
    many_taken(test, blocks, LARGE);
    work_verified(test);
    bool is_sure = flight_begin(test, blocks[1], LARGE, 1);
    uint64_t in_flight = 0;
    for (int i = 0; i < MANY; i++) {
        in_flight += i % CACHE_STREAMS == 1 ? LARGE : 0;
        block_given(test, blocks[i]);
    }
    uint64_t reserved = cache_stats(test).reserved_bytes.current;
    size_t released = cache_trimmed(test, 0);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(cache_stalls(test), 0);
    assert_int_equal(stats.reserved_bytes.current, reserved - released);
    assert_int_equal(stats.limbo_bytes, stats.reserved_bytes.current);
    if (is_sure) {
        assert_int_equal(stats.limbo_bytes, in_flight);
        assert_int_equal(cache_trimmed(test, 0), 0);
    }
    cache_verified(test);
    flight_end(test);
    assert_int_equal(cache_trimmed(test, SIZE_MAX), stats.limbo_bytes);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    assert_int_equal(cache_stalls(test), 0);
}

/* "Goes back by itself once that has ended (at a later call that needs the driver)". */
static void limbo_empties_when_the_cache_grows(void **state)
{
    struct cache_test *test = *state;
    void *first = block_taken(test, LARGE, 1);
    bool is_sure = flight_begin(test, first, LARGE, 1);
    block_given(test, first);
    (void)cache_trimmed(test, 0);
    if (is_sure)
        assert_int_equal(cache_stats(test).limbo_bytes, LARGE);
    flight_end(test);
    void *second = block_taken(test, LARGE, 1);
    assert_int_equal(cache_stats(test).limbo_bytes, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, LARGE);
    block_given(test, second);
}

static void trimmed_memory_is_soon_had_again(void **state)
{
    struct cache_test *test = *state;
    for (int round = 0; round < 20; round++) {
        void *blocks[MANY];
        many_taken(test, blocks, LARGE / 2 + (size_t)round * 100000);
        many_checked(test, blocks, LARGE / 2 + (size_t)round * 100000);
        for (int i = 0; i < MANY; i++)
            block_given(test, blocks[(i * 5) % MANY]);
        (void)cache_trimmed(test, round % 2 == 0 ? 0 : 30 * MIB);
        cache_verified(test);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(an_empty_cache_has_nothing_to_give),
        CACHE_TEST(all_that_is_idle_goes),
        CACHE_TEST(live_blocks_stay_where_they_are),
        CACHE_TEST(keep_bytes_are_kept),
        CACHE_TEST(live_memory_is_more_than_what_may_be_kept),
        CACHE_TEST(work_in_flight_is_not_waited_for),
        CACHE_TEST(limbo_empties_when_the_cache_grows),
        CACHE_TEST(trimmed_memory_is_soon_had_again),
    };
    CACHE_MAIN(tests);
}
