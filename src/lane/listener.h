/*
 * The listeners of a cache: a function of the program, and one of an adapter, that learn of changes which no call of
 * the program makes visible, such as mapped and unmapped memory and waiting blocks. See vmm_listen().
 *
 * Owns: nothing. May be called by: lane, cache. Locks: they change under the grow lock and all lanes' locks, and are
 * called under the lock of the lane that owns the memory.
 */
#ifndef VMM_LANE_LISTENER_H
#define VMM_LANE_LISTENER_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>

struct heap;

enum { LISTENER_OF_ADAPTER, LISTENER_OF_PROGRAM, LISTENERS };

struct listener {
    vmm_listener tell; /* NULL: no listener */
    void *context;
    const void *owner; /* the cache: see base/callback.h */
    bool is_of_memory; /* only memory changes: debug mode reports waiting blocks as freed */
};

/* Report a change to memory of a heap, or to a block, to the listeners and the recorder, if there are any. */
void vmm__listener_call(const struct heap *heap, vmm_change_kind kind, uint64_t address,
                        uint64_t bytes);
void vmm__listener_call_block(const struct heap *heap, vmm_change_kind kind, uint64_t address,
                              uint64_t bytes, uint64_t requested_bytes);

#endif
