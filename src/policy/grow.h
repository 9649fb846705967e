/*
 * Growing: new physical memory for a heap, mapped where it helps most.
 *
 * May be called by: ladder, supply. Locks: the grow lock and the heap's pool lock.
 */
#ifndef VMM_POLICY_GROW_H
#define VMM_POLICY_GROW_H

#include "policy/site.h"

/*
 * Maps new memory so that the heap then has a free block of at least `bytes`. alone: at fresh
 * addresses, apart from everything else. Returns that block. On failure nothing has changed:
 * ERR_DEVICE_OOM, ERR_ADDRESS_SPACE, ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes, bool alone,
                     struct block **out);

/* Bytes that growing would ask of the driver now, and the free block that it would build on. */
uint64_t vmm__grow_bytes(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         const struct block **beside);

#endif
