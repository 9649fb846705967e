/*
 * Sleep and wake: see vmm_pool_sleep().
 *
 * A pool that sleeps keeps all records: heaps, blocks, views, chunks with their addresses. Only mappings, physical
 * memory and contents go, chunk by chunk, while the contents of the next chunks are copied. Nothing else changes the
 * pool's chunks meanwhile: a pool that is not awake counts as retained, and its lanes serve no request. Lanes that it
 * adopts meanwhile stay awake. A sleep or a wake begins only if its pools are awake, offered or asleep, and ends for
 * all of them at once. A pool that is offered (offer.h) serves no request either, but its memory is as that of one that
 * is awake.
 *
 * Calls that change the phase of a pool, or end it, refuse one that another call of the program changes, which is the
 * program's mistake. But they wait for a sleep that a claim has begun, which the program cannot know of.
 *
 * Owns: the phases of pools. Invariants:
 *  1. lanes are marked is_asleep exactly while their pool is not awake; then those of other pools than the default one
 *     are in no table;
 *  2. in a pool that is awake or offered, no chunk is asleep or partly unmapped;
 *  3. one pool at a time goes to sleep for a claim, and pools.claimed names it until that has ended.
 * May be called by: cache/pool, api. Locks: the calls take the grow lock, and the lanes' locks inside. They hold none
 * while they wait for work or copies.
 */
#ifndef VMM_CACHE_POOL_SLEEP_H
#define VMM_CACHE_POOL_SLEEP_H

#include "lane/pool.h"

/* What a sleep or a wake is to do. */
struct sleep_request {
    struct vmm_cache *cache;
    struct pool **pools;
    uint64_t count;
    bool is_wake;
    bool is_claimed; /* for another process: see offer.h */
    vmm_sleep_options options;
};

/* Begins: checks the pools and sets their phases. Those that need no work leave the request: a pool that is or was
 * offered, for example. ERR_INVALID_ARGUMENT. */
vmm_status vmm__sleep_begin(struct sleep_request *request);

/* Begins the sleep of one offered pool, whose work has ended, for a claim; and lets calls that wait for it go on. The
 * caller holds the grow lock. */
void vmm__sleep_begin_claimed_locked(const struct sleep_request *request);
void vmm__sleep_end_claimed_locked(struct vmm_cache *cache);

/* Waits until a pool no longer goes to sleep for a claim; not if the calling thread carries that out, and so is in a
 * function of the program. The caller holds the grow lock. Returns whether it waited, without the lock. */
bool vmm__sleep_claimed_wait_locked(const struct pool *pool);

/* Ends a request that began and is not carried out. */
void vmm__sleep_cancel(const struct sleep_request *request);

/* Carries out a request that began, and sets the phases again. Without pools it does nothing. */
vmm_status vmm__sleep_run(const struct sleep_request *request);

/* Wakes a pool without live blocks, so that it can be destroyed; if it sleeps, it then has no memory. ERR_HOST_OOM,
 * ERR_INVALID_ARGUMENT (freed blocks wait for streams): it sleeps. */
vmm_status vmm__sleep_end_locked(struct pool *pool);

#endif
