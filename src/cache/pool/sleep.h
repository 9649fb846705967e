/*
 * Sleep and wake: see vmm_pool_sleep().
 *
 * A pool that sleeps keeps all records: heaps, blocks, views, chunks with their addresses. Only mappings, physical
 * memory and contents go, chunk by chunk, while the contents of the next chunks are copied. Nothing else changes the
 * pool's chunks meanwhile: a pool that is not awake counts as retained, and its lanes serve no request. Lanes that it
 * adopts meanwhile stay awake. A sleep or a wake begins only if its pools are awake or asleep, and ends for all of them
 * at once.
 *
 * Owns: the phases of pools. Invariants:
 *  1. lanes are marked is_asleep exactly while their pool is not awake; then those of other pools than the default one
 *     are in no table;
 *  2. in a pool that is awake, no chunk is asleep or partly unmapped.
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
    vmm_sleep_options options;
};

/* Begins: checks the pools and sets their phases. Those that need nothing leave the request. ERR_INVALID_ARGUMENT. */
vmm_status vmm__sleep_begin(struct sleep_request *request);

/* Ends a request that began and is not carried out. */
void vmm__sleep_cancel(const struct sleep_request *request);

/* Carries out a request that began, and sets the phases again. */
vmm_status vmm__sleep_run(const struct sleep_request *request);

/* Wakes a pool without live blocks, which then has no memory, so that it can be destroyed. ERR_HOST_OOM,
 * ERR_INVALID_ARGUMENT (freed blocks wait for streams): it sleeps. */
vmm_status vmm__sleep_end_locked(struct pool *pool);

#endif
