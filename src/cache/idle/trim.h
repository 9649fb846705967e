/*
 * Trim: releases idle memory to the driver: when the program calls vmm_trim(), when a request needs the memory, and by
 * decay.
 *
 * A chunk is idle when free blocks cover it. Its last work may still be running. Until that has finished, the chunk
 * stays in its heap, where its own stream can use it. A request that ran out of memory waits for the work, if it has to
 * (reclaim/reclaim.h). vmm_trim() and decay do not wait. They expire the memory, and a later call releases it:
 *
 * * vmm_trim() sets a trim target: memory that is idle now and stays unused is released until at most keep_bytes are
 *   reserved, at once or as soon as its work has finished. The target ends when that memory is all released
 *   or used again, or with the next vmm_trim();
 * * decay expires memory that was idle for a period (decay.h).
 *
 * vmm_trim() and vmm_pool_trim() let others have the grow lock after each CHUNKS_AT_ONCE chunks. Until such a call has
 * ended, nothing else goes on with the trim target.
 *
 * Owns: the trim target of the cache. May be called by: cache, api. Locks: the grow lock; lanes' locks are taken
 * inside.
 */
#ifndef VMM_CACHE_IDLE_TRIM_H
#define VMM_CACHE_IDLE_TRIM_H

#include "cache/idle/idle_scan.h"

enum trim_what {
    TRIM_ALL = 0,
    TRIM_TARGET, /* memory that the trim target has expired */
    TRIM_DECAYED /* memory that decay has expired */
};

struct trim_request {
    uint64_t bytes;           /* stop once this much is in limbo: rounded up to whole chunks */
    uint64_t most_bytes;      /* no more goes, even by rounding; at least `bytes`; 0: no bound */
    enum trim_what what;      /* which idle memory */
    enum idle_when when;      /* IDLE_FINISHED: retained pools keep theirs */
    const struct block *keep; /* a free block to leave alone; NULL: none */
    struct lane *held;        /* locked by the caller; NULL: none */
    const struct pool *pool;  /* whose memory to release; NULL: that of all pools */
    const struct pool *taker; /* that needs the memory: see below; NULL: none */
    bool leaves_sources;      /* memory of sources stays: the caller does not give it back */
    bool is_stuck;            /* result: memory was left because its work still runs */
    vmm_status failed;        /* result: the first error of a query, or VMM_OK */
};

/* Puts idle chunks into limbo. Returns the bytes put there. With a taker, each other pool keeps what it was promised;
 * but without most_bytes, a chunk also goes if only a part of it lies above the promise: its pool may reserve that much
 * again. */
uint64_t vmm__trim_idle(struct vmm_cache *cache, struct trim_request *trim);

/* The whole of vmm_trim(), without its argument checks. Takes the grow lock. */
vmm_status vmm__trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released);

/* The whole of vmm_pool_trim(), without its argument checks. Takes the grow lock. */
vmm_status vmm__trim_pool(struct pool *pool, uint64_t keep_bytes, uint64_t *released);

/* The idle memory of all lanes, but for retained ones. The caller holds the grow lock and no lane's. */
uint64_t vmm__trim_idle_bytes(struct vmm_cache *cache);

/* What vmm__trim_part() would release, with no floor, once all work has finished. The caller holds the grow lock. */
uint64_t vmm__trim_parts_bytes(struct vmm_cache *cache);

/* Ends waits that are over, returns empty slabs to their heaps, and drains limbo. *released: the bytes that the drain
 * released. Returns whether any of this freed memory. The caller holds the grow lock and the lock of lane `held`; NULL:
 * of none. */
bool vmm__trim_passed_locked(struct vmm_cache *cache, struct lane *held, uint64_t *released);

/* Releases about `bytes` of idle memory whose work has finished, at most CHUNKS_AT_ONCE chunks, and no promised memory,
 * as long as floor_bytes stay. Returns what it released. Takes the grow lock. */
uint64_t vmm__trim_part(struct vmm_cache *cache, uint64_t bytes, uint64_t floor_bytes);

/* The whole of vmm_poll(), without its argument checks. Does nothing if another thread holds the grow lock, because
 * that thread may be waiting for the device; the next poll does the work. */
vmm_status vmm__poll(struct vmm_cache *cache);

/* The same for a caller that holds the grow lock and no lane's. */
vmm_status vmm__trim_expired_locked(struct vmm_cache *cache);

/* Whether vmm__trim_expired_locked() may have anything to do. */
static inline bool vmm__trim_may_have_expired(const struct vmm_cache *cache)
{
    return cache->has_trim_target || cache->decay.period_ns != 0 || cache->pools.leaving > 0;
}

#endif
