/*
 * Freed blocks that other streams still use, for a caller that learns from the graph that is being captured when those
 * uses have ended: the cache can record no event then.
 *
 * Owns: nothing. May be called by: torch. Locks: that of the block's lane.
 */
#ifndef VMM_API_WAITS_H
#define VMM_API_WAITS_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>

/* Lists the stream of a waiting block, then those that it waits for, as far as there is `room`. Returns their
 * number; 0: no block waits at the address, or the cache has debug mode, which keeps freed blocks anyway. */
unsigned vmm__wait_streams(vmm_cache *cache, const void *address, vmm_stream *streams,
                           unsigned room);

/* Frees a waiting block for its own stream, all of whose later work comes after the uses. False: it does not wait. */
bool vmm__wait_end(vmm_cache *cache, const void *address);

#endif
