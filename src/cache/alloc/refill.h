/*
 * Refill: serves a request that the stream's own free memory could not. Its table of steps says what it tries, from the
 * cheapest on. If memory has run out, the steps of reclaim follow (reclaim/reclaim.h), each followed by all of this
 * again.
 *
 * Owns: nothing. May be called by: alloc, api. Locks: takes the grow lock and the lane's lock.
 */
#ifndef VMM_CACHE_ALLOC_REFILL_H
#define VMM_CACHE_ALLOC_REFILL_H

#include "cache/request.h"

/* Allocates a block for a lane's stream as vmm_alloc() promises; with `serve`, *out is what that sets. The caller sets
 * the lane, the bytes, and what is special about the request; the rest is 0. VMM__NOT_FOUND: the lane has left the pool
 * of the request's handle. */
vmm_status vmm__refill_request(struct vmm_cache *cache, struct request *request, void **out);

/* As vmm__refill_request() for an ordinary request, with a handle or NULL. */
vmm_status vmm__refill(struct vmm_cache *cache, struct lane *lane, const vmm_pool *handle,
                       uint64_t bytes, void **out);

#endif
