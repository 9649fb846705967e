/* What one thread of the soak of threads does next. See thread_soak.h. */
#include "thread_soak.h"

#include <math.h>

enum {
    OFTEN = 1000,      /* operations below are so many of these */
    DIE_EVERY = 20000, /* operations */
    GRAPH_EVERY = 400,
    GRAPH_HANDS = 4 /* one in so many captures */
};

uint64_t hand_bytes_drawn(struct hand *hand, uint64_t low, uint64_t high)
{
    double share = (double)(random_next(&hand->random) >> 11) / (double)(UINT64_C(1) << 53);
    uint64_t drawn = (uint64_t)((double)low * pow((double)high / (double)low, share));
    return drawn < low ? low : drawn > high ? high : drawn;
}

/* ---- What concerns no block ------------------------------------------------------------------ */

static void memory_trimmed(struct hand *hand)
{
    uint64_t keep = random_next(&hand->random) % hand->crew->settings.limit_bytes;
    hand_does(hand, "vmm_trim");
    crew_expect(hand->crew, "vmm_trim", vmm_trim(hand->crew->cache, keep, NULL));
}

static void time_told(struct hand *hand)
{
    hand_does(hand, "vmm_tick");
    crew_expect(hand->crew, "vmm_tick", vmm_tick(hand->crew->cache));
}

static void figures_looked_at(struct hand *hand)
{
    hand_does(hand, "vmm_stats_get");
    vmm_stats stats = crew_stats(hand->crew);
    uint64_t limit = hand->crew->settings.limit_bytes;
    if (stats.reserved_bytes.peak > limit)
        crew_trouble(hand->crew, "%llu bytes were reserved under a limit of %llu",
                     (unsigned long long)stats.reserved_bytes.peak, (unsigned long long)limit);
}

static void limit_moved(struct hand *hand)
{
    uint64_t limit = hand->crew->settings.limit_bytes;
    hand_does(hand, "vmm_limit_set");
    limit -= random_next(&hand->random) % (limit / 16);
    crew_expect(hand->crew, "vmm_limit_set", vmm_limit_set(hand->crew->cache, limit));
}

static int item_seen(void *context, const vmm_item *item)
{
    uint64_t *last = context;
    bool rises = item->address >= *last;
    *last = rises ? item->address : UINT64_MAX;
    return rises ? 0 : 1;
}

static void blocks_walked(struct hand *hand)
{
    uint64_t last = 0;
    hand_does(hand, "vmm_walk");
    crew_expect(hand->crew, "vmm_walk", vmm_walk(hand->crew->cache, item_seen, &last));
    if (last == UINT64_MAX)
        crew_trouble(hand->crew, "vmm_walk: addresses do not rise");
}

static void block_found(struct hand *hand, const struct crew_block *block)
{
    vmm_item item = VMM_ITEM_INIT;
    hand_does(hand, "vmm_find");
    const char *inside = (const char *)block->address + block->bytes / 2;
    crew_expect(hand->crew, "vmm_find", vmm_find(hand->crew->cache, inside, &item));
    if (item.address != (uintptr_t)block->address || item.requested_bytes != block->bytes)
        crew_trouble(hand->crew, "vmm_find: %llu bytes at %p are taken for %llu at %#llx",
                     (unsigned long long)block->bytes, block->address,
                     (unsigned long long)item.requested_bytes, (unsigned long long)item.address);
}

static void block_pinned(struct hand *hand, const struct crew_block *block)
{
    hand_does(hand, "vmm_pin");
    crew_expect(hand->crew, "vmm_pin", vmm_pin(hand->crew->cache, block->address));
    crew_expect(hand->crew, "vmm_unpin", vmm_unpin(hand->crew->cache, block->address));
}

/* ---- What comes next ------------------------------------------------------------------------- */

static void cache_operation(struct hand *hand, uint64_t which)
{
    switch (which) {
    case 0:
    case 1:
        memory_trimmed(hand);
        return;
    case 2:
    case 3:
        time_told(hand);
        return;
    case 4:
        figures_looked_at(hand);
        return;
    case 5:
        limit_moved(hand);
        return;
    default:
        blocks_walked(hand);
        return;
    }
}

static void block_operation(struct hand *hand, struct crew_block *block, uint64_t which)
{
    if (block->address == NULL)
        hand_block_take(hand, block);
    else if (which < 20)
        block_found(hand, block);
    else if (which < 30)
        block_pinned(hand, block);
    else if (which < 200)
        hand_block_use(hand, block);
    else if (which < 280)
        hand_block_touch(hand, block);
    else
        hand_block_give(hand, block);
}

static void hand_operation(struct hand *hand)
{
    uint64_t which = random_next(&hand->random) % OFTEN;
    struct crew_block *block = &hand->blocks[random_next(&hand->random) % HAND_BLOCKS];
    if (which < 7)
        cache_operation(hand, which);
    else if (which >= OFTEN - 60)
        hand_block_pass(hand, block);
    else
        block_operation(hand, block, which);
    if (hand->number % GRAPH_HANDS == 0 && hand_dice(hand, GRAPH_EVERY))
        hand_graph(hand);
}

/* Ends with the round, or before it. Its blocks stay behind, in the exchange or with the hand. */
void *hand_main(void *context)
{
    struct hand *hand = context;
    struct crew *crew = hand->crew;
    while (atomic_load_explicit(&crew->goes_on, memory_order_relaxed)) {
        hand_operation(hand);
        hand->sums.operations++;
        atomic_fetch_add_explicit(&hand->done, 1, memory_order_relaxed);
        if (!hand_dice(hand, DIE_EVERY))
            continue;
        hand_blocks_leave(hand);
        hand->sums.deaths++;
        break;
    }
    hand_does(hand, "nothing");
    atomic_store_explicit(&hand->has_ended, true, memory_order_release);
    return NULL;
}
