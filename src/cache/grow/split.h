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
 * Whether a quick search has failed only because the block would strand bytes: a whole one then finds it. If the
 * chunk's work has finished, splits the chunk before. If that fails, some of the chunk's memory or places are gone, as
 * after a trim.
 */
bool vmm__split(struct vmm_cache *cache, struct heap *heap, uint64_t bytes);

#endif
