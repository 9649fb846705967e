/*
 * Marks: a tool that watches device memory is told of each block, so that it can tell a block's bytes from what lies
 * around them. `compute-sanitizer` is such a tool: it sees one large allocation, and without marks nothing wrong in a
 * write beyond the end of a block, or into one that was given back.
 *
 * Told is, through NVTX, the arena as a heap, and in it each block that is handed out, with the bytes that were asked
 * for. A block is given up only when the work of the cache's streams has ended: the tool looks at work as it runs, and
 * work that was submitted before vmm_free() may use the block.
 *
 * Owns: the heap's name. Invariants: a block is marked from before vmm_alloc() returns it until vmm_free() takes it
 * back; pools of a cache with marks have no favourite, so that each call comes by the slow way, which asks for marks.
 * May be called by: entry. Locks: none of its own; NVTX may be called by any thread.
 */
#ifndef VMM_MARKS_H
#define VMM_MARKS_H

#include "policy/cache.h"

/* From now on blocks are marked, if a tool listens. ERR_UNSUPPORTED: this build has no NVTX; ERR_HOST_OOM. */
vmm_status vmm__marks_open(struct vmm_cache *cache);
void vmm__marks_close(struct vmm_cache *cache);

/* A block was handed out. */
void vmm__marks_set(const struct vmm_cache *cache, const void *block, uint64_t bytes);

/* Gives a block back, for vmm_free(): as vmm__handout_return(). Waits for the work of the cache's streams. */
vmm_status vmm__marks_return(struct vmm_cache *cache, const void *block, bool *looks);

#endif
