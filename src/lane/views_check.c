/* Checks the numbered invariants of views.h, and invariant 6 of heap.h. */
#include "base/error.h"
#include "lane/views.h"

/* Sums over the places of a heap. */
struct tally {
    uint64_t chunks;
    uint64_t runs;
    uint64_t
        users; /* each counts as its place's number, so that one place's error hides no other's */
    uint64_t ends;
    uint64_t occupied_bytes;
};

static vmm_status broken(const struct heap *heap, uint64_t granule, const char *what)
{
    return vmm__error(VMM_ERR_INTERNAL, "views of stream %p at granule %llu: invariant %s",
                      heap->owner->stream, (unsigned long long)granule, what);
}

static bool bit_is_set(const struct views *views, uint64_t granule)
{
    return (views->barriers[granule / 64] >> granule % 64 & 1) != 0;
}

/* The run of a barrier, place by place. */
struct parts {
    uint64_t tail_bytes;
    uint64_t idle_bytes;
    uint64_t head_bytes;
};

static struct parts run_parts(const struct heap *heap, uint64_t barrier)
{
    const struct views *views = heap->directory->views;
    const struct chunk *chunk = &views->vm->records[views->places[barrier].chunk];
    struct parts parts = { .tail_bytes = chunk->free_tail_bytes };
    uint64_t left = barrier;
    for (;;) {
        uint64_t at = left + chunk->granules;
        const struct view_place *place = &views->places[at];
        if (place->chunk == 0 || place->left != left || vmm__views_heap(views, at) != heap)
            return parts;
        chunk = &views->vm->records[place->chunk];
        if (chunk->free_head_bytes < vmm__chunk_bytes(views->vm, chunk)) {
            parts.head_bytes = chunk->free_head_bytes;
            return parts;
        }
        parts.idle_bytes += chunk->free_head_bytes;
        left = at;
    }
}

/* Checks what a place says of its neighbours. */
static vmm_status links_check(const struct heap *heap, uint64_t place, struct tally *tally)
{
    const struct views *views = heap->directory->views;
    const struct view_place *entry = &views->places[place];
    uint64_t last = place + views->vm->records[entry->chunk].granules - 1;
    if (views->places[last].first != place)
        return broken(heap, place, "7: the last granule of a place leads to another");
    if (entry->left != NO_GRANULE) {
        const struct view_place *left = &views->places[entry->left];
        uint64_t left_end = entry->left + views->vm->records[left->chunk].granules;
        if (left->chunk == 0 || left->view != entry->view || left_end != place)
            return broken(heap, place, "7: the place to the left is another");
    }
    if (entry->is_end != (entry->left == NO_GRANULE || vmm__views_is_last(views, place)))
        return broken(heap, place, "7: an end of a row is not in the list, or no end is");
    tally->ends += entry->is_end ? 1 : 0;
    return VMM_OK;
}

static vmm_status owner_check(const struct heap *heap, uint32_t id, uint64_t place)
{
    const struct views *views = heap->directory->views;
    const struct chunk *chunk = &views->vm->records[id];
    const struct view_place *entry = &views->places[place];
    if (entry->chunk != id)
        return broken(heap, place, "1: the place does not name its chunk");
    for (uint64_t i = 0; i < chunk->granules; i++) {
        if (vmm__views_heap(views, place + i) != heap)
            return broken(heap, place, "1: the directory does not name the heap");
    }
    return VMM_OK;
}

