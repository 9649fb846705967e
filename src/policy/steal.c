/* Idle chunks move to where they are needed: see steal.h. */
#include "policy/steal.h"
#include "base/arith.h"
#include "policy/idle.h"

/* A theft under way. */
struct theft {
    struct vmm_cache *cache;
    struct heap *to;
    const struct site *site;
    uint64_t want;  /* granules */
    uint64_t taken; /* granules */
    enum idle_when when;
};

static bool theft_is_done(const struct theft *theft)
{
    return theft->taken >= theft->want;
}

/* Moves one chunk, cut out of its free block already, to the next place of the site. What cannot be
 * moved goes back to the driver. */
static bool chunk_move(struct theft *theft, struct chunk *chunk, struct timeline *timeline,
                       uint64_t epoch)
{
    struct memory *memory = &theft->cache->memory;
    uint64_t granule = theft->site->granule + theft->taken;
    if (vmm__memory_move(memory, chunk, granule, timeline, epoch) != VMM_OK) {
        vmm__limbo_put(memory, chunk, timeline, epoch);
        return false;
    }
    theft->taken += chunk->granules;
    return true;
}

/* Moves the chunks of a run that was cut out. False if the driver refuses to go on. */
static bool run_move(struct theft *theft, const struct idle_run *run)
{
    const struct memory *memory = &theft->cache->memory;
    struct timeline *timeline = &run->heap->pool->timeline;
    uint64_t granule = vmm__arena_granule(&memory->arena, run->address);
    uint64_t end = granule + (run->bytes >> memory->arena.granule_shift);
    bool going = true;
    while (granule < end) {
        struct chunk *chunk = vmm__memory_chunk(memory, granule);
        uint64_t epoch =
            vmm__directory_epoch(&theft->cache->directory, chunk->first, chunk->granules);
        granule += chunk->granules;
        if (going)
            going = chunk_move(theft, chunk, timeline, epoch);
        else
            vmm__limbo_put(&theft->cache->memory, chunk, timeline, epoch);
    }
    return going;
}

/* Steals what it may of one free block, from an address on. False if the driver refuses to go on. */
static bool block_steal(struct theft *theft, struct idle_quest *quest, struct block *block,
                        uint64_t from)
{
    unsigned shift = theft->cache->memory.arena.granule_shift;
    bool going = true;
    while (block != NULL && going && !theft_is_done(theft)) {
        struct idle_run run;
        uint64_t left_bytes = (theft->want - theft->taken) << shift;
        uint64_t room_bytes = (theft->site->room - theft->taken) << shift;
        if (!vmm__idle_next(theft->cache, quest, block, from, left_bytes, &run) ||
            !vmm__idle_cut(&theft->cache->memory, room_bytes, &run) ||
            vmm__idle_clear(theft->cache, &run, quest->to, quest->when) != VMM_OK ||
            vmm__heap_detach(quest->from, block, run.address, run.bytes) != VMM_OK)
            break;
        from = run.address + run.bytes;
        going = run_move(theft, &run);
        block = vmm__idle_behind(theft->cache, &run);
    }
    return going;
}

static bool heap_steal(struct theft *theft, struct heap *heap)
{
    struct idle_quest quest = vmm__idle_quest(heap, theft->to->pool, theft->when);
    struct size_node *node =
        vmm__size_index_from(&heap->index, theft->cache->memory.arena.granule_bytes);
    bool going = true;
    while (node != NULL && going && !theft_is_done(theft)) {
        struct size_node *next = vmm__size_index_larger(&heap->index, node);
        const struct block *block = (const struct block *)node;
        if (block != theft->site->beside && block != theft->site->beyond)
            going = block_steal(theft, &quest, (struct block *)node, block->address);
        node = next;
    }
    return going;
}

static bool pool_steal(struct theft *theft, struct pool *pool)
{
    bool going = heap_steal(theft, &pool->large);
    if (going && !theft_is_done(theft))
        going = heap_steal(theft, &pool->small);
    return going;
}

/* Other streams, the one supplied last first: what was freed last comes in the longest runs, and in
 * measured orders costs the fewest moves. */
static bool others_steal(struct theft *theft)
{
    bool going = true;
    uint64_t granule_bytes = theft->cache->memory.arena.granule_bytes;
    for (struct pool *pool = theft->cache->pools.recent;
         pool != NULL && going && !theft_is_done(theft); pool = pool->recent_next) {
        if (pool == theft->to->pool)
            continue;
        vmm__pool_lock_supplying(theft->cache, pool, theft->to->pool);
        if (pool->large.free_bytes + pool->small.free_bytes >= granule_bytes)
            going = pool_steal(theft, pool);
        vmm__pool_unlock(pool);
    }
    return going;
}

/* What the request will leave of the free block behind the void: from the far end, so that the rest stays in
 * one piece, unless its chunks do not come in that size. */
static void beyond_steal(struct theft *theft, uint64_t bytes)
{
    const struct site *site = theft->site;
    struct idle_quest quest = vmm__idle_quest(theft->to, theft->to->pool, theft->when);
    struct block *beyond = (struct block *)site->beyond;
    uint64_t needed_end = site->beside->address + bytes;
    uint64_t missing_bytes = (theft->want - theft->taken)
                             << theft->cache->memory.arena.granule_shift;
    uint64_t far = vmm__block_end(beyond) - vmm__min(missing_bytes, beyond->node.size);
    bool going = block_steal(theft, &quest, beyond, vmm__max(needed_end, far));
    if (going && !theft_is_done(theft))
        (void)block_steal(theft, &quest, beyond, needed_end);
}

uint64_t vmm__steal(struct vmm_cache *cache, struct heap *heap, const struct site *site,
                    uint64_t bytes, uint64_t count, enum idle_when when)
{
    struct theft theft = { .cache = cache, .to = heap, .site = site, .want = count, .when = when };
    bool going = others_steal(&theft);
    if (going && !theft_is_done(&theft))
        going = pool_steal(&theft, heap->pool);
    if (going && !theft_is_done(&theft) && site->beyond != NULL)
        beyond_steal(&theft, bytes);
    return theft.taken;
}
