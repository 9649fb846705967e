/*
 * Spans: free addresses in a row, whoever they belong to. A span is made of blocks that are free in
 * this heap, idle chunks that are free in other heaps and may be used at once, and at most one
 * void, which is all that has to be filled. Memory of other streams keeps its place and its
 * mapping, so joining a span that way costs no driver call but for events.
 *
 * May be called by: supply. Locks: the grow lock and the receiving heap's pool lock; the other
 * pools' locks are taken inside.
 */
#ifndef VMM_POLICY_SPAN_H
#define VMM_POLICY_SPAN_H

#include "policy/idle.h"

/*
 * Finds the span for a block of `bytes` that lacks the least memory, and brings what it holds of
 * other heaps into this one, if it then lacks less than most_bytes. VMM_NOT_READY if there is no
 * such span. A small heap joins none: its chunks are single granules.
 */
vmm_status vmm__span_join(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                          uint64_t most_bytes, enum idle_when when);

#endif
