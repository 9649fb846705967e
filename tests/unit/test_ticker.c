/* Tickers: they call periodically, stop at once and block signals. */
#define _GNU_SOURCE
#include "support/thread_support.h"

#include "base/ticker.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static atomic_uint calls;
static atomic_bool blocks_signals;

static void call_count(void *context)
{
    sigset_t blocked;
    atomic_fetch_add((atomic_uint *)context, 1);
    if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0 && sigismember(&blocked, SIGINT) == 1 &&
        sigismember(&blocked, SIGUSR1) == 1)
        atomic_store(&blocks_signals, true);
}

/* Waits until there were `count` calls; fails after ten seconds. */
static void calls_await(unsigned count)
{
    const struct timespec pause = { .tv_nsec = 1000000 };
    for (int i = 0; i < 10000 && atomic_load(&calls) < count; i++)
        (void)nanosleep(&pause, NULL);
    assert_true(atomic_load(&calls) >= count);
}

static int calls_reset(void **state)
{
    (void)state;
    atomic_store(&calls, 0);
    atomic_store(&blocks_signals, false);
    return 0;
}

#define TICKER_TEST(name) TEST_BETWEEN(name, calls_reset, NULL)

TICKER_TEST(ticker_calls_until_stopped)
{
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, 1, call_count, &calls));
    calls_await(5);
    vmm__ticker_stop(&ticker);
    unsigned count = atomic_load(&calls);
    const struct timespec pause = { .tv_nsec = 20000000 };
    (void)nanosleep(&pause, NULL);
    assert_int_equal(atomic_load(&calls), count);
    vmm__ticker_stop(&ticker);
    assert_true(atomic_load(&blocks_signals));
}

/* A pause of 0 counts as 1 ms, so that the ticker does not keep a core busy. */
TICKER_TEST(ticker_always_pauses)
{
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, 0, call_count, &calls));
    assert_int_equal(ticker.pause_ms, 1);
    calls_await(2);
    vmm__ticker_stop(&ticker);
}

/* Stop does not wait for the end of the pause. */
TICKER_TEST(stop_ends_a_long_pause)
{
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, UINT32_MAX, call_count, &calls));
    vmm__ticker_stop(&ticker);
    assert_int_equal(atomic_load(&calls), 0);
}

TICKER_TEST(hurry_ends_a_long_pause)
{
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, 3600000, call_count, &calls));
    vmm__ticker_hurry(&ticker);
    calls_await(1);
    vmm__ticker_hurry(&ticker);
    calls_await(2);
    vmm__ticker_stop(&ticker);
}

TICKER_TEST(stop_accepts_a_ticker_that_never_started)
{
    struct ticker ticker = { .runs = false };
    vmm__ticker_stop(&ticker);
}

TICKER_TEST(start_keeps_the_signal_mask)
{
    sigset_t before;
    sigset_t after;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, 1, call_count, &calls));
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    vmm__ticker_stop(&ticker);
    for (int number = 1; number < SIGRTMAX; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
}

TICKER_TEST(start_without_a_thread_fails)
{
    struct ticker ticker;
    sigset_t before;
    sigset_t after;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    size_t stack_bytes = threads_prevent();
    vmm_status status = vmm__ticker_start(&ticker, 1, call_count, &calls);
    threads_allow(stack_bytes);
    assert_status(status, VMM_ERR_HOST_OOM);
    assert_non_null(strstr(vmm_last_error(), "thread"));
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    assert_int_equal(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
    vmm__ticker_stop(&ticker);
}
