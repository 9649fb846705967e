/*
 * Decay: when it is time to look for idle memory, and which is overdue. Time is cut into periods; at
 * the end of each a new epoch begins in every pool. What was given up before the period that ends,
 * and not used in it, is overdue then: it has been idle for one to two periods. Periods in which
 * nobody looks at the clock count as one with the next.
 *
 * It costs the allocation path nothing: the epochs are those that memory is stamped with anyhow. The
 * memory is given back by trim.
 *
 * Owns: the clock's readings; what it marks is in each pool (pool.h, invariant 3).
 * May be called by: trim, entry. Locks: the grow lock; what is atomic may be read without.
 */
#ifndef VMM_POLICY_DECAY_H
#define VMM_POLICY_DECAY_H

#include "heap/pools.h"

struct decay {
    uint64_t period_ns; /* 0: nothing decays; this and the next four never change */
    uint64_t keep_bytes;
    vmm_clock_fn clock;
    void *clock_context;
    const void *owner; /* the cache: see base/callback.h */
    _Atomic uint64_t period_begin_ns;
    _Atomic bool is_stuck; /* something overdue is left: its work has not finished */
};

/* Begins the first period. */
void vmm__decay_init(struct decay *decay, const vmm_config *config, const void *owner);

/* Whether the period is over, or something overdue is left. Needs no lock. */
bool vmm__decay_is_due(const struct decay *decay);

/* If the period is over: ends it, marks in each pool what is overdue, and returns true. The caller
 * holds the grow lock and no pool's. */
bool vmm__decay_turn(struct decay *decay, struct pools *pools);

/* Frees in one pool, or by way of one magazine, from one look at the clock to the next. */
enum { DECAY_LOOK_FREES = 64 };

/* Whether a free should ask if anything is due. The caller owns the count: it holds the lock of the pool
 * whose it is, or is the magazine's thread. */
static inline bool vmm__decay_looks(const struct decay *decay, uint64_t *frees)
{
    return decay->period_ns != 0 && ++*frees % DECAY_LOOK_FREES == 0;
}

#endif
