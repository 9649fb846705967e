/*
 * A heap: the blocks of one kind, small or large, of one lane. It manages mapped bytes only;
 * src/cache decides what is mapped.
 *
 * The bytes of a heap form extents: maximal runs of granules that it was given. Blocks tile each
 * extent without gaps. The first block of an extent has no prev and the last has no next, so a
 * heap never reads or locks another heap.
 *
 * A block that is freed right after it was taken becomes the last freed block: it is neither
 * merged with its neighbours nor indexed until the next request. A request of the same size takes
 * it as it is, which is the block that the index would have found. Only the alloc and free paths
 * leave a last freed block; vmm__lane_lock() settles it (lane.h). A block in a view never becomes
 * the last freed block.
 *
 * A large heap may also serve a request from a view (lane/views.h): the block then has an address
 * outside all extents, and occupies free bytes of several extents.
 *
 * A lane may have a third heap, for reserved blocks. Their records are cache/reserve's, and their granules need have no
 * memory, so each is an extent of its own, and the heap has no free block.
 *
 * Owns: its block records and its index of free blocks. Invariants:
 *  1. blocks tile each extent: block->next starts where block ends; extents begin and end at
 *     granules;
 *  2. two neighbours are never both free: they would be merged;
 *  3. the index holds exactly the free blocks; their sizes add up to free_bytes;
 *  4. starts and sizes are multiples of unit_bytes;
 *  5. the sizes of pinned blocks and pinned slab objects add up to unmovable_bytes; reserved blocks do not count;
 *  6. every occupied block belongs to one block in a view, whose pieces add up to its size.
 * May be called by: lane, cache, api. Locks: the lane's lock guards all of it.
 */
#ifndef VMM_LANE_HEAP_H
#define VMM_LANE_HEAP_H

#include "base/size_index.h"
#include "lane/directory.h"
#include "lane/owner.h"

struct lane;
struct slab;

enum block_state {
    BLOCK_FREE = 0,
    BLOCK_LIVE,       /* allocated */
    BLOCK_SLAB,       /* allocated, and divided into small objects */
    BLOCK_WAITING,    /* freed, but another stream may still use it */
    BLOCK_LAST_FREED, /* see heap->last_freed */
    BLOCK_OCCUPIED,   /* in use through a view: see `user` */
    BLOCK_RESERVED,   /* live, of vmm_reserve(): see cache/reserve/reserve.h */
    BLOCK_RETAINED    /* reserved and freed, but its pool is retained */
};

/* Why a block must not move. */
enum pin {
    PIN_PROGRAM = 1, /* live, and under vmm_pin() */
    PIN_EXPORT = 2   /* live or waiting, and exported: see vmm__lane_export_locked() */
};

struct block {
    struct size_node node; /* first member; size in bytes in every state; links while free */
    uint64_t address;
    struct block *prev; /* NULL: the first of its extent, or in a view */
    struct block *next; /* in a view: the next one that starts in the same granule */
    union {
        uint64_t requested_bytes; /* live, reserved */
        struct slab *slab;        /* slab */
        uint64_t epoch;           /* last freed: when it was freed */
        struct block *user;       /* occupied: the block in a view */
    };
    enum block_state state;
    uint8_t pins;    /* why it must not move: enum pin; slabs have pins of their own */
    bool is_in_view; /* its pieces are occupied blocks: see vmm__block_piece() */
    bool is_noted;   /* live or reserved, and has a note: see notes.h */
    bool is_listed;  /* live, and any thread may free it: see lane/magazine.h */
};

enum { LARGE_UNIT_BYTES = 512 }; /* of large heaps; small heaps use SMALL_SLOT_BYTES */

/* Block records, recycled. They are allocated in batches, each of twice as many, and freed all at once. */
struct block_store {
    struct block *spares; /* free records, linked by next */
    uint64_t spare_count;
    struct block_batch *batches;
};

