/*
 * Makes views: transfers, creates and maps what a plan names, at consecutive addresses.
 *
 * CUDA can no longer map a handle if one of its mappings is unmapped between the map of another and that one's
 * set-access. So no handle is unmapped from the first map to the set-access of the row, and a failure unmaps the newest
 * mapping first. The grow lock covers all of it.
 *
 * Called by: grow. Locks: the caller holds the grow lock and the heap's pool lock since the plan was made.
 */
#ifndef VMM_CACHE_GROW_STITCH_H
#define VMM_CACHE_GROW_STITCH_H

#include "cache/grow/plan.h"

/* Makes the planned chunks of other heaps the heap's own, under the locks of their pools too. Maps nothing. On failure
 * some of them may be. VMM__NO_FIT: one is no longer available. ERR_HOST_OOM, ERR_DRIVER. */
vmm_status vmm__stitch_transfer(struct vmm_cache *cache, struct heap *heap, enum idle_when when,
                                const struct plan *plan);

/* Carries a plan out whose chunks are all the heap's own, so that the heap has a run for the planned block. On failure
 * nothing has changed, but for new memory that is idle. VMM__NO_FIT: a chunk keeps too many places. ERR_DEVICE_OOM,
 * ERR_ADDRESS_SPACE, ERR_HOST_OOM, ERR_DRIVER. */
vmm_status vmm__stitch(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                       const struct plan *plan);

#endif
