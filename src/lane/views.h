/*
 * Views: rows of further mappings of chunks, at consecutive addresses. A request that fits in no free block is served
 * from a free run of a view: the free tail of one chunk, idle chunks, and the free head of another. The bytes stay
 * where they are; only their addresses are new.
 *
 * A place is one further mapping of one chunk. Places that touch and have the same view number form a row. A barrier is
 * a place whose chunk is not idle, or that is forced: it is the first of its row, or the place before it belongs to
 * another heap. The granule after a row is a barrier, too. A run is the free bytes between two barriers; the first of
 * them names it, and all of its chunks belong to one heap. Its parts are
 *     the free tail of the barrier's chunk + the idle chunks behind it + the free head of the next barrier's chunk.
 *
 * A block in a view occupies blocks of the extents, its pieces, one for each chunk under it. vmm_free() frees the
 * pieces and stamps them and the places; the row stays for the next request. A retained pool keeps its places, too.
 *
 * Owns: the table of places, the barriers, and each large heap's index of runs. Invariants:
 *  1. places[g].chunk is the id of the chunk that is mapped at the place which starts at granule g, while the place is
 *     in a row; 0: no such place. The directory has the chunk's heap at each granule of the place;
 *  2. the bit of granule g is set exactly if g is a barrier;
 *  3. the `run` of a barrier's place has the size of its run; a heap's index of runs has exactly those with an idle
 *     chunk behind the barrier, or with a tail and a head;
 *  4. free_head_bytes and free_tail_bytes of each chunk that has a place, and is not marked, are the free bytes at its
 *     ends; 2 and 3 hold for these bytes;
 *  5. a place's users are the blocks in views that lie over it; a heap's occupied_bytes are the bytes of its blocks in
 *     views;
 *  6. two rows are at least one granule apart, and a view has a chunk at most once;
 *  7. left is the place of the same view that ends where a place starts, first leads from the last granule of a place
 *     to its first one, and the list of ends has exactly the first and last places of rows, with their heaps and
 *     chunks;
 *  8. a heap's view_chunks is the number of its chunks that have places;
 *  9. a chunk's view_bits has the bits of the views in which it has a place, and no others.
 * May be called by: lane; cache, to add and remove places; api, to read. Locks: the lock of the chunk's lane guards its
 * places, its runs and its barriers; the grow lock also guards adding and removing places, `left` and the list of ends.
 */
#ifndef VMM_LANE_VIEWS_H
#define VMM_LANE_VIEWS_H

#include "lane/heap.h"
#include "vm/vm.h"

struct view_place {
    struct size_node
        run;        /* first member; the run of the barrier here; link NULL: not in the index */
    uint32_t chunk; /* see invariant 1 */
    uint32_t users;
    uint64_t view;  /* number; places of one view may form several rows; 0: in no row */
    uint64_t turn;  /* views.turn when the latest block over it was taken */
    uint64_t epoch; /* on the clock of the heap's lane: the latest free of a block over it */
    uint64_t left;  /* granule of the place before it in its row; NO_GRANULE: none */
    uint64_t first; /* in the record of a place's last granule: its first one */
    bool is_forced; /* see above */
    bool is_end;    /* the first or last of its row, and in the list of ends */
};

/* The first or last place of a row. A search for rows to extend reads all of them. */
struct view_end {
    struct heap *heap;   /* that owns the place */
    struct chunk *chunk; /* at the place */
    uint64_t place;
};

struct views {
    struct vm *vm;
    struct directory *directory;
    struct view_place *places;  /* by granule */
    _Atomic uint64_t *barriers; /* a bit for each granule */
    struct view_end *ends;      /* in the order in which they became ends */
    uint64_t end_count;
    uint64_t last_view;    /* numbers given so far */
    _Atomic uint64_t turn; /* blocks taken so far */
};

vmm_status vmm__views_init(struct views *views, struct vm *vm, struct directory *directory);
void vmm__views_fini(struct views *views);

/* Makes sure that a large heap can index runs, if there are views. ERR_HOST_OOM. */
vmm_status vmm__views_open(struct heap *heap);

/* Frees the index of a heap that has no places. */
void vmm__views_close(struct heap *heap);

/* A chunk of the heap was mapped at a further place, with access, as part of a view. */
void vmm__views_place_add(struct heap *heap, struct chunk *chunk, uint64_t granule, uint64_t view);

/* Records a further mapping that got no access: a place that joins no row, and is to be unmapped. */
void vmm__views_place_strand(struct heap *heap, struct chunk *chunk, uint64_t granule);

/* Unmaps a place without users, whose last work has finished. If the driver refuses, the place stays mapped, in no
 * row. */
vmm_status vmm__views_place_unmap(struct heap *heap, struct chunk *chunk, uint64_t granule);

/*
 * Takes a block of exactly `bytes` from the smallest run that holds it. Touches partly live chunks before idle ones.
 * VMM__NO_FIT; VMM__STRANDS, of a quick search only; ERR_HOST_OOM.
 */
vmm_status vmm__views_take(struct heap *heap, uint64_t bytes, enum search_depth search,
                           struct block **out);

/* Takes these bytes, which begin in a row of the heap. VMM__NO_FIT if some of them are not
 * free, or not in that row; ERR_HOST_OOM. */
vmm_status vmm__views_take_at(struct heap *heap, uint64_t address, uint64_t bytes,
                              struct block **out);

