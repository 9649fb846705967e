/*
 * Allocates a block for one stream from the free memory of another lane, when memory has run out: from another stream
 * of the pool, so that a request fails only when no hole holds it; and from a pool with use_on_oom.
 *
 * The block belongs to the other lane. The work on its memory has finished; or, if lanes have clocks of their own, the
 * requesting stream waits for it on the device. The requesting stream is recorded as a user of the block, as by
 * vmm_record_stream(): after vmm_free() the block waits before the lane's stream gets it back.
 *
 * Owns: nothing. May be called by: reclaim. Locks: the caller holds the grow lock and the requesting lane's lock; takes
 * the other lanes' locks.
 */
#ifndef VMM_CACHE_IDLE_BORROW_H
#define VMM_CACHE_IDLE_BORROW_H

#include "cache/cache.h"

/* Allocates a block of `bytes` for the stream of lane `to` from another lane of its pool. waits: the host waits for
 * unfinished work on the hole, and the lock of `to` is dropped meanwhile. VMM__NO_FIT: no lane has a hole, or, without
 * waits, one whose work has finished; the blocks of `to` have chunks of their own, or a source; `to` is a lane of a
 * retained pool; or vmm_config.debug or zero is on, whose records name each block's stream. */
vmm_status vmm__borrow(struct vmm_cache *cache, struct lane *to, uint64_t bytes, bool waits,
                       void **out);

/* The same from a lane of another pool, which lends. The host waits if no such lane has a hole whose work has
 * finished. */
vmm_status vmm__lend(struct vmm_cache *cache, struct lane *to, uint64_t bytes, void **out);

#endif
