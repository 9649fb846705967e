/*
 * A heap: the blocks of one pool that are of one kind, small or large. It knows mapped bytes only;
 * which of them exist is somebody else's decision.
 *
 * A heap's bytes form territories: maximal runs of granules that it was given. Blocks tile each
 * territory without gaps; the first and last block of a territory stand at walls (prev or next is
 * NULL), and what lies beyond a wall is not this heap's business. So a heap never looks at, nor
 * locks, another.
 *
 * Owns: its block records and its index of free blocks.
 * Invariants:
 *  1. blocks tile each territory: block->next starts where block ends; walls are at granules;
 *  2. two neighbours are never both free: they would be one;
 *  3. exactly the free blocks are in the index; their sizes add up to free_bytes;
 *  4. starts and sizes are multiples of unit_bytes;
 *  5. the sizes of the pinned blocks, and of the pinned objects of slabs, add up to unmovable_bytes.
 * A block that is given back right after it was taken stays warm: it is neither joined with its
 * neighbours nor in the index until the next request. If that is for the same size, it gets the
 * block, which is what it would have found anyway, and neither had to be done. Only the
 * paths of allocating and freeing leave blocks warm; whoever else locks the pool finds them settled (pool.h).
 * May be called by: pool, policy, report. Locks: the pool's lock guards all of it.
 */
#ifndef VMM_HEAP_HEAP_H
#define VMM_HEAP_HEAP_H

#include "base/sizeindex.h"
#include "heap/directory.h"

struct pool;
struct slab;

enum block_state {
    BLOCK_FREE = 0,
    BLOCK_LIVE,    /* handed out */
    BLOCK_SLAB,    /* handed out, to be divided among small objects */
    BLOCK_WAITING, /* taken back, but another stream may still use it */
    BLOCK_WARM,    /* taken back last, and whole still: see heap->warm */
    BLOCK_LENT     /* nobody's while the memory serves a twin of its chunk (policy/ring.h) */
};

struct block {
    struct size_node node; /* first member; size in bytes, always; links while free */
    uint64_t address;
    struct block *prev; /* NULL: wall */
    struct block *next;
    union {
        uint64_t requested_bytes; /* live */
        struct slab *slab;        /* slab */
        uint64_t epoch;           /* warm: at which it was taken back */
    };
    enum block_state state;
    bool is_pinned; /* live, and not to be moved; of a slab: pinned_bits has it */
    uint8_t knower; /* number of the magazine that has the rest of what is known; 0: none */
};

enum { LARGE_UNIT_BYTES = 512 }; /* of large heaps; that of small ones is SMALL_SLOT_BYTES */

/* Block records, recycled. They are allocated in batches and freed all at once. */
struct block_store {
    struct block *spares; /* linked by next */
    uint64_t spare_count;
    struct block_batch *batches;
};

struct heap {
    struct pool *pool;
    struct directory *directory;
    bool is_small;
    uint64_t unit_bytes;
    struct block *last_taken; /* by the latest change of the heap; NULL: that was another */
    struct block *warm;       /* to be handed out again as it is, or settled; NULL: none */
    struct size_index index;
    uint64_t bytes; /* of its territories; changes under the grow lock */
    uint64_t free_bytes;
    _Atomic uint64_t unmovable_bytes; /* of pinned blocks and objects */
    uint64_t home_end; /* where the heap last grew into fresh addresses; 0: nowhere yet */
    struct block_store store;
};

void vmm__heap_init(struct heap *heap, struct pool *pool, struct directory *directory,
                    bool is_small);
void vmm__heap_fini(struct heap *heap);

static inline uint64_t vmm__block_end(const struct block *block)
{
    return block->address + block->node.size;
}

static inline uint64_t vmm__heap_unmovable(const struct heap *heap)
{
    return atomic_load_explicit(&heap->unmovable_bytes, memory_order_relaxed);
}

/* Makes sure that the next `count` records can be had without host memory. */
vmm_status vmm__heap_records_keep(struct heap *heap, uint64_t count);

/*
 * Takes a block of exactly `bytes`, a multiple of unit_bytes, out of the best fitting free one. The
 * caller sets what belongs to the state. VMM_NOT_READY if nothing fits, ERR_HOST_OOM.
 */
vmm_status vmm__heap_take(struct heap *heap, uint64_t bytes, struct block **out);

/* The same from the low end of a given free block that is large enough. */
vmm_status vmm__heap_take_from(struct heap *heap, struct block *block, uint64_t bytes,
                               struct block **out);

/* Takes a block back that is neither free nor warm, and joins it with its neighbours; what was warm is
 * settled before. Cannot fail. Returns the free block that it is part of now. */
struct block *vmm__heap_give(struct heap *heap, struct block *block, uint64_t epoch);

/* The warm block, if it is what is wanted; NULL if not. */
static inline struct block *vmm__heap_take_warm(struct heap *heap, uint64_t bytes)
{
    struct block *warm = heap->warm;
    if (warm == NULL || warm->node.size != bytes)
        return NULL;
    heap->warm = NULL;
    warm->state = BLOCK_LIVE;
    return warm;
}

/* Makes what is warm free; the heap may be changed in any way then. */
void vmm__heap_settle(struct heap *heap);

/* As vmm__heap_give(), of a live block, which stays warm if it was the last to be taken. */
static inline void vmm__heap_give_live(struct heap *heap, struct block *block, uint64_t epoch)
{
    if (heap->last_taken == block) {
        block->state = BLOCK_WARM;
        block->epoch = epoch;
        heap->warm = block;
        return;
    }
    (void)vmm__heap_give(heap, block, epoch);
}

/* The slot of an address in a granule that the heap owns. */
static inline struct block **vmm__heap_slot(const struct heap *heap, uint64_t address)
{
    const struct directory *directory = heap->directory;
    struct directory_entry *entry = vmm__directory_entry(directory, address);
    if (!heap->is_small)
        return &entry->first;
    uint64_t offset = (address - directory->address) & directory->granule_mask;
    return &entry->slots[offset / SMALL_SLOT_BYTES];
}

/* The block that starts at an address of a granule which this heap owns, or the slab that holds the
 * address; NULL if there is neither. */
static inline struct block *vmm__heap_find(const struct heap *heap, uint64_t address)
{
    struct block *block = *vmm__heap_slot(heap, address);
    if (heap->is_small) {
        bool is_it = block != NULL && (block->address == address || block->state == BLOCK_SLAB);
        return is_it ? block : NULL;
    }
    while (block != NULL && block->address < address)
        block = block->next;
    return block != NULL && block->address == address ? block : NULL;
}

/*
 * Makes granules that were just mapped this heap's, as free bytes, joined with free neighbours.
 * Returns the free block that they are part of. ERR_HOST_OOM.
 */
vmm_status vmm__heap_attach(struct heap *heap, uint64_t address, uint64_t bytes, uint64_t epoch,
                            struct block **out);

/* Cuts whole granules out of a free block; they are nobody's then. ERR_HOST_OOM. */
vmm_status vmm__heap_detach(struct heap *heap, struct block *block, uint64_t address,
                            uint64_t bytes);

/* The block that holds an address which the heap owns. */
struct block *vmm__heap_cover(const struct heap *heap, uint64_t address);

/* Cuts bytes out of the free block that holds them, to be lent. ERR_HOST_OOM changes nothing. */
vmm_status vmm__heap_lend(struct heap *heap, uint64_t address, uint64_t bytes);

/* Frees what is lent in a granule. */
void vmm__heap_unlend(struct heap *heap, uint64_t granule, uint64_t epoch);

#endif
