/*
 * All pools of a cache, found by stream without a lock.
 *
 * Pools are added and stay until the cache ends, so a reader that finds one may keep it. One whose stream has
 * ended is hidden until another stream has it; a reader who passes by meanwhile may miss a pool, and looks again
 * with the lock.
 * Owns: the pools. Locks: finding needs none; adding the grow lock.
 */
#ifndef VMM_HEAP_POOLS_H
#define VMM_HEAP_POOLS_H

#include "heap/pool.h"

enum { POOL_BUCKETS = 256 };

struct pools {
    _Atomic(struct pool *) buckets[POOL_BUCKETS];
    struct pool *first; /* guarded by the grow lock */
    struct pool *last;
    struct pool
        *recent; /* the one supplied last, and so on by recent_next; those never supplied are
                            not in this list; guarded by the grow lock */
};

/* NULL if the stream has no pool yet. */
struct pool *vmm__pools_find(const struct pools *pools, vmm_stream stream);

/* Adds a pool whose stream has none yet. */
void vmm__pools_add(struct pools *pools, struct pool *pool);

/* Adds a pool that no stream is to find. */
void vmm__pools_add_apart(struct pools *pools, struct pool *pool);

/* Lets no stream find a pool any more; and lets its stream find it again. */
void vmm__pools_hide(struct pools *pools, struct pool *pool);
void vmm__pools_show(struct pools *pools, struct pool *pool);

/* Makes a pool the one that was supplied last. */
void vmm__pools_touch(struct pools *pools, struct pool *pool);

/* Closes all; the first error of the driver. */
vmm_status vmm__pools_fini(struct pools *pools);

#endif
