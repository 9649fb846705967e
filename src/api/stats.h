/*
 * Reads the statistics of a cache. Flushes the pools' counters, which can raise peaks; changes nothing else.
 * Called by: api. Locks: takes the grow lock and the pools' locks.
 */
#ifndef VMM_API_STATS_H
#define VMM_API_STATS_H

#include "cache/cache.h"

void vmm__stats_read(struct vmm_cache *cache, vmm_stats *out);

#endif
