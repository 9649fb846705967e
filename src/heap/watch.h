/*
 * Who is told of changes that callers do not see: memory that comes and goes, blocks that wait. See
 * vmm_watch().
 *
 * May be called by: heap, policy. Locks: it is set under the grow lock and all pools' locks, and told under the
 * lock of the pool whose memory it is.
 */
#ifndef VMM_HEAP_WATCH_H
#define VMM_HEAP_WATCH_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>

struct heap;

struct watch {
    vmm_watch_fn tell; /* NULL: nobody */
    void *context;
    const void *owner; /* the cache: see base/callback.h */
    bool is_of_memory; /* alone: not of blocks that wait, which a guard shows as free */
};

/* Tells of a change to memory of a heap. */
void vmm__watch_tell(const struct heap *heap, vmm_change_kind kind, uint64_t address,
                     uint64_t bytes);

#endif
