/*
 * The arena: the one range of device addresses that a cache reserves, counted in granules, and
 * which of them are free. Free addresses lie in voids: maximal runs of granules that nobody holds.
 *
 * Owns: the reservation and the records of voids: edges[g] belongs to the void whose first or last
 * granule is g, so taking and giving back need no host memory and cannot fail for want of it.
 * Invariants:
 *  1. two voids never touch: they would be one;
 *  2. edges[g].first_plus_1 is not 0 exactly if g is a void's first or last granule, and then says
 *     where that void begins; edges[first] is the void's node in the index;
 *  3. every void is in the index under its number of granules;
 *  4. the granules of all voids add up to free_granules;
 *  5. `fences` granules are taken to stay without memory: the size of the node at such a one is ARENA_FENCE.
 * May be called by: memory, and policy to look for room.
 * Locks: the cache's grow lock.
 */
#ifndef VMM_MEMORY_ARENA_H
#define VMM_MEMORY_ARENA_H

#include "base/sizeindex.h"
#include "driver/driver.h"

#define ARENA_FENCE UINT64_MAX

struct void_edge {
    struct size_node node; /* first member; size in granules; of a void's first edge only */
    uint64_t first_plus_1; /* granule */
};

struct arena {
    struct driver *driver;
    uint64_t address;
    uint64_t bytes;
    uint64_t granule_bytes;
    unsigned granule_shift;
    uint64_t granules;
    uint64_t free_granules;
    uint64_t fences;
    struct void_edge *edges; /* by granule; a table of which only touched pages cost memory */
    struct size_index index;
};

/* Reserves `bytes` of addresses, halving on refusal down to the device's own memory twice over. */
vmm_status vmm__arena_init(struct arena *arena, struct driver *driver, uint64_t bytes);

/* Everything must have been given back. */
vmm_status vmm__arena_fini(struct arena *arena);

/* Free granules that follow, or precede, the boundary before `granule`, which is where a void
 * begins or ends, or lies between two granules that are taken. */
uint64_t vmm__arena_room_after(const struct arena *arena, uint64_t granule);
uint64_t vmm__arena_room_before(const struct arena *arena, uint64_t granule);

/* The void that a granule lies in; false if the granule is taken. */
bool vmm__arena_void(const struct arena *arena, uint64_t granule, uint64_t *first, uint64_t *count);

/*
 * Looks for `count` free granules to start a territory at, with room to grow on both sides while
 * addresses are plenty. False if no void is large enough. Takes nothing.
 */
bool vmm__arena_find(const struct arena *arena, uint64_t count, uint64_t *granule);

/* Takes granules that are free. */
void vmm__arena_take(struct arena *arena, uint64_t granule, uint64_t count);

/* Gives granules back that were taken, all or part of them. */
void vmm__arena_give(struct arena *arena, uint64_t granule, uint64_t count);

/* Takes a free granule as a fence. */
void vmm__arena_fence(struct arena *arena, uint64_t granule);

/* Gives a granule back if it is a fence. */
void vmm__arena_unfence(struct arena *arena, uint64_t granule);

/*
 * The first granule at or after `granule` that is taken; arena->granules if there is none.
 * `granule` is taken, or the first of a void.
 */
uint64_t vmm__arena_next_taken(const struct arena *arena, uint64_t granule);

static inline bool vmm__arena_contains(const struct arena *arena, uint64_t address)
{
    return address - arena->address < arena->bytes;
}

vmm_status vmm__arena_check(const struct arena *arena);

static inline uint64_t vmm__arena_granule(const struct arena *arena, uint64_t address)
{
    return (address - arena->address) >> arena->granule_shift;
}

static inline uint64_t vmm__arena_address(const struct arena *arena, uint64_t granule)
{
    return arena->address + (granule << arena->granule_shift);
}

#endif
