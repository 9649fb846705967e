/*
 * The directory maps an address of the arena to the heap that owns it and to the block that
 * starts there. Callers pass addresses; the directory never dereferences one.
 *
 * It divides the arena into granules, and each granule of a heap into slots: one slot in a large
 * heap, 512 slots of 4 KiB in a small heap. A slot names the first block that starts in it. Few
 * large blocks start in one granule. Small blocks are whole slots, so at most one starts in each.
 * All slots of a slab name the slab's block.
 *
 * Owns: the table, the slot arrays of small granules, and the live table. Invariants:
 *  1. entries[g].heap is the heap that has granule g in an extent, or in a row of its views; or NULL;
 *  2. a slot names the block with the lowest start in it, or NULL if none starts there; the
 *     slots of a slab name the slab's block, those of a reserved block name it;
 *  3. entries[g].epoch is the latest epoch, on the clock of the heap's lane, at which
 *     anything in granule g was freed: once it has passed, no work uses the free bytes
 *     there.
 * May be called by: lane, cache, api. Locks: entries[g].heap and the slots of reserved blocks change under the grow
 * lock and the heap's lane lock. Reading entries[g].heap needs no lock, and reading such a slot one of the two. The
 * heap's lane lock guards the rest.
 */
#ifndef VMM_LANE_DIRECTORY_H
#define VMM_LANE_DIRECTORY_H

#include "lane/listener.h"
#include "trace/recorder.h"
#include "vm/arena.h"
#include "vm/clock.h"

struct block;
struct heap;
struct live_table;
struct views;

enum { SMALL_SLOT_BYTES = 4096 };

struct directory_entry {
    _Atomic(struct heap *) heap;
    union {
        struct block *first;  /* large: the one slot */
        struct block **slots; /* small */
    };
    uint64_t epoch; /* see invariant 3 */
};

struct directory {
    const struct arena *arena;
    struct listener listeners[LISTENERS];
    /* NULL: nothing is recorded. Changes as the listeners do. */
    _Atomic(struct recorder *) recorder;
    uint64_t address; /* copy of the arena's, as are the next two */
    uint64_t granule_mask;
    unsigned granule_shift;
    struct directory_entry *entries; /* by granule */
    struct views *views;             /* of the cache; NULL: none */
    struct live_table *live;         /* of the cache */
    struct clock *clock;             /* of the cache */
    bool has_own_clocks;             /* its lanes have clocks of their own: see vm/clock.h */
    struct heap *drained; /* heaps whose last extent was detached; linked by next_drained */
};

vmm_status vmm__directory_init(struct directory *directory, const struct arena *arena,
                               struct clock *clock);

/* Frees the slot arrays of remaining extents and the table. */
void vmm__directory_fini(struct directory *directory);

static inline struct directory_entry *vmm__directory_entry(const struct directory *directory,
                                                           uint64_t address)
{
    return &directory->entries[(address - directory->address) >> directory->granule_shift];
}

/* The heap that owns an address of the arena; NULL if none does. Needs no lock. */
static inline struct heap *vmm__directory_heap(const struct directory *directory, uint64_t address)
{
    return atomic_load_explicit(&vmm__directory_entry(directory, address)->heap,
                                memory_order_acquire);
}

/* Assign `count` granules to a heap, and take them from it. Assigning can fail with ERR_HOST_OOM
 * and then changes nothing; taking back cannot fail. */
vmm_status vmm__directory_give(struct directory *directory, struct heap *heap, uint64_t granule,
                               uint64_t count);
void vmm__directory_take_back(struct directory *directory, uint64_t granule, uint64_t count);

/* The slot of an address in a granule that a heap owns. */
struct block **vmm__directory_slot(const struct directory *directory, uint64_t address);

/* Records that bytes of a heap were freed at an epoch, which is not before any recorded earlier.
 * The number of granules is unpredictable, so up to STAMPED_GRANULES are written without a
 * branch. */
enum { STAMPED_GRANULES = 4 };
static inline void vmm__directory_stamp(const struct directory *directory, uint64_t address,
                                        uint64_t bytes, uint64_t epoch)
{
    uint64_t first = (address - directory->address) >> directory->granule_shift;
    uint64_t last = (address + bytes - 1 - directory->address) >> directory->granule_shift;
    for (uint64_t i = 0; i < STAMPED_GRANULES; i++)
        directory->entries[vmm__min(first + i, last)].epoch = epoch;
    for (uint64_t g = first + STAMPED_GRANULES; g <= last; g++)
        directory->entries[g].epoch = epoch;
}

/* The latest epoch at which anything in these granules was freed. */
static inline uint64_t vmm__directory_epoch(const struct directory *directory, uint64_t granule,
                                            uint64_t count)
{
    uint64_t latest = 0;
    for (uint64_t g = granule; g < granule + count; g++)
        latest = vmm__max(latest, directory->entries[g].epoch);
    return latest;
}

/* The block that holds the byte before a granule boundary; NULL if no heap owns that byte. */
struct block *vmm__directory_before(const struct directory *directory, uint64_t address);

#endif