/* Frees a block in a view. Returns the free block that contains its first piece. */
struct block *vmm__views_give(struct heap *heap, struct block *block);

/* The block in a view that contains an address of a place; NULL if there is none. */
struct block *vmm__views_cover(const struct views *views, uint64_t address);

/* Whether a view has a chunk. */
bool vmm__views_have(const struct views *views, uint64_t view, const struct chunk *chunk);

/* The number of rows. The caller holds the grow lock. */
uint64_t vmm__views_rows(const struct views *views);

static inline struct views *vmm__views_of(const struct heap *heap)
{
    return heap->directory->views;
}

static inline uint64_t vmm__views_bytes(const struct views *views, uint64_t granules)
{
    return granules << views->vm->arena.granule_shift;
}

static inline uint64_t vmm__views_address(const struct views *views, uint64_t granule)
{
    return vmm__arena_address(&views->vm->arena, granule);
}

/* The heap that owns the place or the home granule here. Needs no lock. */
static inline struct heap *vmm__views_heap(const struct views *views, uint64_t granule)
{
    return vmm__directory_heap(views->directory, vmm__views_address(views, granule));
}

/* Whether an address of a heap lies in a view. Only a reserved block has granules without a chunk. */
static inline bool vmm__views_contain(const struct views *views, uint64_t address)
{
    uint64_t granule = vmm__arena_granule(&views->vm->arena, address);
    const struct chunk *chunk = vmm__vm_chunk(views->vm, granule);
    return chunk != NULL && !vmm__chunk_is_home(chunk, granule);
}

/* Returns the free bytes at the right end of a row, or at the left one, where `granule` is the row's last place, or its
 * first: a block may use them together with places that are added there. */
uint64_t vmm__views_end_bytes(const struct heap *heap, uint64_t granule, bool is_left);

static inline bool vmm__views_is_last(const struct views *views, uint64_t granule)
{
    const struct view_place *place = &views->places[granule];
    const struct view_place *right =
        place + views->vm->records[place->chunk].granules; /* the row's end is inside the table */
    return right->chunk == 0 || right->left != granule;
}

/* ---- For relocation -------------------------------------------------------------------------- */

/* The address, in its view, of an occupied block. */
uint64_t vmm__views_piece_address(const struct block *piece);

/*
 * Lift takes all places of a chunk out of their rows, with the blocks over them; settle puts the places of a chunk into
 * their rows, with the blocks that have pieces in the chunk. Between the two, other chunks may be mapped at the same
 * addresses; each of their places inherits the view of the one that it replaces.
 */
void vmm__views_chunk_lift(struct heap *heap, struct chunk *chunk);
void vmm__views_place_inherit(struct views *views, uint64_t granule, uint64_t from);
void vmm__views_chunk_settle(struct heap *heap, struct chunk *chunk);

/*
 * A block strands free bytes if it takes only one end of an idle chunk: they are then pinned. These functions return a
 * chunk in which a block would strand at least heap->strand_bytes, at the low end of a free block `fit`, or in the run
 * that a quick vmm__views_take() would choose; NULL if there is none. *cut is the granule, at the chunk's home, where a
 * chunk should end so that the block strands less.
 */
struct chunk *vmm__views_strand(const struct heap *heap, const struct block *fit, uint64_t bytes,
                                uint64_t *cut);
struct chunk *vmm__views_strand_run(const struct heap *heap, uint64_t bytes, uint64_t *cut);

/* ---- For heap.c ------------------------------------------------------------------------------ */

/* Bytes of the heap were taken or freed. Marks their chunks; vmm__views_update() measures these. */
void vmm__views_mark(struct heap *heap, uint64_t address, uint64_t bytes);
static inline void vmm__views_note(struct heap *heap, uint64_t address, uint64_t bytes)
{
    if (heap->view_chunks > 0)
        vmm__views_mark(heap, address, bytes);
}

/* Measures the marked chunks, and puts their runs into the index with their new sizes. vmm__lane_lock() and each search
 * of the runs do this. A lane that was locked without vmm__lane_lock() may have marked chunks. */
void vmm__views_update(struct heap *heap);

/* Free chunks were attached to the heap, or are about to be detached; they may have places. */
void vmm__views_enter(struct heap *heap, uint64_t address, uint64_t bytes);
void vmm__views_leave(struct heap *heap, uint64_t address, uint64_t bytes);

/* Moves idle chunks of a heap, at consecutive homes, to another large heap, with their places. `epoch` is the stamp for
 * the places, on the clock of the lane of `to`. The caller holds the locks of both lanes and the grow lock. */
void vmm__views_hand(struct heap *from, struct heap *to, uint64_t address, uint64_t bytes,
                     uint64_t epoch);

/* Checks the numbered invariants for the chunks of a heap. */
vmm_status vmm__views_check(const struct heap *heap);

/* An address of a heap's memory as the program knows it: see vm/vm.h. */
uint64_t vmm__views_outer(const struct heap *heap, uint64_t address);

/* ---- For the files of views ------------------------------------------------------------------ */

/* Where a block begins in a run: at the side of a partly live chunk, so that idle chunks stay idle. */
struct view_fit {
    uint64_t address;
    bool is_low; /* where the run begins; otherwise the block ends where the run does */
};

/* Finds the smallest run that holds `bytes`, of a heap that has an index of runs. False if there is none. */
bool vmm__views_find(const struct heap *heap, uint64_t bytes, enum search_depth search,
                     struct view_fit *out);

#endif
