/* Checks the numbered invariants of src/cache, but for those of claim.h and pool/ticket.h and 3 of pool/sleep.h; 1 of
 * lane/pool.h, and those of lane/lanes.h; calls the checks of vm and lanes. */
#include "base/error.h"
#include "cache/cache.h"
#include "cache/pool/backup.h"
#include "cache/pool/route.h"
#include "cache/reserve/reserve.h"
#include "lane/block_ref.h"

static vmm_status broken(const char *what)
{
    return vmm__error(VMM_ERR_INTERNAL, "%s", what);
}

/* The pool after another one: the default pool is the first, then come that of imported memory and those of the
 * list. */
static const struct pool *pool_after(const struct vmm_cache *cache, const struct pool *pool)
{
    if (pool == &cache->pool)
        return &cache->imports;
    return pool == &cache->imports ? cache->pools.first : pool->next;
}

/* ---- Chunks -------------------------------------------------------------------------------- */

/* Invariant 1 of lane/pool.h, 2 of sleep.h, 1 of reserve.h. Counts the granules of units. */
static vmm_status chunk_check(const struct vmm_cache *cache, uint32_t id, uint64_t *committed)
{
    const struct chunk *chunk = &cache->vm.records[id];
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    const struct heap *heap = vmm__directory_heap(&cache->directory, address);
    if (heap == NULL || heap->is_reserved != chunk->keeps_addresses)
        return vmm__error(VMM_ERR_INTERNAL,
                          "reserve: invariant 1: chunk %u is of no heap, or of a wrong one", id);
    const struct pool *pool = heap->lane->owner.pool;
    if (chunk->account != &pool->account)
        return vmm__error(VMM_ERR_INTERNAL, "pool: invariant 1: chunk %u is of another pool", id);
    if (pool->phase == VMM_POOL_AWAKE && (chunk->is_asleep || chunk->unmapped > 0))
        return vmm__error(VMM_ERR_INTERNAL, "sleep: invariant 2: chunk %u sleeps", id);
    *committed += heap->is_reserved ? chunk->granules : 0;
    return VMM_OK;
}

static vmm_status chunks_check(const struct vmm_cache *cache, uint64_t *committed)
{
    vmm_status status = VMM_OK;
    for (uint32_t id = 1; id < cache->vm.record_high && status == VMM_OK; id++) {
        if (cache->vm.records[id].state == CHUNK_HELD)
            status = chunk_check(cache, id, committed);
    }
    return status;
}

/* ---- Reserved blocks ----------------------------------------------------------------------- */

/* Whether all slots of a block's granules name it, and no granule around them does. */
static bool slots_are_right(const struct vmm_cache *cache, const struct reserved *block)
{
    uint64_t end = vmm__block_end(&block->block);
    uint64_t step = cache->vm.arena.granule_bytes;
    uint64_t at = block->block.address;
    bool is_alone = vmm__reserved_around_locked(cache, at - step) != block;
    while (at < end && vmm__reserved_around_locked(cache, at) == block)
        at += step;
    return is_alone && at == end && vmm__reserved_around_locked(cache, end) != block;
}

static vmm_status reserves_check(const struct vmm_cache *cache, uint64_t committed)
{
    uint64_t bytes = 0;
    uint64_t granules = committed;
    for (const struct reserved *block = cache->reserves; block != NULL; block = block->next) {
        if (*block->link != block || !slots_are_right(cache, block))
            return broken("reserve: invariant 3: the directory does not have a block");
        if (vmm__reserved_is_freed(block) && !vmm__lane_is_retained(block->lane))
            return broken("reserve: invariant 4: a freed block stays");
        bytes += block->block.node.size;
        committed -= block->committed_granules;
    }
    if (committed != 0)
        return broken("reserve: invariant 2: blocks miscount their memory");
    for (const struct lane *lane = cache->lanes.first; lane != NULL; lane = lane->next) {
        bytes -= lane->reserved == NULL ? 0 : lane->reserved->bytes;
        granules -= lane->reserved_granules;
    }
    if (granules != 0)
        return broken("reserve: invariant 2: lanes miscount the memory of their blocks");
    return bytes == 0 ? VMM_OK : broken("reserve: invariant 3: heaps have other blocks");
}

/* ---- Pools --------------------------------------------------------------------------------- */

/* The routes that lead to a pool. */
static uint64_t routes_count(const struct vmm_cache *cache, const struct pool *pool)
{
    uint64_t count = 0;
    for (const struct route *route = cache->routes.first; route != NULL; route = route->next)
        count += route->pool == pool ? 1 : 0;
    return count;
}

