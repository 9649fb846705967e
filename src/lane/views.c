/* Views: rows of places, and the free runs in them. See views.h. */
#include "lane/views.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <string.h>

enum { BARRIER_BITS = 64 };

static struct chunk *chunk_of(const struct views *views, uint64_t granule)
{
    return &views->vm->records[views->places[granule].chunk];
}

static bool chunk_is_idle(const struct views *views, const struct chunk *chunk)
{
    return chunk->free_head_bytes == vmm__chunk_bytes(views->vm, chunk);
}

/* The granule after a place. */
static uint64_t place_end(const struct views *views, uint64_t granule)
{
    return granule + chunk_of(views, granule)->granules;
}

/* ---- Barriers -------------------------------------------------------------------------------- */

static _Atomic uint64_t *barrier_word(const struct views *views, uint64_t granule)
{
    return &views->barriers[granule / BARRIER_BITS];
}

static uint64_t barrier_bit(uint64_t granule)
{
    return UINT64_C(1) << granule % BARRIER_BITS;
}

static bool barrier_is_set(const struct views *views, uint64_t granule)
{
    uint64_t word = atomic_load_explicit(barrier_word(views, granule), memory_order_relaxed);
    return (word & barrier_bit(granule)) != 0;
}

/* Rows of other heaps share the word. Mostly the bit stays as it is, and a load is cheap. */
static void barrier_set(struct views *views, uint64_t granule, bool is_set)
{
    _Atomic uint64_t *word = barrier_word(views, granule);
    if (barrier_is_set(views, granule) == is_set)
        return;
    if (is_set)
        atomic_fetch_or_explicit(word, barrier_bit(granule), memory_order_relaxed);
    else
        atomic_fetch_and_explicit(word, ~barrier_bit(granule), memory_order_relaxed);
}

/* Sets the barrier at a place from the state of the place. Returns whether there is one. */
static bool barrier_settle(struct views *views, uint64_t granule)
{
    bool is_idle = chunk_is_idle(views, chunk_of(views, granule));
    bool is_barrier = views->places[granule].is_forced || !is_idle;
    barrier_set(views, granule, is_barrier);
    return is_barrier;
}

/* The last barrier at or before a granule of a row; the row's first place is one. */
static uint64_t barrier_to_left(const struct views *views, uint64_t granule)
{
    uint64_t at = granule / BARRIER_BITS;
    uint64_t bits = atomic_load_explicit(&views->barriers[at], memory_order_relaxed) &
                    (barrier_bit(granule) | (barrier_bit(granule) - 1));
    while (bits == 0)
        bits = atomic_load_explicit(&views->barriers[--at], memory_order_relaxed);
    return at * BARRIER_BITS + vmm__log2(bits);
}

