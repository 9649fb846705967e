/*
 * Guard pages of debug mode: granules behind large blocks that are reserved and never mapped, so that an access
 * beyond the block faults. The search for addresses advances through the arena, so that the addresses of freed blocks
 * keep faulting until all others have been used.
 *
 * A guard page is released with the memory before it.
 * Owns: cache->guard_page_next. May be called by: grow, placement, debug. Locks: the caller holds the grow lock, except
 * where stated.
 */
#ifndef VMM_CACHE_GROW_GUARD_PAGE_H
#define VMM_CACHE_GROW_GUARD_PAGE_H

#include "cache/cache.h"

/* Finds the next `count` free adjacent granules, in ascending order of addresses; the last may become a guard page.
 * False if there are none. */
bool vmm__guard_page_placement(const struct vmm_cache *cache, uint64_t count, uint64_t *granule);

/* Makes a free granule a guard page. */
void vmm__guard_page_put(struct vmm_cache *cache, uint64_t granule);

/* Puts the idle chunks of all large heaps into limbo, with the guard pages behind them, except in retained pools, and
 * releases those that no work uses. Cannot fail: a later call releases the rest. Takes the grow lock. */
void vmm__guard_page_sweep(struct vmm_cache *cache);

#endif
