/* Transfers idle chunks between heaps in place: see transfer.h. */
#include "cache/reuse/transfer.h"
#include "base/arith.h"

enum { RUN_PROBES = 8 };

/* Finds a run in a block that is long enough. */
static bool block_find(struct vmm_cache *cache, struct idle_scan *scan, struct block *block,
                       uint64_t bytes, struct idle_run *run)
{
    uint64_t from = block->address;
    while (vmm__idle_next(cache, scan, block, from, bytes, run)) {
        if (run->bytes >= bytes)
            return true;
        from = run->address + run->bytes;
    }
    return false;
}

/* Tries the best fit among a heap's free blocks, then the next larger ones, because partly used chunks and work in flight
 * may make a block's run too short. */
static bool run_find(struct vmm_cache *cache, struct idle_scan *scan, uint64_t bytes,
                     struct idle_run *run)
{
    uint64_t need = vmm__align_up(bytes, cache->vm.arena.granule_bytes);
    struct size_node *node = vmm__size_index_find(&scan->from->index, need);
    for (int probe = 0; node != NULL && probe < RUN_PROBES; probe++) {
        if (block_find(cache, scan, (struct block *)node, bytes, run))
            return true;
        node = vmm__size_index_larger(&scan->from->index, node);
    }
    return false;
}

static struct heap *heap_like(struct pool *pool, const struct heap *heap)
{
    return heap->is_small ? &pool->small : &pool->large;
}

/* Finds the run that lies in the smallest free block, over the pools that the request has locked. */
static bool pools_find(struct vmm_cache *cache, const struct heap *to, uint64_t bytes,
                       enum idle_when when, struct idle_run *best)
{
    uint64_t best_bytes = UINT64_MAX;
    for (struct pool *pool = cache->pools.stocked.first; pool != NULL; pool = pool->list_next) {
        struct heap *from = heap_like(pool, to);
        struct idle_scan scan = vmm__idle_scan(from, to->pool, when);
        struct idle_run run;
        if (from == to || !vmm__pool_is_scanned(cache, pool) ||
            !run_find(cache, &scan, bytes, &run) || run.block->node.size >= best_bytes)
            continue;
        *best = run;
        best_bytes = run.block->node.size;
    }
    return best_bytes != UINT64_MAX;
}

vmm_status vmm__transfer(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         enum idle_when when)
{
    struct idle_run run;
    if (cache->pools.stocked.count < 2)
        return VMM__NO_FIT;
    vmm__cache_pools_lock_refilling(cache, heap);
    vmm_status status = VMM__NO_FIT;
    if (pools_find(cache, heap, bytes, when, &run))
        status = vmm__idle_clear(cache, &run, heap->pool, when);
    if (status == VMM_OK)
        status = vmm__idle_hand(cache, &run, heap);
    vmm__cache_pools_unlock_refilling(cache, heap);
    return status == VMM_OK ? VMM_OK : VMM__NO_FIT;
}
