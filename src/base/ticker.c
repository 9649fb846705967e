/* A thread that calls a function periodically: see ticker.h. */
#define _GNU_SOURCE
#include "base/ticker.h"
#include "base/error.h"
#include "base/worker.h"

#include <string.h>
#include <time.h>

static struct timespec time_in(uint64_t milliseconds)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(milliseconds / 1000);
    at.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

/* Returns false if the ticker was stopped meanwhile. */
static bool ticker_pause(struct ticker *ticker)
{
    struct timespec until = time_in(ticker->pause_ms);
    bool has_time = true;
    VMM_HOLD(&ticker->lock);
    while (!ticker->stops && !ticker->hurries && has_time)
        has_time = vmm__mutex_wait(&ticker->lock, &ticker->stopped, &until);
    bool continues = !ticker->stops;
    ticker->hurries = false;
    return continues;
}

static void *ticker_main(void *context)
{
    struct ticker *ticker = context;
    while (ticker_pause(ticker))
        ticker->function(ticker->context);
    return NULL;
}

static int condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int failure = pthread_condattr_init(&attributes);
    if (failure != 0)
        return failure;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    failure = pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return failure;
}

static vmm_status start_failed(int failure)
{
    return vmm__error(VMM_ERR_HOST_OOM, "ticker: could not start a thread: %s", strerror(failure));
}

vmm_status vmm__ticker_start(struct ticker *ticker, uint64_t pause_ms, ticker_fn function,
                             void *context)
{
    *ticker = (struct ticker){ .function = function,
                               .context = context,
                               .pause_ms = pause_ms > 0 ? pause_ms : 1 };
    int failure = condition_init(&ticker->stopped);
    if (failure != 0)
        return start_failed(failure);
    vmm__mutex_init(&ticker->lock);
    failure = vmm__worker_start(&ticker->thread, ticker_main, ticker);
    if (failure != 0)
        goto fail_thread;
    ticker->runs = true;
    return VMM_OK;

fail_thread:
    vmm__mutex_fini(&ticker->lock);
    (void)pthread_cond_destroy(&ticker->stopped);
    return start_failed(failure);
}

void vmm__ticker_hurry(struct ticker *ticker)
{
    VMM_HOLD(&ticker->lock);
    ticker->hurries = true;
    (void)pthread_cond_signal(&ticker->stopped);
}

void vmm__ticker_stop(struct ticker *ticker)
{
    if (!ticker->runs)
        return;
    vmm__mutex_lock(&ticker->lock);
    ticker->stops = true;
    (void)pthread_cond_signal(&ticker->stopped);
    vmm__mutex_unlock(&ticker->lock);
    (void)pthread_join(ticker->thread, NULL);
    vmm__mutex_fini(&ticker->lock);
    (void)pthread_cond_destroy(&ticker->stopped);
    ticker->runs = false;
}
