/*
 * Allocates a block for one stream from the free memory of another lane, when memory has run out: a small block from
 * another stream of the pool, so that many streams with a few small blocks each do not need a granule each; and a block
 * of any size from a pool with use_on_oom.
 *
 * The block belongs to the other lane. Its memory has passed; or, if lanes have clocks of their own, the requesting
 * stream waits, on the device, for the work that the lane's stream has submitted so far. The requesting stream is
 * recorded as a user of the block, as by vmm_record_stream(): after vmm_free() the block waits before the lane's stream
 * gets it back.
 *
 * Owns: nothing. May be called by: reclaim. Locks: the caller holds the grow lock and the requesting lane's lock; takes
 * the other lanes' locks.
 */
#ifndef VMM_CACHE_REUSE_BORROW_H
#define VMM_CACHE_REUSE_BORROW_H

#include "cache/cache.h"

/* Allocates a block of `bytes` for the stream of lane `to`. VMM__NO_FIT: no other lane has a block; `bytes` exceeds
 * LANE_SMALL_LARGEST_BYTES; `to` is a lane of a retained pool; or debug mode is on, whose records name each block's
 * stream. */
vmm_status vmm__borrow(struct vmm_cache *cache, struct lane *to, uint64_t bytes, void **out);

/* The same for a block of any size, from a pool that lends. VMM__NO_FIT: no such pool but that of `to` has a block;
 * each block of `to` must have chunks of its own; `to` is a lane of a retained pool; or debug mode is on. */
vmm_status vmm__lend(struct vmm_cache *cache, struct lane *to, uint64_t bytes, void **out);

#endif
