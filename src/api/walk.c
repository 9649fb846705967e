/* Visits every chunk and block: see internal.h. */
#include "api/internal.h"
#include "base/callback.h"
#include "lane/block_ref.h"

/* The state of a walk. It holds all lanes' locks: a block in a view that is allocated or freed changes the address of
 * memory, which a walk of one lane after another would miss or show twice. */
struct walk {
    vmm_cache *cache;
    const struct pool *only; /* NULL: all pools */
    vmm_visitor visit;
    void *context;
    bool ended;
    const struct pool *pool; /* of the current chunk */
    struct heap *heap;       /* of the current chunk; NULL: none */
    struct block *block;     /* the block that covers the start of the chunk */
    uint64_t range_end;      /* of the last range of memory */
    uint64_t segments;       /* of sources, which have been visited */
    /* In debug mode: a block whose first bytes the program does not have, so that it begins in a later range. */
    vmm_item later;
    bool has_later;
};

static void item_show(struct walk *walk, const vmm_item *item)
{
    struct callback callback;
    if (walk->ended || (walk->only != NULL && walk->only != walk->pool))
        return;
    vmm__callback_begin(&callback, walk->cache, true);
    walk->ended = walk->visit(walk->context, item) != 0;
    vmm__callback_end(&callback);
}

static void range_show(struct walk *walk, const vmm_item *item)
{
    walk->range_end = item->address + item->bytes;
    item_show(walk, item);
    if (!walk->has_later || walk->later.address >= walk->range_end)
        return;
    walk->has_later = false;
    item_show(walk, &walk->later);
}

static void item_visit(struct walk *walk, vmm_item item)
{
    const struct lane *lane = walk->heap == NULL ? NULL : walk->heap->lane;
    item.struct_size = sizeof item;
    item.address = vmm__sourced_outer(&walk->cache->vm, item.address);
    bool is_used = item.kind == VMM_ITEM_BLOCK &&
                   (item.state == VMM_ITEM_LIVE || item.state == VMM_ITEM_WAITING);
    item.is_imported = walk->pool->account.is_imported;
    if (is_used && walk->cache->debug != NULL && !item.is_reserved && !item.is_imported)
        walk->cache->debug_view->show(walk->cache->debug, &item);
    item.pool = walk->pool->handle;
    item.pool_id = walk->pool->id;
    if (lane != NULL) {
        item.stream = lane->owner.stream;
        item.is_small = walk->heap->is_small;
    }
    if (item.kind == VMM_ITEM_CHUNK) {
        range_show(walk, &item);
    } else if (item.is_reserved || item.address < walk->range_end) {
        item_show(walk, &item);
    } else {
        walk->later = item;
        walk->has_later = true;
    }
}

static vmm_item_state block_item_state(const struct block_ref *ref)
{
    if (vmm__block_ref_is_live(ref))
        return VMM_ITEM_LIVE;
    bool is_free = ref->slab == NULL ? ref->block->state == BLOCK_FREE
                                     : (ref->slab->free_bits >> ref->object & 1) != 0;
    return is_free ? VMM_ITEM_FREE : VMM_ITEM_WAITING;
}

vmm_item vmm__block_item(const struct heap *heap, const struct block_ref *ref)
{
    const struct lane *lane = heap->lane;
    vmm_item item = { .kind = VMM_ITEM_BLOCK,
                      .state = block_item_state(ref),
                      .address = vmm__block_ref_address(ref),
                      .bytes = vmm__block_ref_bytes(ref),
                      .is_view = ref->block->is_in_view,
                      .stream = lane->owner.stream,
                      .pool = lane->owner.pool->handle,
                      .pool_id = lane->owner.pool->id,
                      .is_small = heap->is_small,
                      .is_imported = lane->owner.is_imported,
                      .is_reserved = heap->is_reserved };
    if (item.state == VMM_ITEM_LIVE)
        item.requested_bytes = vmm__block_ref_requested_bytes(ref);
    if (heap->is_reserved)
        item.committed_bytes = vmm__reserved_of(ref->block)->committed_granules
                               << heap->directory->granule_shift;
    if (vmm__block_ref_is_noted(ref))
        vmm__notes_name_read(&lane->notes, item.address, item.name);
    return item;
}