/* Threads that free without the lane's lock read `lane`, so its cache line has only members that rarely change. */
struct heap {
    _Alignas(64) struct directory *directory;
    struct clock *clock; /* the lane's */
    bool is_small;
    bool is_reserved; /* of reserved blocks */
    bool is_drained;  /* in the directory's list; the grow lock guards this and next_drained */
    /* Its room: how many of the first granules of a free block that begins within a granule the gatherings and
     * transfers of other heaps leave to this one; more, if a chunk lies across their end. A miss sets it: see
     * vmm__placement_keep_room(). */
    uint8_t room_granules;
    uint32_t marked; /* list of chunks whose runs are out of date: see lane/views.h */
    uint64_t unit_bytes;
    struct block *last_taken; /* by the latest change; NULL: that change took no block */
    struct block *last_freed; /* reused as it is, or settled; NULL: none */
    struct size_index index;
    uint64_t free_bytes;
    uint64_t strand_bytes; /* a quick search takes no block that strands as much: see views.h */
    struct block_store store;
    uint64_t view_chunks;      /* chunks of the heap that have places in views */
    uint64_t occupied_bytes;   /* of its blocks in views */
    uint64_t pinned_bytes;     /* free in partly live chunks, as the last plan counted them */
    const struct owner *owner; /* the lane's */
    struct counters *counters; /* the lane's: settling the last freed block flushes them */
    _Alignas(64) struct lane *lane;
    uint64_t bytes;                   /* of its extents; changes under the grow lock */
    _Atomic uint64_t unmovable_bytes; /* of pinned blocks and objects */
    /* Where it last grew into unused addresses; 0: never. The grow lock guards all three fields. */
    uint64_t home_end;
    uint64_t home_begin; /* of a small heap, which grows downward, too; else 0 */
    struct home *home;   /* its pool's, which large heaps share; NULL: home_end is its own */
    /* Free runs in views: see lane/views.h; NULL: it never had places. */
    struct size_index *runs;
    struct heap *next_drained; /* in the directory's list */
};

/* In a small heap, blocks of at least a quarter of the largest size come from the high end of a free block, and smaller
 * ones from the low end: different sizes tend to have different lifetimes, and must not mix. */
enum { HIGH_END_BYTES = 256 << 10 };

static inline bool vmm__heap_takes_high(const struct heap *heap, uint64_t bytes)
{
    return heap->is_small & (bytes >= HIGH_END_BYTES); /* no branch: unpredictable */
}

/* The caller sets lane, owner, counters and clock. */
void vmm__heap_init(struct heap *heap, struct directory *directory, bool is_small);

/* Give a reserved block further granules, and take granules from it. The caller also holds the grow lock. */
void vmm__heap_reserve(struct heap *heap, struct block *block, uint64_t address, uint64_t bytes);
void vmm__heap_unreserve(struct heap *heap, uint64_t address, uint64_t bytes);

void vmm__heap_fini(struct heap *heap);

/* Frees the records of a heap that has no memory. The heap can grow again. */
void vmm__heap_vacate(struct heap *heap);

/* Lists a heap whose lane may have lost its last memory. */
void vmm__heap_drained_push(struct heap *heap);

/* Removes one heap from the directory's list of heaps whose last extent was detached, and returns
 * it; the heap may have grown again since. NULL if the list is empty. The caller holds the grow
 * lock. */
struct heap *vmm__heap_drained(struct directory *directory);

static inline uint64_t vmm__block_end(const struct block *block)
{
    return block->address + block->node.size;
}

static inline uint64_t vmm__heap_unmovable(const struct heap *heap)
{
    return atomic_load_explicit(&heap->unmovable_bytes, memory_order_relaxed);
}

/* The first piece of a block in a view, and the piece after one; NULL: none. A block in use has no links in the index,
 * so one of them links the pieces. */
static inline struct block *vmm__block_piece(const struct block *block)
{
    return (struct block *)block->node.next;
}

/* Makes sure that the next `count` records need no host memory. */
vmm_status vmm__heap_records_keep(struct heap *heap, uint64_t count);

/* Makes sure that an attach of `bytes` to a large heap needs no further host memory but for a block record.
 * ERR_HOST_OOM. */
vmm_status vmm__heap_attach_keep(struct heap *heap, uint64_t bytes);

/*
 * Takes a block of exactly `bytes`, a multiple of unit_bytes, from the best fitting free block.
 * The caller sets the fields of the block's state. VMM__NO_FIT if nothing fits; VMM__STRANDS, of a quick search only:
 * see strand_bytes; ERR_HOST_OOM.
 */
vmm_status vmm__heap_take(struct heap *heap, uint64_t bytes, enum search_depth search,
                          struct block **out);

