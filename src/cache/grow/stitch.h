/*
 * Makes views: transfers, creates and maps what a plan names, at consecutive addresses.
 *
 * CUDA can no longer map a handle if one of its mappings is unmapped after another was mapped and before that one has
 * access. So nothing is unmapped from the first map of a row until all of the row has access, and a failure unmaps the
 * newest mapping first. The grow lock covers all of it.
 *
 * Owns: nothing. May be called by: grow. Locks: the caller holds the grow lock and the heap's lane lock since the plan
 * was made.
 */
#ifndef VMM_CACHE_GROW_STITCH_H
#define VMM_CACHE_GROW_STITCH_H

#include "cache/grow/plan.h"

/*
 * Transfers the planned chunks of other heaps to the heap. Maps nothing. The caller also holds the locks of their
 * lanes. On failure some of them have changed heaps. VMM__NO_FIT: one is no longer available. ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__stitch_transfer(struct vmm_cache *cache, struct heap *heap, enum idle_when when,
                                const struct plan *plan);

/*
 * Carries out a plan whose chunks all belong to the heap: the heap then has a run for the planned block. On failure the
 * heap may have gained idle chunks, and places without users may be gone. VMM__NO_FIT: a chunk keeps too many places.
 * ERR_DEVICE_OOM, ERR_ADDRESS_SPACE, ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__stitch(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                       const struct plan *plan);

#endif
