/* vmm_trim: what goes back, what stays, and that it never waits. */
#include "support/cache_support.h"

#include "driver/sim/sim.h"

#define LARGE (8 * MIB)
enum { MANY = 12 };

static void many_alloc(struct cache_test *test, void *blocks[MANY], size_t bytes)
{
    for (uint32_t i = 0; i < MANY; i++) {
        blocks[i] = block_alloc(test, bytes, i % CACHE_STREAMS);
        block_fill(test, blocks[i], bytes, i, i % CACHE_STREAMS);
    }
}

static void many_check(struct cache_test *test, void *blocks[MANY], size_t bytes)
{
    for (uint32_t i = 0; i < MANY; i++)
        block_check(test, blocks[i], bytes, i, i % CACHE_STREAMS);
    work_verify(test);
}

CACHE_TEST(a_trim_of_an_empty_cache_releases_nothing)
{
    assert_int_equal(cache_trim(test, 0), 0);
    assert_int_equal(cache_trim(test, SIZE_MAX), 0);
    assert_ok(vmm_trim(test->cache, 0, NULL));
    assert_ok(vmm_poll(test->cache));
    assert_status(vmm_poll(NULL), VMM_ERR_INVALID_ARGUMENT);
}

CACHE_TEST(a_trim_releases_all_idle_memory)
{
    static const size_t sizes[] = { LARGE, 900000, 8192, 1 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *blocks[MANY];
        many_alloc(test, blocks, sizes[i]);
        for (int j = 0; j < MANY; j++)
            block_free(test, blocks[j]);
        work_verify(test);
        uint64_t reserved = cache_stats(test).reserved_bytes.current;
        uint64_t stalls = cache_stalls(test);
        assert_int_equal(cache_trim(test, 0), reserved);
        assert_int_equal(cache_stalls(test), stalls);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        assert_int_equal(test->driver->handles, 0);
        assert_int_equal(cache_trim(test, 0), 0);
        cache_verify(test);
    }
}

/* Reserved memory hugs what the program has needed since, not what it once needed. */
CACHE_TEST(a_trim_resets_the_footprint_estimate)
{
    enum { SMALLER = 32, PIECE = 2 * MIB };
    vmm_config config = VMM_CONFIG_INIT; /* no limit */
    void *blocks[SMALLER];
    cache_restart(test, &config);
    block_free(test, block_alloc(test, 192 * MIB, 0));
    work_verify(test);
    (void)cache_trim(test, 0);
    for (int i = 0; i < SMALLER; i++)
        blocks[i] = block_alloc(test, PIECE, 0);
    for (int i = 0; i < SMALLER; i += 2)
        block_free(test, blocks[i]);
    block_free(test, block_alloc(test, (uint64_t)SMALLER / 2 * PIECE, 0));
    assert_true(cache_stats(test).reserved_bytes.current <= SMALLER * (uint64_t)PIECE + 20 * MIB);
}

/* What work still uses goes back once it has been waited for. */
CACHE_TEST(a_wait_lets_all_that_is_idle_go)
{
    void *block = block_alloc(test, LARGE, 1);
    assert_ok(vmm__driver_delay(test->driver, 100 * 1000 * 1000, test->streams[1]));
    block_free(test, block);
    assert_int_equal(cache_trim(test, 0), 0);
    assert_ok(vmm_wait(test->cache));
    assert_true(cache_trim(test, 0) > 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    assert_status(vmm_wait(NULL), VMM_ERR_INVALID_ARGUMENT);
}

CACHE_TEST(live_blocks_stay_where_they_are)
{
    static const size_t sizes[] = { LARGE / 2, 900000, 8192, 3 * MIB };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *live[MANY];
        void *gone[MANY];
        for (uint32_t j = 0; j < MANY; j++) {
            live[j] = block_alloc(test, sizes[i], j % CACHE_STREAMS);
            gone[j] = block_alloc(test, sizes[i] / 2 + 1, j % CACHE_STREAMS);
            block_fill(test, live[j], sizes[i], j, j % CACHE_STREAMS);
        }
        for (int j = 0; j < MANY; j++)
            block_free(test, gone[j]);
        work_verify(test);
        (void)cache_trim(test, 0);
        cache_verify(test);
        assert_int_equal(cache_stats(test).idle_bytes, 0);
        many_check(test, live, sizes[i]);
        for (int j = 0; j < MANY; j++)
            block_free(test, live[j]);
        (void)cache_trim(test, 0);
    }
}

