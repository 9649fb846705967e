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

static vmm_status transfer_from(struct vmm_cache *cache, struct heap *from, struct heap *heap,
                                uint64_t bytes, enum idle_when when)
{
    struct idle_scan scan = vmm__idle_scan(from, heap->pool, when);
    struct idle_run run;
    if (from == heap || !run_find(cache, &scan, bytes, &run))
        return VMM__NO_FIT;
    vmm_status status = vmm__idle_clear(cache, &run, heap->pool, when);
    return status == VMM_OK ? vmm__idle_hand(cache, &run, heap) : status;
}

vmm_status vmm__transfer(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         enum idle_when when)
{
    bool is_transferred = false;
    uint64_t left = vmm__cache_pools_most(cache, heap);
    for (struct pool *pool = cache->pools.stocked.first;
         pool != NULL && !is_transferred && left > 0; pool = pool->list_next, left--) {
        vmm__pool_lock_refilling(cache, pool, heap->pool);
        struct heap *from = heap->is_small ? &pool->small : &pool->large;
        is_transferred = transfer_from(cache, from, heap, bytes, when) == VMM_OK;
        vmm__pool_unlock_beside(pool, heap->pool);
    }
    return is_transferred ? VMM_OK : VMM__NO_FIT;
}
