/*
 * Reads a cache without its locks: see monitor.h.
 *
 * Statistics of the cache are atomic. What a lane has not flushed yet is not: there peek() reads aligned words that
 * another thread may be writing. The processors that the library supports do not tear them, so a value is that of some
 * moment. No decision depends on one.
 */
#include "api/internal.h"
#include "api/monitor.h"
#include "base/arith.h"
#include "driver/driver.h"

#include <string.h>

enum { POOLS_MOST = 256, LANES_MOST = 1024, TRIES = 3 };

/* ThreadSanitizer must not see these reads. */
#define UNSEEN __attribute__((noinline, no_sanitize("thread")))

static UNSEEN uint64_t peek(const uint64_t *value)
{
    return *(const volatile uint64_t *)value;
}

static UNSEEN const struct pool *peek_pool(const struct lane *lane)
{
    return *(struct pool *const volatile *)&lane->owner.pool;
}

static UNSEEN uint32_t peek_phase(const struct pool *pool)
{
    return (uint32_t) * (const volatile vmm_pool_phase *)&pool->phase;
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* Adds what a lane has not flushed. */
static void lane_add(vmm_stats *to, const struct lane *lane)
{
    const struct counters *counters = &lane->counters;
    uint64_t allocated = peek(&counters->allocated_bytes.current);
    to->streams++;
    to->requested_bytes.current +=
        peek(&counters->requested_bytes.current) - peek(&counters->requested_bytes.flushed);
    to->requested_bytes.allocated += peek(&counters->requested_bytes.taken);
    to->allocated_bytes.current += allocated - peek(&counters->allocated_bytes.flushed);
    to->allocated_bytes.allocated += peek(&counters->allocated_bytes.taken);
    to->active_bytes.current +=
        allocated + peek(&counters->waiting_bytes) - peek(&counters->active_flushed_bytes);
    to->active_bytes.allocated +=
        peek(&counters->allocated_bytes.taken) + peek(&counters->hidden_taken);
    to->allocations.current +=
        peek(&counters->allocations.current) - peek(&counters->allocations.flushed);
    to->allocations.allocated += peek(&counters->allocations.taken);
}

/* A sum of values of different moments may be below zero. */
static void stat_finish(vmm_stat *stat)
{
    if ((int64_t)stat->current < 0)
        stat->current = 0;
    stat->peak = vmm__max(stat->peak, stat->current);
    stat->allocated = vmm__max(stat->allocated, stat->current);
    stat->freed = stat->allocated - stat->current;
}

static void stats_finish(vmm_stats *stats)
{
#define STAT_FINISH(name, ...) stat_finish(&stats->name);
    VMM_STAT_MAP(STAT_FINISH)
}

/* ---- Records -------------------------------------------------------------------------------- */

/* The records of one cache. */
struct records {
    struct monitor_cache *cache;
    struct monitor_pool *pools;
    struct monitor_lane *lanes;
    const struct pool *sources[POOLS_MOST]; /* of the pools */
    uint64_t pools_most;
    uint64_t lanes_most;
};

static void pool_read(struct records *records, const struct pool *pool)
{
    struct monitor_cache *cache = records->cache;
    if (cache->pools == records->pools_most) {
        cache->pools_omitted++;
        return;
    }
    struct monitor_pool *record = &records->pools[cache->pools];
    *record = (struct monitor_pool){ .is_graph = pool->kind == VMM_POOL_GRAPH,
                                     .phase = peek_phase(pool),
                                     .uses = peek(&pool->uses) };
    memcpy(record->name, pool->name, sizeof pool->name);
    vmm__pool_stats_counted(pool, &record->stats);
    records->sources[cache->pools++] = pool;
}

/* The number of a lane's pool; the number of pools if its pool was omitted. A lane whose pool has just been destroyed
 * is the default pool's. */
static uint32_t pool_number(const struct records *records, const struct pool *pool)
{
    uint32_t number = 0;
    while (number < records->cache->pools && records->sources[number] != pool)
        number++;
    bool is_gone = number == records->cache->pools && records->cache->pools_omitted == 0;
    return is_gone ? 0 : number;
}

/* Physical memory of the lane, with that of its reserved blocks. */
static uint64_t lane_bytes(const struct lane *lane)
{
    uint64_t reserved = peek(&lane->reserved_granules)
                        << lane->large.directory->arena->granule_shift;
    return peek(&lane->large.bytes) + peek(&lane->small.bytes) + reserved;
}

static void lane_read(struct records *records, const struct lane *lane)
{
    struct monitor_cache *cache = records->cache;
    uint32_t pool = pool_number(records, peek_pool(lane));
    lane_add(&cache->stats, lane);
    if (pool < cache->pools)
        lane_add(&records->pools[pool].stats, lane);
    struct monitor_lane record = {
        .stream =
            (uint64_t)(uintptr_t)atomic_load_explicit(&lane->owner.stream, memory_order_relaxed),
        .pool = pool,
        .allocated_bytes = peek(&lane->counters.allocated_bytes.current),
        .waiting_bytes = peek(&lane->counters.waiting_bytes),
        .reserved_bytes = lane_bytes(lane),
        .blocks = peek(&lane->counters.allocations.current),
    };
    bool has_memory = record.allocated_bytes + record.waiting_bytes + record.reserved_bytes > 0;
    if (has_memory && pool < cache->pools && cache->lanes < records->lanes_most)
        records->lanes[cache->lanes++] = record;
    else if (has_memory)
        cache->lanes_omitted++;
}

static void driver_read(struct monitor_cache *record, const struct driver *driver)
{
    (void)snprintf(record->driver, sizeof record->driver, "%s", driver->ops->name);
    memcpy(record->device_name, driver->device_name, sizeof record->device_name);
    record->device_bytes = driver->total_bytes;
}

static void cache_read(const struct vmm_cache *cache, struct monitor_cache *record)
{
    *record = (struct monitor_cache){ .serial = cache->monitor_serial,
                                      .device = (uint64_t)cache->device };
    driver_read(record, cache->driver);
    vmm__stats_counted(cache, &record->stats);
}

/* ---- All ------------------------------------------------------------------------------------ */

static void records_read(struct vmm_cache *cache, struct records *records, size_t room)
{
    cache_read(cache, records->cache);
    pool_read(records, &cache->pool);
    for (const struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        pool_read(records, pool);
    records->lanes = (struct monitor_lane *)(void *)(records->pools + records->cache->pools);
    room -= records->cache->pools * sizeof *records->pools;
    records->lanes_most = vmm__min(LANES_MOST, room / sizeof *records->lanes);
    for (const struct lane *lane = cache->lanes.first; lane != NULL; lane = lane->next)
        lane_read(records, lane);
    stats_finish(&records->cache->stats);
    for (uint32_t i = 0; i < records->cache->pools; i++)
        stats_finish(&records->pools[i].stats);
}

/* Allocations and frees that were flushed: rises with each flush of a lane that had changed. */
static uint64_t flushed(const struct vmm_cache *cache)
{
    return 2 * atomic_load(&cache->totals.allocations.allocated) -
           atomic_load(&cache->totals.allocations.current);
}

/* A flush meanwhile moves counts from a lane to the totals, so that they are missing or count twice: reads again. With
 * many threads a flush moves little. */
char *vmm__monitor_read(struct vmm_cache *cache, char *at, size_t room)
{
    struct records records;
    if (room < sizeof *records.cache + sizeof *records.pools)
        return NULL;
    room -= sizeof *records.cache;
    records.cache = (struct monitor_cache *)(void *)at;
    records.pools = (struct monitor_pool *)(void *)(records.cache + 1);
    records.pools_most = vmm__min(POOLS_MOST, room / sizeof *records.pools);
    vmm__mutex_lock(&cache->pools.list_lock);
    uint64_t before;
    int tries = TRIES;
    do {
        before = flushed(cache);
        records_read(cache, &records, room);
    } while (flushed(cache) != before && --tries > 0);
    vmm__mutex_unlock(&cache->pools.list_lock);
    return (char *)(records.lanes + records.cache->lanes);
}
