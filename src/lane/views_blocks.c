/* Blocks in views: taken from runs, freed, and moved to other chunks by a relocation. See views.h. */
#include "base/arith.h"
#include "base/list.h"
#include "lane/views.h"

/* ---- Take and give --------------------------------------------------------------------------- */

/* The part of a range of view addresses that lies in one chunk. */
struct part {
    struct chunk *chunk;
    uint64_t place;
    uint64_t offset; /* in the chunk */
    uint64_t bytes;
};

static struct part part_at(const struct views *views, uint64_t address, uint64_t end)
{
    uint64_t granule = vmm__arena_granule(&views->vm->arena, address);
    struct chunk *chunk = vmm__vm_chunk(views->vm, granule);
    uint64_t place = vmm__chunk_mapping(views->vm, chunk, granule);
    uint64_t offset = address - vmm__views_address(views, place);
    uint64_t bytes = vmm__min(end - address, vmm__chunk_bytes(views->vm, chunk) - offset);
    return (struct part){ .chunk = chunk, .place = place, .offset = offset, .bytes = bytes };
}

static void block_enter(struct heap *heap, struct block *block)
{
    struct block **link = vmm__heap_slot(heap, block->address);
    while (*link != NULL && (*link)->address < block->address)
        link = &(*link)->next;
    block->next = *link;
    *link = block;
}

static void block_leave(struct heap *heap, struct block *block)
{
    VMM_LIST_REMOVE(vmm__heap_slot(heap, block->address), block, next);
}

/* Occupies the home bytes of a part; links the piece behind `last`. */
static struct block *part_occupy(struct heap *heap, const struct part *part, struct block *user,
                                 struct block *last)
{
    struct views *views = vmm__views_of(heap);
    uint64_t address = vmm__chunk_address(views->vm, part->chunk) + part->offset;
    struct block *piece = vmm__heap_cut(heap, address, part->bytes);
    piece->state = BLOCK_OCCUPIED;
    piece->user = user;
    piece->node.next = NULL;
    last->node.next = &piece->node;
    views->places[part->place].users++;
    views->places[part->place].turn = atomic_load_explicit(&views->turn, memory_order_relaxed);
    vmm__views_note(heap, address, part->bytes);
    vmm__listener_call(heap, VMM_CHANGE_UNMAP, address, part->bytes);
    return piece;
}

/* Makes a block of free view addresses; its records are kept. */
static struct block *block_make(struct heap *heap, uint64_t address, uint64_t bytes)
{
    struct views *views = vmm__views_of(heap);
    struct block *block = vmm__heap_record_take(heap);
    *block = (struct block){ .address = address, .state = BLOCK_LIVE, .is_in_view = true };
    block->node.size = bytes;
    atomic_fetch_add_explicit(&views->turn, 1, memory_order_relaxed);
    struct block *last = block;
    for (uint64_t at = address; at < address + bytes;) {
        struct part part = part_at(views, at, address + bytes);
        last = part_occupy(heap, &part, block, last);
        at += part.bytes;
    }
    block_enter(heap, block);
    heap->occupied_bytes += bytes;
    vmm__listener_call(heap, VMM_CHANGE_MAP, address, bytes);
    return block;
}

static uint64_t parts_count(const struct views *views, uint64_t address, uint64_t bytes)
{
    uint64_t count = 0;
    for (uint64_t at = address; at < address + bytes; count++)
        at += part_at(views, at, address + bytes).bytes;
    return count;
}

static vmm_status block_take(struct heap *heap, uint64_t address, uint64_t bytes,
                             struct block **out)
{
    uint64_t parts = parts_count(vmm__views_of(heap), address, bytes);
    vmm_status status = vmm__heap_records_keep(heap, 1 + 2 * parts);
    if (status == VMM_OK)
        *out = block_make(heap, address, bytes);
    return status;
}

