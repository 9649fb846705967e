/*
 * Plans a view for a request that no free block and no run can serve: which end of a row to extend, or which row to
 * begin, with which chunks, and with how much new memory. Changes nothing but heap->pinned_bytes, which it counts.
 *
 * Owns: the table of a cache for the lists of a search, so that a plan fails for no want of host memory.
 * May be called by: grow; api makes and frees the table. Locks: the caller holds the grow lock, the heap's lane lock,
 * and the locks of the lanes to search (vmm__request_lanes_lock()).
 */
#ifndef VMM_CACHE_GROW_PLAN_H
#define VMM_CACHE_GROW_PLAN_H

#include "cache/cache.h"
#include "cache/idle/idle_scan.h"

/* A chunk that a view begins, ends or goes on with. */
struct candidate {
    struct chunk *chunk;
    struct heap
        *heap;      /* that owns it; if not the requesting one, the chunk is idle, see idle_when */
    uint64_t bytes; /* free: all, or those at the end that would touch the row */
    bool gives_place; /* it has PLACES_USUAL places or more, and can give one up: see evict.h */
};

/* What a plan is made of. The chunks are in the order in which they are added, from the row outward. */
struct plan {
    uint64_t end;       /* the place to extend; NO_GRANULE: a new row */
    uint64_t view;      /* number of its view; 0: a new one */
    bool is_left;       /* extends the row to the left */
    bool has_begin;     /* the first chunk begins the row, before the new memory */
    uint64_t new_bytes; /* new memory, in whole granules; it comes first */
    uint64_t cost;
    uint32_t count;
    const struct candidate *chunks; /* in the table of the cache, until its next plan */
};

/* Allocates the table. ERR_HOST_OOM. */
vmm_status vmm__plan_open(struct vmm_cache *cache);
void vmm__plan_close(struct vmm_cache *cache);

/*
 * Finds the cheapest plan for a block of `bytes` that needs at most allowed_bytes of new memory; if there is none, the
 * plan that needs the least.
 */
struct plan vmm__plan(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                      uint64_t allowed_bytes, enum idle_when when);

#endif
