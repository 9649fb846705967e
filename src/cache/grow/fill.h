/*
 * Fills free granules with new memory that a heap owns. Chooses no addresses: see placement.h.
 * Owns: nothing. May be called by: grow, stitch, resize. Locks: the caller holds the grow lock and the heap's lane
 * lock.
 */
#ifndef VMM_CACHE_GROW_FILL_H
#define VMM_CACHE_GROW_FILL_H

#include "cache/cache.h"

/*
 * Creates chunks at `count` free granules for a request of `bytes`, and attaches them to the heap as free bytes. In a
 * pool whose blocks have chunks of their own it is one: an export takes the driver 0.7 ms a chunk, and no other block
 * can use a part of it. On failure limbo is drained: what was created is released, and the granules are free
 * again, unless the driver refuses. ERR_DEVICE_OOM, ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__fill(struct vmm_cache *cache, struct heap *heap, uint64_t bytes, uint64_t granule,
                     uint64_t count);

#endif
