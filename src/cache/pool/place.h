/*
 * Places blocks at addresses that the program names: see vmm_pool_place().
 *
 * A pool that is retained keeps its homes, its views and the lanes of both. Slabs of its lanes start where the
 * addresses of their objects say (lane/slab.h). So any set of blocks that were live in it together can be placed again,
 * in any order, once all other blocks are free.
 *
 * Owns: nothing. May be called by: api, debug. Locks: takes the grow lock and the lane's lock.
 */
#ifndef VMM_CACHE_POOL_PLACE_H
#define VMM_CACHE_POOL_PLACE_H

#include "lane/pool.h"

/* Makes a block of the pool at an address, for a stream whose handle is resolved. ERR_INVALID_ARGUMENT, ERR_ASLEEP,
 * ERR_HOST_OOM, or the driver's error: nothing has changed. */
vmm_status vmm__place(struct pool *pool, uint64_t address, uint64_t bytes, vmm_stream stream);

#endif
