/*
 * Decay: decides when idle memory has expired. Time is divided into periods; at the end of each, every lane begins a
 * new epoch. Memory that was freed before the period, and not used in it, then expires: it has been idle for one to
 * two periods. A period lasts until a poll reads the clock after its end, however late.
 *
 * Decay costs the allocation path nothing, because it uses the epochs that memory is stamped with in any case. Trim
 * releases the expired memory.
 *
 * Owns: the readings of the clock. The expired epochs are in each lane (lane.h, invariant 3).
 * May be called by: cache, api. Locks: the grow lock; atomic fields may be read without it.
 */
#ifndef VMM_CACHE_DECAY_H
#define VMM_CACHE_DECAY_H

#include "lane/lanes.h"

struct decay {
    uint64_t period_ns; /* 0: nothing decays; this and the next four never change */
    uint64_t keep_bytes;
    vmm_clock_fn clock;
    void *clock_context;
    const void *owner; /* the cache: see base/callback.h */
    _Atomic uint64_t period_begin_ns;
    _Atomic bool is_stuck; /* expired memory is left because its work has not finished */
};

/* Reads the cache's clock. Needs no lock. */
uint64_t vmm__decay_clock_ns(const struct decay *decay);

/* Begins the first period. */
void vmm__decay_init(struct decay *decay, const vmm_config *config, const void *owner);

/* Whether the period is over, or expired memory is left. Needs no lock. */
bool vmm__decay_is_due(const struct decay *decay);

/* If the period is over: ends it, notes in each lane what has expired, and returns true. The caller
 * holds the grow lock and no lane's. */
bool vmm__decay_period_end(struct decay *decay, struct lanes *lanes);

/* One free in so many, of each lane and of each magazine, checks the clock. */
enum { DECAY_POLL_FREES = 64 };

/* Whether a free should check if decay is due. `frees` is the count of the lane, whose lock the caller holds, or of the
 * calling thread's magazine. */
static inline bool vmm__decay_should_poll(const struct decay *decay, uint64_t *frees)
{
    return decay->period_ns != 0 && ++*frees % DECAY_POLL_FREES == 0;
}

#endif
