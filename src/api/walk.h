/*
 * Walks over all chunks and blocks of a cache. Changes nothing.
 * Called by: api. Locks: takes the grow lock and the pools' locks.
 */
#ifndef VMM_API_WALK_H
#define VMM_API_WALK_H

#include "cache/cache.h"

/* Does what vmm_walk() does, without its checks; works also during vmm_destroy(). */
void vmm__walk(struct vmm_cache *cache, vmm_visitor visit, void *context);

#endif
