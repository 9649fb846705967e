/* Decides which live bytes to move: see compact.h. */
#include "cache/compact/compact.h"
#include "base/error.h"
#include "cache/compact/relocate.h"
#include "cache/idle/trim.h"
#include "cache/pool/pools.h"

#include <stdlib.h>

enum { NS_PER_MS = 1000000 };

/* The state of one compaction. */
struct compaction {
    struct vmm_cache *cache;
    const struct pool *pool; /* NULL: all */
    uint64_t wanted_bytes;
    uint64_t start_bytes; /* reserved at its start */
    uint64_t start_ns;
    uint64_t budget_ns; /* 0: no limit */
    uint64_t moved_bytes;
    bool was_short; /* for a copy, in the last pass; a later pass may have room */
};

bool vmm__compact_may(const struct vmm_cache *cache)
{
    return cache->compaction == VMM_ON && !cache->no_caching;
}

static uint64_t reserved_bytes(const struct compaction *compaction)
{
    const struct pool *pool = compaction->pool;
    return vmm__stat_now(pool == NULL ? &compaction->cache->vm.reserved_bytes
                                      : &pool->account.reserved_bytes);
}

static struct compaction compaction_begin(struct vmm_cache *cache, const struct pool *pool,
                                          uint64_t bytes)
{
    struct compaction compaction = { .cache = cache, .pool = pool, .wanted_bytes = bytes };
    compaction.start_bytes = reserved_bytes(&compaction);
    return compaction;
}

static uint64_t freed_bytes(const struct compaction *compaction)
{
    uint64_t reserved = reserved_bytes(compaction);
    return compaction->start_bytes > reserved ? compaction->start_bytes - reserved : 0;
}

static bool is_over(const struct compaction *compaction)
{
    const struct decay *decay = &compaction->cache->decay;
    if (freed_bytes(compaction) >= compaction->wanted_bytes)
        return true;
    return compaction->budget_ns != 0 &&
           vmm__decay_clock_ns(decay) - compaction->start_ns >= compaction->budget_ns;
}

static uint32_t idle_granules(const struct partly *partly)
{
    return partly->chunk->granules - partly->live_granules;
}

/* The chunk that frees most memory comes first. */
static int by_gain(const void *a, const void *b)
{
    uint32_t left = idle_granules(a);
    uint32_t right = idle_granules(b);
    return left > right ? -1 : left < right;
}

/* Skips a chunk if there is no room for its copy; relocating others may make room. */
static vmm_status chunk_relocate(struct compaction *compaction, const struct partly *partly)
{
    const struct vm *memory = &compaction->cache->vm;
    uint64_t bytes = (uint64_t)partly->live_granules << memory->arena.granule_shift;
    vmm_status status = vmm__relocate(compaction->cache, partly);
    if (status == VMM_OK)
        compaction->moved_bytes += bytes;
    if (!vmm__is_oom(status))
        return status;
    compaction->was_short = true;
    return memory->remap_pending == 0 ? VMM_OK : status;
}

/* Whether a chunk has idle granules, no pinned block, and a pool that is compacted. */
static bool may_relocate(const struct compaction *compaction, const struct partly *partly)
{
    const struct pool *pool = compaction->pool;
    return !partly->is_pinned && idle_granules(partly) > 0 &&
           (pool == NULL || partly->heap->lane->owner.pool == pool);
}

/* Relocates chunks until as much is released as is wanted. */
static vmm_status pass_run(struct compaction *compaction)
{
    struct occupancy_scan occupancy_scan;
    vmm_status status = vmm__occupancy_scan_begin(compaction->cache, &occupancy_scan);
    if (status != VMM_OK)
        return status;
    if (occupancy_scan.count > 0)
        qsort(occupancy_scan.chunks, occupancy_scan.count, sizeof *occupancy_scan.chunks, by_gain);
    compaction->was_short = false;
    for (uint64_t i = 0; i < occupancy_scan.count && status == VMM_OK && !is_over(compaction);
         i++) {
        const struct partly *partly = &occupancy_scan.chunks[i];
        if (may_relocate(compaction, partly))
            status = chunk_relocate(compaction, partly);
    }
    vmm__occupancy_scan_end(&occupancy_scan);
    return status;
}

/* Repeats passes while one makes room that an earlier chunk needed. */
static vmm_status passes_run(struct compaction *compaction)
{
    uint64_t before;
    vmm_status status;
    do {
        before = reserved_bytes(compaction);
        status = pass_run(compaction);
    } while (status == VMM_OK && compaction->was_short && !is_over(compaction) &&
             reserved_bytes(compaction) < before);
    return status;
}

