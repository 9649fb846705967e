/*
 * Transfers idle chunks of other streams' heaps to a heap of the same kind, in place, so that it gets a free block that
 * is long enough for a request. The large heaps of streams share one home, so their free memory lies side by side: the
 * block may join free blocks of the heap and chunks of several others. Takes the shortest interval that holds the
 * request, and of that only the chunks at its low end. The chunks' places in views go with them. It makes no driver
 * calls except for events.
 *
 * The chunks' work must have finished; with IDLE_FOLLOW, the receiving stream waits for it on the device. The host
 * never waits.
 *
 * Owns: nothing. May be called by: reclaim, refill. Locks: the caller holds the grow lock and the receiving heap's lane
 * lock; takes the other lanes' locks.
 */
#ifndef VMM_CACHE_IDLE_TRANSFER_H
#define VMM_CACHE_IDLE_TRANSFER_H

#include "cache/idle/idle_scan.h"
#include "cache/request.h"

/* Gives the heap a free block that is long enough and that it did not have. VMM__NO_FIT: there is none, or its chunks
 * can no longer be transferred; some of them may have been. */
vmm_status vmm__transfer(struct vmm_cache *cache, const struct request *request,
                         enum idle_when when);

#endif