static vmm_status barrier_check(const struct heap *heap, uint64_t place, struct tally *tally)
{
    const struct views *views = heap->directory->views;
    const struct view_place *entry = &views->places[place];
    const struct chunk *chunk = &views->vm->records[entry->chunk];
    bool is_forced = entry->left == NO_GRANULE || vmm__views_heap(views, entry->left) != heap;
    bool is_idle = chunk->free_head_bytes == vmm__chunk_bytes(views->vm, chunk);
    if (entry->is_forced != is_forced || bit_is_set(views, place) != (is_forced || !is_idle))
        return broken(heap, place, "2: a barrier is missing or left over");
    bool has_right = views->places[place + chunk->granules].chunk != 0;
    if (!has_right && !bit_is_set(views, place + chunk->granules))
        return broken(heap, place, "2: the row has no end");
    if (!bit_is_set(views, place) && entry->run.link != NULL)
        return broken(heap, place, "3: a run without a barrier");
    if (bit_is_set(views, place)) {
        struct parts parts = run_parts(heap, place);
        uint64_t bytes = parts.tail_bytes + parts.idle_bytes + parts.head_bytes;
        bool has_parts = parts.idle_bytes > 0 || (parts.tail_bytes > 0 && parts.head_bytes > 0);
        if ((entry->run.link != NULL) != has_parts || entry->run.size != bytes)
            return broken(heap, place, "3: a run has another size, or is not in the index");
        tally->runs += has_parts ? 1 : 0;
    }
    return VMM_OK;
}

static vmm_status place_check(const struct heap *heap, uint32_t id, uint64_t place,
                              struct tally *tally)
{
    vmm_status status = owner_check(heap, id, place);
    if (status == VMM_OK)
        status = links_check(heap, place, tally);
    if (status == VMM_OK)
        status = barrier_check(heap, place, tally);
    tally->users += heap->directory->views->places[place].users * (place + 1);
    return status;
}

/* The ends of rows in the list that belong to a heap, and are at their chunk's places. */
static uint64_t ends_count(const struct heap *heap)
{
    const struct views *views = heap->directory->views;
    uint64_t count = 0;
    for (uint64_t i = 0; i < views->end_count; i++) {
        const struct view_end *end = &views->ends[i];
        bool is_it = end->heap == heap && vmm__views_heap(views, end->place) == heap;
        count += is_it && end->chunk == vmm__vm_chunk(views->vm, end->place) ? 1 : 0;
    }
    return count;
}

/* The place that contains an address; NO_GRANULE: none. */
static uint64_t place_of(const struct views *views, uint64_t address)
{
    uint64_t granule = vmm__arena_granule(&views->vm->arena, address);
    const struct chunk *chunk = vmm__vm_chunk(views->vm, granule);
    uint64_t place = chunk->place;
    while (place != NO_GRANULE && granule - place >= chunk->granules)
        place = views->vm->next_places[place];
    return place;
}

/* Whether a place without a left neighbour in its row touches one of another row. */
static bool touches_left(const struct views *views, uint64_t place)
{
    const struct chunk *chunk = vmm__vm_chunk(views->vm, place - 1);
    if (views->places[place].left != NO_GRANULE || chunk == NULL ||
        vmm__chunk_is_home(chunk, place - 1))
        return false;
    uint64_t left = place_of(views, vmm__arena_address(&views->vm->arena, place - 1));
    return left != NO_GRANULE && views->places[left].chunk != 0;
}

/* Whether an older place of a chunk belongs to the same view. */
static bool is_twice(const struct views *views, uint64_t place)
{
    uint64_t view = views->places[place].view;
    uint64_t older = views->vm->next_places[place];
    while (older != NO_GRANULE && views->places[older].view != view)
        older = views->vm->next_places[older];
    return older != NO_GRANULE;
}

static vmm_status rows_check(const struct heap *heap, uint64_t place)
{
    const struct views *views = heap->directory->views;
    if (touches_left(views, place))
        return broken(heap, place, "6: two rows touch");
    if (is_twice(views, place))
        return broken(heap, place, "6: a chunk is twice in a view");
    return VMM_OK;
}

static vmm_status ends_check(const struct heap *heap, const struct chunk *chunk)
{
    const struct views *views = heap->directory->views;
    uint64_t start = vmm__chunk_address(views->vm, chunk);
    uint64_t end = start + vmm__chunk_bytes(views->vm, chunk);
    const struct block *low = vmm__heap_cover(heap, start);
    const struct block *high = vmm__heap_cover(heap, end - 1);
    uint64_t head = low->state == BLOCK_FREE ? vmm__min(vmm__block_end(low), end) - start : 0;
    uint64_t tail = high->state == BLOCK_FREE ? end - vmm__max(high->address, start) : 0;
    if (head != chunk->free_head_bytes || tail != chunk->free_tail_bytes)
        return broken(heap, chunk->first, "4: the free ends of a chunk are others");
    return VMM_OK;
}

