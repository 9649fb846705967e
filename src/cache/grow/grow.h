/*
 * Gives a heap more memory for a request: within the footprint target new memory, where the request needs the fewest
 * new granules; beyond it a view of free memory, or, if that needs as much new memory, new memory. Releases what
 * limbo may release; unmaps no chunk of a heap.
 * Owns: nothing. May be called by: refill, reclaim. Locks: the caller holds the grow lock and the heap's lane lock.
 */
#ifndef VMM_CACHE_GROW_GROW_H
#define VMM_CACHE_GROW_GROW_H

#include "cache/grow/placement.h"
#include "cache/request.h"

/*
 * Maps memory so that the heap has a free block, or a run in a view, that holds the block of the request; from where
 * request->from says. On failure the heap may have gained idle chunks, and places without users may be gone.
 * ERR_DEVICE_OOM, ERR_ADDRESS_SPACE, ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__grow(struct vmm_cache *cache, const struct request *request);

/* Maps new memory only. is_within: VMM__NO_FIT if the footprint target does not allow it. */
vmm_status vmm__grow_new(struct vmm_cache *cache, const struct request *request, bool is_within);

/* Maps `bytes` of new memory at fresh addresses that touch no other block, and stores their free block in *out. */
vmm_status vmm__grow_alone(struct vmm_cache *cache, const struct request *request, uint64_t bytes,
                           struct block **out);

/* Returns the bytes of new memory that vmm__grow() would need now without a view, and in *beside the free block that it
 * would extend; NULL: none. */
uint64_t vmm__grow_bytes(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         const struct block **beside);

#endif
