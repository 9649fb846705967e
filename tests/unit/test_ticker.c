/* Tickers: called in time, never after the end, deaf to signals. */
#define _GNU_SOURCE
#include "support/thread_support.h"

#include "base/ticker.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static atomic_uint calls;
static atomic_bool is_deaf;

static void call_counted(void *context)
{
    sigset_t blocked;
    atomic_fetch_add((atomic_uint *)context, 1);
    if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0 && sigismember(&blocked, SIGINT) == 1 &&
        sigismember(&blocked, SIGUSR1) == 1)
        atomic_store(&is_deaf, true);
}

/* Waits until there were so many calls; fails after ten seconds. */
static void calls_awaited(unsigned count)
{
    const struct timespec pause = { .tv_nsec = 1000000 };
    for (int i = 0; i < 10000 && atomic_load(&calls) < count; i++)
        (void)nanosleep(&pause, NULL);
    assert_true(atomic_load(&calls) >= count);
}

static int calls_forgotten(void **state)
{
    (void)state;
    atomic_store(&calls, 0);
    atomic_store(&is_deaf, false);
    return 0;
}

static void it_ticks_until_it_is_stopped(void **state)
{
    (void)state;
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, 1, call_counted, &calls));
    calls_awaited(5);
    vmm__ticker_stop(&ticker);
    unsigned count = atomic_load(&calls);
    const struct timespec pause = { .tv_nsec = 20000000 };
    (void)nanosleep(&pause, NULL);
    assert_int_equal(atomic_load(&calls), count);
    vmm__ticker_stop(&ticker);
    assert_true(atomic_load(&is_deaf));
}

/* A pause of 0 is one of a millisecond: it must not keep a core busy. */
static void it_always_pauses(void **state)
{
    (void)state;
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, 0, call_counted, &calls));
    assert_int_equal(ticker.pause_ms, 1);
    calls_awaited(2);
    vmm__ticker_stop(&ticker);
}

/* Stopping does not wait for the pause to end. */
static void a_long_pause_ends_at_once(void **state)
{
    (void)state;
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, UINT32_MAX, call_counted, &calls));
    vmm__ticker_stop(&ticker);
    assert_int_equal(atomic_load(&calls), 0);
}

static void what_never_started_is_stopped(void **state)
{
    (void)state;
    struct ticker ticker = { .runs = false };
    vmm__ticker_stop(&ticker);
}

static void the_callers_signals_stay(void **state)
{
    (void)state;
    sigset_t before;
    sigset_t after;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    struct ticker ticker;
    assert_ok(vmm__ticker_start(&ticker, 1, call_counted, &calls));
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    vmm__ticker_stop(&ticker);
    for (int number = 1; number < SIGRTMAX; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
}

static void without_a_thread_there_is_nothing(void **state)
{
    (void)state;
    struct ticker ticker;
    sigset_t before;
    sigset_t after;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    size_t stack_bytes = threads_prevented();
    vmm_status status = vmm__ticker_start(&ticker, 1, call_counted, &calls);
    threads_allowed(stack_bytes);
    assert_status(status, VMM_ERR_HOST_OOM);
    assert_non_null(strstr(vmm_last_error(), "thread"));
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    assert_int_equal(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
    vmm__ticker_stop(&ticker);
}

int main(void)
{
#define TICKER_TEST(name) cmocka_unit_test_setup(name, calls_forgotten)
    static const struct CMUnitTest tests[] = {
        TICKER_TEST(it_ticks_until_it_is_stopped), TICKER_TEST(it_always_pauses),
        TICKER_TEST(a_long_pause_ends_at_once),    TICKER_TEST(what_never_started_is_stopped),
        TICKER_TEST(the_callers_signals_stay),     TICKER_TEST(without_a_thread_there_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
