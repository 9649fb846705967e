/* Idle chunks cross from one heap to another where they lie: see cross.h. */
#include "policy/cross.h"
#include "base/arith.h"

enum { RUN_PROBES = 8 };

/* A run of a block that is long enough. */
static bool block_find(struct vmm_cache *cache, struct idle_quest *quest, struct block *block,
                       uint64_t bytes, struct idle_run *run)
{
    uint64_t from = block->address;
    while (vmm__idle_next(cache, quest, block, from, bytes, run)) {
        if (run->bytes >= bytes)
            return true;
        from = run->address + run->bytes;
    }
    return false;
}

/* The best fit among a heap's free blocks, or one of the next larger ones if chunks that are used
 * in part, or still at work, leave too little of it. */
static bool run_find(struct vmm_cache *cache, struct idle_quest *quest, uint64_t bytes,
                     struct idle_run *run)
{
    uint64_t need = vmm__align_up(bytes, cache->memory.arena.granule_bytes);
    struct size_node *node = vmm__size_index_find(&quest->from->index, need);
    for (int probe = 0; node != NULL && probe < RUN_PROBES; probe++) {
        if (block_find(cache, quest, (struct block *)node, bytes, run))
            return true;
        node = vmm__size_index_larger(&quest->from->index, node);
    }
    return false;
}

static vmm_status cross_from(struct vmm_cache *cache, struct heap *from, struct heap *heap,
                             uint64_t bytes, enum idle_when when)
{
    struct idle_quest quest = vmm__idle_quest(from, heap->pool, when);
    struct idle_run run;
    if (from == heap || !run_find(cache, &quest, bytes, &run))
        return VMM_NOT_READY;
    vmm_status status = vmm__idle_clear(cache, &run, heap->pool, when);
    return status == VMM_OK ? vmm__idle_hand(cache, &run, heap) : status;
}

vmm_status vmm__cross(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                      enum idle_when when)
{
    bool crossed = false;
    for (struct pool *pool = cache->pools.first; pool != NULL && !crossed; pool = pool->next) {
        vmm__pool_lock_supplying(cache, pool, heap->pool);
        struct heap *from = heap->is_small ? &pool->small : &pool->large;
        crossed = cross_from(cache, from, heap, bytes, when) == VMM_OK;
        vmm__pool_unlock_beside(pool, heap->pool);
    }
    return crossed ? VMM_OK : VMM_NOT_READY;
}