CACHE_TEST(keep_bytes_are_kept)
{
    void *blocks[MANY];
    many_alloc(test, blocks, LARGE);
    for (int i = 0; i < MANY; i++)
        block_free(test, blocks[i]);
    work_verify(test);
    uint64_t reserved = cache_stats(test).reserved_bytes.current;
    assert_int_equal(cache_trim(test, reserved), 0);
    assert_int_equal(cache_trim(test, SIZE_MAX), 0);
    uint64_t gone = cache_trim(test, reserved - 1);
    assert_true(gone > 0 && gone <= LARGE);
    for (uint64_t keep = reserved - LARGE; keep > 0; keep -= LARGE / 2) {
        (void)cache_trim(test, keep);
        uint64_t now = cache_stats(test).reserved_bytes.current;
        assert_true(now <= keep);
        assert_true(now + LARGE > keep);
        cache_verify(test);
    }
}

CACHE_TEST(trim_below_live_bytes_releases_all_idle_memory)
{
    (void)block_alloc(test, 2 * LARGE, 0);
    void *gone = block_alloc(test, 2 * LARGE, 1);
    block_free(test, gone);
    assert_int_equal(cache_trim(test, 3 * LARGE), LARGE);
    assert_int_equal(cache_trim(test, LARGE), LARGE);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 2 * LARGE);
}

static void ticked(struct cache_test *test)
{
    assert_ok(vmm_poll(test->cache));
}

static uint64_t reserved_now(struct cache_test *test)
{
    return cache_stats(test).reserved_bytes.current;
}

CACHE_TEST(work_in_flight_is_not_waited_for)
{
    void *blocks[MANY];
    cache_restart_with(test, .reuse = VMM_REUSE_DECLARED);
    many_alloc(test, blocks, LARGE);
    work_verify(test);
    bool is_sure = flight_begin(test, blocks[1], LARGE, 1);
    uint64_t in_flight = 0;
    for (int i = 0; i < MANY; i++) {
        in_flight += i % CACHE_STREAMS == 1 ? LARGE : 0;
        block_free(test, blocks[i]);
    }
    uint64_t reserved = reserved_now(test);
    size_t released = cache_trim(test, 0);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(cache_stalls(test), 0);
    assert_int_equal(stats.reserved_bytes.current, reserved - released);
    assert_int_equal(stats.limbo_bytes, 0);
    if (is_sure) {
        assert_int_equal(stats.idle_bytes, in_flight);
        assert_int_equal(cache_trim(test, 0), 0);
    }
    cache_verify(test);
    flight_end(test);
    assert_int_equal(cache_trim(test, 0), stats.reserved_bytes.current);
    assert_int_equal(reserved_now(test), 0);
    assert_int_equal(cache_stalls(test), 0);
}

/* A block whose work goes on, given back and trimmed. */
static bool flight_trimmed(struct cache_test *test, size_t bytes, unsigned stream)
{
    void *block = block_alloc(test, bytes, stream);
    bool is_sure = flight_begin(test, block, bytes, stream);
    block_free(test, block);
    (void)cache_trim(test, 0);
    if (is_sure)
        assert_int_equal(cache_stats(test).idle_bytes, bytes);
    return is_sure;
}

/* "Goes back by itself once that has ended (at a later call that needs the driver, or vmm_poll())". */
CACHE_TEST(growth_releases_memory_in_limbo)
{
    (void)flight_trimmed(test, LARGE, 1);
    flight_end(test);
    void *block = block_alloc(test, 100, 2); /* has room for new memory, and no use for the old */
    assert_int_equal(cache_stats(test).limbo_bytes, 0);
    assert_int_equal(reserved_now(test), 2 * MIB);
    block_free(test, block);
    ticked(test); /* the order has ended */
    assert_int_equal(reserved_now(test), 2 * MIB);
}

CACHE_TEST(poll_releases_memory_in_limbo)
{
    bool is_sure = flight_trimmed(test, LARGE, 1);
    ticked(test);
    if (is_sure)
        assert_int_equal(reserved_now(test), LARGE);
    flight_end(test);
    ticked(test);
    assert_int_equal(reserved_now(test), 0);
    assert_int_equal(cache_stalls(test), 0);
}

