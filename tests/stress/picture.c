/* What the program can see of a cache: see picture.h. */
#include "picture.h"

#include "cache/cache.h"
#include "debug/debug_mode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int item_noted(void *context, const vmm_item *item)
{
    struct picture *picture = context;
    bool is_in_use = item->state == VMM_ITEM_LIVE || item->state == VMM_ITEM_WAITING;
    if (item->kind != VMM_ITEM_BLOCK || !is_in_use)
        return 0;
    if (picture->count == PICTURE_ITEMS)
        abort(); /* it is too small */
    picture->items[picture->count++] =
        (struct picture_item){ .state = item->state,
                               .address = item->address,
                               .bytes = item->bytes,
                               .requested_bytes = item->requested_bytes,
                               .stream = item->stream,
                               .pool = item->pool_id,
                               .is_small = item->is_small };
    return 0;
}

struct guarded guarded_by(const vmm_cache *cache)
{
    struct guarded guarded = { .kept = 0 };
    if (cache->debug == NULL)
        return guarded;
    const struct records *records = &cache->debug->records;
    for (const struct record *live = records->live.oldest; live != NULL; live = live->newer)
        guarded.canary_bytes += live->is_alone ? 0 : live->inner_bytes - live->bytes;
    guarded.kept = records->kept.count;
    return guarded;
}

void picture_take(vmm_cache *cache, struct picture *picture)
{
    picture->count = 0;
    picture->stats = (vmm_stats)VMM_STATS_INIT;
    if (vmm_walk(cache, item_noted, picture) != VMM_OK ||
        vmm_stats_get(cache, &picture->stats) != VMM_OK)
        abort(); /* neither call may fail */
    picture->guarded = guarded_by(cache);
    picture->is_guarded = cache->debug != NULL;
}

/* Memory of a graph pool that is not in use any more may have lost its name. */
static bool items_equal(const struct picture_item *was, const struct picture_item *is)
{
    bool is_named = is->pool.first != 0 || is->pool.second != 0;
    return was->state == is->state && was->address == is->address && was->bytes == is->bytes &&
           was->requested_bytes == is->requested_bytes && was->stream == is->stream &&
           was->is_small == is->is_small &&
           (!is_named ||
            (was->pool.first == is->pool.first && was->pool.second == is->pool.second));
}

static const char *item_text(const struct picture_item *item, const char *what)
{
    static char text[160];
    (void)snprintf(text, sizeof text, "the %s block of %" PRIu64 " bytes at 0x%" PRIx64 " %s",
                   item->state == VMM_ITEM_LIVE ? "live" : "waiting", item->bytes, item->address,
                   what);
    return text;
}

/* What left the quarantine may wait for other streams in its pool, as may a block that was freed again. */
static bool may_have_come(const struct picture *before, const struct picture *after, unsigned at,
                          bool may_undo)
{
    return at < after->count && after->items[at].state == VMM_ITEM_WAITING &&
           (may_undo || after->guarded.kept < before->guarded.kept);
}

/* Waiting blocks may have come free. */
static const char *items_difference(const struct picture *before, const struct picture *after,
                                    bool may_undo)
{
    unsigned at = 0;
    for (unsigned i = 0; i < before->count; i++) {
        const struct picture_item *item = &before->items[i];
        while (may_have_come(before, after, at, may_undo) && !items_equal(item, &after->items[at]))
            at++;
        if (at < after->count && items_equal(item, &after->items[at]))
            at++;
        else if (item->state == VMM_ITEM_LIVE)
            return item_text(item, "has gone or changed");
    }
    while (may_have_come(before, after, at, may_undo))
        at++;
    return at < after->count ? item_text(&after->items[at], "has come or changed") : NULL;
}

static const char *stats_difference(const vmm_stats *before, const vmm_stats *after)
{
#define STAT_SAME(name)                                                                            \
    if (memcmp(&before->name, &after->name, sizeof before->name) != 0)                             \
        return #name " has changed";
    STAT_SAME(requested_bytes)
    STAT_SAME(allocated_bytes)
    STAT_SAME(allocations)
    STAT_SAME(unmovable_bytes)
    STAT_SAME(limit_bytes)
#undef STAT_SAME
    if (after->active_bytes.current > before->active_bytes.current)
        return "active_bytes has risen";
    if (after->active_bytes.allocated != before->active_bytes.allocated)
        return "active_bytes.allocated has changed";
    if (after->active_bytes.peak != before->active_bytes.peak)
        return "active_bytes.peak has changed";
    return NULL;
}

/* What is new has been counted, and so has its end, if only its canaries or its contents could not be written. */
static const char *guarded_difference(const struct picture *before, const struct picture *after,
                                      bool may_undo)
{
    const vmm_stats *was = &before->stats;
    const vmm_stats *is = &after->stats;
    if (before->guarded.canary_bytes != after->guarded.canary_bytes)
        return "canaries have come or gone";
    if (!may_undo && after->guarded.kept > before->guarded.kept)
        return "a block has come into quarantine";
    if (is->requested_bytes.current != was->requested_bytes.current)
        return "requested_bytes has changed";
    if (is->allocations.current != was->allocations.current)
        return "allocations has changed";
    if (is->allocated_bytes.current != was->allocated_bytes.current)
        return "allocated_bytes has changed";
    if (!may_undo && is->active_bytes.current > was->active_bytes.current)
        return "active_bytes has risen";
    if (is->unmovable_bytes != was->unmovable_bytes)
        return "unmovable_bytes has changed";
    return is->limit_bytes != was->limit_bytes ? "limit_bytes has changed" : NULL;
}

const char *picture_difference(const struct picture *before, const struct picture *after,
                               bool may_undo)
{
    const char *difference = items_difference(before, after, may_undo);
    if (difference != NULL)
        return difference;
    return before->is_guarded || may_undo ? guarded_difference(before, after, may_undo)
                                          : stats_difference(&before->stats, &after->stats);
}
