/* Checks invariants 1 and 2 of directory.h, 1 to 5 of heap.h, 2 to 5 of slab.h, 3 of lane.h and 1 of magazine.h, and
 * calls the checks of views and clocks. */
#include "base/error.h"
#include "lane/lane.h"
#include "lane/views.h"

/* Sums over the extents of a heap. */
struct tally {
    uint64_t free_bytes;
    uint64_t free_blocks;
    uint64_t unmovable_bytes;
    uint64_t listed_blocks;
};

static vmm_status broken(const struct heap *heap, uint64_t address, const char *what)
{
    return vmm__error(VMM_ERR_INTERNAL, "%s heap of stream %p at 0x%llx: invariant %s",
                      heap->is_small ? "small" : "large", heap->lane->owner.stream,
                      (unsigned long long)address, what);
}

static uint64_t unmovable_bytes(const struct block *block)
{
    if (block->state == BLOCK_OCCUPIED)
        return block->user->pins != 0 ? block->node.size : 0;
    if (block->state != BLOCK_SLAB)
        return block->pins != 0 ? block->node.size : 0;
    uint64_t bytes = 0;
    for (uint64_t bits = block->slab->pinned_bits; bits != 0; bits &= bits - 1)
        bytes += block->slab->object_bytes;
    return bytes;
}

/* Checks a block or an object that is listed. */
static vmm_status listed_check(const struct heap *heap, uint64_t address, struct tally *tally)
{
    if (!vmm__live_table_has(heap->directory->live, address))
        return broken(heap, address, "magazine 1: listed, but not in the live table");
    tally->listed_blocks++;
    return VMM_OK;
}

/* Checks all that a block of an extent stands for, if it is listed: itself, the objects of its slab, or the block in a
 * view whose first piece it is. */
static vmm_status listed_all_check(const struct heap *heap, const struct block *block,
                                   struct tally *tally)
{
    if (block->state == BLOCK_OCCUPIED)
        block = vmm__block_piece(block->user) == block ? block->user : NULL;
    if (block == NULL)
        return VMM_OK;
    if (block->state != BLOCK_SLAB)
        return block->is_listed ? listed_check(heap, block->address, tally) : VMM_OK;
    vmm_status status = VMM_OK;
    for (uint64_t bits = block->slab->listed_bits; bits != 0 && status == VMM_OK;
         bits &= bits - 1) {
        uint32_t object = (uint32_t)__builtin_ctzll(bits);
        status = listed_check(heap, vmm__slab_address(block->slab, object), tally);
    }
    return status;
}

static vmm_status slab_check(const struct heap *heap, const struct block *block)
{
    const struct slab *slab = block->slab;
    uint64_t ends_with_free = slab->pins[0] | slab->noted_bits | slab->listed_bits;
    if (slab->block != block || (slab->free_bits & slab->waiting_bits) != 0 ||
        (ends_with_free & (slab->free_bits | slab->waiting_bits)) != 0 ||
        (slab->pinned_bits & slab->free_bits) != 0)
        return broken(heap, block->address, "slab 2: free, waiting and other bits overlap");
    if (slab->pinned_bits != (slab->pins[0] | slab->pins[1]))
        return broken(heap, block->address, "slab 2: pinned_bits is not the union of pins");
    uint64_t alignment = UINT64_C(2) << vmm__log2(block->node.size - 1);
    if (heap->lane->owner.is_pooled && slab->address % alignment != 0)
        return broken(heap, block->address, "slab 5: its start does not follow from its objects");
    for (uint64_t at = 0; at < block->node.size; at += SMALL_SLOT_BYTES) {
        if (*vmm__directory_slot(heap->directory, block->address + at) != block)
            return broken(heap, block->address, "slab 4: a slot does not name it");
    }
    return VMM_OK;
}

static vmm_status neighbours_check(const struct heap *heap, const struct block *block)
{
    const struct block *next = block->next;
    if (next == NULL) {
        uint64_t end = vmm__block_end(block) - heap->directory->arena->address;
        if (end % heap->directory->arena->granule_bytes != 0)
            return broken(heap, block->address, "1: an extent ends inside a granule");
        return VMM_OK;
    }
    if (next->prev != block || next->address != vmm__block_end(block))
        return broken(heap, block->address, "1: the next block does not start where this one ends");
    if (block->state == BLOCK_FREE && next->state == BLOCK_FREE)
        return broken(heap, block->address, "2: two free neighbours");
    return VMM_OK;
}

static vmm_status block_check(const struct heap *heap, const struct block *block,
                              struct tally *tally)
{
    if (block->node.size == 0 || block->node.size % heap->unit_bytes != 0)
        return broken(heap, block->address, "4: not a multiple of the unit");
    if (vmm__directory_heap(heap->directory, block->address) != heap ||
        vmm__directory_heap(heap->directory, vmm__block_end(block) - 1) != heap)
        return broken(heap, block->address, "directory 1: a block is outside its extent");
    const struct block *first = *vmm__directory_slot(heap->directory, block->address);
    if (first == NULL || first->address > block->address)
        return broken(heap, block->address, "directory 2: the slot does not lead to the block");
    if (block->state == BLOCK_FREE) {
        tally->free_bytes += block->node.size;
        tally->free_blocks++;
    }
    tally->unmovable_bytes += unmovable_bytes(block);
    vmm_status status = block->state == BLOCK_SLAB ? slab_check(heap, block) : VMM_OK;
    if (status == VMM_OK)
        status = listed_all_check(heap, block, tally);
    return status == VMM_OK ? neighbours_check(heap, block) : status;
}