/* Its own stream may use it, and then it is not expired any more. */
CACHE_TEST(memory_in_flight_stays_usable)
{
    bool is_sure = flight_trimmed(test, LARGE, 1);
    uint64_t creates = cache_stats(test).create_calls;
    void *block = block_alloc(test, LARGE, 1);
    if (is_sure)
        assert_int_equal(cache_stats(test).create_calls, creates);
    block_fill(test, block, LARGE, 5, 1);
    block_check(test, block, LARGE, 5, 1);
    block_free(test, block);
    flight_end(test);
    ticked(test);
    assert_int_equal(reserved_now(test), LARGE);
    cache_verify(test);
    assert_int_equal(cache_trim(test, 0), LARGE);
}

CACHE_TEST(a_later_order_replaces_the_first)
{
    bool is_sure = flight_trimmed(test, 3 * LARGE, 1);
    (void)cache_trim(test, SIZE_MAX);
    flight_end(test);
    ticked(test);
    if (is_sure)
        assert_int_equal(reserved_now(test), 3 * LARGE);
    is_sure = flight_trimmed(test, 3 * LARGE, 1);
    (void)cache_trim(test, LARGE);
    flight_end(test);
    ticked(test);
    if (is_sure)
        assert_int_equal(reserved_now(test), LARGE);
}

/* Memory that another stream still uses is not idle: the trim after that gives it back. */
CACHE_TEST(a_trim_leaves_memory_that_other_streams_use)
{
    void *block = block_alloc(test, LARGE, 1);
    block_use(test, block, 2);
    bool is_sure = flight_begin(test, block, LARGE, 2);
    block_free(test, block);
    (void)cache_trim(test, 0);
    flight_end(test);
    ticked(test);
    if (is_sure)
        assert_int_equal(reserved_now(test), LARGE);
    (void)cache_trim(test, 0);
    assert_int_equal(reserved_now(test), 0);
}

CACHE_TEST(trimmed_memory_is_mapped_again)
{
    for (int round = 0; round < 20; round++) {
        void *blocks[MANY];
        many_alloc(test, blocks, LARGE / 2 + (size_t)round * 100000);
        many_check(test, blocks, LARGE / 2 + (size_t)round * 100000);
        for (int i = 0; i < MANY; i++)
            block_free(test, blocks[(i * 5) % MANY]);
        (void)cache_trim(test, round % 2 == 0 ? 0 : 30 * MIB);
        cache_verify(test);
    }
}

/* Frees the slot's block, or allocates one if it has none. */
static void slot_toggle(struct cache_test *test, void **slot, unsigned number)
{
    size_t bytes = (1 + number % 3) * 2 * MIB;
    unsigned stream = 1 + number % 3;
    if (*slot != NULL) {
        block_free(test, *slot);
        *slot = NULL;
        return;
    }
    *slot = block_alloc(test, bytes, stream);
    block_fill(test, *slot, bytes, number, stream);
}

/* The peak of reserved bytes of a program whose work lags 40 operations behind and that trims every `trim_every`
 * operations; 0: never. */
static uint64_t lagging_peak(struct cache_test *test, unsigned trim_every)
{
    enum { SLOTS = 9, OPERATIONS = 600 };
    void *slots[SLOTS] = { NULL };
    cache_restart(test, NULL);
    vmm__sim_lag_set(test->driver, 40);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        slot_toggle(test, &slots[i % SLOTS], i % SLOTS);
        if (trim_every != 0 && i % trim_every == 0)
            (void)cache_trim(test, 0);
        assert_ok(vmm__cache_check(test->cache));
    }
    uint64_t peak_bytes = cache_stats(test).reserved_bytes.peak;
    assert_int_equal(cache_stalls(test), 0);
    work_verify(test);
    vmm__sim_lag_set(test->driver, 0);
    return peak_bytes;
}

/* Chunks that a trim leaves because of unfinished work stay usable for their stream, so trims never raise the peak. */
CACHE_TEST(trims_do_not_raise_the_peak_while_work_lags)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    uint64_t peak_bytes = lagging_peak(test, 0);
    for (unsigned trim_every = 1; trim_every <= 30; trim_every++)
        assert_in_range(lagging_peak(test, trim_every), 1, peak_bytes);
}

CACHE_MAIN()
