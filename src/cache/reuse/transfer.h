/*
 * Transfers a run of idle chunks that is long enough for a request from one stream's heap to another's of the same kind,
 * in place: the one in the smallest free block of the pools that it searches. The chunks' places in views go with them.
 * It makes no driver calls except for events.
 *
 * The run's work must have finished; with IDLE_FOLLOW, the receiving stream waits for it on the device. The host never
 * waits.
 *
 * Called by: reclaim, refill. Locks: the caller holds the grow lock and the receiving heap's pool lock; takes the other
 * pools' locks.
 */
#ifndef VMM_CACHE_REUSE_TRANSFER_H
#define VMM_CACHE_REUSE_TRANSFER_H

#include "cache/reuse/idle_scan.h"

/* Transfers a free block of at least `bytes` to the heap. VMM__NO_FIT: no heap has such a block, or it can no longer be
 * transferred. */
vmm_status vmm__transfer(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         enum idle_when when);

#endif
