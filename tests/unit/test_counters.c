/* Counters and totals: flushed sums are exact, and peaks are exact or within their bounds. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "lane/counters.h"

#include <time.h>

enum { LANES = 4 };

/* The expected values, updated at once. */
struct expected {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated;
};

struct fixture {
    struct totals totals;
    struct counters counters[LANES];
    struct expected requested;
    struct expected allocated;
    struct expected active;
    struct expected allocations;
};

static void fixture_open(struct fixture *fixture)
{
    *fixture = (struct fixture){ .totals = { .is_shared = false } };
    for (int i = 0; i < LANES; i++)
        vmm__counters_init(&fixture->counters[i]);
}

static void expected_raise(struct expected *expected, uint64_t amount)
{
    expected->current += amount;
    expected->peak = expected->current > expected->peak ? expected->current : expected->peak;
}

static void expected_take(struct expected *expected, uint64_t amount)
{
    expected->allocated += amount;
    expected_raise(expected, amount);
}

static void count_alloc(struct fixture *fixture, int lane, uint64_t requested_bytes, uint64_t bytes)
{
    vmm__counters_alloc(&fixture->counters[lane], &fixture->totals, requested_bytes, bytes);
    expected_take(&fixture->requested, requested_bytes);
    expected_take(&fixture->allocated, bytes);
    expected_take(&fixture->active, bytes);
    expected_take(&fixture->allocations, 1);
}

static void count_free(struct fixture *fixture, int lane, uint64_t requested_bytes, uint64_t bytes,
                       bool waits)
{
    struct counters *from = &fixture->counters[lane];
    if (waits)
        vmm__counters_wait(from, bytes);
    vmm__counters_free(from, &fixture->totals, requested_bytes, bytes);
    fixture->requested.current -= requested_bytes;
    fixture->allocated.current -= bytes;
    fixture->allocations.current--;
    if (!waits)
        fixture->active.current -= bytes;
}

static void count_release(struct fixture *fixture, int lane, uint64_t bytes)
{
    vmm__counters_release(&fixture->counters[lane], bytes);
    fixture->active.current -= bytes;
}

static void flush(struct fixture *fixture, int lane)
{
    vmm__counters_flush(&fixture->counters[lane], &fixture->totals);
}

static void check_sum(const struct atomic_stat *stat, const struct expected *expected)
{
    vmm_stat read = vmm__stat_read(stat);
    assert_int_equal(read.current, expected->current);
    assert_int_equal(read.allocated, expected->allocated);
    assert_int_equal(read.freed, expected->allocated - expected->current);
}

/* Flushes all counters, after which the sums are exact. */
static void check_sums(struct fixture *fixture)
{
    for (int i = 0; i < LANES; i++)
        flush(fixture, i);
    check_sum(&fixture->totals.requested_bytes, &fixture->requested);
    check_sum(&fixture->totals.allocated_bytes, &fixture->allocated);
    check_sum(&fixture->totals.active_bytes, &fixture->active);
    check_sum(&fixture->totals.allocations, &fixture->allocations);
}

static void check_peaks(const struct fixture *fixture)
{
    assert_int_equal(fixture->totals.requested_bytes.peak, fixture->requested.peak);
    assert_int_equal(fixture->totals.allocated_bytes.peak, fixture->allocated.peak);
    assert_int_equal(fixture->totals.active_bytes.peak, fixture->active.peak);
    assert_int_equal(fixture->totals.allocations.peak, fixture->allocations.peak);
}

static uint64_t random_below(uint64_t *seed, uint64_t limit)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (*seed >> 33) % limit;
}

TEST(peaks_are_exact_with_one_active_lane)
{
    struct fixture fixture;
    fixture_open(&fixture);
    count_alloc(&fixture, 0, 90, 100);
    count_free(&fixture, 0, 90, 100, false);
    flush(&fixture, 0);
    count_alloc(&fixture, 1, 60, 70);
    flush(&fixture, 1);
    count_alloc(&fixture, 0, 20, 20);
    count_free(&fixture, 0, 20, 20, false);
    flush(&fixture, 0);
    check_sums(&fixture);
    check_peaks(&fixture);
    assert_int_equal(fixture.totals.allocated_bytes.peak, 100);
    assert_int_equal(fixture.totals.allocations.peak, 2);
}

TEST(waiting_bytes_are_active)
{
    struct fixture fixture;
    fixture_open(&fixture);
    count_alloc(&fixture, 0, 100, 100);
    count_free(&fixture, 0, 100, 100, true);
    check_sums(&fixture);
    assert_int_equal(vmm__stat_now(&fixture.totals.active_bytes), 100);
    assert_int_equal(vmm__stat_now(&fixture.totals.allocated_bytes), 0);
    count_alloc(&fixture, 0, 50, 50);
    count_release(&fixture, 0, 100);
    check_sums(&fixture);
    check_peaks(&fixture);
    assert_int_equal(fixture.totals.active_bytes.peak, 150);
    assert_int_equal(fixture.totals.allocated_bytes.peak, 100);
}

/* The blocks that a random sequence may free, and those that wait, for one lane. */
struct holdings {
    uint64_t blocks[64];
    unsigned count;
    uint64_t waiting[64];
    unsigned waiting_count;
};