/* Checks the pieces of a block in a view, and subtracts it from the users of its places. */
static vmm_status block_check(const struct heap *heap, const struct block *block,
                              struct tally *tally)
{
    const struct views *views = heap->directory->views;
    uint64_t bytes = 0;
    for (const struct block *piece = vmm__block_piece(block); piece != NULL;
         piece = vmm__block_piece(piece)) {
        if (piece->state != BLOCK_OCCUPIED || piece->user != block)
            return broken(heap, 0, "heap 6: a piece does not belong to its block");
        tally->users -= place_of(views, block->address + bytes) + 1; /* one piece for each place */
        bytes += piece->node.size;
    }
    if (bytes != block->node.size)
        return broken(heap, 0, "heap 6: the pieces of a block do not add up");
    tally->occupied_bytes += bytes;
    return VMM_OK;
}

static vmm_status blocks_check(const struct heap *heap, const struct chunk *chunk,
                               struct tally *tally)
{
    const struct views *views = heap->directory->views;
    vmm_status status = VMM_OK;
    for (uint64_t place = chunk->place; place != NO_GRANULE;
         place = views->vm->next_places[place]) {
        for (uint64_t i = 0; i < chunk->granules; i++) {
            const struct block *block = views->directory->entries[place + i].first;
            for (; block != NULL && status == VMM_OK; block = block->next)
                status = block_check(heap, block, tally);
        }
    }
    return status;
}

static vmm_status chunk_check(const struct heap *heap, uint32_t id, struct tally *tally)
{
    const struct views *views = heap->directory->views;
    const struct chunk *chunk = &views->vm->records[id];
    uint64_t view_bits = 0;
    vmm_status status = ends_check(heap, chunk);
    for (uint64_t place = chunk->place; place != NO_GRANULE && status == VMM_OK;
         place = views->vm->next_places[place]) {
        if (views->places[place].view == 0)
            continue;
        view_bits |= UINT64_C(1) << views->places[place].view % 64;
        status = place_check(heap, id, place, tally);
        if (status == VMM_OK)
            status = rows_check(heap, place);
    }
    if (status == VMM_OK && view_bits != chunk->view_bits)
        return broken(heap, chunk->first, "9: the bits of a chunk's views are others");
    tally->chunks++;
    return status == VMM_OK ? blocks_check(heap, chunk, tally) : status;
}

vmm_status vmm__views_check(const struct heap *heap)
{
    const struct views *views = heap->directory->views;
    struct tally tally = { .chunks = 0 };
    if (views == NULL || heap->is_small)
        return VMM_OK;
    for (uint32_t id = 1; id < views->vm->record_high; id++) {
        const struct chunk *chunk = &views->vm->records[id];
        if (chunk->state != CHUNK_HELD || chunk->is_alias || chunk->places == 0 ||
            vmm__views_heap(views, chunk->first) != heap)
            continue;
        vmm_status status = chunk_check(heap, id, &tally);
        if (status != VMM_OK)
            return status;
    }
    if (tally.chunks != heap->view_chunks)
        return broken(heap, 0, "8: the chunks with places do not add up");
    if (tally.ends != ends_count(heap))
        return broken(heap, 0, "7: the list of ends has others");
    if (tally.users != 0)
        return broken(heap, 0, "5: the users of places do not add up");
    if (tally.occupied_bytes != heap->occupied_bytes)
        return broken(heap, 0, "5: the bytes of blocks in views do not add up");
    if (heap->runs == NULL)
        return tally.runs == 0 ? VMM_OK : broken(heap, 0, "3: runs do not add up");
    if (!vmm__size_index_check(heap->runs))
        return broken(heap, 0, "3: the index of runs is broken");
    for (const struct size_node *node = vmm__size_index_largest(heap->runs); node != NULL;
         node = vmm__size_index_smaller(heap->runs, node))
        tally.runs--;
    return tally.runs == 0 ? VMM_OK : broken(heap, 0, "3: runs do not add up");
}
