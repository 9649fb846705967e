/* Idle chunks cross from one heap to another where they lie: see cross.h. */
#include "policy/cross.h"
#include "base/arith.h"
#include "policy/trim.h"

enum { RUN_PROBES = 8 };

/* A run of idle chunks in somebody's free block. */
struct run {
    struct heap *heap;
    struct block *block;
    uint64_t address;
    uint64_t bytes;
};

/* The best fit among a heap's free blocks, or one of the next larger ones if chunks that are used
 * in part leave too little of it. */
static bool run_find(const struct vmm_cache *cache, struct heap *from, uint64_t bytes,
                     struct run *run)
{
    uint64_t need = vmm__align_up(bytes, cache->memory.arena.granule_bytes);
    struct size_node *node = vmm__size_index_find(&from->index, need);
    for (int probe = 0; node != NULL && probe < RUN_PROBES; probe++) {
        *run = (struct run){ .heap = from, .block = (struct block *)node };
        if (vmm__whole_chunks(&cache->memory, run->block, bytes, &run->address, &run->bytes) &&
            run->bytes >= bytes)
            return true;
        node = vmm__size_index_larger(&from->index, node);
    }
    return false;
}

/* Whether the run may be used by work that the receiving stream submits from now on. */
static vmm_status run_clear(const struct run *run, const struct heap *heap, enum cross_when when)
{
    struct timeline *timeline = &run->heap->pool->timeline;
    if (when == CROSS_FOLLOW)
        return vmm__timeline_follow(timeline, run->block->epoch, heap->pool->stream);
    return vmm__timeline_query(timeline, run->block->epoch);
}

static vmm_status run_move(struct vmm_cache *cache, struct run *run, struct heap *heap)
{
    vmm_status status = vmm__heap_records_keep(heap, 1);
    if (status != VMM_OK)
        return status;
    uint64_t own_epoch = run->block->epoch;
    status = vmm__heap_detach(run->heap, run->block, run->address, run->bytes);
    if (status != VMM_OK)
        return status;
    struct block *block;
    status = vmm__heap_attach(heap, run->address, run->bytes,
                              vmm__timeline_now(&heap->pool->timeline), &block);
    if (status != VMM_OK) /* for want of slots, which the way back would need too */
        vmm__run_to_limbo(&cache->memory, &run->heap->pool->timeline, own_epoch, run->address,
                          run->bytes);
    return status;
}

static vmm_status cross_from(struct vmm_cache *cache, struct heap *from, struct heap *heap,
                             uint64_t bytes, enum cross_when when)
{
    struct run run;
    if (from == heap || !run_find(cache, from, bytes, &run))
        return VMM_NOT_READY;
    vmm_status status = run_clear(&run, heap, when);
    return status == VMM_OK ? run_move(cache, &run, heap) : status;
}

vmm_status vmm__cross(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                      enum cross_when when)
{
    bool crossed = false;
    for (struct pool *pool = cache->pools.first; pool != NULL && !crossed; pool = pool->next) {
        vmm__pool_lock_beside(pool, heap->pool);
        struct heap *from = heap->is_small ? &pool->small : &pool->large;
        crossed = cross_from(cache, from, heap, bytes, when) == VMM_OK;
        vmm__pool_unlock_beside(pool, heap->pool);
    }
    return crossed ? VMM_OK : VMM_NOT_READY;
}
