/*
 * The footprint target: how much physical memory a cache may reserve before idle chunks move, and how large its chunks
 * are. Changes nothing.
 * Called by: grow. Locks: the caller holds the grow lock.
 */
#ifndef VMM_CACHE_GROW_TARGET_H
#define VMM_CACHE_GROW_TARGET_H

#include "cache/cache.h"

/* Returns the new granules that the target allows for a request of `bytes`. */
uint64_t vmm__target_granules(const struct vmm_cache *cache, uint64_t bytes);

/* Returns the chunk size of a heap for a request of `bytes`. */
uint32_t vmm__target_chunk_granules(const struct vmm_cache *cache, const struct heap *heap,
                                    uint64_t bytes);

/* Whether a request makes the cache exceed half of its limit. */
bool vmm__target_limit_is_near(const struct vmm_cache *cache, uint64_t bytes);

#endif
