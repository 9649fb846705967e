/* Idle chunks move to where they are needed: see steal.h. */
#include "policy/steal.h"
#include "policy/idle.h"

/* A theft under way. */
struct theft {
    struct vmm_cache *cache;
    struct heap *to;
    const struct site *site;
    uint64_t want;  /* granules */
    uint64_t taken; /* granules */
    enum steal_from from;
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

/* Steals whole chunks from the low end of one free block. False if the driver refuses to go on. */
static bool block_steal(struct theft *theft, struct heap *heap, struct block *block)
{
    struct memory *memory = &theft->cache->memory;
    uint64_t left_bytes = (theft->want - theft->taken) << memory->arena.granule_shift;
    uint64_t room = theft->site->room - theft->taken;
    uint64_t epoch = block->epoch;
    uint64_t address;
    uint64_t bytes;
    if (!vmm__whole_chunks(memory, block, left_bytes, &address, &bytes))
        return true;
    uint64_t granule = vmm__arena_granule(&memory->arena, address);
    uint64_t end = granule;
    while (end < granule + (bytes >> memory->arena.granule_shift)) {
        uint64_t next = end + vmm__memory_chunk(memory, end)->granules;
        if (next - granule > room)
            break;
        end = next;
    }
    if (end == granule ||
        vmm__idle_clear(heap, block, theft->to->pool, theft->from == STEAL_FOLLOW) != VMM_OK ||
        vmm__heap_detach(heap, block, address, (end - granule) << memory->arena.granule_shift) !=
            VMM_OK)
        return true;
    bool going = true;
    while (granule < end) {
        struct chunk *chunk = vmm__memory_chunk(memory, granule);
        granule += chunk->granules;
        if (going)
            going = chunk_move(theft, chunk, &heap->pool->timeline, epoch);
        else
            vmm__limbo_put(memory, chunk, &heap->pool->timeline, epoch);
    }
    return going;
}

static bool heap_steal(struct theft *theft, struct heap *heap)
{
    struct size_node *node =
        vmm__size_index_from(&heap->index, theft->cache->memory.arena.granule_bytes);
    bool going = true;
    while (node != NULL && going && !theft_is_done(theft)) {
        struct size_node *next = vmm__size_index_larger(&heap->index, node);
        const struct block *block = (const struct block *)node;
        if (block != theft->site->beside && block != theft->site->beyond)
            going = block_steal(theft, heap, (struct block *)node);
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
        vmm__lock_take_second(&pool->lock);
        if (pool->large.free_bytes + pool->small.free_bytes >= granule_bytes)
            going = pool_steal(theft, pool);
        vmm__lock_drop(&pool->lock);
    }
    return going;
}

uint64_t vmm__steal(struct vmm_cache *cache, struct heap *heap, const struct site *site,
                    uint64_t count, enum steal_from from)
{
    struct theft theft = { .cache = cache, .to = heap, .site = site, .want = count, .from = from };
    if (others_steal(&theft) && !theft_is_done(&theft))
        (void)pool_steal(&theft, heap->pool);
    return theft.taken;
}
