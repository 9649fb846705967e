/*
 * NVTX annotations: they let a tool such as `compute-sanitizer` distinguish the bytes of a block from those around it.
 * Without them the tool sees one large allocation, and does not report a write beyond the end of a block or after its
 * free.
 *
 * Registers the arena as an NVTX heap, and each live block, with its requested bytes, as a region of it. The free of a
 * block waits for the work of the cache's streams before it unregisters the region: the tool checks work as it runs,
 * and work that was submitted before vmm_free() may still access the block.
 *
 * Owns: the heap's handle. Invariants:
 *  1. a block is registered from before vmm_alloc() returns it until vmm_free() frees it;
 *  2. the lanes of a cache with annotations have no bias owner, so each call takes the slow path, which registers.
 * May be called by: api. Locks: none; any thread may call NVTX.
 */
#ifndef VMM_DEBUG_NVTX_H
#define VMM_DEBUG_NVTX_H

#include "cache/cache.h"

/* Annotates blocks from now on, if a tool is attached. ERR_UNSUPPORTED: this build has no NVTX; ERR_HOST_OOM. */
vmm_status vmm__nvtx_open(struct vmm_cache *cache);
void vmm__nvtx_close(struct vmm_cache *cache);

/* Registers a new block of `bytes` requested bytes, with the name of its pool and stream. */
void vmm__nvtx_register(struct vmm_cache *cache, const void *block, uint64_t bytes);

/* Gives a live block the name that the program chose; NULL or "": that of its pool and stream again. */
void vmm__nvtx_name(struct vmm_cache *cache, const void *block, const char *text);

/* Unregisters and frees a block, as vmm__free_slow(). Waits for the work of the cache's streams. */
vmm_status vmm__nvtx_unregister(struct vmm_cache *cache, const void *block, bool *should_poll);

#endif
