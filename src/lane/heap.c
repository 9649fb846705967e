/* Blocks: see heap.h. */
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "lane/views.h"

/* The first batch serves a stream with one live block: that, what is free beside it, and two records for a change. The
 * largest ones take a page. */
enum { BATCH_FEWEST = 4, BATCH_MOST = 63 };

struct block_batch {
    struct block_batch *next;
    uint64_t count;
    _Alignas(64) struct block blocks[]; /* each block fills one cache line */
};

static size_t batch_bytes(uint64_t count)
{
    return sizeof(struct block_batch) + count * sizeof(struct block);
}

/* ---- Records ------------------------------------------------------------------------------ */

struct block *vmm__heap_record_take(struct heap *heap)
{
    struct block *block = heap->store.spares;
    heap->store.spares = block->next;
    heap->store.spare_count--;
    return block;
}

/* A free record must not look like a block in use: see vmm__lane_last_heap(). */
void vmm__heap_record_drop(struct heap *heap, struct block *block)
{
    block->state = BLOCK_FREE;
    block->next = heap->store.spares;
    heap->store.spares = block;
    heap->store.spare_count++;
}

/* Not inlined, so that the fast path needs no stack frame. */
static __attribute__((noinline)) vmm_status batch_add(struct heap *heap)
{
    const struct block_batch *newest = heap->store.batches;
    uint64_t count = newest == NULL ? BATCH_FEWEST : vmm__min(2 * newest->count, BATCH_MOST);
    struct block_batch *batch = vmm__host_alloc(1, batch_bytes(count));
    if (batch == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "heap: no host memory for block records");
    batch->next = heap->store.batches;
    batch->count = count;
    heap->store.batches = batch;
    for (uint64_t i = 0; i < count; i++)
        vmm__heap_record_drop(heap, &batch->blocks[i]);
    return VMM_OK;
}

vmm_status vmm__heap_records_keep(struct heap *heap, uint64_t count)
{
    vmm_status status = VMM_OK;
    while (heap->store.spare_count < count && status == VMM_OK)
        status = batch_add(heap);
    return status;
}

/* ---- Slots, links and the index ----------------------------------------------------------- */

/* A small block has a slot of its own. The contents of a large block's slot are unpredictable, so
 * the store has no branch. */
static void slot_enter(struct heap *heap, struct block *block)
{
    struct block **slot = vmm__heap_slot(heap, block->address);
    if (heap->is_small) {
        *slot = block;
        return;
    }
    const struct block *first = *slot != NULL ? *slot : block;
    *slot = first->address < block->address ? *slot : block;
}

static void slot_leave(struct heap *heap, struct block *block)
{
    struct block **slot = vmm__heap_slot(heap, block->address);
    if (heap->is_small) {
        *slot = NULL;
        return;
    }
    const struct directory *directory = heap->directory;
    bool is_same_granule = vmm__directory_entry(directory, block->address) ==
                           vmm__directory_entry(directory, vmm__block_end(block));
    struct block *successor = is_same_granule ? block->next : NULL;
    *slot = *slot == block ? successor : *slot;
}

/* Add to and remove from the index. The callers update free_bytes. */
static void free_enter(struct heap *heap, struct block *block)
{
    block->state = BLOCK_FREE;
    vmm__size_index_insert(&heap->index, &block->node);
}

static void free_leave(struct heap *heap, struct block *block)
{
    vmm__size_index_remove(&heap->index, &block->node);
}

/* Links a record between two neighbours; NULL at an end of the extent. */
static void block_link(struct block *prev, struct block *block, struct block *next)
{
    block->prev = prev;
    block->next = next;
    if (prev != NULL)
        prev->next = block;
    if (next != NULL)
        next->prev = block;
}

/* Shortens a block that is not indexed to `bytes`, and returns the rest as a new block after it. */
static struct block *block_split(struct heap *heap, struct block *block, uint64_t bytes)
{
    struct block *rest = vmm__heap_record_take(heap);
    *rest = (struct block){ .address = block->address + bytes };
    rest->node.size = block->node.size - bytes;
    block->node.size = bytes;
    block_link(block, rest, block->next);
    slot_enter(heap, rest);
    return rest;
}

/* Merges a block with its next neighbour; both are free and not indexed. */
static void block_merge(struct heap *heap, struct block *block)
{
    struct block *next = block->next;
    slot_leave(heap, next);
    block->node.size += next->node.size;
    block->next = next->next;
    if (block->next != NULL)
        block->next->prev = block;
    vmm__heap_record_drop(heap, next);
}

