/*
 * Bounds the places of a chunk: a chunk that is to get one place more gives up the one that was used the longest ago
 * and has no block, and with it all such places of that row.
 *
 * Owns: nothing. May be called by: plan, stitch. Locks: the caller holds the grow lock and the heap's lane lock.
 */
#ifndef VMM_CACHE_GROW_EVICT_H
#define VMM_CACHE_GROW_EVICT_H

#include "cache/cache.h"

/*
 * A chunk that has PLACES_USUAL further places gives up the one used the longest ago that no block uses. If there is
 * none, or its work is unfinished, the chunk may have up to PLACES_MOST, which bounds the records. With its home and
 * PLACES_USUAL further places a chunk has 32 mappings. An H200 maps the 32nd of a chunk as fast as the first, and
 * kernels read through it as fast.
 */
enum { PLACES_USUAL = 31, PLACES_MOST = 127 };

/* Whether the heap's chunk can give up that place now: its work has finished, and no captured graph needs it. */
bool vmm__evict_may(const struct vmm_cache *cache, const struct heap *heap,
                    const struct chunk *chunk);

/*
 * Makes a chunk of the heap give up that place, with its whole row: what is left of a row is mostly too short for the
 * next request, and each plan would consider it. Other places of the row stay if they belong to another heap, or if a
 * block, unfinished work or a captured graph needs them. is_finished: the work on the chunk is known to have finished.
 * Returns whether the chunk has given up a place.
 */
bool vmm__evict(struct vmm_cache *cache, struct heap *heap, struct chunk *chunk, bool is_finished);

#endif