static vmm_status routes_check(const struct vmm_cache *cache)
{
    uint64_t pushes = 0;
    uint64_t leaving = 0;
    uint64_t keeping = 0;
    uint8_t slow = atomic_load_explicit(&cache->slow_path, memory_order_relaxed);
    for (const struct pool *pool = &cache->pool; pool != NULL; pool = pool_after(cache, pool)) {
        uint64_t routes = routes_count(cache, pool);
        if (routes > 1 || routes > pool->routes)
            return broken("route: invariant 1: a pool miscounts its routes");
        pushes += pool->routes - routes;
        leaving += pool->is_leaving ? 1 : 0;
        keeping += pool->is_keeping ? 1 : 0;
        bool is_keeping = !vmm__pool_shares(pool) || vmm__pool_is_retained(pool);
        if (pool != &cache->imports && pool->is_keeping != is_keeping)
            return broken("pools: invariant 4: whether a pool keeps its memory is not known");
    }
    if (leaving != cache->pools.leaving)
        return broken("pools: invariant 3: leaving pools are miscounted");
    if (keeping != cache->pools.keeping)
        return broken("pools: invariant 4: pools that keep their memory are miscounted");
    if (pushes != cache->routes.pushes)
        return broken("route: invariant 1: pools miscount pushes");
    if ((cache->routes.first != NULL || pushes > 0) && (slow & SLOW_PATH_ONLY) == 0)
        return broken("route: invariant 2: the fast path is open");
    return VMM_OK;
}

/* The backup of a pool that is asleep; at other times a request may use it, without a lock. */
static vmm_status backup_check(const struct backup *backup)
{
    uint64_t address = 0;
    uint64_t offset = 0;
    for (uint64_t i = 0; i < backup->count; i++) {
        const struct backup_entry *entry = &backup->entries[i];
        if (entry->address < address || entry->offset < offset)
            return broken("backup: invariant 1: entries overlap");
        address = entry->address + entry->bytes;
        offset = entry->offset + entry->bytes;
    }
    return offset <= backup->pinned_bytes && backup->pinned_bytes <= backup->bytes
               ? VMM_OK
               : broken("backup: invariant 2: contents lie in memory that is not pinned");
}

static vmm_status pools_check(const struct vmm_cache *cache)
{
    vmm_status status = VMM_OK;
    for (const struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (pool->handle == NULL && !pool->is_leaving)
            return broken("pools: invariant 1: a destroyed pool does not leave");
    }
    for (const struct pool *pool = &cache->pool; pool != NULL && status == VMM_OK;
         pool = pool_after(cache, pool)) {
        if (pool->phase == VMM_POOL_ASLEEP && pool->backup != NULL)
            status = backup_check(pool->backup);
    }
    return status == VMM_OK ? routes_check(cache) : status;
}

/* ---- Lanes --------------------------------------------------------------------------------- */

static bool map_has(const struct map *map, const struct map_node *node)
{
    const struct map_node *found = vmm__map_find(map, node->key);
    while (found != NULL && found != node)
        found = vmm__map_find_next(found);
    return found != NULL;
}

/* The list that a lane without memory is in. */
static const struct lane_list *vacant_list(const struct lanes *lanes, const struct lane *lane)
{
    if (!vmm__lane_has_ended(lane))
        return NULL;
    return lane->owner.is_pooled ? &lanes->vacant_pooled : &lanes->vacant_detached;
}

/* Invariants of lanes.h. */
static vmm_status lists_check(const struct lanes *lanes, const struct lane *lane)
{
    bool is_stocked = lane->list == &lanes->stocked;
    if (vmm__lane_has_memory(lane) && !is_stocked)
        return broken("lanes: invariant 1: a lane with memory is not stocked");
    if (!is_stocked && lane->list != vacant_list(lanes, lane))
        return broken("lanes: invariant 2: a lane without memory is in another list");
    if (lane->owner.is_pooled && !map_has(&lanes->pooled_streams, &lane->by_stream))
        return broken("lanes: invariant 3: a lane cannot be found by its stream");
    return VMM_OK;
}

