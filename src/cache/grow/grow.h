/*
 * Gives a heap more physical memory, idle or new, and maps it where the request needs the fewest new granules.
 * Called by: reclaim, refill. Locks: the caller holds the grow lock and the heap's pool lock.
 */
#ifndef VMM_CACHE_GROW_GROW_H
#define VMM_CACHE_GROW_GROW_H

#include "cache/grow/placement.h"

/* Where the memory may come from. STEAL and FOLLOW each include the source before them. */
enum grow_from {
    GROW_TARGET, /* new memory up to the footprint target, then idle chunks, then new memory */
    GROW_STEAL,  /* all idle chunks that need no wait, then new memory */
    GROW_FOLLOW, /* the same; the stream waits, on the device, for other streams' work on their idle chunks */
    GROW_DETACHED /* new memory only, at fresh addresses that touch no other block */
};

/*
 * Maps memory so that the heap has a free block of at least `bytes`, and stores that block in *out. On failure the heap
 * may have gained idle chunks of other heaps; nothing else has changed. ERR_DEVICE_OOM, ERR_ADDRESS_SPACE,
 * ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                     enum grow_from from, struct block **out);

/* Returns the bytes that vmm__grow() would need now, and in *beside the free block that it would extend; NULL: none. */
uint64_t vmm__grow_bytes(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         const struct block **beside);

#endif