/* The addresses of a chunk. A slab may extend into the next chunk. */
struct range {
    uint64_t address;
    uint64_t end;
};

/* Visits the objects that start in the chunk. */
static void slab_visit(struct walk *walk, struct block *block, const struct range *range)
{
    struct block_ref ref = { .block = block, .slab = block->slab };
    for (; ref.object < ref.slab->objects; ref.object++) {
        uint64_t address = vmm__block_ref_address(&ref);
        if (address >= range->address && address < range->end)
            item_visit(walk, vmm__block_item(walk->heap, &ref));
    }
}

static void block_visit(struct walk *walk, struct block *block, const struct range *range)
{
    struct block_ref ref = { .block = block };
    if (block->state == BLOCK_SLAB)
        slab_visit(walk, block, range);
    else
        item_visit(walk, vmm__block_item(walk->heap, &ref));
}

/* Moves the walk to an address and its heap. heap NULL: no heap owns the address. */
static void walk_move(struct walk *walk, struct heap *heap, uint64_t address)
{
    if (heap != walk->heap)
        walk->block = NULL;
    walk->heap = heap;
    while (walk->block != NULL && vmm__block_end(walk->block) <= address)
        walk->block = walk->block->next;
    if (heap != NULL && walk->block == NULL) /* each extent starts with a block */
        walk->block = *vmm__directory_slot(&walk->cache->directory, address);
}

/* A chunk is idle if one free block covers it. */
static vmm_item_state chunk_item_state(const struct walk *walk, const struct chunk *chunk,
                                       uint64_t end)
{
    if (chunk->state == CHUNK_LIMBO)
        return VMM_ITEM_WAITING;
    if (chunk->is_asleep)
        return VMM_ITEM_ASLEEP;
    bool idle = walk->block->state == BLOCK_FREE && vmm__block_end(walk->block) >= end;
    return idle ? VMM_ITEM_FREE : VMM_ITEM_LIVE;
}

/* Visits the blocks that start in a range, and the objects there of a slab that starts before it. */
static void range_blocks_visit(struct walk *walk, const struct range *range)
{
    struct block *block = walk->block;
    for (; block != NULL && block->address < range->end && !walk->ended; block = block->next) {
        if (block->state != BLOCK_OCCUPIED &&
            (block->address >= range->address || block->state == BLOCK_SLAB))
            block_visit(walk, block, range);
    }
}

/* Shortens a range to what starts after the occupied blocks at its start and ends before the next one. */
static struct range range_clip(const struct walk *walk, struct range range)
{
    struct block *block = walk->block;
    while (block != NULL && vmm__block_end(block) <= range.address)
        block = block->next;
    for (; block != NULL && block->state == BLOCK_OCCUPIED && range.address < range.end;
         block = block->next)
        range.address = vmm__min(vmm__block_end(block), range.end);
    while (block != NULL && block->address < range.end && block->state != BLOCK_OCCUPIED)
        block = block->next;
    if (block != NULL)
        range.end = vmm__min(range.end, vmm__max(block->address, range.address));
    return range;
}

/* Visits a chunk at its home, without what blocks in views occupy: it is reported at their addresses. */
static void chunk_visit(struct walk *walk, const struct chunk *chunk)
{
    const struct vm *memory = &walk->cache->vm;
    uint64_t address = vmm__chunk_address(memory, chunk);
    uint64_t end = address + vmm__chunk_bytes(memory, chunk);
    while (address < end && !walk->ended) {
        struct range range = { .address = address, .end = end };
        walk_move(walk, vmm__directory_heap(&walk->cache->directory, address), address);
        if (walk->heap != NULL)
            range = range_clip(walk, range);
        address = range.end;
        if (range.address == range.end)
            continue;
        item_visit(walk, (vmm_item){ .kind = VMM_ITEM_CHUNK,
                                     .state = chunk_item_state(walk, chunk, end),
                                     .address = range.address,
                                     .bytes = range.end - range.address });
        if (walk->heap != NULL)
            range_blocks_visit(walk, &range);
    }
}

