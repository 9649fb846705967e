/* Visiting every chunk and block: see vmm_walk(). */
#include "base/error.h"
#include "policy/cache.h"

/* A walk under way. */
struct walk {
    vmm_cache *cache;
    vmm_visitor visit;
    void *context;
    bool ended;
};

static void item_visit(struct walk *walk, vmm_item item)
{
    item.struct_size = sizeof item;
    if (!walk->ended && walk->visit(walk->context, &item) != 0)
        walk->ended = true;
}

static vmm_item_state block_item_state(const struct block *block)
{
    if (block->state == BLOCK_FREE)
        return VMM_ITEM_FREE;
    return block->state == BLOCK_WAITING ? VMM_ITEM_WAITING : VMM_ITEM_LIVE;
}

static vmm_item_state object_state(const struct slab *slab, uint32_t object)
{
    if ((slab->free_bits >> object & 1) != 0)
        return VMM_ITEM_FREE;
    return (slab->waiting_bits >> object & 1) != 0 ? VMM_ITEM_WAITING : VMM_ITEM_LIVE;
}

/* The addresses of a chunk: a slab may go on in the next one. */
struct span {
    uint64_t address;
    uint64_t end;
};

/* The objects that start in the chunk. */
static void slab_visit(struct walk *walk, const struct slab *slab, vmm_stream stream,
                       const struct span *span)
{
    for (uint32_t object = 0; object < slab->objects; object++) {
        uint64_t address = vmm__slab_address(slab, object);
        if (address < span->address || address >= span->end)
            continue;
        vmm_item_state state = object_state(slab, object);
        item_visit(walk, (vmm_item){ .kind = VMM_ITEM_BLOCK,
                                     .state = state,
                                     .address = address,
                                     .bytes = slab->object_bytes,
                                     .requested_bytes =
                                         state == VMM_ITEM_LIVE ? slab->requested[object] : 0,
                                     .stream = stream });
    }
}

static void block_visit(struct walk *walk, const struct block *block, vmm_stream stream,
                        const struct span *span)
{
    if (block->state == BLOCK_SLAB) {
        slab_visit(walk, block->slab, stream, span);
        return;
    }
    vmm_item_state state = block_item_state(block);
    item_visit(walk,
               (vmm_item){ .kind = VMM_ITEM_BLOCK,
                           .state = state,
                           .address = block->address,
                           .bytes = block->node.size,
                           .requested_bytes = state == VMM_ITEM_LIVE ? block->requested_bytes : 0,
                           .stream = stream });
}

/* Idle: one free block covers the chunk. */
static vmm_item_state chunk_item_state(const struct walk *walk, const struct chunk *chunk)
{
    if (chunk->state == CHUNK_LIMBO)
        return VMM_ITEM_WAITING;
    uint64_t address = vmm__chunk_address(&walk->cache->memory, chunk);
    uint64_t end = address + vmm__chunk_bytes(&walk->cache->memory, chunk);
    const struct block *block = vmm__directory_before(&walk->cache->directory, end);
    while (block != NULL && block->address > address && block->state == BLOCK_FREE)
        block = block->prev;
    bool idle = block != NULL && block->state == BLOCK_FREE && block->address <= address;
    return idle ? VMM_ITEM_FREE : VMM_ITEM_LIVE;
}

/* The blocks that start in a chunk, and the rest of a slab that started before. */
static void blocks_visit(struct walk *walk, const struct heap *heap, const struct span *span)
{
    uint64_t step = heap->is_small ? SMALL_SLOT_BYTES : walk->cache->memory.arena.granule_bytes;
    const struct block *block = NULL;
    for (uint64_t at = span->address; at < span->end && block == NULL; at += step)
        block = *vmm__directory_slot(&walk->cache->directory, at);
    while (block != NULL && block->address < span->end && !walk->ended) {
        block_visit(walk, block, heap->pool->stream, span);
        block = block->next;
    }
}

static void chunk_visit(struct walk *walk, const struct chunk *chunk)
{
    const struct memory *memory = &walk->cache->memory;
    uint64_t address = vmm__chunk_address(memory, chunk);
    uint64_t bytes = vmm__chunk_bytes(memory, chunk);
    struct heap *heap = vmm__directory_heap(&walk->cache->directory, address);
    if (heap != NULL)
        vmm__lock_take(&heap->pool->lock);
    item_visit(walk, (vmm_item){ .kind = VMM_ITEM_CHUNK,
                                 .state = chunk_item_state(walk, chunk),
                                 .address = address,
                                 .bytes = bytes,
                                 .stream = heap != NULL ? heap->pool->stream : NULL });
    if (heap != NULL) {
        struct span span = { .address = address, .end = address + bytes };
        blocks_visit(walk, heap, &span);
        vmm__lock_drop(&heap->pool->lock);
    }
}

vmm_status vmm_walk(vmm_cache *cache, vmm_visitor visit, void *context)
{
    if (cache == NULL || visit == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_walk: %s is NULL",
                          cache == NULL ? "cache" : "visit");
    struct walk walk = { .cache = cache, .visit = visit, .context = context };
    const struct arena *arena = &cache->memory.arena;
    vmm__lock_take(&cache->grow_lock);
    uint64_t granule = vmm__arena_next_taken(arena, 0);
    while (granule < arena->granules && !walk.ended) {
        const struct chunk *chunk = vmm__memory_chunk(&cache->memory, granule);
        if (!chunk->is_stale)
            chunk_visit(&walk, chunk);
        uint64_t end = granule + chunk->granules;
        granule = end < arena->granules ? vmm__arena_next_taken(arena, end) : end;
    }
    vmm__lock_drop(&cache->grow_lock);
    return VMM_OK;
}
