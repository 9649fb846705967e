/*
 * Rings: the places that share one chunk (mesh.h). In each place all but its own live bytes is lent;
 * only the owner's place keeps free what is live nowhere, so that every byte of the chunk is at one
 * place's disposal at most.
 *
 * Invariants (vmm__rings_check()):
 *  1. no part of the chunk is live, that is neither lent nor free, in two places;
 *  2. what is live in one place is lent in every other;
 *  3. what is free in one place is lent in every other.
 * May be called by: compact, mesh, ladder, trim. Locks: the grow lock and every pool's lock.
 */
#ifndef VMM_POLICY_RING_H
#define VMM_POLICY_RING_H

#include "policy/survey.h"

/* Visits the places of a chunk, itself first: for (place = chunk; place; place = next(place)). */
static inline struct chunk *vmm__ring_next(const struct memory *memory, const struct chunk *first,
                                           const struct chunk *place)
{
    struct chunk *next = place->twin == 0 ? NULL : &memory->records[place->twin];
    return next == first ? NULL : next;
}

/* The heap that a place lies in. */
static inline struct heap *vmm__ring_heap(const struct vmm_cache *cache, const struct chunk *place)
{
    return vmm__directory_heap(&cache->directory, vmm__chunk_address(&cache->memory, place));
}

/* What is live in any of a chunk's places. */
void vmm__ring_occupancy(const struct vmm_cache *cache, const struct chunk *chunk,
                         struct occupancy *out);

bool vmm__ring_is_pinned(const struct vmm_cache *cache, const struct chunk *chunk);

/* Makes sure that the rings of two owners can be settled as one without host memory (guest NULL: one
 * ring). */
vmm_status vmm__ring_records_keep(struct vmm_cache *cache, const struct chunk *host,
                                  const struct chunk *guest);

/* Lends anew what must be lent. Records were kept, and no work is in flight. Cannot fail. */
void vmm__ring_settle(struct vmm_cache *cache, struct chunk *owner);

/* Settles every ring: blocks that were freed since made room. ERR_HOST_OOM leaves the rest as it was. */
vmm_status vmm__rings_settle(struct vmm_cache *cache);

/* Parts places that hold nothing live any more from their rings: they are idle then. Never waits. */
void vmm__rings_part_locked(struct vmm_cache *cache);

/* The same for a caller that holds the grow lock and at most the lock of the pool `held`. */
void vmm__rings_part(struct vmm_cache *cache, const struct pool *held);

vmm_status vmm__rings_check(const struct vmm_cache *cache);

#endif
