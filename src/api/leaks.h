/*
 * Logs the blocks that are live when their cache is destroyed.
 * Called by: api. Locks: as vmm__walk().
 */
#ifndef VMM_API_LEAKS_H
#define VMM_API_LEAKS_H

#include "cache/cache.h"

/* Logs the number of live blocks, their bytes and the largest blocks. Logs nothing if no block is live. */
void vmm__leaks_log(struct vmm_cache *cache);

#endif
