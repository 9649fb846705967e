/*
 * The listener of a cache: a function of the program that learns of changes which no call of its
 * own makes visible, such as mapped and unmapped memory and waiting blocks. See vmm_listen(). One of an adapter may
 * hear of each block, too: see api/heard.h.
 *
 * Owns: nothing. May be called by: lane, cache, api. Locks: it changes under the grow lock and all lanes' locks, and is
 * called under the lock of the lane that owns the memory.
 */
#ifndef VMM_LANE_LISTENER_H
#define VMM_LANE_LISTENER_H

#include "vmmcache/vmmcache.h"

#include <stdatomic.h>
#include <stdbool.h>

struct heap;
struct lane;

/* Kinds of changes that only a listener hears which hears of blocks. */
enum { VMM__CHANGE_ALLOC = 64, VMM__CHANGE_RELEASE = 65 };

struct listener {
    vmm_listener tell; /* NULL: no listener */
    void *context;
    const void *owner; /* the cache: see base/callback.h */
    bool is_of_memory; /* only memory changes: debug mode reports waiting blocks as freed */
    _Atomic bool hears_blocks;
};

/* Report a change to memory of a heap, or to a block, to the listener and the recorder, if there are any. */
void vmm__listener_call(const struct heap *heap, vmm_change_kind kind, uint64_t address,
                        uint64_t bytes);
void vmm__listener_call_block(const struct heap *heap, vmm_change_kind kind, uint64_t address,
                              uint64_t bytes, uint64_t requested_bytes);

/* Report a block that a call has allocated, or freed, to a listener that hears of blocks. Other streams may still use a
 * freed one: then WAIT was reported before. Both take the address that the program has. Such a listener is the
 * library's own: it calls no cache. */
void vmm__listener_tell_taken(const struct listener *listener, const struct lane *lane,
                              uint64_t address, uint64_t requested_bytes);
void vmm__listener_tell_given(const struct listener *listener, uint64_t address);

static inline bool vmm__listener_hears_blocks(const struct listener *listener)
{
    bool hears = atomic_load_explicit(&listener->hears_blocks, memory_order_relaxed);
    return __builtin_expect(hears, false);
}

#endif
