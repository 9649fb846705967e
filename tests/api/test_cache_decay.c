/* Decay as a program sees it: what goes back in time, what stays, who notices, the library's thread. */
#define _GNU_SOURCE
#include "support/cache_support.h"
#include "support/folder_support.h"
#include "support/thread_support.h"

#include "base/hostmem.h"
#include "cache/cache.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define LARGE (8 * MIB)
enum { PERIOD_MS = 10, NS_PER_MS = 1000000 };

static _Atomic uint64_t now_ms;

static uint64_t clock_read(void *context)
{
    return atomic_load((_Atomic uint64_t *)context) * NS_PER_MS;
}

/* A cache with a clock that stands still until a test moves it. */
static void decay_begin(struct cache_test *test, uint64_t keep_bytes, int thread)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .decay_ms = PERIOD_MS,
                       .decay_keep_bytes = keep_bytes, .decay_thread = (vmm_switch)thread,
                       .clock = clock_read, .clock_context = &now_ms);
}

static void time_passes(uint64_t ms)
{
    atomic_fetch_add(&now_ms, ms);
}

static void ticked(struct cache_test *test)
{
    assert_ok(vmm_poll(test->cache));
}

static uint64_t reserved_now(struct cache_test *test)
{
    return cache_stats(test).reserved_bytes.current;
}

/* Work on blocks of every kind, which has ended when they are given back. */
static uint64_t memory_made_idle(struct cache_test *test)
{
    static const size_t sizes[] = { LARGE, 900000, 100, 3 * MIB, 8192, LARGE + 1 };
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    void *blocks[SIZES];
    for (uint32_t i = 0; i < SIZES; i++) {
        blocks[i] = block_alloc(test, sizes[i], i % CACHE_STREAMS);
        block_fill(test, blocks[i], sizes[i], i, i % CACHE_STREAMS);
    }
    work_verify(test);
    for (int i = 0; i < SIZES; i++)
        block_free(test, blocks[i]);
    assert_true(reserved_now(test) > 2 * LARGE);
    return reserved_now(test);
}

CACHE_TEST(idle_memory_decays_after_one_to_two_periods)
{
    decay_begin(test, 0, 0);
    uint64_t reserved = memory_made_idle(test);
    time_passes(PERIOD_MS - 1);
    ticked(test);
    assert_int_equal(reserved_now(test), reserved);
    time_passes(1);
    ticked(test);
    assert_int_equal(reserved_now(test), reserved);
    time_passes(PERIOD_MS - 1);
    ticked(test);
    assert_int_equal(reserved_now(test), reserved);
    time_passes(1);
    ticked(test);
    assert_int_equal(reserved_now(test), 0);
    assert_int_equal(cache_stalls(test), 0);
}

CACHE_TEST(memory_in_use_stays)
{
    decay_begin(test, 0, 0);
    void *live = block_alloc(test, LARGE, 0);
    void *idle = block_alloc(test, LARGE, 1);
    void *used = block_alloc(test, LARGE, 2);
    block_fill(test, live, LARGE, 7, 0);
    block_free(test, idle);
    for (int i = 0; i < 5; i++) {
        block_free(test, used);
        time_passes(PERIOD_MS);
        ticked(test);
        used = block_alloc(test, LARGE, 2);
        block_fill(test, used, LARGE, 8, 2);
    }
    work_verify(test);
    ticked(test);
    assert_int_equal(reserved_now(test), 2 * LARGE);
    block_check(test, live, LARGE, 7, 0);
    block_check(test, used, LARGE, 8, 2);
    work_verify(test);
    block_free(test, live);
    block_free(test, used);
}

CACHE_TEST(decay_leaves_keep_bytes)
{
    decay_begin(test, 2 * LARGE, 0);
    (void)block_alloc(test, 2 * LARGE, 3);
    void *blocks[6];
    for (unsigned i = 0; i < 6; i++)
        blocks[i] = block_alloc(test, LARGE, i % 2);
    for (int i = 0; i < 6; i++)
        block_free(test, blocks[i]);
    for (int i = 0; i < 4; i++) {
        time_passes(PERIOD_MS);
        ticked(test);
    }
    vmm_stats stats = cache_stats(test);
    assert_in_range(stats.idle_bytes, 2 * LARGE, 3 * LARGE);
    assert_int_equal(stats.reserved_bytes.current, stats.idle_bytes + 2 * LARGE);
}

