/*
 * All pools of a cache, found by stream without a lock.
 *
 * A pool lives until the cache ends, so a reader may keep the pool that it found. The pool of a
 * closed stream is hidden until another stream takes it over. A reader that races with hiding or
 * showing may miss a pool; it then searches again under the lock. The cost of finding, adding,
 * hiding and showing does not depend on the number of pools: each touches one bucket. Searches
 * for memory visit only the stocked pools.
 *
 * Owns: the pools, the table of buckets and the map of closed streams. Invariants:
 *  1. a pool is in at most one list; every pool that has memory is in `stocked`;
 *  2. a graph pool without memory is in no list; any other pool without memory is in
 *     `vacant` if its stream finds it, otherwise in the third list;
 *  3. a pool that is neither a graph pool nor found by its stream is in `closed`.
 * Locks: finding needs none; the grow lock guards everything else.
 */
#ifndef VMM_POOL_POOLS_H
#define VMM_POOL_POOLS_H

#include "pool/pool.h"

enum { POOL_BUCKET_BITS = 16, POOL_BUCKETS = 1 << POOL_BUCKET_BITS };

struct pool_list {
    struct pool *first; /* linked by list_next */
    struct pool *last;
    uint64_t count;
};

struct pools {
    _Atomic(struct pool *) *buckets; /* pools that their streams find */
    struct map closed;               /* pools of closed streams */
    struct pool *first;              /* all, in order of creation */
    struct pool *last;
    struct pool *graph_pools; /* linked by next_graph_pool */
    uint64_t count;
    struct pool_list stocked; /* pools that have memory, in the order in which they got it */
    struct pool_list vacant;
    struct pool_list spare;
    struct pool *recent; /* the stocked pool that was refilled last; linked by recent_next */
};

/* ERR_HOST_OOM. */
vmm_status vmm__pools_init(struct pools *pools);

/* Closes all pools. Returns the first driver error. */
vmm_status vmm__pools_fini(struct pools *pools);

/* NULL if the stream has no pool. */
struct pool *vmm__pools_find(const struct pools *pools, vmm_stream stream);

/* A pool of a closed stream that had this handle; NULL if there is none. */
struct pool *vmm__pools_find_closed(const struct pools *pools, vmm_stream stream);

/* Adds a pool whose stream has none yet. */
void vmm__pools_add(struct pools *pools, struct pool *pool);

/* Adds a graph pool, which no stream finds. */
void vmm__pools_add_graph_pool(struct pools *pools, struct pool *pool);

/* Hide a pool from all streams; give a hidden pool to a stream, whose pool it is from then on. */
void vmm__pools_hide(struct pools *pools, struct pool *pool);
void vmm__pools_show(struct pools *pools, struct pool *pool, vmm_stream stream);

/* Makes a pool the most recently refilled one, and stocked. */
void vmm__pools_touch(struct pools *pools, struct pool *pool);

/* Moves a pool that has no memory left out of `stocked`. */
void vmm__pools_vacate(struct pools *pools, struct pool *pool);

/* Moves the first pool of a list to its end, and returns it; NULL if the list is empty. */
struct pool *vmm__pool_list_turn(struct pool_list *list);

#endif
