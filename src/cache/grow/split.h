/*
 * Splits an idle chunk before a block takes one end of it and strands many free bytes at the other: near a limit the
 * next request may need them. The chunk is released, and two take its addresses, at its home and at its places; the
 * block fills one of them.
 *
 * Owns: nothing. May be called by: refill. Locks: the caller holds the grow lock and the heap's lane lock.
 */
#ifndef VMM_CACHE_GROW_SPLIT_H
#define VMM_CACHE_GROW_SPLIT_H

#include "cache/cache.h"

/*
 * Returns whether a quick search failed only because the block would strand bytes: a whole search then finds the block.
 * If so, and the work on the chunk has finished, splits the chunk first. If the split fails, some of the chunk's memory
 * or places are gone, as after a trim.
 */
bool vmm__split(struct vmm_cache *cache, struct heap *heap, uint64_t bytes);

#endif
