/*
 * Growing: more physical memory for a heap, idle or new, mapped where it helps most.
 *
 * May be called by: ladder, supply. Locks: the grow lock and the heap's pool lock.
 */
#ifndef VMM_POLICY_GROW_H
#define VMM_POLICY_GROW_H

#include "policy/site.h"

/* What a heap may grow from. Each includes those before it. */
enum grow_from {
    GROW_TARGET, /* new memory up to the footprint target, then idle chunks, then new memory */
    GROW_STEAL,  /* all idle chunks that can be had without a wait, then new memory */
    GROW_FOLLOW, /* the same, and the stream waits for other streams' work on their idle chunks */
    GROW_ALONE   /* new memory only, at fresh addresses, apart from everything else */
};

/*
 * Maps memory so that the heap then has a free block of at least `bytes`. Returns that block. On
 * failure the heap may have gained idle memory that was stolen; else nothing has changed:
 * ERR_DEVICE_OOM, ERR_ADDRESS_SPACE, ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                     enum grow_from from, struct block **out);

/* Bytes that growing would ask of the driver now, and the free block that it would build on. */
uint64_t vmm__grow_bytes(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         const struct block **beside);

#endif