static void step_random(struct fixture *fixture, struct holdings *holdings, int lane,
                        uint64_t most_bytes, uint64_t *seed)
{
    struct holdings *own = &holdings[lane];
    if (own->waiting_count > 0 && random_below(seed, 8) == 0) {
        count_release(fixture, lane, own->waiting[--own->waiting_count]);
        flush(fixture, lane); /* as lanes do */
    } else if (own->count < 64 && random_below(seed, 2) == 0) {
        uint64_t bytes = 1 + random_below(seed, most_bytes);
        count_alloc(fixture, lane, bytes, bytes);
        own->blocks[own->count++] = bytes;
    } else if (own->count > 0) {
        uint64_t bytes = own->blocks[--own->count];
        bool waits = own->waiting_count < 64 && random_below(seed, 4) == 0;
        count_free(fixture, lane, bytes, bytes, waits);
        if (waits)
            own->waiting[own->waiting_count++] = bytes;
    }
}

/* The counters are flushed whenever another lane becomes active. */
TEST(random_active_lanes_have_exact_peaks)
{
    struct fixture fixture;
    struct holdings holdings[LANES] = { { .count = 0 } };
    uint64_t seed = 7;
    int lane = 0;
    fixture_open(&fixture);
    for (int round = 0; round < 50000; round++) {
        if (random_below(&seed, 5) == 0) {
            flush(&fixture, lane);
            lane = (int)random_below(&seed, LANES);
        }
        step_random(&fixture, holdings, lane, GIB, &seed);
    }
    check_sums(&fixture);
    check_peaks(&fixture);
}

TEST(flushes_in_any_order_add_up)
{
    struct fixture fixture;
    struct holdings holdings[LANES] = { { .count = 0 } };
    uint64_t seed = 8;
    fixture_open(&fixture);
    for (int round = 0; round < 20000; round++) {
        step_random(&fixture, holdings, (int)random_below(&seed, LANES), GIB, &seed);
        if (random_below(&seed, 4) == 0)
            flush(&fixture, (int)random_below(&seed, LANES));
        if (round % 1000 == 0)
            check_sums(&fixture);
    }
    check_sums(&fixture);
}

static void near(uint64_t value, uint64_t wanted, uint64_t bound)
{
    assert_true(value <= wanted + bound && wanted <= value + bound);
}

/* The bound for all lanes: each may be off by the widest slack so far. */
static uint64_t slack_seen(const struct fixture *fixture, uint64_t *widest)
{
    for (int i = 0; i < LANES; i++) {
        uint64_t slack = fixture->counters[i].slack_bytes;
        *widest = slack > *widest ? slack : *widest;
    }
    return LANES * *widest;
}

/* Counters flush only by themselves. */
TEST(shared_totals_stay_within_the_slack)
{
    static const uint64_t most[] = { 4096, MIB, GIB };
    for (int i = 0; i < 3; i++) {
        struct fixture fixture;
        struct holdings holdings[LANES] = { { .count = 0 } };
        uint64_t seed = 9;
        uint64_t widest = 0;
        fixture_open(&fixture);
        fixture.totals.is_shared = true;
        for (int lane = 0; lane < LANES; lane++)
            flush(&fixture, lane);
        for (int round = 0; round < 20000; round++) {
            step_random(&fixture, holdings, (int)random_below(&seed, LANES), most[i], &seed);
            uint64_t bound = slack_seen(&fixture, &widest);
            assert_true(widest <= 4 * MIB || widest <= fixture.totals.allocated_bytes.peak / 8 ||
                        widest <= fixture.totals.allocated_bytes.peak / 256);
            near(vmm__stat_now(&fixture.totals.allocated_bytes), fixture.allocated.current, bound);
            near(vmm__stat_now(&fixture.totals.active_bytes), fixture.active.current, bound);
            near(fixture.totals.allocated_bytes.peak, fixture.allocated.peak, bound);
            near(fixture.totals.active_bytes.peak, fixture.active.peak, bound);
        }
        check_sums(&fixture);
    }
}

/* With flushes that are far apart, the slack is 1/256 of the peak. */
TEST(slack_is_small_when_flushes_are_far_apart)
{
    const struct timespec pause = { .tv_nsec = 1200000 };
    struct fixture fixture;
    struct holdings holdings[LANES] = { { .count = 0 } };
    uint64_t seed = 10;
    fixture_open(&fixture);
    fixture.totals.is_shared = true;
    for (int round = 0; round < 2000; round++)
        step_random(&fixture, holdings, (int)random_below(&seed, LANES), GIB, &seed);
    uint64_t widest = 0;
    for (int round = 0; round < 100; round++) {
        (void)nanosleep(&pause, NULL);
        if (round < LANES) {
            flush(&fixture, round); /* as the cache does at times */
            widest = 0;
            (void)nanosleep(&pause, NULL);
        }
        step_random(&fixture, holdings, round % LANES, GIB, &seed);
        (void)slack_seen(&fixture, &widest);
    }
    assert_true(widest <= fixture.totals.allocated_bytes.peak / 256 + 4 * MIB);
    check_sums(&fixture);
}

TEST(unshared_counters_flush_only_on_request)
{
    struct fixture fixture;
    fixture_open(&fixture);
    count_alloc(&fixture, 0, TIB, TIB);
    count_free(&fixture, 0, TIB, TIB, false);
    assert_int_equal(vmm__stat_read(&fixture.totals.allocated_bytes).allocated, 0);
    fixture.totals.is_shared = true;
    flush(&fixture, 0);
    count_alloc(&fixture, 0, 5 * GIB, 5 * GIB);
    assert_int_equal(vmm__stat_now(&fixture.totals.allocated_bytes), 5 * GIB);
    check_sums(&fixture);
}