/* Where the chunks under a range of a view stop to be asleep, or awake, as the first one is. */
static uint64_t sleep_end(const struct vm *memory, struct range range)
{
    const struct arena *arena = &memory->arena;
    uint64_t at = vmm__arena_granule(arena, range.address);
    bool is_asleep = vmm__vm_chunk(memory, at)->is_asleep;
    uint64_t address = range.address;
    while (address < range.end && vmm__vm_chunk(memory, at)->is_asleep == is_asleep) {
        const struct chunk *chunk = vmm__vm_chunk(memory, at);
        at = vmm__chunk_mapping(memory, chunk, at) + chunk->granules;
        address = vmm__arena_address(arena, at);
    }
    return vmm__min(address, range.end);
}

/* Visits a block in a view, and its memory as a chunk of its own. After a sleep that failed, only a part may be
 * asleep. */
static void view_block_visit(struct walk *walk, struct block *block)
{
    const struct vm *memory = &walk->cache->vm;
    struct range range = { .address = block->address, .end = vmm__block_end(block) };
    while (range.address < range.end && !walk->ended) {
        uint64_t end = sleep_end(memory, range);
        bool is_asleep =
            vmm__vm_chunk(memory, vmm__arena_granule(&memory->arena, range.address))->is_asleep;
        item_visit(walk, (vmm_item){ .kind = VMM_ITEM_CHUNK,
                                     .state = is_asleep ? VMM_ITEM_ASLEEP : VMM_ITEM_LIVE,
                                     .address = range.address,
                                     .bytes = end - range.address,
                                     .is_view = 1 });
        if (range.address == block->address)
            block_visit(walk, block, &range);
        range.address = end;
    }
}

/* Visits the blocks that start in a place of a view. */
static void place_visit(struct walk *walk, const struct chunk *chunk, uint64_t granule)
{
    const struct vm *memory = &walk->cache->vm;
    for (uint64_t at = granule; at < granule + chunk->granules && !walk->ended; at++) {
        uint64_t address = vmm__arena_address(&memory->arena, at);
        struct heap *heap = vmm__directory_heap(&walk->cache->directory, address);
        if (heap == NULL)
            continue; /* the chunk is in limbo */
        walk->heap = heap;
        walk->block = NULL; /* the walk leaves the heap's extents */
        struct block *block = walk->cache->directory.entries[at].first;
        for (; block != NULL && !walk->ended; block = block->next)
            view_block_visit(walk, block);
    }
}

static vmm_item_state unit_item_state(const struct reserved *block, const struct chunk *chunk)
{
    if (chunk->is_asleep)
        return VMM_ITEM_ASLEEP;
    if (chunk->state == CHUNK_LIMBO)
        return VMM_ITEM_WAITING;
    return vmm__reserved_is_freed(block) ? VMM_ITEM_FREE : VMM_ITEM_LIVE;
}

/* Visits a reserved block after the chunk at its start, and its other chunks in order. */
static void reserved_visit(struct walk *walk, struct reserved *block)
{
    vmm_cache *cache = walk->cache;
    uint64_t limit = vmm__reserved_end(cache, block);
    walk->heap = block->lane->reserved;
    walk->block = NULL;
    walk->pool = block->lane->owner.pool;
    bool has_visited = vmm__reserved_is_freed(block);
    for (uint64_t at = vmm__reserved_first(cache, block); at < limit && !walk->ended;) {
        const struct chunk *chunk = vmm__reserved_chunk(cache, at, limit, &at);
        if (chunk != NULL)
            item_visit(walk, (vmm_item){ .kind = VMM_ITEM_CHUNK,
                                         .state = unit_item_state(block, chunk),
                                         .address = vmm__chunk_address(&cache->vm, chunk),
                                         .bytes = vmm__chunk_bytes(&cache->vm, chunk),
                                         .is_reserved = 1 });
        if (!has_visited)
            block_visit(walk, &block->block, NULL);
        has_visited = true;
    }
}

