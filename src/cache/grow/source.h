/*
 * Pools whose memory comes from a source of the program: see vmm_segment_source and vm/vm.h. Calls the two functions of
 * the source without locks, because they may call CUDA and the cache.
 *
 * Owns: nothing. May be called by: cache, api. Locks: as each function says.
 */
#ifndef VMM_CACHE_GROW_SOURCE_H
#define VMM_CACHE_GROW_SOURCE_H

#include "cache/cache.h"

/* The bytes of the segment that a request for a block of so many bytes gets; UINT64_MAX: too many. */
uint64_t vmm__source_segment_bytes(const struct vmm_cache *cache, const struct heap *heap,
                                   uint64_t bytes);

/*
 * Asks the source for a segment that holds a block of so many bytes, and stores its free block in *out. The caller
 * holds the grow lock and the heap's lane lock, which the call releases while the source runs. ERR_DEVICE_OOM (the
 * source has none, or a limit refuses), ERR_ADDRESS_SPACE, ERR_HOST_OOM, ERR_INVALID_ARGUMENT (memory that cannot be
 * used).
 */
vmm_status vmm__source_grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                            struct block **out);

/* The address of a block as the program knows it. The caller holds the grow lock, or the block is live and in a
 * segment. */
static inline void *vmm__source_outer(const struct vmm_cache *cache, const void *block)
{
    return (void *)(uintptr_t)vmm__sourced_outer(&cache->vm, (uint64_t)(uintptr_t)block);
}

/* Whether limbo may have segments that vmm__source_return() gives back. Needs no lock. */
static inline bool vmm__source_has_ready(const struct vmm_cache *cache)
{
    return atomic_load_explicit(&cache->vm.segments.has_ready, memory_order_relaxed);
}

/* Gives the segments in limbo whose work has finished back to their sources. Returns the bytes of those of `pool`;
 * NULL: of all. The caller holds no lock. */
uint64_t vmm__source_return(struct vmm_cache *cache, const struct pool *pool);

/* The same, until another thread has the grow lock: a later call continues. */
void vmm__source_poll(struct vmm_cache *cache);

/* The same for a caller that holds the grow lock and the lock of a lane, which are dropped meanwhile. */
void vmm__source_return_locked(struct vmm_cache *cache, struct lane *held);

/* Gives all segments back after the end of the memory. */
void vmm__source_end(struct vmm_cache *cache);

/* Waits for the work on the memory of a pool that has no live blocks, and gives that memory back to its source, but for
 * what work may still use. */
vmm_status vmm__source_leave(struct pool *pool);

#endif
