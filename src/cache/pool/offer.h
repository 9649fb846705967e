/*
 * Offers: pools that the program does not use now, and that sleep if another process claims their memory: see
 * vmm_sleep_options.on_claim. From the offer on the program submits no work on the pool, so once the clock has passed
 * the epoch of the offer, the pool's work has ended. Only where the clock joins events does the host wait for the
 * device, in the offer (sleep.c).
 *
 * Owns: the choice of the pool that sleeps for a claim. The thread that answers claims (reclaim/answer.h) carries the
 * sleep out; other calls wait for it (sleep.h). May be called by: cache. Locks: takes the grow lock, and holds none
 * while the pool goes to sleep.
 */
#ifndef VMM_CACHE_POOL_OFFER_H
#define VMM_CACHE_POOL_OFFER_H

#include "lane/pool.h"

/* What became of a pool that a claim chose. */
struct offer_taken {
    uint64_t bytes;  /* that it no longer has */
    bool has_failed; /* it does not sleep, and is not chosen again; the log has the reason */
    char name[POOL_NAME_BYTES];
};

/* Puts one offered pool to sleep whose work has ended: the smallest that has `bytes`, else the largest. It ignores
 * pools whose sleep would leave the cache less than floor_bytes. False: no pool is left. The caller holds no lock. */
bool vmm__offer_take(struct vmm_cache *cache, uint64_t bytes, uint64_t floor_bytes,
                     struct offer_taken *taken);

#endif
