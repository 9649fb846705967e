/*
 * Chooses the home of new chunks: the addresses where a request needs the fewest new granules. A search changes
 * nothing, except that vmm__placement_home() may reserve more addresses.
 * Owns: nothing. May be called by: grow, stitch, refill, resize. Locks: the caller holds the grow lock and the heap's
 * lane lock.
 */
#ifndef VMM_CACHE_GROW_PLACEMENT_H
#define VMM_CACHE_GROW_PLACEMENT_H

#include "cache/cache.h"

struct placement {
    uint64_t granule;           /* first granule to map; free */
    uint64_t count;             /* granules to map */
    uint64_t room;              /* free granules from there on, if the chunks do not fit exactly */
    const struct block *beside; /* the free block to extend; NULL: none */
    bool extends_home;          /* the heap's home then ends with it */
};

/*
 * Finds a placement that, when mapped, gives the heap a free block of `bytes`. Order of preference: the fewest new
 * granules beside a free block or between two; where the heap last grew; the end of the home that it shares; fresh
 * addresses. ERR_ADDRESS_SPACE: no addresses are left.
 */
vmm_status vmm__placement_find(const struct vmm_cache *cache, const struct heap *heap,
                               uint64_t bytes, struct placement *out);

/* Sets the room of a heap (heap.h) until its next miss, as blocks of block_bytes need it. */
void vmm__placement_keep_room(struct heap *heap, uint64_t block_bytes);

/* Finds `count` free granules at the end of a heap's home, or fresh ones. ERR_ADDRESS_SPACE. */
vmm_status vmm__placement_home(struct vmm_cache *cache, const struct heap *heap, uint64_t count,
                               uint64_t *granule);

/* Whether a heap that grows at some addresses grows its home. */
bool vmm__placement_is_at_home(const struct heap *heap, uint64_t address, uint64_t end);

/* Notes that a heap has grown its home, for a block of block_bytes. */
void vmm__placement_note(struct heap *heap, uint64_t address, uint64_t end, uint64_t block_bytes);

/* Finds fresh addresses with a free granule on either side. With guard pages: the next ones in the arena, so that the
 * addresses of freed blocks are used again as late as possible. */
vmm_status vmm__placement_alone(const struct vmm_cache *cache, uint64_t bytes,
                                struct placement *out);

#endif
