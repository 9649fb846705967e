/*
 * The arena: the device addresses that a cache reserves, divided into granules. It tracks which
 * granules are free, as gaps: maximal runs of free granules.
 *
 * vmm__arena_init() makes the first reservation, and vmm__arena_extend() makes further ones, up
 * to limit_bytes in all. Granules are numbered within a window of addresses around the first
 * reservation, so that arithmetic converts between address and granule. Further reservations must
 * lie in the window. Granules of the window outside all reservations are neither taken nor free,
 * and their table entries are never touched. If the first reservation has limit_bytes, the arena
 * never grows and its window is that reservation.
 *
 * A further reservation leaves its first and last granule unused, so that no gap and no mapping
 * crosses from one reservation into another.
 *
 * Owns: the reservations and the records of gaps. edges[g] belongs to the gap whose first or last
 * granule is g, so taking and giving back granules need no host memory and cannot fail.
 * Invariants:
 *  1. two gaps never touch: they would be merged;
 *  2. edges[g].first_plus_1 is nonzero exactly if g is the first or last granule of a gap,
 *     and then holds the first granule of that gap plus 1; edges[first] is the node of the
 *     gap in the index;
 *  3. every gap is in the index under its number of granules;
 *  4. the granules of all gaps add up to free_granules;
 *  5. guard_pages granules are taken and stay without memory; the node of each has the size
 *     ARENA_GUARD_PAGE.
 * May be called by: vm, lane; cache, to find addresses; api. Locks: the cache's grow lock guards the gaps and the
 * reservations; what init sets, such as the window, may be read without a lock.
 */
#ifndef VMM_VM_ARENA_H
#define VMM_VM_ARENA_H

#include "base/size_index.h"
#include "driver/driver.h"

#define ARENA_GUARD_PAGE UINT64_MAX

struct gap_edge {
    struct size_node node; /* first member; size in granules; valid in the gap's first edge */
    uint64_t first_plus_1; /* granule */
};

struct reservation {
    uint64_t address;
    uint64_t bytes;
    uint64_t first; /* granule; the first usable */
    uint64_t end;   /* granule; after the last usable */
};

/* Each further reservation doubles the total, unless the driver refuses: from one granule, 26
 * doublings reach 2^47 bytes. */
enum { ARENA_RESERVATIONS = 64 };

struct arena {
    struct driver *driver;
    uint64_t address; /* of the window */
    uint64_t bytes;   /* of the window */
    uint64_t limit_bytes;
    uint64_t reserved_bytes; /* of all reservations */
    /* The lowest reserved address, and the bytes from there to the end of the highest reservation: an error line reads
     * them without the lock. */
    _Atomic uint64_t low;
    _Atomic uint64_t span_bytes;
    uint64_t granule_bytes;
    unsigned granule_shift;
    uint64_t granules;        /* of the window */
    uint64_t usable_granules; /* of all reservations */
    uint64_t free_granules;
    uint64_t guard_pages;
    struct gap_edge *edges; /* by granule; a sparse table: only touched pages use memory */
    struct size_index index;
    uint32_t reservation_count;
    struct reservation reservations[ARENA_RESERVATIONS]; /* in the order of creation */
};

/* Makes the first reservation, of the smaller of first_bytes and limit_bytes; both are rounded up
 * to a granule. If the driver refuses, tries half as much, and so on down to the size of the
 * device memory: with fewer addresses a cache could not use the whole device. */
vmm_status vmm__arena_init(struct arena *arena, struct driver *driver, uint64_t first_bytes,
                           uint64_t limit_bytes);

/*
 * Makes a further reservation, with room for `bytes` in a row and a free granule on either side.
 * ERR_ADDRESS_SPACE if limit_bytes or the driver does not allow it, ERR_DEVICE_OOM if the device
 * has less than `bytes` of memory. Changes nothing on failure.
 */
vmm_status vmm__arena_extend(struct arena *arena, uint64_t bytes);

/* Frees the reservations. All granules must have been given back. Returns the first driver
 * error. */
vmm_status vmm__arena_fini(struct arena *arena);

/* The number of free granules directly after, or before, the boundary that precedes `granule`.
 * The boundary must be an end of a gap or lie between two taken granules. */
uint64_t vmm__arena_room_after(const struct arena *arena, uint64_t granule);
uint64_t vmm__arena_room_before(const struct arena *arena, uint64_t granule);

/* The gap that contains a granule; false if the granule is taken. */
bool vmm__arena_gap(const struct arena *arena, uint64_t granule, uint64_t *first, uint64_t *count);

/*
 * Finds `count` free granules for a new extent, with room to grow on both sides while addresses
 * are plentiful. False if no gap is large enough. Takes nothing.
 */
bool vmm__arena_find(const struct arena *arena, uint64_t count, uint64_t *granule);

/* Like vmm__arena_find(), but makes a further reservation if no gap is large enough. Returns what
 * vmm__arena_extend() returns. */
vmm_status vmm__arena_find_or_extend(struct arena *arena, uint64_t count, uint64_t *granule);

/* Finds `count` free granules for a row of places, a range or an import, with as many free beside it on both sides if
 * there are, and at least one. If no gap is large enough, makes a further reservation, also a larger one than the
 * device. */
vmm_status vmm__arena_find_row(struct arena *arena, uint64_t count, uint64_t *granule);

/* Takes free granules. */
void vmm__arena_take(struct arena *arena, uint64_t granule, uint64_t count);

/* Gives back taken granules, all or some of a run. */
void vmm__arena_give(struct arena *arena, uint64_t granule, uint64_t count);

/* Takes a free granule as a guard page. */
void vmm__arena_guard_page_put(struct arena *arena, uint64_t granule);

/* Gives a granule back if it is a guard page. */
void vmm__arena_guard_page_take(struct arena *arena, uint64_t granule);

/*
 * The first taken granule at or after `granule`; arena->granules if there is none. `granule` must
 * be taken, the first of a gap, or outside all reservations.
 */
uint64_t vmm__arena_next_taken(const struct arena *arena, uint64_t granule);

/* Whether an address lies in the window, so that the tables have an entry for it. */
static inline bool vmm__arena_contains(const struct arena *arena, uint64_t address)
{
    return address - arena->address < arena->bytes;
}

/* Whether an address lies between the lowest and the highest reserved one. If there is one
 * reservation, or all touch, this says whether it is reserved. */
static inline bool vmm__arena_spans(const struct arena *arena, uint64_t address)
{
    return address - arena->low < arena->span_bytes;
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