/* As vmm__views_strand(), for a block in a run: it begins or ends where the run does. */
static struct chunk *fit_strand(const struct heap *heap, const struct view_fit *fit, uint64_t bytes,
                                uint64_t *cut)
{
    const struct views *views = vmm__views_of(heap);
    uint64_t inner = fit->is_low ? fit->address + bytes - 1 : fit->address;
    uint64_t granule = vmm__arena_granule(&views->vm->arena, inner);
    struct chunk *chunk = vmm__vm_chunk(views->vm, granule);
    uint64_t offset = granule - vmm__chunk_mapping(views->vm, chunk, granule);
    offset += fit->is_low ? 1 : 0;
    uint64_t left = fit->is_low ? chunk->granules - offset : offset;
    bool is_idle = chunk->free_head_bytes == vmm__chunk_bytes(views->vm, chunk);
    if (!is_idle || vmm__views_bytes(views, left) < heap->strand_bytes)
        return NULL;
    *cut = chunk->first + offset;
    return chunk;
}

struct chunk *vmm__views_strand_run(const struct heap *heap, uint64_t bytes, uint64_t *cut)
{
    struct view_fit fit;
    if (heap->view_chunks == 0 || !vmm__views_find(heap, bytes, SEARCH_QUICK, &fit))
        return NULL;
    return fit_strand(heap, &fit, bytes, cut);
}

vmm_status vmm__views_take(struct heap *heap, uint64_t bytes, enum search_depth search,
                           struct block **out)
{
    struct view_fit fit;
    uint64_t cut;
    if (heap->view_chunks == 0)
        return VMM__NO_FIT;
    vmm__heap_settle(heap);
    vmm__views_update(heap);
    if (!vmm__views_find(heap, bytes, search, &fit))
        return VMM__NO_FIT;
    if (search == SEARCH_QUICK && fit_strand(heap, &fit, bytes, &cut) != NULL)
        return VMM__STRANDS;
    return block_take(heap, fit.address, bytes, out);
}

/* Whether view addresses are in one row of the heap, and the bytes of their chunks are free. */
static vmm_status range_check(const struct heap *heap, uint64_t address, uint64_t bytes)
{
    const struct views *views = vmm__views_of(heap);
    for (uint64_t at = address; at - address < bytes;) {
        uint64_t granule = vmm__arena_granule(&views->vm->arena, at);
        if (vmm__views_heap(views, granule) != heap || !vmm__views_contain(views, at))
            return VMM__NO_FIT;
        struct part part = part_at(views, at, address + bytes);
        uint64_t home = vmm__chunk_address(views->vm, part.chunk) + part.offset;
        if (!vmm__heap_is_free(heap, home, part.bytes))
            return VMM__NO_FIT;
        at += part.bytes;
    }
    return VMM_OK;
}

vmm_status vmm__views_take_at(struct heap *heap, uint64_t address, uint64_t bytes,
                              struct block **out)
{
    vmm_status status = range_check(heap, address, bytes);
    return status == VMM_OK ? block_take(heap, address, bytes, out) : status;
}

/* Removes a block from its places. */
static void users_drop(struct heap *heap, const struct block *block, uint64_t epoch)
{
    struct views *views = vmm__views_of(heap);
    for (uint64_t at = block->address; at < vmm__block_end(block);) {
        struct part part = part_at(views, at, vmm__block_end(block));
        views->places[part.place].users--;
        views->places[part.place].epoch = epoch;
        at += part.bytes;
    }
}

struct block *vmm__views_give(struct heap *heap, struct block *block)
{
    struct block *first = NULL;
    users_drop(heap, block, vmm__clock_now(heap->clock));
    block_leave(heap, block);
    heap->occupied_bytes -= block->node.size;
    vmm__listener_call(heap, VMM_CHANGE_UNMAP, block->address, block->node.size);
    for (struct block *piece = vmm__block_piece(block); piece != NULL;) {
        struct block *next = vmm__block_piece(piece);
        vmm__listener_call(heap, VMM_CHANGE_MAP, piece->address, piece->node.size);
        struct block *freed = vmm__heap_uncut(heap, piece);
        first = first == NULL ? freed : first;
        piece = next;
    }
    vmm__heap_record_drop(heap, block);
    return first;
}

