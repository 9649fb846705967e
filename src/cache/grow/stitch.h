/*
 * Makes views: transfers, creates and maps what a plan names, at consecutive addresses.
 *
 * CUDA can no longer map a handle if one of its mappings is unmapped between the map of another and that one's
 * set-access. So no handle is unmapped from the first map to the set-access of the row, and a failure unmaps the newest
 * mapping first. The grow lock covers all of it.
 *
 * Called by: grow. Locks: as for the plan, held since it was made.
 */
#ifndef VMM_CACHE_GROW_STITCH_H
#define VMM_CACHE_GROW_STITCH_H

#include "cache/grow/plan.h"

/*
 * Carries a plan out, so that the heap has a run for the planned block. The chunks of other heaps become the heap's own.
 * On failure some of them may have; nothing else has changed, but for new memory that is idle. VMM__NO_FIT: another
 * heap's chunk is no longer available. ERR_DEVICE_OOM,
 * ERR_ADDRESS_SPACE, ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__stitch(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                       enum idle_when when, struct plan *plan);

#endif
