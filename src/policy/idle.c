/* Runs of idle chunks: see idle.h. */
#include "policy/idle.h"
#include "base/arith.h"

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

uint64_t vmm__idle_bytes(const struct memory *memory, const struct block *block)
{
    uint64_t address;
    uint64_t bytes;
    return vmm__whole_chunks(memory, block, UINT64_MAX, &address, &bytes) ? bytes : 0;
}

uint64_t vmm__idle_epoch(const struct vmm_cache *cache, const struct idle_run *run)
{
    const struct arena *arena = &cache->memory.arena;
    return vmm__directory_epoch(&cache->directory, vmm__arena_granule(arena, run->address),
                                run->bytes >> arena->granule_shift);
}

vmm_status vmm__idle_clear(struct vmm_cache *cache, const struct idle_run *run,
                           const struct pool *to, enum idle_when when)
{
    struct timeline *timeline = &run->heap->pool->timeline;
    if (run->heap->pool == to)
        return VMM_OK;
    uint64_t epoch = vmm__idle_epoch(cache, run);
    if (when == IDLE_FOLLOW)
        return vmm__timeline_follow(timeline, epoch, to->stream);
    return vmm__timeline_query(timeline, epoch);
}

void vmm__idle_stick(struct idle_quest *quest, uint64_t epoch, vmm_status status)
{
    quest->stuck_epoch = epoch;
    if (status != VMM_NOT_READY && quest->failed == VMM_OK)
        quest->failed = status;
}

static bool chunk_may(struct vmm_cache *cache, struct idle_quest *quest, const struct chunk *chunk)
{
    if (quest->from->pool->is_held) /* graphs use its addresses, free or not */
        return false;
    uint64_t epoch = vmm__directory_epoch(&cache->directory, chunk->first, chunk->granules);
    if (epoch > quest->latest_epoch)
        return false;
    if (chunk->twin != 0 || !chunk->is_mapped) /* other places live in it, or it is astray */
        return false;
    if (quest->when != IDLE_FINISHED || quest->to == quest->from->pool)
        return true;
    if (epoch >= quest->stuck_epoch)
        return false;
    vmm_status status = vmm__timeline_query(&quest->from->pool->timeline, epoch);
    if (status != VMM_OK)
        vmm__idle_stick(quest, epoch, status);
    return status == VMM_OK;
}

bool vmm__idle_next(struct vmm_cache *cache, struct idle_quest *quest, struct block *block,
                    uint64_t address, uint64_t bytes, struct idle_run *run)
{
    const struct arena *arena = &cache->memory.arena;
    uint64_t from = vmm__max(address, block->address);
    uint64_t granule = vmm__arena_granule(arena, from + arena->granule_bytes - 1);
    uint64_t limit = vmm__arena_granule(arena, vmm__block_end(block));
    uint64_t count = 0;
    while (granule + count < limit && count << arena->granule_shift < bytes) {
        const struct chunk *chunk = vmm__memory_chunk(&cache->memory, granule + count);
        uint64_t end = chunk->first + chunk->granules;
        bool is_whole = chunk->first == granule + count && end <= limit;
        bool may = is_whole && chunk_may(cache, quest, chunk);
        if (!may && count > 0)
            break;
        granule = may ? granule : end;
        count += may ? chunk->granules : 0;
    }
    *run = (struct idle_run){ .heap = quest->from,
                              .block = block,
                              .address = vmm__arena_address(arena, granule),
                              .bytes = count << arena->granule_shift };
    return count > 0;
}

/* Chunks of a free block whose work has not finished. */
static uint64_t block_unfinished_bytes(struct vmm_cache *cache, struct idle_quest *quest,
                                       struct block *block)
{
    uint64_t address;
    uint64_t idle_bytes;
    if (!vmm__whole_chunks(&cache->memory, block, UINT64_MAX, &address, &idle_bytes))
        return 0;
    struct idle_run run;
    while (vmm__idle_next(cache, quest, block, address, UINT64_MAX, &run)) {
        idle_bytes -= run.bytes;
        address = run.address + run.bytes;
    }
    return idle_bytes;
}

uint64_t vmm__idle_unfinished(struct vmm_cache *cache, struct heap *heap)
{
    struct idle_quest quest = vmm__idle_quest(heap, NULL, IDLE_FINISHED);
    uint64_t bytes = 0;
    for (struct size_node *node = vmm__size_index_largest(&heap->index);
         node != NULL && node->size >= cache->memory.arena.granule_bytes;
         node = vmm__size_index_smaller(&heap->index, node))
        bytes += block_unfinished_bytes(cache, &quest, (struct block *)node);
    return bytes;
}

bool vmm__idle_cut(const struct memory *memory, uint64_t most_bytes, struct idle_run *run)
{
    unsigned shift = memory->arena.granule_shift;
    uint64_t granule = vmm__arena_granule(&memory->arena, run->address);
    uint64_t end = granule + (run->bytes >> shift);
    while ((end - granule) << shift > most_bytes)
        end = vmm__memory_chunk(memory, end - 1)->first;
    run->bytes = (end - granule) << shift;
    return run->bytes > 0;
}

struct block *vmm__idle_behind(const struct vmm_cache *cache, const struct idle_run *run)
{
    uint64_t end = run->address + run->bytes;
    if (!vmm__arena_contains(&cache->memory.arena, end) ||
        vmm__directory_heap(&cache->directory, end) != run->heap)
        return NULL;
    struct block *block = *vmm__directory_slot(&cache->directory, end);
    bool is_it = block != NULL && block->address == end && block->state == BLOCK_FREE;
    return is_it ? block : NULL;
}

/* A fence behind the run goes with it. */
vmm_status vmm__idle_discard(struct vmm_cache *cache, const struct idle_run *run)
{
    struct arena *arena = &cache->memory.arena;
    uint64_t epoch = vmm__idle_epoch(cache, run);
    vmm_status status = vmm__heap_detach(run->heap, run->block, run->address, run->bytes);
    if (status != VMM_OK)
        return status;
    vmm__memory_discard(&cache->memory, vmm__arena_granule(arena, run->address),
                        run->bytes >> arena->granule_shift, &run->heap->pool->timeline, epoch);
    vmm__arena_unfence(arena, vmm__arena_granule(arena, run->address + run->bytes));
    return VMM_OK;
}

vmm_status vmm__idle_hand(struct vmm_cache *cache, const struct idle_run *run, struct heap *to)
{
    const struct arena *arena = &cache->memory.arena;
    vmm_status status = vmm__heap_records_keep(to, 1);
    if (status != VMM_OK)
        return status;
    uint64_t epoch = vmm__idle_epoch(cache, run);
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
