/*
 * The names that the program gave to live blocks (vmm_name()), for reports.
 *
 * A block knows that it has a name, so that blocks without one cost nothing. Owns: the texts. Invariant: each named
 * block of the cache, and nothing else, has a record here under its address.
 * May be called by: lane, cache, api. Locks: its own, a leaf.
 */
#ifndef VMM_LANE_NAMES_H
#define VMM_LANE_NAMES_H

#include "base/map.h"
#include "base/mutex.h"
#include "vmmcache/vmmcache.h"

struct block_names {
    struct mutex lock;
    struct map map;
};

void vmm__names_init(struct block_names *names);
void vmm__names_fini(struct block_names *names);

/* Sets or replaces the name of the block at an address. ERR_HOST_OOM: nothing has changed. */
vmm_status vmm__names_set(struct block_names *names, uint64_t address, const char *text);

/* Removes the name of a block that has one; moves it to another address. */
void vmm__names_drop(struct block_names *names, uint64_t address);
void vmm__names_move(struct block_names *names, uint64_t from, uint64_t to);

/* Writes the name of a block, or "". */
void vmm__names_read(struct block_names *names, uint64_t address, char text[VMM_NAME_BYTES]);

#endif
