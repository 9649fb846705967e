/*
 * Asks whose a live block is, for callers that have nothing but an address of it.
 *
 * Owns: nothing. May be called by: torch, preload. Locks: takes that of the block's lane, in debug mode also that of
 * its records, and none for a block that any thread may free (lane/live_table.h). Not the grow lock, which may be held
 * across a wait for the device.
 */
#ifndef VMM_API_FIND_H
#define VMM_API_FIND_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>

struct owned_block {
    uint64_t address; /* where it starts */
    uint64_t requested_bytes;
    bool is_imported; /* its memory belongs to another cache */
};

/* Finds the live block that contains an address, but none of vmm_reserve(), of a cache that is not destroyed meanwhile;
 * the process is not a fork of the cache's. VMM__NOT_FOUND, without an error line: the cache has none.
 * ERR_INVALID_ARGUMENT: as vmm_find(). */
vmm_status vmm__find_owned(vmm_cache *cache, const void *address, struct owned_block *out);

#endif