/* Visits what has no address: one range for each pool. */
static void unmapped_visit(struct walk *walk)
{
    const struct vm *memory = &walk->cache->vm;
    for (struct account *account = memory->accounts; account != NULL; account = account->next) {
        uint64_t bytes = vmm__limbo_unmapped_bytes(memory, account);
        walk->pool = vmm__pool_of_account(account);
        if (bytes > 0)
            item_visit(
                walk,
                (vmm_item){ .kind = VMM_ITEM_CHUNK, .state = VMM_ITEM_WAITING, .bytes = bytes });
    }
}

/* Visits memory of sources below an address, which lies between other ranges. */
static void segments_visit(struct walk *walk, uint64_t limit)
{
    const struct vm *memory = &walk->cache->vm;
    const struct sourced_segments *segments = &memory->segments;
    for (; walk->segments < segments->count && !walk->ended; walk->segments++) {
        const struct sourced_segment *segment = segments->sorted[walk->segments];
        if (segment->outer >= limit)
            return;
        const struct chunk *chunk =
            vmm__vm_chunk(memory, vmm__arena_granule(&memory->arena, segment->inner));
        walk->pool = vmm__pool_of_account(chunk->account);
        walk->heap = NULL; /* the walk leaves the extent */
        walk->block = NULL;
        chunk_visit(walk, chunk);
    }
}

static void walk_run_locked(struct walk *walk)
{
    const struct vm *memory = &walk->cache->vm;
    const struct arena *arena = &memory->arena;
    uint64_t granule = vmm__arena_next_taken(arena, 0);
    unmapped_visit(walk);
    while (granule < arena->granules && !walk->ended) {
        const struct chunk *chunk = vmm__vm_chunk(memory, granule);
        struct reserved *reserved =
            vmm__reserved_around_locked(walk->cache, vmm__arena_address(arena, granule));
        bool is_guard_page = chunk == NULL;
        bool is_sourced = chunk != NULL && chunk->segment != NULL;
        uint64_t end = granule + (is_guard_page ? 1 : chunk->granules);
        segments_visit(walk, vmm__arena_address(arena, granule));
        if (reserved != NULL) {
            reserved_visit(walk, reserved);
            end = vmm__reserved_end(walk->cache, reserved);
        } else if (!is_guard_page && !is_sourced &&
                   !chunk->is_alias) { /* an alias holds no memory */
            walk->pool = vmm__pool_of_account(chunk->account);
            if (vmm__chunk_is_home(chunk, granule))
                chunk_visit(walk, chunk);
            else
                place_visit(walk, chunk, granule);
        }
        granule = end < arena->granules ? vmm__arena_next_taken(arena, end) : end;
    }
    segments_visit(walk, UINT64_MAX);
}

void vmm__walk_locked(struct vmm_cache *cache, vmm_visitor visit, void *context)
{
    struct walk walk = { .cache = cache, .visit = visit, .context = context };
    VMM_ASSERT_HELD(&cache->grow_lock);
    walk_run_locked(&walk);
}

void vmm__walk(struct vmm_cache *cache, const struct pool *only, vmm_visitor visit, void *context)
{
    struct walk walk = { .cache = cache, .only = only, .visit = visit, .context = context };
    VMM_HOLD_FAIR(&cache->grow_lock);
    vmm__cache_lanes_lock(cache, NULL);
    walk_run_locked(&walk);
    vmm__cache_lanes_unlock(cache, NULL);
}

vmm_status vmm_walk(vmm_cache *cache, vmm_visitor visit, void *context)
{
    vmm_status status = vmm__api_admit(cache, "vmm_walk", visit, "visit");
    if (status != VMM_OK)
        return status;
    vmm__walk(cache, NULL, visit, context);
    return VMM_OK;
}

vmm_status vmm_pool_walk(vmm_pool *handle, vmm_visitor visit, void *context)
{
    struct pool *pool;
    vmm_status status = vmm__api_pool(handle, "vmm_pool_walk", visit, "visit", &pool);
    if (status != VMM_OK)
        return status;
    vmm__walk(pool->cache, pool, visit, context);
    return VMM_OK;
}
