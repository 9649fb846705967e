/*
 * Moves idle chunks to the addresses where a heap grows, instead of creating new memory.
 *
 * A chunk of the same stream moves at once, even if work still uses it: later work of the stream runs after that work,
 * and the old mapping stays until that work has ended. A chunk of another stream moves after its work has finished or,
 * with IDLE_FOLLOW, after the receiving stream waits for that work on the device. The host never waits.
 *
 * Order: first chunks of other streams, because the stream can use its own free memory in place; then its own. Within
 * each, the smallest free blocks first, because small free blocks are the least useful.
 *
 * Called by: grow. Locks: the caller holds the grow lock and the receiving heap's pool lock; takes the other pools' locks.
 */
#ifndef VMM_CACHE_GROW_STEAL_H
#define VMM_CACHE_GROW_STEAL_H

#include "cache/grow/placement.h"
#include "cache/reuse/idle_scan.h"

/*
 * Moves idle chunks to the placement's granules, which are taken, in ascending order, until at least `count` granules
 * are filled or no chunk is left that may move. Fills at most placement->room. Moves chunks of placement->beyond last, and
 * only those that the request of `bytes` does not need. Returns the granules filled; the caller sets their access.
 */
uint64_t vmm__steal(struct vmm_cache *cache, struct heap *heap, const struct placement *placement,
                    uint64_t bytes, uint64_t count, enum idle_when when);

#endif
