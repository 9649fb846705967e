/*
 * Supply: meeting a request that the stream's free memory could not meet. The order of means:
 * memory that crosses from other streams, new memory from the driver, the ladder.
 *
 * May be called by: entry. Takes the grow lock and the pool's lock.
 */
#ifndef VMM_POLICY_SUPPLY_H
#define VMM_POLICY_SUPPLY_H

#include "policy/cache.h"

/* Hands out a block as vmm_alloc() promises. */
vmm_status vmm__supply(struct vmm_cache *cache, struct pool *pool, uint64_t bytes, void **out);

/* The same, for a block of whole granules at addresses apart from all others. */
vmm_status vmm__supply_alone(struct vmm_cache *cache, struct pool *pool, uint64_t bytes,
                             void **out);

#endif