/* Removes the given bytes of a free block from the index, as a block of its own. Needs up to
 * two records. */
static struct block *block_cut(struct heap *heap, struct block *block, uint64_t address,
                               uint64_t bytes)
{
    free_leave(heap, block);
    heap->free_bytes -= bytes;
    if (vmm__block_end(block) > address + bytes)
        free_enter(heap, block_split(heap, block, address + bytes - block->address));
    if (block->address == address)
        return block;
    struct block *cut = block_split(heap, block, address - block->address);
    free_enter(heap, block);
    return cut;
}

static bool block_is_free(const struct block *block)
{
    return block != NULL && block->state == BLOCK_FREE;
}

/* Frees a block and merges it with its free neighbours. */
static struct block *block_release(struct heap *heap, struct block *block)
{
    heap->free_bytes += block->node.size;
    if (block_is_free(block->next)) {
        free_leave(heap, block->next);
        block_merge(heap, block);
    }
    if (block_is_free(block->prev)) {
        block = block->prev;
        free_leave(heap, block);
        block_merge(heap, block);
    }
    free_enter(heap, block);
    return block;
}

/* ---- Life --------------------------------------------------------------------------------- */

void vmm__heap_init(struct heap *heap, struct directory *directory, bool is_small)
{
    *heap = (struct heap){ .directory = directory,
                           .is_small = is_small,
                           .unit_bytes = is_small ? SMALL_SLOT_BYTES : LARGE_UNIT_BYTES,
                           .strand_bytes = UINT64_MAX };
    vmm__size_index_init(&heap->index, heap->unit_bytes);
}

void vmm__heap_fini(struct heap *heap)
{
    while (heap->store.batches != NULL) {
        struct block_batch *batch = heap->store.batches;
        heap->store.batches = batch->next;
        vmm__host_free(batch, batch_bytes(batch->count));
    }
    vmm__size_index_close(&heap->index);
    vmm__views_close(heap);
}

void vmm__heap_vacate(struct heap *heap)
{
    vmm__heap_fini(heap);
    heap->store = (struct block_store){ .spares = NULL };
    heap->last_taken = NULL;
    heap->last_freed = NULL;
}

void vmm__heap_drained_push(struct heap *heap)
{
    struct directory *directory = heap->directory;
    if (heap->is_drained)
        return;
    heap->is_drained = true;
    heap->next_drained = directory->drained;
    directory->drained = heap;
}

struct heap *vmm__heap_drained(struct directory *directory)
{
    struct heap *heap = directory->drained;
    if (heap != NULL) {
        directory->drained = heap->next_drained;
        heap->is_drained = false;
    }
    return heap;
}

/* ---- Blocks ------------------------------------------------------------------------------- */

/* At the start or the end of the block, so one record is enough. */
vmm_status vmm__heap_take_edge(struct heap *heap, struct block *block, uint64_t address,
                               uint64_t bytes, struct block **out)
{
    vmm_status status = vmm__heap_records_keep(heap, 1);
    if (status != VMM_OK)
        return status;
    block = block_cut(heap, block, address, bytes);
    block->state = BLOCK_LIVE;
    heap->last_taken = block;
    vmm__views_note(heap, address, bytes);
    *out = block;
    return VMM_OK;
}

vmm_status vmm__heap_take(struct heap *heap, uint64_t bytes, enum search_depth search,
                          struct block **out)
{
    struct block *last_freed = vmm__heap_take_last_freed(heap, bytes);
    if (last_freed != NULL) {
        *out = last_freed;
        return VMM_OK;
    }
    vmm__heap_settle(heap);
    struct block *fit = (struct block *)vmm__size_index_find(&heap->index, bytes, search);
    if (fit == NULL)
        return VMM__NO_FIT;
    uint64_t cut;
    if (fit->node.size - bytes >= heap->strand_bytes && search == SEARCH_QUICK &&
        vmm__views_strand(heap, fit, bytes, &cut) != NULL)
        return VMM__STRANDS;
    uint64_t from_high = vmm__heap_takes_high(heap, bytes);
    uint64_t address = fit->address + from_high * (fit->node.size - bytes);
    return vmm__heap_take_edge(heap, fit, address, bytes, out);
}

