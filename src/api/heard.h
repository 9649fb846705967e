/*
 * Has the listener of a cache (vmm_listen()) hear of each block that a call allocates or frees: for an adapter that
 * keeps a history of them. Two kinds of changes come besides those of vmm_change_kind, each with the lock of the
 * block's lane held:
 *  VMM__CHANGE_ALLOC    with the requested bytes, the stream and the pool, but no bytes; before the call returns;
 *  VMM__CHANGE_RELEASE  with an address alone; before the memory can be another block's, or is unmapped. WAIT comes
 *                       before it, if other streams still use the block.
 * Of a free in debug mode it hears twice, by the address of the program and by the lane's. It may not hear of an
 * allocation that was under way at the begin.
 *
 * Owns: nothing. May be called by: torch. Locks: begin and end take the grow lock and all lanes' locks; functions that
 * they call must not call the library.
 */
#ifndef VMM_API_HEARD_H
#define VMM_API_HEARD_H

#include "lane/listener.h"

/* Calls `begin` and, if that succeeds, visits what there is, as vmm_walk() does: from then on the listener hears of
 * blocks. */
vmm_status vmm__hear_begin(vmm_cache *cache, vmm_status (*begin)(void *context), vmm_visitor visit,
                           void *context);
void vmm__hear_end(vmm_cache *cache);

#endif
