/*
 * How much physical memory a cache aims at, and in how large chunks: the footprint target. Decides, changes
 * nothing.
 *
 * May be called by: grow. Locks: the grow lock.
 */
#ifndef VMM_POLICY_TARGET_H
#define VMM_POLICY_TARGET_H

#include "policy/cache.h"

/* How much new memory the footprint target leaves to a request of so many bytes. */
uint64_t vmm__target_granules(const struct vmm_cache *cache, uint64_t bytes);

/* How large the chunks are that a heap gets for a request. */
uint32_t vmm__target_chunk_granules(const struct vmm_cache *cache, const struct heap *heap,
                                    uint64_t bytes);

/* Whether a request takes the cache into the upper half of what it may hold. */
bool vmm__target_limit_is_near(const struct vmm_cache *cache, uint64_t bytes);

#endif