/* Takes the given bytes, at the start or the end of a free block. ERR_HOST_OOM. */
vmm_status vmm__heap_take_edge(struct heap *heap, struct block *block, uint64_t address,
                               uint64_t bytes, struct block **out);

/* Frees a block that is neither free nor last freed, stamps it with the current epoch of the lane's clock, and merges
 * it with its neighbours; settles the last freed block first. Cannot fail. Returns the free block that now contains
 * it. */
struct block *vmm__heap_give(struct heap *heap, struct block *block);

/* Lengthens a block in use by the first `bytes` of the free block behind it, which has as many. ERR_HOST_OOM. */
vmm_status vmm__heap_extend(struct heap *heap, struct block *block, uint64_t bytes);

/* Shortens a block in use that is in no view to `bytes`, and frees the rest. ERR_HOST_OOM. */
vmm_status vmm__heap_shorten(struct heap *heap, struct block *block, uint64_t bytes);

/* Takes exactly these bytes, which are free. Uses up to two records of those that vmm__heap_records_keep() keeps. */
struct block *vmm__heap_take_at(struct heap *heap, uint64_t address, uint64_t bytes);

/* A free block that has `bytes` at a multiple of `alignment`; NULL: none was found. Finds one if some free block has
 * `bytes` + `alignment`. */
struct block *vmm__heap_find_aligned(struct heap *heap, uint64_t bytes, uint64_t alignment);

/* Whether the `bytes` from `address` on, which lies in an extent, are free. */
bool vmm__heap_is_free(const struct heap *heap, uint64_t address, uint64_t bytes);

/* Takes the last freed block if it has exactly this size; NULL if not. */
static inline struct block *vmm__heap_take_last_freed(struct heap *heap, uint64_t bytes)
{
    struct block *last_freed = heap->last_freed;
    if (last_freed == NULL || last_freed->node.size != bytes)
        return NULL;
    heap->last_freed = NULL;
    last_freed->state = BLOCK_LIVE;
    return last_freed;
}

/* Frees the last freed block for good. Must precede any other change of the heap, except that a busy heap loses idle
 * chunks (vmm__lane_lock_for_scan()). */
void vmm__heap_settle(struct heap *heap);

/* Frees a live block if the latest change took it: makes it the last freed block. Returns whether it did. */
static inline bool vmm__heap_give_last(struct heap *heap, struct block *block,
                                       const struct clock *clock)
{
    if (heap->last_taken != block)
        return false;
    block->epoch = vmm__clock_now(clock);
    block->state = BLOCK_LAST_FREED;
    heap->last_freed = block;
    return true;
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

/* The block that starts at an address which this heap owns, or the slab that contains the
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

/* Adds granules that were just mapped to the heap, as free bytes, merged with free neighbours. ERR_HOST_OOM. */
vmm_status vmm__heap_attach(struct heap *heap, uint64_t address, uint64_t bytes, uint64_t epoch);

/* Removes whole granules of a free block from the heap. ERR_HOST_OOM. */
vmm_status vmm__heap_detach(struct heap *heap, struct block *block, uint64_t address,
                            uint64_t bytes);

/* Moves whole chunks of a large heap's free block to another large heap, where they lie, with their places in views.
 * `epoch` is on the clock of the other heap's lane: their stamp. ERR_HOST_OOM. */
vmm_status vmm__heap_hand(struct heap *from, struct block *block, uint64_t address, uint64_t bytes,
                          struct heap *to, uint64_t epoch);

/* The block of an extent that contains an address which the heap owns. */
struct block *vmm__heap_cover(const struct heap *heap, uint64_t address);

/* Whether an extent of the heap contains an address, which may lie outside the arena. */
bool vmm__heap_has_extent(const struct heap *heap, uint64_t address);

/* ---- For views ---------------------------------------------------------------------------- */

/* Take a record, of those that vmm__heap_records_keep() keeps, and give it back. */
struct block *vmm__heap_record_take(struct heap *heap);
void vmm__heap_record_drop(struct heap *heap, struct block *block);

/* Cuts the given bytes out of the free block that contains them. The caller sets the state. Uses up to two records. */
struct block *vmm__heap_cut(struct heap *heap, uint64_t address, uint64_t bytes);

/* Frees what vmm__heap_cut() returned; returns the free block that contains it. */
struct block *vmm__heap_uncut(struct heap *heap, struct block *block);

#endif
