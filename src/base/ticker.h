/*
 * A ticker: a thread that calls a function over and over, with a pause between, until it is stopped.
 *
 * Owns: its thread, which takes no signals. Knows nothing of what it calls.
 * May be called by: entry. Locks: its own, not held while the function runs.
 */
#ifndef VMM_BASE_TICKER_H
#define VMM_BASE_TICKER_H

#include "base/lock.h"
#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stdint.h>

typedef void (*ticker_fn)(void *context);

struct ticker {
    pthread_t thread;
    ticker_fn function;
    void *context;
    uint64_t pause_ms;
    bool runs; /* the thread is there; for start and stop only */
    struct lock lock;
    pthread_cond_t stopped;
    bool stops; /* guarded by the lock */
};

/* Calls function(context) every pause_ms milliseconds from now on, at least 1. Stays where it is while
 * it runs. ERR_HOST_OOM: there is no such thread, and nothing is left behind. */
vmm_status vmm__ticker_start(struct ticker *ticker, uint64_t pause_ms, ticker_fn function,
                             void *context);

/* Returns when the last call has ended and the thread is gone. A zeroed ticker that was never started,
 * or one that was stopped, has nothing to stop. */
void vmm__ticker_stop(struct ticker *ticker);

#endif
