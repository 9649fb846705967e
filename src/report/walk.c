/* Visiting every chunk and block: see vmm_walk(). */
#include "base/callback.h"
#include "base/error.h"
#include "policy/cache.h"

/* A walk under way. The pool whose memory it is in stays locked, so that its block can be carried on
 * from chunk to chunk. */
struct walk {
    vmm_cache *cache;
    vmm_visitor visit;
    void *context;
    bool ended;
    struct heap *heap;         /* that the walk is in; NULL: in none */
    const struct block *block; /* that covers the beginning of the chunk */
};

static void item_visit(struct walk *walk, vmm_item item)
{
    const struct pool *pool = walk->heap == NULL ? NULL : walk->heap->pool;
    item.struct_size = sizeof item;
    bool is_taken = item.kind == VMM_ITEM_BLOCK &&
                    (item.state == VMM_ITEM_LIVE || item.state == VMM_ITEM_WAITING);
    if (is_taken && walk->cache->guard != NULL)
        walk->cache->guard_view->show(walk->cache->guard, &item);
    if (pool != NULL) {
        item.stream = pool->stream;
        item.pool = pool->id;
        item.is_small = walk->heap->is_small;
    }
    if (walk->ended)
        return;
    struct callback callback;
    vmm__callback_begin(&callback, walk->cache, true);
    walk->ended = walk->visit(walk->context, &item) != 0;
    vmm__callback_end(&callback);
}

static vmm_item_state block_item_state(const struct block *block)
{
    if (block->state == BLOCK_FREE)
        return VMM_ITEM_FREE;
    if (block->state == BLOCK_LENT)
        return VMM_ITEM_LENT;
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
static void slab_visit(struct walk *walk, const struct slab *slab, const struct span *span)
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
                                         state == VMM_ITEM_LIVE ? slab->requested[object] : 0 });
    }
}

static void block_visit(struct walk *walk, const struct block *block, const struct span *span)
{
    if (block->state == BLOCK_SLAB) {
        slab_visit(walk, block->slab, span);
        return;
    }
    vmm_item_state state = block_item_state(block);
    item_visit(
        walk, (vmm_item){ .kind = VMM_ITEM_BLOCK,
                          .state = state,
                          .address = block->address,
                          .bytes = block->node.size,
                          .requested_bytes = state == VMM_ITEM_LIVE ? block->requested_bytes : 0 });
}

/* Moves the walk to an address of a heap, or of none. */
static void heap_enter(struct walk *walk, struct heap *heap, uint64_t address)
{
    struct pool *from = walk->heap == NULL ? NULL : walk->heap->pool;
    struct pool *to = heap == NULL ? NULL : heap->pool;
    if (from != to && from != NULL)
        vmm__pool_unlock(from);
    if (from != to && to != NULL)
        vmm__pool_lock(to);
    if (heap != walk->heap)
        walk->block = NULL;
    walk->heap = heap;
    while (walk->block != NULL && vmm__block_end(walk->block) <= address)
        walk->block = walk->block->next;
    if (heap != NULL && walk->block == NULL) /* a territory begins with a block */
        walk->block = *vmm__directory_slot(&walk->cache->directory, address);
}

/* Idle: one free block covers the chunk. */
static vmm_item_state chunk_item_state(const struct walk *walk, const struct chunk *chunk,
                                       uint64_t end)
{
    if (chunk->state == CHUNK_LIMBO)
        return VMM_ITEM_WAITING;
    bool idle = walk->block->state == BLOCK_FREE && vmm__block_end(walk->block) >= end;
    return idle ? VMM_ITEM_FREE : VMM_ITEM_LIVE;
}

/* The blocks that start in a chunk, and the rest of a slab that started before. */
static void blocks_visit(struct walk *walk, const struct span *span)
{
    const struct block *block = walk->block;
    for (; block != NULL && block->address < span->end && !walk->ended; block = block->next) {
        if (block->address >= span->address || block->state == BLOCK_SLAB)
            block_visit(walk, block, span);
    }
}

static void chunk_visit(struct walk *walk, const struct chunk *chunk)
{
    const struct memory *memory = &walk->cache->memory;
    uint64_t address = vmm__chunk_address(memory, chunk);
    struct span span = { .address = address, .end = address + vmm__chunk_bytes(memory, chunk) };
    heap_enter(walk, vmm__directory_heap(&walk->cache->directory, address), address);
    item_visit(walk, (vmm_item){ .kind = chunk->is_alias ? VMM_ITEM_TWIN : VMM_ITEM_CHUNK,
                                 .state = chunk_item_state(walk, chunk, span.end),
                                 .address = address,
                                 .bytes = span.end - address });
    if (walk->heap != NULL)
        blocks_visit(walk, &span);
}

vmm_status vmm_walk(vmm_cache *cache, vmm_visitor visit, void *context)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_walk");
    if (status != VMM_OK)
        return status;
    if (visit == NULL)
        return vmm__cache_missing("vmm_walk", "visit");
    struct walk walk = { .cache = cache, .visit = visit, .context = context };
    const struct arena *arena = &cache->memory.arena;
    vmm__fair_take(&cache->grow_lock);
    uint64_t granule = vmm__arena_next_taken(arena, 0);
    while (granule < arena->granules && !walk.ended) {
        const struct chunk *chunk = vmm__memory_chunk(&cache->memory, granule);
        bool is_fence = chunk == NULL;
        if (!is_fence && (chunk->state == CHUNK_HELD ||
                          !chunk->is_alias)) /* a stale mapping is nothing to see */
            chunk_visit(&walk, chunk);
        uint64_t end = granule + (is_fence ? 1 : chunk->granules);
        granule = end < arena->granules ? vmm__arena_next_taken(arena, end) : end;
    }
    heap_enter(&walk, NULL, 0);
    vmm__fair_drop(&cache->grow_lock);
    return VMM_OK;
}
