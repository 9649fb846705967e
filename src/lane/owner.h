/*
 * The owner of memory: a stream, in a pool. It is all that heaps, slabs, views and listeners know of their lane.
 *
 * Owns: nothing. May be called by: lane, cache, debug, api. Locks: each field says when it changes; one that says
 * nothing is set once, before the lane serves requests.
 */
#ifndef VMM_LANE_OWNER_H
#define VMM_LANE_OWNER_H

#include "lane/pool.h"

struct owner {
    _Atomic(vmm_stream) stream; /* changes only while the lane is hidden and empty */
    /* Changes, under the lane's lock and the grow lock, when the pool is destroyed, or while the lane has no memory. */
    struct pool *pool;
    bool is_pooled;      /* it was made for another pool than the default one */
    bool has_own_chunks; /* made for a pool whose blocks have: see pool.h */
    bool is_imported;    /* its memory belongs to other caches: see cache/share/import.h */
    bool has_source;     /* made for a pool with a source: see pool.h */
};

#endif