CACHE_TEST(memory_in_flight_stays_usable_until_released)
{
    decay_begin(test, 0, 0);
    void *block = block_alloc(test, LARGE, 1);
    bool is_sure = flight_begin(test, block, LARGE, 1);
    block_free(test, block);
    for (int i = 0; i < 4 && is_sure; i++) {
        time_passes(PERIOD_MS);
        ticked(test);
    }
    if (is_sure) {
        uint64_t calls = cache_stats(test).driver_calls;
        ticked(test); /* asks once */
        assert_int_equal(cache_stats(test).driver_calls, calls + 1);
        assert_int_equal(cache_stats(test).idle_bytes, LARGE);
        uint64_t creates = cache_stats(test).create_calls;
        block_free(test, block_alloc(test, LARGE, 1));
        assert_int_equal(cache_stats(test).create_calls, creates);
    }
    time_passes(PERIOD_MS);
    ticked(test);
    time_passes(PERIOD_MS);
    ticked(test);
    flight_end(test);
    ticked(test);
    assert_int_equal(reserved_now(test), 0);
    assert_int_equal(cache_stalls(test), 0);
}

/* A late poll ends one period, not several, because the cache cannot know when the memory was used. */
CACHE_TEST(a_late_poll_ends_one_period)
{
    decay_begin(test, 0, 0);
    block_free(test, block_alloc(test, LARGE, 1));
    time_passes(400 * PERIOD_MS);
    ticked(test);
    time_passes(PERIOD_MS - 1);
    ticked(test);
    assert_int_equal(reserved_now(test), LARGE);
    time_passes(1);
    ticked(test);
    assert_int_equal(reserved_now(test), 0);
}

/* Epochs end for other reasons, too; only the end of a period ages memory. */
CACHE_TEST(trims_do_not_age_memory)
{
    decay_begin(test, 0, 0);
    block_free(test, block_alloc(test, LARGE, 1));
    for (int i = 0; i < 3; i++)
        (void)cache_trim(test, SIZE_MAX);
    time_passes(PERIOD_MS);
    ticked(test);
    assert_int_equal(reserved_now(test), LARGE);
    time_passes(PERIOD_MS);
    ticked(test);
    assert_int_equal(reserved_now(test), 0);
}

/* ---- Who notices the time --------------------------------------------------------------------- */

/* Memory of stream 1 that one more look will find expired. */
static void nearly_expired_make(struct cache_test *test)
{
    decay_begin(test, 0, 0);
    void *block = block_alloc(test, LARGE, 1);
    block_free(test, block);
    time_passes(PERIOD_MS);
    ticked(test);
    assert_int_equal(reserved_now(test), LARGE);
}

CACHE_TEST(an_allocation_that_grows_notices)
{
    nearly_expired_make(test);
    time_passes(PERIOD_MS);
    (void)block_alloc(test, 100, 2); /* has room for new memory, and no use for the old */
    assert_int_equal(reserved_now(test), 2 * MIB);
}

CACHE_TEST(a_trim_notices)
{
    nearly_expired_make(test);
    assert_int_equal(cache_trim(test, SIZE_MAX), 0);
    time_passes(PERIOD_MS);
    assert_int_equal(cache_trim(test, SIZE_MAX), LARGE);
}

CACHE_TEST(frees_notice)
{
    nearly_expired_make(test);
    (void)block_alloc(test, 100, 2);
    time_passes(PERIOD_MS);
    for (int i = 0; i < 100; i++)
        block_free(test, block_alloc(test, 100, 2));
    assert_int_equal(reserved_now(test), 2 * MIB);
}

/* A poll never waits for the grow lock, whose holder may be waiting for the device. */
CACHE_TEST(a_poll_does_not_wait_for_the_grow_lock)
{
    nearly_expired_make(test);
    time_passes(PERIOD_MS);
    vmm__fair_lock(&test->cache->grow_lock);
    ticked(test);
    vmm__fair_unlock(&test->cache->grow_lock);
    assert_int_equal(reserved_now(test), LARGE);
    ticked(test);
    assert_int_equal(reserved_now(test), 0);
}

/* Allocations that fail, and a cache that does not cache, live with decay. */
CACHE_TEST(decay_works_with_failures_and_no_caching)
{
    nearly_expired_make(test);
    void *block;
    time_passes(PERIOD_MS);
    assert_status(vmm_alloc(test->cache, CACHE_LIMIT + 1, NULL, &block), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "needed"));
    cache_restart_with(test, .no_caching = 1, .decay_ms = 1, .decay_thread = VMM_OFF);
    block = block_alloc(test, LARGE, 1);
    block_fill(test, block, LARGE, 1, 1);
    work_verify(test);
    block_free(test, block);
    assert_int_equal(reserved_now(test), 0);
}