static struct block *block_give(struct heap *heap, struct block *block, uint64_t epoch)
{
    uint64_t address = block->address;
    uint64_t bytes = block->node.size;
    vmm__directory_stamp(heap->directory, address, bytes, epoch);
    block = block_release(heap, block);
    vmm__views_note(heap, address, bytes);
    return block;
}

struct block *vmm__heap_cut(struct heap *heap, uint64_t address, uint64_t bytes)
{
    struct block *block = block_cut(heap, vmm__heap_cover(heap, address), address, bytes);
    heap->last_taken = NULL;
    return block;
}

struct block *vmm__heap_uncut(struct heap *heap, struct block *block)
{
    return block_give(heap, block, vmm__clock_now(heap->clock));
}

struct block *vmm__heap_take_at(struct heap *heap, uint64_t address, uint64_t bytes)
{
    struct block *block = vmm__heap_cut(heap, address, bytes);
    block->state = BLOCK_LIVE;
    vmm__views_note(heap, address, bytes);
    return block;
}

struct block *vmm__heap_find_aligned(struct heap *heap, uint64_t bytes, uint64_t alignment)
{
    const uint64_t sizes[] = { bytes, bytes + alignment };
    vmm__heap_settle(heap);
    for (int i = 0; i < 2; i++) {
        struct block *block =
            (struct block *)vmm__size_index_find(&heap->index, sizes[i], SEARCH_WHOLE);
        if (block == NULL)
            return NULL;
        if (vmm__align_up(block->address, alignment) + bytes <= vmm__block_end(block))
            return block;
    }
    return NULL;
}

bool vmm__heap_is_free(const struct heap *heap, uint64_t address, uint64_t bytes)
{
    const struct block *block = vmm__heap_cover(heap, address);
    return block->state == BLOCK_FREE && vmm__block_end(block) - address >= bytes;
}

vmm_status vmm__heap_extend(struct heap *heap, struct block *block, uint64_t bytes)
{
    vmm_status status = vmm__heap_records_keep(heap, 1);
    if (status != VMM_OK)
        return status;
    uint64_t end = vmm__block_end(block);
    (void)block_cut(heap, block->next, end, bytes);
    block_merge(heap, block);
    vmm__views_note(heap, end, bytes);
    return VMM_OK;
}

vmm_status vmm__heap_shorten(struct heap *heap, struct block *block, uint64_t bytes)
{
    vmm_status status = vmm__heap_records_keep(heap, 1);
    if (status != VMM_OK || bytes == block->node.size)
        return status;
    vmm__heap_settle(heap);
    (void)vmm__heap_uncut(heap, block_split(heap, block, bytes));
    return VMM_OK;
}

void vmm__heap_settle(struct heap *heap)
{
    struct block *last_freed = heap->last_freed;
    heap->last_taken = NULL;
    heap->last_freed = NULL;
    if (last_freed == NULL)
        return;
    (void)block_give(heap, last_freed, last_freed->epoch);
    vmm__counters_settle(heap->counters, &heap->owner->pool->totals);
}

/* Stamps the last freed block first, because it was freed earlier: the epoch of a granule never decreases. */
struct block *vmm__heap_give(struct heap *heap, struct block *block)
{
    vmm__heap_settle(heap);
    if (block->is_in_view)
        return vmm__views_give(heap, block);
    return block_give(heap, block, vmm__clock_now(heap->clock));
}

/* ---- Extents ------------------------------------------------------------------------------ */

/* No block is larger than its heap. */
vmm_status vmm__heap_attach_keep(struct heap *heap, uint64_t bytes)
{
    if (!vmm__size_index_open(&heap->index, heap->bytes + bytes))
        return vmm__error(VMM_ERR_HOST_OOM, "heap: no host memory for the index of free blocks");
    return vmm__views_open(heap);
}

static vmm_status attach_prepare(struct heap *heap, uint64_t bytes)
{
    vmm_status status = vmm__heap_records_keep(heap, 1);
    return status == VMM_OK ? vmm__heap_attach_keep(heap, bytes) : status;
}

/* Puts a free block over granules that the heap owns in the directory. */
static void extent_enter(struct heap *heap, uint64_t address, uint64_t bytes, uint64_t epoch)
{
    struct block *prev = NULL;
    struct block *next = NULL;
    uint64_t end = address + bytes;
    if (vmm__heap_has_extent(heap, address - 1))
        prev = vmm__directory_before(heap->directory, address);
    if (vmm__heap_has_extent(heap, end))
        next = *vmm__heap_slot(heap, end);
    struct block *block = vmm__heap_record_take(heap);
    *block = (struct block){ .address = address };
    block->node.size = bytes;
    vmm__directory_stamp(heap->directory, address, bytes, epoch);
    block_link(prev, block, next);
    slot_enter(heap, block);
    (void)block_release(heap, block);
    heap->bytes += bytes;
}

