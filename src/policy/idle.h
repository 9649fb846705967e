/*
 * Idle memory: runs of whole chunks inside a free block, who else may use them, and how they change
 * hands where they lie. What trim, steal, cross and span have in common; it decides nothing.
 *
 * May be called by: policy, report. Locks: the grow lock and the locks of the pools concerned.
 */
#ifndef VMM_POLICY_IDLE_H
#define VMM_POLICY_IDLE_H

#include "policy/cache.h"

/* A run of idle chunks in a heap's free block. */
struct idle_run {
    struct heap *heap;
    struct block *block;
    uint64_t address;
    uint64_t bytes;
};

/* The run of whole chunks inside a block, from its low end on, of at most about `bytes` (rounded up
 * to chunks). False if it holds no whole chunk. */
bool vmm__whole_chunks(const struct memory *memory, const struct block *block, uint64_t bytes,
                       uint64_t *address, uint64_t *run_bytes);

/*
 * Whether work that pool `to` submits from now on may use a free block of `from`: VMM_OK,
 * VMM_NOT_READY. follow: if need be, later work of the pool's stream is made to wait, and it may.
 */
vmm_status vmm__idle_clear(const struct heap *from, const struct block *block,
                           const struct pool *to, bool follow);

/* Moves a run that is clear from its heap to another, where it lies. When the other cannot take it
 * for want of host memory, the run is on its way back to the driver. */
vmm_status vmm__idle_hand(struct vmm_cache *cache, const struct idle_run *run, struct heap *to);

#endif
