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
    assert_ok(vmm_tick(test->cache));
    assert_status(vmm_tick(NULL), VMM_ERR_INVALID_ARGUMENT);
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

/* Reserved memory hugs what the program has needed since, not what it once needed. */
static void a_trim_lets_the_program_be_learnt_anew(void **state)
{
    enum { SMALLER = 32, PIECE = 2 * MIB };
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT; /* no limit */
    void *blocks[SMALLER];
    cache_restart(test, &config);
    block_given(test, block_taken(test, 192 * MIB, 0));
    work_verified(test);
    (void)cache_trimmed(test, 0);
    for (int i = 0; i < SMALLER; i++)
        blocks[i] = block_taken(test, PIECE, 0);
    for (int i = 0; i < SMALLER; i += 2)
        block_given(test, blocks[i]);
    block_given(test, block_taken(test, (uint64_t)SMALLER / 2 * PIECE, 0));
    assert_true(cache_stats(test).reserved_bytes.current <= SMALLER * (uint64_t)PIECE + 20 * MIB);
    for (int i = 1; i < SMALLER; i += 2)
        block_given(test, blocks[i]);
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

static void ticked(struct cache_test *test)
{
    assert_ok(vmm_tick(test->cache));
}

static uint64_t reserved_now(struct cache_test *test)
{
    return cache_stats(test).reserved_bytes.current;
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
    uint64_t reserved = reserved_now(test);
    size_t released = cache_trimmed(test, 0);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(cache_stalls(test), 0);
    assert_int_equal(stats.reserved_bytes.current, reserved - released);
    assert_int_equal(stats.limbo_bytes, 0);
    if (is_sure) {
        assert_int_equal(stats.idle_bytes, in_flight);
        assert_int_equal(cache_trimmed(test, 0), 0);
    }
    cache_verified(test);
    flight_end(test);
    assert_int_equal(cache_trimmed(test, 0), stats.reserved_bytes.current);
    assert_int_equal(reserved_now(test), 0);
    assert_int_equal(cache_stalls(test), 0);
}

/* A block whose work goes on, given back and trimmed. */
static bool flight_trimmed(struct cache_test *test, size_t bytes, unsigned stream)
{
    void *block = block_taken(test, bytes, stream);
    bool is_sure = flight_begin(test, block, bytes, stream);
    block_given(test, block);
    (void)cache_trimmed(test, 0);
    if (is_sure)
        assert_int_equal(cache_stats(test).idle_bytes, bytes);
    return is_sure;
}

/* "Goes back by itself once that has ended (at a later call that needs the driver, or vmm_tick())". */
static void what_was_in_flight_goes_back_when_the_cache_grows(void **state)
{
    struct cache_test *test = *state;
    (void)flight_trimmed(test, LARGE, 1);
    flight_end(test);
    void *block = block_taken(test, 100, 2); /* has room for new memory, and no use for the old */
    assert_int_equal(cache_stats(test).limbo_bytes, 0);
    assert_int_equal(reserved_now(test), 2 * MIB);
    block_given(test, block);
    ticked(test); /* the order has ended */
    assert_int_equal(reserved_now(test), 2 * MIB);
}

static void what_was_in_flight_goes_back_with_a_tick(void **state)
{
    struct cache_test *test = *state;
    bool is_sure = flight_trimmed(test, LARGE, 1);
    ticked(test);
    if (is_sure)
        assert_int_equal(reserved_now(test), LARGE);
    flight_end(test);
    ticked(test);
    assert_int_equal(reserved_now(test), 0);
    assert_int_equal(cache_stalls(test), 0);
    cache_verified(test);
}

/* Its own stream may use it, and then it is not overdue any more. */
static void what_is_in_flight_stays_usable(void **state)
{
    struct cache_test *test = *state;
    bool is_sure = flight_trimmed(test, LARGE, 1);
    uint64_t creates = cache_stats(test).create_calls;
    void *block = block_taken(test, LARGE, 1);
    if (is_sure)
        assert_int_equal(cache_stats(test).create_calls, creates);
    block_filled(test, block, LARGE, 5, 1);
    block_checked(test, block, LARGE, 5, 1);
    block_given(test, block);
    flight_end(test);
    ticked(test);
    assert_int_equal(reserved_now(test), LARGE);
    cache_verified(test);
    assert_int_equal(cache_trimmed(test, 0), LARGE);
}

static void a_later_order_replaces_the_first(void **state)
{
    struct cache_test *test = *state;
    bool is_sure = flight_trimmed(test, 3 * LARGE, 1);
    (void)cache_trimmed(test, SIZE_MAX);
    flight_end(test);
    ticked(test);
    if (is_sure)
        assert_int_equal(reserved_now(test), 3 * LARGE);
    is_sure = flight_trimmed(test, 3 * LARGE, 1);
    (void)cache_trimmed(test, LARGE);
    flight_end(test);
    ticked(test);
    if (is_sure)
        assert_int_equal(reserved_now(test), LARGE);
}

/* Memory that another stream still uses is not idle: the trim after that gives it back. */
static void memory_that_others_use_is_not_ordered_back(void **state)
{
    struct cache_test *test = *state;
    void *block = block_taken(test, LARGE, 1);
    block_used(test, block, 2);
    bool is_sure = flight_begin(test, block, LARGE, 2);
    block_given(test, block);
    (void)cache_trimmed(test, 0);
    flight_end(test);
    ticked(test);
    if (is_sure)
        assert_int_equal(reserved_now(test), LARGE);
    (void)cache_trimmed(test, 0);
    assert_int_equal(reserved_now(test), 0);
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
        CACHE_TEST(a_trim_lets_the_program_be_learnt_anew),
        CACHE_TEST(live_blocks_stay_where_they_are),
        CACHE_TEST(keep_bytes_are_kept),
        CACHE_TEST(live_memory_is_more_than_what_may_be_kept),
        CACHE_TEST(work_in_flight_is_not_waited_for),
        CACHE_TEST(what_was_in_flight_goes_back_when_the_cache_grows),
        CACHE_TEST(what_was_in_flight_goes_back_with_a_tick),
        CACHE_TEST(what_is_in_flight_stays_usable),
        CACHE_TEST(a_later_order_replaces_the_first),
        CACHE_TEST(memory_that_others_use_is_not_ordered_back),
        CACHE_TEST(trimmed_memory_is_soon_had_again),
    };
    CACHE_MAIN(tests);
}
