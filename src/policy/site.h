/*
 * Where a heap should grow: the place that needs the fewest new granules. Decides, changes nothing.
 *
 * May be called by: grow. Locks: the grow lock and the heap's pool lock.
 */
#ifndef VMM_POLICY_SITE_H
#define VMM_POLICY_SITE_H

#include "policy/cache.h"

struct site {
    uint64_t granule; /* free addresses to map memory at */
    uint64_t count;   /* granules that are needed */
    uint64_t room;    /* granules that may be mapped, if chunks do not come in that size */
    const struct block *beside; /* the free block that grows; NULL: none */
    const struct block *beyond; /* the free block on the other side of a void that is filled */
};

/*
 * A site that, once mapped, leaves a free block of `bytes` in the heap. In this order of liking:
 * the fewest new granules beside or between free blocks; the end of the heap's home; fresh
 * addresses. ERR_ADDRESS_SPACE if no addresses are left.
 */
vmm_status vmm__site_find(const struct vmm_cache *cache, const struct heap *heap, uint64_t bytes,
                          struct site *out);

/* Fresh addresses with a free granule on either side, touched by nothing else; where there are fences, those
 * that were free for longest. */
vmm_status vmm__site_alone(const struct vmm_cache *cache, uint64_t bytes, struct site *out);

#endif
