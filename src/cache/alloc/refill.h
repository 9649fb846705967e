/*
 * Refill: serves a request that the stream's own free memory could not. Tries, in this order: the lane again, once
 * blocks that waited are free; new memory within the footprint target; idle memory of other streams; a view, or new
 * memory beyond the target (grow/grow.h); and if memory has run out, the steps of reclaim (reclaim/reclaim.h), each
 * followed by all of this again.
 *
 * Owns: nothing. May be called by: alloc, api. Locks: takes the grow lock and the lane's lock.
 */
#ifndef VMM_CACHE_ALLOC_REFILL_H
#define VMM_CACHE_ALLOC_REFILL_H

#include "cache/request.h"

/* Allocates a block for a lane's stream as vmm_alloc() promises. */
vmm_status vmm__refill(struct vmm_cache *cache, struct lane *lane, uint64_t bytes, void **out);

/* The same, not from another lane: see reuse/borrow.h. */
vmm_status vmm__refill_unborrowed(struct vmm_cache *cache, struct lane *lane, uint64_t bytes,
                                  void **out);

/* The same for a block of whole granules, away from all others. */
vmm_status vmm__refill_alone(struct vmm_cache *cache, struct lane *lane, uint64_t bytes,
                             void **out);

/* Serves a growth for the lane's stream. *out is what serve() sets. */
vmm_status vmm__refill_growth(struct vmm_cache *cache, struct lane *lane,
                              const struct growth *growth, void **out);

#endif