struct chunk *vmm__views_strand(const struct heap *heap, const struct block *fit, uint64_t bytes,
                                uint64_t *cut)
{
    const struct views *views = vmm__views_of(heap);
    if (views == NULL)
        return NULL;
    uint64_t end = fit->address + bytes;
    uint64_t granule = vmm__arena_granule(&views->vm->arena, end - 1);
    struct chunk *chunk = vmm__vm_chunk(views->vm, granule);
    uint64_t last = chunk->first + chunk->granules;
    bool is_idle = vmm__chunk_address(views->vm, chunk) >= fit->address &&
                   vmm__views_address(views, last) <= vmm__block_end(fit);
    if (!is_idle || vmm__views_bytes(views, last - granule - 1) < heap->strand_bytes)
        return NULL;
    *cut = granule + 1;
    return chunk;
}

/* ---- For relocation -------------------------------------------------------------------------- */

uint64_t vmm__views_piece_address(const struct block *piece)
{
    uint64_t address = piece->user->address;
    for (const struct block *at = vmm__block_piece(piece->user); at != piece;
         at = vmm__block_piece(at))
        address += at->node.size;
    return address;
}

void vmm__views_chunk_lift(struct heap *heap, struct chunk *chunk)
{
    struct views *views = vmm__views_of(heap);
    if (chunk->places == 0)
        return;
    vmm__views_leave(heap, vmm__chunk_address(views->vm, chunk),
                     vmm__chunk_bytes(views->vm, chunk));
    for (uint64_t at = chunk->place; at != NO_GRANULE; at = views->vm->next_places[at])
        views->places[at].users = 0;
}

void vmm__views_place_inherit(struct views *views, uint64_t granule, uint64_t from)
{
    const struct view_place *place = &views->places[from];
    views->places[granule] =
        (struct view_place){ .view = place->view, .turn = place->turn, .left = NO_GRANULE };
}

/* Counts a piece at its place. If it is the first piece of its block, the block starts there: enters it, too. */
static void piece_settle(struct heap *heap, struct block *piece)
{
    struct views *views = vmm__views_of(heap);
    uint64_t address = vmm__views_piece_address(piece);
    struct part part = part_at(views, address, address + piece->node.size);
    views->places[part.place].users++;
    if (vmm__block_piece(piece->user) == piece)
        block_enter(heap, piece->user);
}

void vmm__views_chunk_settle(struct heap *heap, struct chunk *chunk)
{
    const struct vm *vm = vmm__views_of(heap)->vm;
    uint64_t start = vmm__chunk_address(vm, chunk);
    uint64_t end = start + vmm__chunk_bytes(vm, chunk);
    if (chunk->places == 0)
        return;
    vmm__views_enter(heap, start, end - start);
    struct block *block = vmm__heap_cover(heap, start);
    for (; block != NULL && block->address < end; block = block->next) {
        if (block->state == BLOCK_OCCUPIED)
            piece_settle(heap, block);
    }
}

struct block *vmm__views_cover(const struct views *views, uint64_t address)
{
    uint64_t granule = vmm__arena_granule(&views->vm->arena, address);
    const struct heap *heap = vmm__views_heap(views, granule);
    struct block *found = NULL;
    for (; found == NULL && vmm__views_heap(views, granule) == heap &&
           vmm__views_contain(views, vmm__views_address(views, granule));
         granule--) {
        struct block *block = views->directory->entries[granule].first;
        for (; block != NULL && block->address <= address; block = block->next)
            found = block;
    }
    return found != NULL && address < vmm__block_end(found) ? found : NULL;
}
