/*
 * Fences: granules behind blocks that lie apart, which hold addresses and never get memory. Work that goes on
 * beyond such a block faults. Where addresses for the next one are looked for moves through the arena, so
 * that freed ones fault for as long as there are others.
 *
 * A fence goes with the memory before it; if that was stolen it stays, as addresses are plenty.
 * May be called by: grow, site, idle, guard. Locks: the grow lock.
 */
#ifndef VMM_POLICY_FENCE_H
#define VMM_POLICY_FENCE_H

#include "policy/cache.h"

/* Free granules in a row, the last of which may become a fence; the next ones in the order of addresses.
 * False if there are none. */
bool vmm__fence_site(const struct vmm_cache *cache, uint64_t count, uint64_t *granule);

/* Makes a free granule a fence. */
void vmm__fence_put(struct vmm_cache *cache, uint64_t granule);

/* Puts the memory of all blocks that lie apart and are free on its way back to the driver, but for those that graphs
 * hold; gives back what no work uses any more. What cannot go now goes later: no failure. Takes the grow lock. */
void vmm__fence_sweep(struct vmm_cache *cache);

#endif
