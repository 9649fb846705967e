/*
 * Releases idle chunks that are larger than the current chunk size, so that the caller can create smaller chunks from
 * that memory. If the large chunks moved instead, one live block could pin each of them again.
 *
 * Called by: grow. Locks: the caller holds the grow lock and the lock of pool `held`; takes the other pools' locks.
 */
#ifndef VMM_CACHE_GROW_DOWNSIZE_H
#define VMM_CACHE_GROW_DOWNSIZE_H

#include "cache/grow/placement.h"

/* Releases idle chunks of more than `most` granules whose work has finished, until `want` granules are released or no
 * such chunk is left. Leaves the free blocks that the placement joins. Returns the released granules. */
uint64_t vmm__downsize(struct vmm_cache *cache, const struct pool *held,
                       const struct placement *placement, uint64_t want, uint32_t most);

#endif
