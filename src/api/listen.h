/*
 * Lets an adapter hear what happens to memory and blocks, beside a listener of the program.
 *
 * Owns: nothing. May be called by: torch. Locks: as vmm_listen().
 */
#ifndef VMM_API_LISTEN_H
#define VMM_API_LISTEN_H

#include "vmmcache/vmmcache.h"

/* vmm_listen() for an adapter: the cache calls this function first, and vmm_listen() does not replace it. */
vmm_status vmm__listen_beside(vmm_cache *cache, vmm_listener listener, void *context);

#endif