/* Checks all blocks of the extent that begins at `address`; sets *end to its end. */
static vmm_status extent_check(const struct heap *heap, uint64_t address, struct tally *tally,
                               uint64_t *end)
{
    const struct block *block = *vmm__directory_slot(heap->directory, address);
    if (block == NULL || block->address != address || block->prev != NULL)
        return broken(heap, address, "directory 2: an extent does not begin with its first block");
    for (; block != NULL; block = block->next) {
        vmm_status status = block_check(heap, block, tally);
        if (status != VMM_OK)
            return status;
        *end = vmm__block_end(block);
    }
    return VMM_OK;
}

static vmm_status extents_check(const struct heap *heap, struct tally *tally)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t granule = vmm__arena_next_taken(arena, 0);
    while (granule < arena->granules) {
        uint64_t address = vmm__arena_address(arena, granule);
        uint64_t end = address + arena->granule_bytes;
        bool is_own = vmm__directory_heap(heap->directory, address) == heap;
        if (is_own && heap->directory->views != NULL)
            is_own = !vmm__views_contain(heap->directory->views, address);
        if (is_own) {
            vmm_status status = extent_check(heap, address, tally, &end);
            if (status != VMM_OK)
                return status;
        }
        end = vmm__arena_granule(arena, end);
        granule = end < arena->granules ? vmm__arena_next_taken(arena, end) : end;
    }
    return VMM_OK;
}

/* Adds the heap's listed blocks to *listed_blocks. */
static vmm_status heap_check(const struct heap *heap, uint64_t *listed_blocks)
{
    struct tally tally = { .free_bytes = 0 };
    if (!vmm__size_index_check(&heap->index))
        return broken(heap, 0, "3: the index of free blocks is broken");
    vmm_status status = extents_check(heap, &tally);
    if (status != VMM_OK)
        return status;
    for (const struct size_node *node = vmm__size_index_largest(&heap->index); node != NULL;
         node = vmm__size_index_smaller(&heap->index, node)) {
        if (((const struct block *)node)->state != BLOCK_FREE)
            return broken(heap, ((const struct block *)node)->address, "3: not free, but indexed");
        tally.free_blocks--;
    }
    if (tally.free_blocks != 0 || tally.free_bytes != heap->free_bytes)
        return broken(heap, 0, "3: free blocks do not add up");
    if (tally.unmovable_bytes != vmm__heap_unmovable(heap))
        return broken(heap, 0, "5: pinned blocks do not add up");
    *listed_blocks += tally.listed_blocks;
    return vmm__views_check(heap);
}

static vmm_status slabs_check(const struct slabs *slabs)
{
    uint64_t partial = 0;
    for (const struct slab *slab = slabs->all; slab != NULL; slab = slab->all_next)
        partial += slab->free_bits != 0 ? 1 : 0;
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        for (const struct slab *slab = slabs->partial[class_index]; slab != NULL;
             slab = slab->next) {
            if (slab->free_bits == 0 || slab->class_index != class_index)
                return broken(slabs->heap, slab->block->address, "slab 3: in the wrong list");
            partial--;
        }
    }
    return partial == 0 ? VMM_OK : broken(slabs->heap, 0, "slab 3: one is in no list");
}

/* Magazines are closed, so no thread is freeing or allocating a listed block without the lock. */
static vmm_status live_table_check(const struct lane *lane, uint64_t listed_blocks)
{
    const struct directory *directory = lane->large.directory;
    uint64_t live = 0;
    if (atomic_load_explicit(&lane->magazines, memory_order_relaxed) == NULL)
        return VMM_OK;
    for (unsigned i = 0; i < LIVE_SETS * LIVE_WAYS; i++) {
        uint64_t address = vmm__live_table_at(directory->live, i);
        const struct heap *heap = address == 0 ? NULL : vmm__directory_heap(directory, address);
        live += heap != NULL && heap->lane == lane;
    }
    if (live != listed_blocks)
        return broken(&lane->small, 0, "magazine 1: the live table has a block that is not listed");
    return VMM_OK;
}

static vmm_status expired_check(const struct lane *lane)
{
    uint64_t now = vmm__clock_now(lane->clock);
    if (lane->trimmed.latest_epoch >= now || lane->period_epoch >= now)
        return vmm__error(VMM_ERR_INTERNAL, "lane: invariant 3: expired before its epoch ended");
    if (lane->decayed.latest_epoch > lane->period_epoch)
        return vmm__error(VMM_ERR_INTERNAL, "lane: invariant 3: decayed in the last period");
    return VMM_OK;
}

vmm_status vmm__lane_check_locked(struct lane *lane)
{
    VMM_ASSERT_HELD(&lane->lock);
    uint64_t listed_blocks = 0;
    vmm_status status = heap_check(&lane->small, &listed_blocks);
    if (status == VMM_OK)
        status = heap_check(&lane->large, &listed_blocks);
    if (status == VMM_OK)
        status = live_table_check(lane, listed_blocks);
    if (status == VMM_OK)
        status = slabs_check(&lane->slabs);
    if (status == VMM_OK)
        status = vmm__clock_check(lane->clock);
    if (status == VMM_OK)
        status = expired_check(lane);
    return status;
}