/* The first barrier after a granule of a row; the granule after the row is one. */
static uint64_t barrier_to_right(const struct views *views, uint64_t granule)
{
    uint64_t at = (granule + 1) / BARRIER_BITS;
    uint64_t bits = atomic_load_explicit(&views->barriers[at], memory_order_relaxed) &
                    ~(barrier_bit(granule + 1) - 1);
    while (bits == 0)
        bits = atomic_load_explicit(&views->barriers[++at], memory_order_relaxed);
    return at * BARRIER_BITS + (uint64_t)__builtin_ctzll(bits);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* The parts of the run of a barrier. */
struct run {
    uint64_t barrier;
    uint64_t end; /* the next barrier */
    uint64_t tail_bytes;
    uint64_t idle_bytes;
    uint64_t head_bytes;
};

static struct run run_at(const struct heap *heap, uint64_t barrier)
{
    const struct views *views = vmm__views_of(heap);
    struct run run = { .barrier = barrier, .end = barrier_to_right(views, barrier) };
    run.tail_bytes = chunk_of(views, barrier)->free_tail_bytes;
    run.idle_bytes = vmm__views_bytes(views, run.end - place_end(views, barrier));
    if (vmm__views_heap(views, run.end) !=
        heap) /* read first: another heap's lock may guard the place */
        return run;
    const struct view_place *next = &views->places[run.end];
    if (next->chunk != 0 && !next->is_forced)
        run.head_bytes = chunk_of(views, run.end)->free_head_bytes;
    return run;
}

static uint64_t run_bytes(const struct run *run)
{
    return run->tail_bytes + run->idle_bytes + run->head_bytes;
}

/* A run of one part is free at its home, too. */
static bool run_has_parts(const struct run *run)
{
    return run->idle_bytes > 0 || (run->tail_bytes > 0 && run->head_bytes > 0);
}

bool vmm__views_find(const struct heap *heap, uint64_t bytes, enum search_depth search,
                     struct view_fit *out)
{
    const struct views *views = vmm__views_of(heap);
    const struct size_node *node = vmm__size_index_find(heap->runs, bytes, search);
    if (node == NULL)
        return false;
    struct run run = run_at(heap, (uint64_t)((const struct view_place *)node - views->places));
    uint64_t low = vmm__views_address(views, place_end(views, run.barrier)) - run.tail_bytes;
    bool is_idle = chunk_is_idle(views, chunk_of(views, run.barrier));
    bool is_low = (run.tail_bytes > 0 && !is_idle) || run.head_bytes == 0;
    out->address = is_low ? low : low + run_bytes(&run) - bytes;
    out->is_low = out->address == low;
    return true;
}

static void run_enter(struct heap *heap, uint64_t barrier)
{
    struct run run = run_at(heap, barrier);
    struct view_place *place = &vmm__views_of(heap)->places[barrier];
    place->run.size = run_bytes(&run);
    if (run_has_parts(&run))
        vmm__size_index_insert(heap->runs, &place->run);
}

static void run_leave(struct heap *heap, uint64_t barrier)
{
    struct view_place *place = &vmm__views_of(heap)->places[barrier];
    if (place->run.link != NULL)
        vmm__size_index_remove(heap->runs, &place->run);
    place->run.link = NULL;
}

/* ---- The state of a chunk -------------------------------------------------------------------- */

static uint64_t free_bytes_between(const struct block *block, uint64_t start, uint64_t end)
{
    if (block->state != BLOCK_FREE)
        return 0;
    return vmm__min(vmm__block_end(block), end) - vmm__max(block->address, start);
}

/* The block that covers the first byte of a chunk: mostly the first that starts in its first granule, or the one before
 * that. */
static const struct block *chunk_block(const struct heap *heap, const struct chunk *chunk)
{
    const struct views *views = vmm__views_of(heap);
    uint64_t start = vmm__chunk_address(views->vm, chunk);
    const struct block *block = views->directory->entries[chunk->first].first;
    if (block == NULL)
        return vmm__heap_cover(heap, start);
    return block->address > start ? block->prev : block;
}

/* Sets the free bytes at a chunk's ends. True if one has changed. */
static bool chunk_measure(const struct heap *heap, struct chunk *chunk)
{
    const struct views *views = vmm__views_of(heap);
    uint64_t start = vmm__chunk_address(views->vm, chunk);
    uint64_t end = start + vmm__chunk_bytes(views->vm, chunk);
    const struct block *low = chunk_block(heap, chunk);
    const struct block *high = low;
    while (vmm__block_end(high) < end)
        high = high->next;
    uint64_t head = free_bytes_between(low, start, end);
    uint64_t tail = free_bytes_between(high, start, end);
    bool has_changed = head != chunk->free_head_bytes || tail != chunk->free_tail_bytes;
    chunk->free_head_bytes = head;
    chunk->free_tail_bytes = tail;
    return has_changed;
}

/* Files the runs at a place anew after its chunk's state has changed. */
static void place_change(struct heap *heap, uint64_t granule)
{
    struct views *views = vmm__views_of(heap);
    bool has_left = !views->places[granule].is_forced;
    uint64_t left = has_left ? barrier_to_left(views, granule - 1) : NO_GRANULE;
    if (has_left)
        run_leave(heap, left);
    run_leave(heap, granule);
    bool is_barrier = barrier_settle(views, granule);
    if (has_left)
        run_enter(heap, left);
    if (is_barrier)
        run_enter(heap, granule);
}

static void chunk_change(struct heap *heap, struct chunk *chunk)
{
    const struct views *views = vmm__views_of(heap);
    if (!chunk_measure(heap, chunk))
        return;
    for (uint64_t place = chunk->place; place != NO_GRANULE;
         place = views->vm->next_places[place]) {
        if (views->places[place].chunk != 0)
            place_change(heap, place);
    }
}

void vmm__views_mark(struct heap *heap, uint64_t address, uint64_t bytes)
{
    const struct vm *vm = vmm__views_of(heap)->vm;
    uint64_t last = vmm__arena_granule(&vm->arena, address + bytes - 1);
    for (uint64_t granule = vmm__arena_granule(&vm->arena, address); granule <= last;) {
        struct chunk *chunk = vmm__vm_chunk(vm, granule);
        if (chunk->places > 0 && !chunk->is_marked) {
            chunk->is_marked = true;
            chunk->next = heap->marked;
            heap->marked = vmm__chunk_id(vm, chunk);
        }
        granule = chunk->first + chunk->granules;
    }
}

void vmm__views_update(struct heap *heap)
{
    while (heap->marked != 0) {
        struct chunk *chunk = &vmm__views_of(heap)->vm->records[heap->marked];
        heap->marked = chunk->next;
        chunk->is_marked = false;
        chunk_change(heap, chunk);
    }
}

/* Calls for each chunk with places in a range of home addresses. A relocation has left granules without a chunk. */
typedef void (*chunk_visit)(struct heap *heap, struct chunk *chunk);

static void chunks_visit(struct heap *heap, uint64_t address, uint64_t bytes, chunk_visit visit)
{
    const struct views *views = vmm__views_of(heap);
    const struct arena *arena = &views->vm->arena;
    uint64_t last = vmm__arena_granule(arena, address + bytes - 1);
    for (uint64_t granule = vmm__arena_granule(arena, address); granule <= last;) {
        struct chunk *chunk = vmm__vm_chunk(views->vm, granule);
        if (chunk != NULL && chunk->places > 0)
            visit(heap, chunk);
        granule = chunk == NULL ? granule + 1 : chunk->first + chunk->granules;
    }
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* The position of a place in the list of ends, which contains it. Searches from the end of the list, because most such
 * places became ends not long ago. */
static uint64_t end_find(const struct views *views, uint64_t granule)
{
    uint64_t at = views->end_count - 1;
    while (views->ends[at].place != granule)
        at--;
    return at;
}

/* Keeps the list of ends: a place is in it while it is the first or last of its row. */
static void end_note(struct views *views, uint64_t granule)
{
    struct view_place *place = &views->places[granule];
    bool is_end =
        place->chunk != 0 && (place->left == NO_GRANULE || vmm__views_is_last(views, granule));
    if (is_end == place->is_end)
        return;
    place->is_end = is_end;
    if (is_end) {
        views->ends[views->end_count++] =
            (struct view_end){ .heap = vmm__views_heap(views, granule),
                               .chunk = chunk_of(views, granule),
                               .place = granule };
        return;
    }
    struct view_end *end = &views->ends[end_find(views, granule)];
    views->end_count--;
    memmove(end, end + 1, (size_t)(&views->ends[views->end_count] - end) * sizeof *end);
}

/* The place of the same view that ends where this one starts; NO_GRANULE: none. */
static uint64_t left_find(const struct views *views, uint64_t granule)
{
    const struct chunk *chunk = vmm__vm_chunk(views->vm, granule - 1);
    if (chunk == NULL || vmm__chunk_is_home(chunk, granule - 1))
        return NO_GRANULE;
    uint64_t left = views->places[granule - 1].first; /* out of date if that place is in no row */
    bool is_same = left + chunk->granules == granule &&
                   views->places[left].chunk == vmm__chunk_id(views->vm, chunk) &&
                   views->places[left].view == views->places[granule].view;
    return is_same ? left : NO_GRANULE;
}

/* The place of the same view that starts where this one ends; NO_GRANULE: none. */
static uint64_t right_find(const struct views *views, uint64_t granule)
{
    uint64_t right = place_end(views, granule);
    bool is_same =
        views->places[right].chunk != 0 && views->places[right].view == views->places[granule].view;
    return is_same ? right : NO_GRANULE;
}

/* What a place joins: its neighbours, and whether they belong to the same heap. */
struct joint {
    uint64_t left;
    uint64_t right;
    bool is_left_own;
    bool is_right_own;
};

static struct joint joint_of(const struct heap *heap, uint64_t granule)
{
    const struct views *views = vmm__views_of(heap);
    struct joint joint = { .left = left_find(views, granule), .right = right_find(views, granule) };
    joint.is_left_own = joint.left != NO_GRANULE && vmm__views_heap(views, joint.left) == heap;
    joint.is_right_own = joint.right != NO_GRANULE && vmm__views_heap(views, joint.right) == heap;
    return joint;
}

static void runs_around_leave(struct heap *heap, const struct joint *joint)
{
    if (joint->is_left_own)
        run_leave(heap, barrier_to_left(vmm__views_of(heap), joint->left));
    if (joint->is_right_own)
        run_leave(heap, joint->right);
}

static void runs_around_enter(struct heap *heap, const struct joint *joint)
{
    const struct views *views = vmm__views_of(heap);
    if (joint->is_left_own)
        run_enter(heap, barrier_to_left(views, joint->left));
    if (joint->is_right_own && barrier_is_set(views, joint->right))
        run_enter(heap, joint->right);
}

static void ends_note(struct views *views, const struct joint *joint, uint64_t granule)
{
    end_note(views, granule);
    if (joint->left != NO_GRANULE)
        end_note(views, joint->left);
    if (joint->right != NO_GRANULE)
        end_note(views, joint->right);
}

/* Makes a place, whose chunk is measured, part of its row. */
static void place_enter(struct heap *heap, struct chunk *chunk, uint64_t granule)
{
    struct views *views = vmm__views_of(heap);
    struct view_place *place = &views->places[granule];
    place->chunk = vmm__chunk_id(views->vm, chunk);
    place->epoch = vmm__clock_now(heap->clock); /* its work may be unfinished */
    views->places[granule + chunk->granules - 1].first = granule;
    (void)vmm__directory_give(views->directory, heap, granule, chunk->granules);
    struct joint joint = joint_of(heap, granule);
    runs_around_leave(heap, &joint);
    place->left = joint.left;
    place->is_forced = !joint.is_left_own;
    bool is_barrier = barrier_settle(views, granule);
    if (joint.right == NO_GRANULE)
        barrier_set(views, granule + chunk->granules, true);
    else
        views->places[joint.right].left = granule;
    if (joint.is_right_own) {
        views->places[joint.right].is_forced = false;
        (void)barrier_settle(views, joint.right);
    }
    if (is_barrier)
        run_enter(heap, granule);
    runs_around_enter(heap, &joint);
    ends_note(views, &joint, granule);
}

/* Takes a place out of its row. The directory forgets the blocks that start in it. */
static void place_leave(struct heap *heap, struct chunk *chunk, uint64_t granule)
{
    struct views *views = vmm__views_of(heap);
    struct joint joint = joint_of(heap, granule);
    runs_around_leave(heap, &joint);
    run_leave(heap, granule);
    barrier_set(views, granule, joint.left != NO_GRANULE);
    if (joint.right == NO_GRANULE) {
        barrier_set(views, granule + chunk->granules, false);
    } else {
        views->places[joint.right].left = NO_GRANULE;
        barrier_set(views, joint.right, true);
    }
    if (joint.is_right_own)
        views->places[joint.right].is_forced = true;
    views->places[granule].chunk = 0;
    vmm__directory_take_back(views->directory, granule, chunk->granules);
    runs_around_enter(heap, &joint);
    ends_note(views, &joint, granule);
}

static uint64_t view_bit(uint64_t view)
{
    return view == 0 ? 0 : UINT64_C(1) << view % 64;
}

/* Sets the bits of the views in which a chunk has a place. */
static void view_bits_settle(const struct views *views, struct chunk *chunk)
{
    chunk->view_bits = 0;
    for (uint64_t at = chunk->place; at != NO_GRANULE; at = views->vm->next_places[at])
        chunk->view_bits |= view_bit(views->places[at].view);
}

static void chunk_enter(struct heap *heap, struct chunk *chunk)
{
    const struct views *views = vmm__views_of(heap);
    heap->view_chunks++;
    view_bits_settle(views, chunk);
    (void)chunk_measure(heap, chunk);
    for (uint64_t place = chunk->place; place != NO_GRANULE;
         place = views->vm->next_places[place]) {
        if (views->places[place].view != 0)
            place_enter(heap, chunk, place);
    }
}

static void chunk_leave(struct heap *heap, struct chunk *chunk)
{
    const struct views *views = vmm__views_of(heap);
    for (uint64_t place = chunk->place; place != NO_GRANULE;
         place = views->vm->next_places[place]) {
        if (views->places[place].chunk != 0)
            place_leave(heap, chunk, place);
    }
    heap->view_chunks--;
}

void vmm__views_enter(struct heap *heap, uint64_t address, uint64_t bytes)
{
    if (!heap->is_small && vmm__views_of(heap) != NULL)
        chunks_visit(heap, address, bytes, chunk_enter);
}

void vmm__views_leave(struct heap *heap, uint64_t address, uint64_t bytes)
{
    if (heap->view_chunks == 0)
        return;
    vmm__views_update(heap);
    chunks_visit(heap, address, bytes, chunk_leave);
}

/* ---- Chunks that change heaps ------------------------------------------------------------------- */

/* Idle chunks at consecutive homes that change from one heap to another. Each step is done for all of their places
 * before the next one begins. */
struct hand {
    struct heap *from;
    struct heap *to;
    uint64_t address;
    uint64_t bytes;
    uint64_t epoch; /* the stamp for their places, on the clock of the lane of `to` */
    uint64_t chunks;
};

typedef void (*hand_step)(const struct hand *hand, uint64_t granule);

/* Calls for each place, in a row, of the chunks. Stores the number of chunks that have places. */
static void hand_each(struct hand *hand, hand_step step)
{
    const struct views *views = vmm__views_of(hand->from);
    const struct arena *arena = &views->vm->arena;
    uint64_t last = vmm__arena_granule(arena, hand->address + hand->bytes - 1);
    hand->chunks = 0;
    for (uint64_t granule = vmm__arena_granule(arena, hand->address); granule <= last;) {
        const struct chunk *chunk = vmm__vm_chunk(views->vm, granule);
        hand->chunks += chunk->places > 0 ? 1 : 0;
        for (uint64_t at = chunk->place; at != NO_GRANULE; at = views->vm->next_places[at]) {
            if (views->places[at].chunk != 0)
                step(hand, at);
        }
        granule = chunk->first + chunk->granules;
    }
}

/* Takes the runs that contain a place, or touch it, out of the indexes of both heaps. */
static void hand_runs_leave(const struct hand *hand, uint64_t granule)
{
    const struct views *views = vmm__views_of(hand->from);
    uint64_t left = views->places[granule].left;
    uint64_t right = right_find(views, granule);
    struct heap *left_heap = left == NO_GRANULE ? NULL : vmm__views_heap(views, left);
    if (left_heap == hand->from || left_heap == hand->to)
        run_leave(left_heap, barrier_to_left(views, left));
    run_leave(hand->from, granule);
    if (right != NO_GRANULE && vmm__views_heap(views, right) == hand->to)
        run_leave(hand->to, right);
}

static void hand_own(const struct hand *hand, uint64_t granule)
{
    struct views *views = vmm__views_of(hand->from);
    views->places[granule].epoch = hand->epoch;
    (void)vmm__directory_give(views->directory, hand->to, granule,
                              chunk_of(views, granule)->granules);
    if (views->places[granule].is_end)
        views->ends[end_find(views, granule)].heap = hand->to;
}

/* Forces a barrier at a place whose left neighbour belongs to another heap, or no longer does. */
static void force_settle(struct views *views, const struct heap *heap, uint64_t granule)
{
    struct view_place *place = &views->places[granule];
    place->is_forced = place->left == NO_GRANULE || vmm__views_heap(views, place->left) != heap;
    (void)barrier_settle(views, granule);
}

static void hand_barriers_settle(const struct hand *hand, uint64_t granule)
{
    struct views *views = vmm__views_of(hand->from);
    uint64_t right = right_find(views, granule);
    struct heap *right_heap = right == NO_GRANULE ? NULL : vmm__views_heap(views, right);
    force_settle(views, hand->to, granule);
    if (right_heap == hand->from || right_heap == hand->to)
        force_settle(views, right_heap, right);
}

/* Puts the run that contains a place into its heap's index, unless it is there. */
static void run_of_enter(const struct hand *hand, uint64_t granule)
{
    const struct views *views = vmm__views_of(hand->from);
    struct heap *heap = vmm__views_heap(views, granule);
    uint64_t barrier = barrier_to_left(views, granule);
    if ((heap == hand->from || heap == hand->to) && views->places[barrier].run.link == NULL)
        run_enter(heap, barrier);
}

/* The run that contains a place contains its left neighbour, too, if that belongs to the same heap. */
static void hand_runs_enter(const struct hand *hand, uint64_t granule)
{
    const struct views *views = vmm__views_of(hand->from);
    uint64_t left = views->places[granule].left;
    uint64_t right = right_find(views, granule);
    run_of_enter(hand, granule);
    if (views->places[granule].is_forced && left != NO_GRANULE)
        run_of_enter(hand, left);
    if (right != NO_GRANULE && barrier_is_set(views, right))
        run_of_enter(hand, right);
}

void vmm__views_hand(struct heap *from, struct heap *to, uint64_t address, uint64_t bytes,
                     uint64_t epoch)
{
    struct hand hand = {
        .from = from, .to = to, .address = address, .bytes = bytes, .epoch = epoch
    };
    if (from->view_chunks == 0)
        return;
    vmm__views_update(from);
    hand_each(&hand, hand_runs_leave);
    hand_each(&hand, hand_own);
    hand_each(&hand, hand_barriers_settle);
    hand_each(&hand, hand_runs_enter);
    from->view_chunks -= hand.chunks;
    to->view_chunks += hand.chunks;
}

/* Begins the record of a place; the first one of a chunk makes the heap measure the chunk. */
static void place_begin(struct heap *heap, struct chunk *chunk, uint64_t granule, uint64_t view)
{
    struct views *views = vmm__views_of(heap);
    views->places[granule] = (struct view_place){ .view = view, .left = NO_GRANULE };
    chunk->view_bits |= view_bit(view);
    if (chunk->places > 1)
        return;
    heap->view_chunks++;
    (void)chunk_measure(heap, chunk);
}

void vmm__views_place_add(struct heap *heap, struct chunk *chunk, uint64_t granule, uint64_t view)
{
    place_begin(heap, chunk, granule, view);
    place_enter(heap, chunk, granule);
}

void vmm__views_place_strand(struct heap *heap, struct chunk *chunk, uint64_t granule)
{
    place_begin(heap, chunk, granule, 0);
}

vmm_status vmm__views_place_unmap(struct heap *heap, struct chunk *chunk, uint64_t granule)
{
    struct views *views = vmm__views_of(heap);
    vmm__views_update(heap); /* a chunk without places must not stay marked */
    if (views->places[granule].chunk != 0)
        place_leave(heap, chunk, granule);
    views->places[granule].view = 0; /* it never joins a row again */
    vmm_status status = vmm__place_unmap(views->vm, chunk, granule);
    view_bits_settle(views, chunk);
    if (status == VMM_OK && chunk->places == 0)
        heap->view_chunks--;
    return status;
}

uint64_t vmm__views_end_bytes(const struct heap *heap, uint64_t granule, bool is_left)
{
    const struct views *views = vmm__views_of(heap);
    const struct chunk *chunk = chunk_of(views, granule);
    if (is_left && !chunk_is_idle(views, chunk))
        return chunk->free_head_bytes;
    return views->places[barrier_to_left(views, granule)].run.size;
}

bool vmm__views_have(const struct views *views, uint64_t view, const struct chunk *chunk)
{
    if ((chunk->view_bits & view_bit(view)) == 0) /* mostly so */
        return false;
    uint64_t place = chunk->place;
    while (place != NO_GRANULE && views->places[place].view != view)
        place = views->vm->next_places[place];
    return place != NO_GRANULE;
}

uint64_t vmm__views_rows(const struct views *views)
{
    uint64_t rows = 0;
    for (uint64_t i = 0; i < views->end_count; i++)
        rows += views->places[views->ends[i].place].left == NO_GRANULE ? 1 : 0;
    return rows;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static uint64_t barrier_bytes(const struct vm *vm)
{
    return (vm->arena.granules / BARRIER_BITS + 2) * sizeof(uint64_t);
}

vmm_status vmm__views_init(struct views *views, struct vm *vm, struct directory *directory)
{
    *views = (struct views){ .vm = vm, .directory = directory };
    views->places = vmm__host_table_alloc(vm->arena.granules * sizeof *views->places);
    views->barriers = vmm__host_table_alloc(barrier_bytes(vm));
    views->ends = vmm__host_table_alloc(vm->arena.granules * sizeof *views->ends);
    if (views->places == NULL || views->barriers == NULL || views->ends == NULL) {
        vmm__views_fini(views);
        return vmm__error(VMM_ERR_HOST_OOM, "views: no host memory for the table of places");
    }
    directory->views = views;
    return VMM_OK;
}

void vmm__views_fini(struct views *views)
{
    vmm__host_table_free(views->ends, views->vm->arena.granules * sizeof *views->ends);
    vmm__host_table_free(views->barriers, barrier_bytes(views->vm));
    vmm__host_table_free(views->places, views->vm->arena.granules * sizeof *views->places);
}

static struct size_index *runs_create(const struct views *views)
{
    struct size_index *runs = vmm__host_alloc(1, sizeof *runs);
    if (runs == NULL)
        return NULL;
    vmm__size_index_init(runs, LARGE_UNIT_BYTES);
    if (vmm__size_index_open(runs, views->vm->arena.granules << views->vm->arena.granule_shift))
        return runs;
    vmm__host_free(runs, sizeof *runs);
    return NULL;
}

vmm_status vmm__views_open(struct heap *heap)
{
    const struct views *views = vmm__views_of(heap);
    bool needs_runs = !heap->is_small && views != NULL && views->last_view > 0;
    if (!needs_runs || heap->runs != NULL)
        return VMM_OK;
    heap->runs = runs_create(views);
    return heap->runs != NULL
               ? VMM_OK
               : vmm__error(VMM_ERR_HOST_OOM, "views: no host memory for the index of runs");
}

void vmm__views_close(struct heap *heap)
{
    if (heap->runs == NULL)
        return;
    vmm__size_index_close(heap->runs);
    vmm__host_free(heap->runs, sizeof *heap->runs);
    heap->runs = NULL;
}

uint64_t vmm__views_outer(const struct heap *heap, uint64_t address)
{
    const struct views *views = heap->directory->views;
    if (views == NULL || !heap->owner->has_source)
        return address;
    return vmm__sourced_outer(views->vm, address);
}
