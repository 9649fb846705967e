/*
 * Allocates a block for one stream from the free memory of another lane, when memory has run out: from another stream
 * of the pool, so that a request fails only when no hole holds it; and from a pool with use_on_oom.
 *
 * The block belongs to the other lane. Its memory has passed; or, if lanes have clocks of their own, the requesting
 * stream waits for its work on the device. The requesting stream is recorded as a user of the block, as by
 * vmm_record_stream(): after vmm_free() the block waits before the lane's stream gets it back.
 *
 * Owns: nothing. May be called by: reclaim. Locks: the caller holds the grow lock and the requesting lane's lock; takes
 * the other lanes' locks.
 */
#ifndef VMM_CACHE_IDLE_BORROW_H
#define VMM_CACHE_IDLE_BORROW_H

#include "cache/cache.h"

/* Allocates a block of `bytes` for the stream of lane `to` from another lane of its pool. waits: if its work has to end
 * first, waits for that on the host, and drops the lock of `to` meanwhile. VMM__NO_FIT: none has a hole; or, without
 * waits, none whose work has finished; the blocks of `to` have chunks of their own, or a source; `to` is a lane of a
 * retained pool; or debug mode is on, whose records name each block's stream. */
vmm_status vmm__borrow(struct vmm_cache *cache, struct lane *to, uint64_t bytes, bool waits,
                       void **out);

/* Does so from a pool that lends, other than that of `to`. Waits if it has to. */
vmm_status vmm__lend(struct vmm_cache *cache, struct lane *to, uint64_t bytes, void **out);

#endif
