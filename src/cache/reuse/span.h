/*
 * A span is a range of adjacent free addresses of several heaps: free blocks of the receiving heap, idle chunks of other
 * heaps that may be used at once, and at most one gap, which is all that needs new memory. Memory of other
 * streams keeps its addresses and mappings, so joining a span costs no driver calls except for events.
 *
 * Called by: refill. Locks: the caller holds the grow lock and the receiving heap's pool lock; takes all pools' locks.
 */
#ifndef VMM_CACHE_REUSE_SPAN_H
#define VMM_CACHE_REUSE_SPAN_H

#include "cache/reuse/idle_scan.h"

/*
 * Finds the span for a block of `bytes` with the smallest gap and moves the other heaps' parts of it to this heap.
 * VMM__NO_FIT: no span has a gap of less than most_bytes, or the heap is small: its chunks are single granules.
 */
vmm_status vmm__span_join(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                          uint64_t most_bytes, enum idle_when when);

#endif
