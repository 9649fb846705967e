/*
 * The footprint target: how much physical memory a cache may reserve before it makes views, and how large its new
 * chunks are. Both follow from footprint_permille; a limit makes chunks smaller. Changes nothing.
 * Owns: nothing. May be called by: fill, grow, plan, refill, resize. Locks: the caller holds the grow lock.
 */
#ifndef VMM_CACHE_GROW_TARGET_H
#define VMM_CACHE_GROW_TARGET_H

#include "cache/request.h"

/* Returns the new granules that the target allows for a request. */
uint64_t vmm__target_granules(const struct vmm_cache *cache, const struct request *request);

/* Returns the size of a heap's largest new chunk for a request of `bytes`. */
uint32_t vmm__target_chunk_granules(const struct vmm_cache *cache, const struct heap *heap,
                                    uint64_t bytes);

/* Returns the least size of a block whose request gathers idle memory before it uses its own stream's: the size that
 * chunks would have if no limit were near. If requests for smaller blocks gathered, streams that take turns would each
 * fill a part of a granule, and leave the rest. */
uint64_t vmm__target_gather_bytes(const struct vmm_cache *cache, const struct heap *heap);

/* Returns the fewest free bytes that a block may not strand: see heap->strand_bytes. */
uint64_t vmm__target_strand_bytes(const struct vmm_cache *cache);

#endif