/* ---- The library's thread --------------------------------------------------------------------- */

static void slept_ms(long ms)
{
    const struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS };
    (void)nanosleep(&pause, NULL);
}

static void nothing_reserved_awaited(struct cache_test *test)
{
    for (int i = 0; i < 10000 && reserved_now(test) > 0; i++)
        slept_ms(1);
    assert_int_equal(reserved_now(test), 0);
}

CACHE_TEST(the_thread_releases_idle_memory)
{
    cache_restart_with(test, .decay_ms = PERIOD_MS, .decay_thread = 1);
    void *block = block_alloc(test, LARGE, 1);
    slept_ms(3 * PERIOD_MS);
    assert_int_equal(reserved_now(test), LARGE);
    block_free(test, block);
    nothing_reserved_awaited(test);
}

static int threads_count(void)
{
    return count_entries("/proc/self/task");
}

CACHE_TEST(decay_has_a_thread_of_its_own)
{
    vmm_config config = CONFIG(.decay_ms = PERIOD_MS);
    int threads = threads_count();
    vmm_cache *cache = cache_on_with(test->driver, &config);
    assert_int_equal(threads_count(), threads + 1);
    assert_ok(vmm_destroy(cache));
    config.decay_thread = VMM_OFF;
    assert_ok(vmm__cache_create_on(&config, test->driver, &cache));
    assert_int_equal(threads_count(), threads);
    assert_ok(vmm_destroy(cache));
    cache_restart_with(test, .decay_ms = PERIOD_MS);
    block_free(test, block_alloc(test, LARGE, 1));
    nothing_reserved_awaited(test);
}

/* A program with its own clock polls; so does one that turns the thread off. */
CACHE_TEST(without_the_thread_calls_of_the_program_release)
{
    for (int has_clock = 0; has_clock < 2; has_clock++) {
        cache_restart_with(test, .decay_ms = 1, .clock = has_clock != 0 ? clock_read : NULL,
                           .clock_context = &now_ms,
                           .decay_thread = has_clock != 0 ? VMM_DEFAULT : VMM_OFF);
        block_free(test, block_alloc(test, LARGE, 1));
        work_verify(test);
        time_passes(2);
        slept_ms(20);
        assert_int_equal(reserved_now(test), LARGE);
        for (int i = 0; i < 3; i++) {
            ticked(test);
            time_passes(2);
            slept_ms(3);
        }
        assert_int_equal(reserved_now(test), 0);
    }
}

CACHE_TEST(the_thread_uses_the_configured_clock)
{
    decay_begin(test, 0, 1);
    uint64_t reserved = memory_made_idle(test);
    slept_ms(4 * PERIOD_MS);
    assert_int_equal(reserved_now(test), reserved);
    time_passes(PERIOD_MS);
    for (int i = 0; i < 10000 && reserved_now(test) > 0; i++) {
        slept_ms(1);
        if (i % 20 == 19)
            time_passes(PERIOD_MS);
    }
    assert_int_equal(reserved_now(test), 0);
}

/* An order is followed by the thread, too. */
CACHE_TEST(the_thread_follows_an_order)
{
    decay_begin(test, 0, 1);
    void *block = block_alloc(test, LARGE, 1);
    (void)flight_begin(test, block, LARGE, 1);
    block_free(test, block);
    (void)cache_trim(test, 0);
    flight_end(test);
    nothing_reserved_awaited(test);
}

CACHE_TEST(caches_end_while_their_threads_run)
{
    for (long round = 0; round < 20; round++) {
        cache_restart_with(test, .decay_ms = 1, .decay_thread = 1);
        block_free(test, block_alloc(test, LARGE, 1));
        (void)block_alloc(test, LARGE, 2);
        slept_ms(round % 4);
    }
}

CACHE_TEST(without_a_thread_nothing_is_left_behind)
{
    vmm_cache *cache = (vmm_cache *)test;
    vmm_config config = CONFIG(.decay_ms = 1, .decay_thread = 1);
    uint64_t host_bytes = vmm__host_outstanding();
    uint64_t reservations = test->driver->reservations;
    size_t stack_bytes = threads_prevent();
    vmm_status status = vmm__cache_create_on(&config, test->driver, &cache);
    threads_allow(stack_bytes);
    assert_status(status, VMM_ERR_HOST_OOM);
    assert_non_null(strstr(vmm_last_error(), "thread"));
    assert_ptr_equal(cache, test);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
    assert_int_equal(test->driver->reservations, reservations);
}

CACHE_MAIN()