/* Waits for the device and releases the memory that is idle then. */
static vmm_status device_settle(struct compaction *compaction, struct lane *held)
{
    struct vmm_cache *cache = compaction->cache;
    if (held != NULL)
        vmm__lane_unlock(held);
    vmm_status status = vmm__clock_wait_all(&cache->clock);
    if (status == VMM_OK)
        (void)vmm__pools_leave_locked(cache); /* a later call meets a failure again */
    if (held != NULL)
        vmm__lane_lock(held);
    if (status != VMM_OK)
        return status;
    for (struct lane *lane = cache->lanes.first; lane != NULL; lane = lane->next) {
        vmm__lane_lock_beside(lane, held);
        (void)vmm__lane_poll_locked(lane, UINT32_MAX);
        vmm__lane_unlock_beside(lane, held);
    }
    struct trim_request trim = { .bytes = compaction->wanted_bytes,
                                 .when = IDLE_FINISHED,
                                 .held = held,
                                 .pool = compaction->pool,
                                 .taker = held == NULL ? NULL : held->owner.pool };
    (void)vmm__trim_idle(cache, &trim);
    (void)vmm__limbo_drain(&cache->vm, NULL);
    return VMM_OK;
}

static vmm_status compaction_run(struct compaction *compaction, struct lane *held)
{
    struct vmm_cache *cache = compaction->cache;
    uint64_t copies = vmm__driver_calls(cache->driver, DRIVER_CALL_copy);
    vmm_status status = device_settle(compaction, held);
    if (status != VMM_OK)
        return status;
    if (cache->vm.remap_pending > 0) /* unmapped bytes cannot be copied */
        return vmm__error(VMM_ERR_DRIVER, "compact: the driver refuses to map %u live chunks",
                          cache->vm.remap_pending);
    vmm__cache_lanes_lock(cache, held);
    /* calls of other threads may have submitted clears and copies since */
    status = vmm__clock_wait_all(&cache->clock);
    if (status == VMM_OK)
        status = passes_run(compaction);
    vmm__cache_lanes_unlock(cache, held);
    if (vmm__driver_calls(cache->driver, DRIVER_CALL_copy) != copies)
        vmm__count(&cache->counts.compactions, 1);
    vmm__cache_log(cache, "compact: freed %llu MiB, copied %llu MiB",
                   (unsigned long long)freed_bytes(compaction) >> 20,
                   (unsigned long long)compaction->moved_bytes >> 20);
    return status;
}

/* A count that changes with everything that may give a compaction something to gain. */
static uint64_t change_count(struct vmm_cache *cache)
{
    vmm_stat allocations = vmm__stat_read(&cache->totals.allocations);
    return allocations.allocated + allocations.freed +
           atomic_load_explicit(&cache->unpins, memory_order_relaxed) +
           vmm__driver_calls(cache->driver, DRIVER_CALL_map) +
           vmm__driver_calls(cache->driver, DRIVER_CALL_unmap);
}

/* Whether nothing has changed since a run gained nothing of the pool, or of all pools. */
static bool is_useless(struct vmm_cache *cache, const struct pool *pool)
{
    const struct compacted *compacted = &cache->compacted;
    return compacted->without_gain == change_count(cache) &&
           (compacted->pool == NULL || compacted->pool == pool);
}

vmm_status vmm__compact(struct vmm_cache *cache, struct lane *held, const struct pool *pool,
                        uint64_t bytes)
{
    if (!vmm__compact_may(cache) || (pool != NULL && pool->handle == NULL)) /* it may end now */
        return VMM__NOTHING;
    vmm__lanes_counters_flush(&cache->lanes, held);
    if (is_useless(cache, pool) || vmm__clock_capture_query(&cache->clock) != VMM_OK)
        return VMM__NOTHING;
    struct compaction compaction = compaction_begin(cache, pool, bytes);
    vmm_status status = compaction_run(&compaction, held);
    if (freed_bytes(&compaction) > 0)
        return VMM_OK;
    if (status == VMM_OK && !compaction.was_short)
        cache->compacted = (struct compacted){ .without_gain = change_count(cache), .pool = pool };
    bool is_refused = status == VMM_OK || status == VMM__PENDING || vmm__is_oom(status);
    return is_refused ? VMM__NOTHING : status;
}

vmm_status vmm__compact_now(struct vmm_cache *cache, uint32_t budget_ms, uint64_t *moved_bytes,
                            uint64_t *released_bytes)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = vmm__clock_capture_query(&cache->clock);
    if (status != VMM_OK) {
        vmm__fair_unlock(&cache->grow_lock);
        return status;
    }
    vmm__lanes_counters_flush(&cache->lanes, NULL); /* before waits end */
    struct compaction compaction = compaction_begin(cache, NULL, UINT64_MAX);
    compaction.budget_ns = (uint64_t)budget_ms * NS_PER_MS;
    compaction.start_ns = budget_ms == 0 ? 0 : vmm__decay_clock_ns(&cache->decay);
    status = compaction_run(&compaction, NULL);
    vmm__cache_lanes_vacate(cache);
    status = vmm__cache_checked(cache, CHECK_TRIM_EVERY, status);
    vmm__fair_unlock(&cache->grow_lock);
    if (status != VMM_OK)
        return status;
    vmm__error_restore(&line);
    *moved_bytes = compaction.moved_bytes;
    *released_bytes = freed_bytes(&compaction);
    return VMM_OK;
}
