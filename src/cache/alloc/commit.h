/*
 * Commit: physical memory of reserved blocks (cache/reserve/reserve.h). A commit may reclaim, as an allocation does.
 *
 * Owns: nothing. May be called by: api. Locks: takes the grow lock and the lane's.
 */
#ifndef VMM_CACHE_ALLOC_COMMIT_H
#define VMM_CACHE_ALLOC_COMMIT_H

#include "cache/cache.h"

/* See vmm_commit() and vmm_decommit(). */
vmm_status vmm__commit(struct vmm_cache *cache, uint64_t address, uint64_t offset, uint64_t bytes);
vmm_status vmm__decommit(struct vmm_cache *cache, uint64_t address, uint64_t offset,
                         uint64_t bytes);

#endif
