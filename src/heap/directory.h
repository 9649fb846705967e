/*
 * The directory: from an address of the arena to the heap that owns it and the block that starts
 * there. Addresses are looked up here, never followed.
 *
 * The arena is divided into granules, and each granule of a heap into slots: one for a heap of
 * large blocks, 512 of 4 KiB for a heap of small ones. A slot names the first block that starts in
 * it. Large blocks are so much larger than the gaps between them that few start in one granule;
 * small blocks are whole slots, so at most one starts in each. A slab names itself in all its
 * slots.
 *
 * Owns: the table and the slot arrays of small granules.
 * Invariants:
 *  1. entries[g].heap is the heap whose territory covers granule g, NULL if none does;
 *  2. a slot names the block with the lowest start in it, NULL if none starts there; slots of a
 *     slab name the slab's block;
 *  3. entries[g].epoch is the latest at which anything in granule g of a heap was given back, on the
 *     timeline of the heap's pool: when that has passed, no work uses what is free there.
 * May be called by: heap, policy and report.
 * Locks: entries[g].heap changes under the grow lock and the heap's pool lock and may be read
 * without; the rest is under the heap's pool lock.
 */
#ifndef VMM_HEAP_DIRECTORY_H
#define VMM_HEAP_DIRECTORY_H

#include "heap/watch.h"
#include "memory/arena.h"

struct block;

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
    struct watch watch;
    uint64_t address; /* the arena's; so are the next two */
    uint64_t granule_mask;
    unsigned granule_shift;
    struct directory_entry *entries; /* by granule */
};

vmm_status vmm__directory_init(struct directory *directory, const struct arena *arena);

/* Frees what territories still own. */
void vmm__directory_fini(struct directory *directory);

static inline struct directory_entry *vmm__directory_entry(const struct directory *directory,
                                                           uint64_t address)
{
    return &directory->entries[(address - directory->address) >> directory->granule_shift];
}

/* The heap at an address of the arena; NULL if no territory is there. Needs no lock. */
static inline struct heap *vmm__directory_heap(const struct directory *directory, uint64_t address)
{
    return atomic_load_explicit(&vmm__directory_entry(directory, address)->heap,
                                memory_order_acquire);
}

/* Makes `count` granules a heap's, or nobody's again. Only making can fail, with ERR_HOST_OOM, and
 * then changes nothing. */
vmm_status vmm__directory_give(struct directory *directory, struct heap *heap, uint64_t granule,
                               uint64_t count);
void vmm__directory_take_back(struct directory *directory, uint64_t granule, uint64_t count);

/* The slot of an address, in a granule that a heap owns. */
struct block **vmm__directory_slot(const struct directory *directory, uint64_t address);

/* Notes that bytes of a heap were given back at an epoch, which is none before earlier ones. How many
 * granules they lie in is as good as random, so up to STAMPED_GRANULES no branch is made to depend on it. */
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

/* The latest epoch at which anything in these granules was given back. */
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