vmm_status vmm__heap_attach(struct heap *heap, uint64_t address, uint64_t bytes, uint64_t epoch)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t granule = vmm__arena_granule(arena, address);
    vmm_status status = attach_prepare(heap, bytes);
    if (status == VMM_OK)
        status = vmm__directory_give(heap->directory, heap, granule, bytes >> arena->granule_shift);
    if (status != VMM_OK)
        return status;
    extent_enter(heap, address, bytes, epoch);
    vmm__views_enter(heap, address, bytes);
    vmm__listener_call(heap, VMM_CHANGE_MAP, address, bytes);
    return VMM_OK;
}

/* Cuts whole granules out of a free block. Uses up to two records. */
static void extent_leave(struct heap *heap, struct block *block, uint64_t address, uint64_t bytes)
{
    const struct arena *arena = heap->directory->arena;
    block = block_cut(heap, block, address, bytes);
    slot_leave(heap, block);
    if (block->prev != NULL)
        block->prev->next = NULL;
    if (block->next != NULL)
        block->next->prev = NULL;
    vmm__heap_record_drop(heap, block);
    vmm__directory_take_back(heap->directory, vmm__arena_granule(arena, address),
                             bytes >> arena->granule_shift);
    heap->bytes -= bytes;
    if (heap->bytes == 0)
        vmm__heap_drained_push(heap);
}

vmm_status vmm__heap_detach(struct heap *heap, struct block *block, uint64_t address,
                            uint64_t bytes)
{
    vmm_status status = vmm__heap_records_keep(heap, 2);
    if (status != VMM_OK)
        return status;
    vmm__views_leave(heap, address, bytes);
    extent_leave(heap, block, address, bytes);
    vmm__listener_call(heap, VMM_CHANGE_UNMAP, address, bytes);
    return VMM_OK;
}

vmm_status vmm__heap_hand(struct heap *from, struct block *block, uint64_t address, uint64_t bytes,
                          struct heap *to, uint64_t epoch)
{
    const struct arena *arena = from->directory->arena;
    uint64_t granule = vmm__arena_granule(arena, address);
    vmm_status status = vmm__heap_records_keep(from, 2);
    if (status == VMM_OK)
        status = attach_prepare(to, bytes);
    if (status != VMM_OK)
        return status;
    vmm__views_hand(from, to, address, bytes, epoch);
    extent_leave(from, block, address, bytes);
    vmm__listener_call(from, VMM_CHANGE_UNMAP, address, bytes);
    (void)vmm__directory_give(to->directory, to, granule, bytes >> arena->granule_shift);
    extent_enter(to, address, bytes, epoch);
    vmm__listener_call(to, VMM_CHANGE_MAP, address, bytes);
    return VMM_OK;
}

void vmm__heap_reserve(struct heap *heap, struct block *block, uint64_t address, uint64_t bytes)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t granule = vmm__arena_granule(arena, address);
    uint64_t count = bytes >> arena->granule_shift;
    (void)vmm__directory_give(heap->directory, heap, granule, count); /* it is not small */
    for (uint64_t i = 0; i < count; i++)
        heap->directory->entries[granule + i].first = block;
    heap->bytes += bytes;
}

void vmm__heap_unreserve(struct heap *heap, uint64_t address, uint64_t bytes)
{
    const struct arena *arena = heap->directory->arena;
    vmm__directory_take_back(heap->directory, vmm__arena_granule(arena, address),
                             bytes >> arena->granule_shift);
    heap->bytes -= bytes;
    if (heap->bytes == 0)
        vmm__heap_drained_push(heap);
}

bool vmm__heap_has_extent(const struct heap *heap, uint64_t address)
{
    const struct views *views = heap->directory->views;
    return vmm__arena_contains(heap->directory->arena, address) &&
           vmm__directory_heap(heap->directory, address) == heap &&
           (views == NULL || !vmm__views_contain(views, address));
}

struct block *vmm__heap_cover(const struct heap *heap, uint64_t address)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t granule = vmm__arena_granule(arena, address);
    struct block *block =
        vmm__directory_before(heap->directory, vmm__arena_address(arena, granule + 1));
    while (block->address > address)
        block = block->prev;
    return block;
}
