/*
 * Compaction: moves live bytes to other physical memory under their own addresses, so that the memory that they pinned
 * can be released. Decides which chunks to relocate (relocate.h): those that free most memory first.
 *
 * Only compaction moves live bytes that the program has not named; a resize moves those of one block, a sleep and its
 * wake those of a pool. Compaction waits for all work of the device, and the program promises that no thread
 * submits work meanwhile: at any time if vmm_config.compaction is on, otherwise during vmm_compact(). Copies run on the
 * default stream.
 *
 * Owns: nothing. May be called by: reclaim, trim, api. Locks: vmm__compact_now() takes the grow lock. Callers of the
 * others hold it, and the lock of the lane `held` if that is not NULL, which is dropped during the first wait for the
 * device. Then all lanes are locked, during a second wait and the copies.
 */
#ifndef VMM_CACHE_COMPACT_COMPACT_H
#define VMM_CACHE_COMPACT_COMPACT_H

#include "cache/cache.h"

/* Whether a request or a trim may move live bytes now. */
bool vmm__compact_may(const struct vmm_cache *cache);

/*
 * Releases about `bytes` of memory, or as much as it can, idle memory included; of one pool, or with NULL of all.
 * VMM_OK if it released any, VMM__NOTHING if it released none or may not run; otherwise the error that stopped it, and
 * memory released before stays released. If the last run gained nothing and nothing has changed since, it does not run,
 * so that requests that fail in a loop do not wait for the device each time; nor for a destroyed pool, which may end.
 */
vmm_status vmm__compact(struct vmm_cache *cache, struct lane *held, const struct pool *pool,
                        uint64_t bytes);

/* The whole of vmm_compact(), without its argument checks; the results may not be NULL. Takes the grow
 * lock. VMM__PENDING: a capture is in progress. */
vmm_status vmm__compact_now(struct vmm_cache *cache, uint32_t budget_ms, uint64_t *moved_bytes,
                            uint64_t *released_bytes);

#endif
