/*
 * Resize: a live block of another size, without a copy where that is possible.
 *
 * A block above 1 MiB grows into the free bytes and free addresses behind it. If these are too few, its memory moves to
 * addresses with room behind them: the chunks that it has alone are mapped there, and only its parts of the chunks at
 * its ends that it shares are copied, in stream order. The block is then an ordinary one again.
 *
 * A reserved block gets more addresses, or fewer, in the same way, but no memory, and is never copied.
 *
 * Owns: nothing. May be called by: api. Locks: takes the grow lock and the lane's.
 */
#ifndef VMM_CACHE_ALLOC_RESIZE_H
#define VMM_CACHE_ALLOC_RESIZE_H

#include "cache/cache.h"

/* VMM__NO_FIT: the block must be copied to a new one. VMM__NOT_FOUND: no heap owns the address. */
vmm_status vmm__resize(struct vmm_cache *cache, uint64_t address, uint64_t bytes, void **out);

#endif
