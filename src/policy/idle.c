/* Runs of idle chunks: see idle.h. */
#include "policy/idle.h"

bool vmm__whole_chunks(const struct memory *memory, const struct block *block, uint64_t bytes,
                       uint64_t *address, uint64_t *run_bytes)
{
    const struct arena *arena = &memory->arena;
    uint64_t start = vmm__arena_granule(arena, block->address + arena->granule_bytes - 1);
    uint64_t limit = vmm__arena_granule(arena, vmm__block_end(block));
    if (start >= limit)
        return false;
    const struct chunk *chunk = vmm__memory_chunk(memory, start);
    if (chunk->first < start) {
        start = chunk->first + chunk->granules;
        if (start >= limit)
            return false;
    }
    uint64_t end = start;
    while (end < limit && (end - start) << arena->granule_shift < bytes) {
        chunk = vmm__memory_chunk(memory, end);
        if (end + chunk->granules > limit)
            break;
        end += chunk->granules;
    }
    *address = vmm__arena_address(arena, start);
    *run_bytes = (end - start) << arena->granule_shift;
    return end > start;
}

vmm_status vmm__idle_clear(const struct heap *from, const struct block *block,
                           const struct pool *to, bool follow)
{
    struct timeline *timeline = &from->pool->timeline;
    if (from->pool == to)
        return VMM_OK;
    if (follow)
        return vmm__timeline_follow(timeline, block->epoch, to->stream);
    return vmm__timeline_query(timeline, block->epoch);
}

vmm_status vmm__idle_hand(struct vmm_cache *cache, const struct idle_run *run, struct heap *to)
{
    const struct arena *arena = &cache->memory.arena;
    vmm_status status = vmm__heap_records_keep(to, 1);
    if (status != VMM_OK)
        return status;
    uint64_t epoch = run->block->epoch;
    status = vmm__heap_detach(run->heap, run->block, run->address, run->bytes);
    if (status != VMM_OK)
        return status;
    struct block *block;
    status = vmm__heap_attach(to, run->address, run->bytes, vmm__timeline_now(&to->pool->timeline),
                              &block);
    if (status != VMM_OK) /* for want of slots, which the way back would need too */
        vmm__memory_discard(&cache->memory, vmm__arena_granule(arena, run->address),
                            run->bytes >> arena->granule_shift, &run->heap->pool->timeline, epoch);
    return status;
}