/* Invariant 2 of pools.h, 1 of sleep.h, import.h and streams.h. */
static vmm_status lane_check(const struct vmm_cache *cache, struct lane *lane)
{
    const struct pool *pool = lane->owner.pool;
    bool is_default = pool == &cache->pool;
    bool is_awake = pool->phase == VMM_POOL_AWAKE;
    if (*lane->pool_link != lane || (!is_default && !lane->owner.is_pooled))
        return broken("pools: invariant 2: a lane is not in the list of its pool");
    if (lane->is_asleep == is_awake || (!is_awake && !is_default && lane->is_in_table))
        return broken("sleep: invariant 1: a lane is of another phase than its pool");
    if (lane->owner.is_imported != (pool == &cache->imports) ||
        (lane->owner.is_imported && lane->lock.may_bias))
        return broken("import: invariant 1: a lane has imported memory and others'");
    if (!lane->owner.is_pooled && lane->is_detached != vmm__lane_has_ended(lane))
        return broken("streams: invariant 1: a detached lane has a stream");
    return vmm__lane_check_locked(lane);
}

static vmm_status lanes_check(struct vmm_cache *cache, uint64_t *exports)
{
    vmm_status status = VMM_OK;
    for (struct lane *lane = cache->lanes.first; lane != NULL && status == VMM_OK;
         lane = lane->next) {
        vmm__lane_lock(lane);
        status = lane_check(cache, lane);
        if (status == VMM_OK)
            status = lists_check(&cache->lanes, lane);
        *exports += lane->exports;
        vmm__lane_unlock(lane);
    }
    return status;
}

/* ---- Exports ------------------------------------------------------------------------------- */

static bool block_is_exported(const struct block *block)
{
    const struct block *user = block->state == BLOCK_OCCUPIED ? block->user : block;
    bool has_objects = user->state == BLOCK_SLAB;
    return (user->pins & PIN_EXPORT) != 0 ||
           (has_objects && user->slab->pins[PIN_EXPORT - PIN_PROGRAM] != 0);
}

/* Whether an exported block lies over a chunk. */
static bool chunk_is_exported(const struct vmm_cache *cache, const struct chunk *chunk)
{
    uint64_t address = vmm__chunk_address(&cache->vm, chunk);
    uint64_t end = address + vmm__chunk_bytes(&cache->vm, chunk);
    struct heap *heap = vmm__directory_heap(&cache->directory, address);
    bool is_exported = false;
    if (heap == NULL)
        return false;
    vmm__lane_lock(heap->lane);
    for (const struct block *block = vmm__heap_cover(heap, address);
         block != NULL && block->address < end && !is_exported; block = block->next)
        is_exported = block_is_exported(block);
    vmm__lane_unlock(heap->lane);
    return is_exported;
}

/* Whether the block that a share names is marked as exported. */
static bool share_is_marked(const struct vmm_cache *cache, uint64_t address)
{
    struct block_ref ref;
    struct heap *heap = vmm__directory_heap(&cache->directory, address);
    if (heap == NULL)
        return false;
    vmm__lane_lock(heap->lane);
    bool is_marked = vmm__block_ref_find(heap, address, &ref) && vmm__block_ref_is_exported(&ref);
    vmm__lane_unlock(heap->lane);
    return is_marked;
}

/* Invariants of export.h. `blocks`: those that lanes count as exported. */
static vmm_status exports_check(const struct vmm_cache *cache, uint64_t blocks)
{
    const struct vm *vm = &cache->vm;
    for (struct map_node *node = vmm__map_next(&cache->exports, NULL); node != NULL;
         node = vmm__map_next(&cache->exports, node)) {
        if (!share_is_marked(cache, node->key))
            return broken("export: invariant 1: the block of a share is not marked");
        blocks -= vmm__map_find(&cache->exports, node->key) == node ? 1 : 0;
    }
    if (blocks != 0)
        return broken("export: invariant 1: lanes miscount exported blocks");
    for (uint32_t id = 1; id < vm->record_high; id++) {
        const struct chunk *chunk = &vm->records[id];
        bool has_shares = chunk->state == CHUNK_HELD && chunk->exported != NULL;
        if (has_shares && !chunk_is_exported(cache, chunk))
            return broken("export: invariant 2: a chunk keeps what its shares had");
    }
    return VMM_OK;
}

/* ---- All ----------------------------------------------------------------------------------- */

vmm_status vmm__cache_check_locked(struct vmm_cache *cache)
{
    uint64_t committed = 0;
    uint64_t exports = 0;
    VMM_ASSERT_HELD(&cache->grow_lock);
    vmm_status status = vmm__vm_check(&cache->vm);
    if (status == VMM_OK)
        status = chunks_check(cache, &committed);
    if (status == VMM_OK)
        status = reserves_check(cache, committed);
    if (status == VMM_OK)
        status = pools_check(cache);
    if (status == VMM_OK)
        status = lanes_check(cache, &exports);
    return status == VMM_OK ? exports_check(cache, exports) : status;
}
