/*
 * A ticker: a thread that calls a function periodically until it is stopped.
 *
 * Owns: its thread, which blocks all signals. May be called by: trace, api; a cache has one. Locks: its own, which it
 * does not hold while the function runs.
 */
#ifndef VMM_BASE_TICKER_H
#define VMM_BASE_TICKER_H

#include "base/mutex.h"
#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stdint.h>

typedef void (*ticker_fn)(void *context);

struct ticker {
    pthread_t thread;
    ticker_fn function;
    void *context;
    uint64_t pause_ms;
    bool runs; /* the thread exists; only start and stop use it */
    struct mutex lock;
    pthread_cond_t stopped;
    bool stops; /* guarded by the lock, as is the next */
    bool hurries;
};

/* Starts a thread that calls function(context) with a pause of pause_ms milliseconds, at least 1, before each call. The
 * struct must not move while the ticker runs. ERR_HOST_OOM: no thread was started and there is nothing to stop. */
vmm_status vmm__ticker_start(struct ticker *ticker, uint64_t pause_ms, ticker_fn function,
                             void *context);

/* Ends the present pause at once. May be called while the ticker runs, and does not wait for the function. */
void vmm__ticker_hurry(struct ticker *ticker);

/* Stops the thread and waits until it has ended. Does nothing to a ticker that is all zeros or was stopped already. */
void vmm__ticker_stop(struct ticker *ticker);

#endif
