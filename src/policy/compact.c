/* Moving live bytes together: see compact.h. */
#include "policy/compact.h"
#include "base/error.h"
#include "policy/mesh.h"
#include "policy/reback.h"
#include "policy/ring.h"
#include "policy/trim.h"

#include <stdlib.h>

/* A compaction under way. */
struct compaction {
    struct vmm_cache *cache;
    uint64_t wanted_bytes;
    uint64_t start_bytes; /* reserved when it began */
    bool lacked_room;     /* for a copy: there may be some another time */
};

bool vmm__compact_may(const struct vmm_cache *cache)
{
    if (cache->no_caching || cache->compaction == VMM_COMPACTION_OFF)
        return false;
    bool has_callers = atomic_load_explicit(&cache->has_callers, memory_order_relaxed);
    return (cache->compaction == VMM_COMPACTION_ON || !has_callers) &&
           cache->privates.captures == NULL; /* to wait for the device would break the capture */
}

bool vmm__compact_is_quiet(struct vmm_cache *cache)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        struct timeline *timeline = &pool->timeline;
        vmm_status status = vmm__timeline_query(timeline, vmm__timeline_now(timeline));
        if (status != VMM_OK && !vmm__timeline_is_gone(timeline))
            return false;
    }
    return true;
}

static uint64_t freed_bytes(const struct compaction *compaction)
{
    uint64_t reserved = vmm__figure_now(&compaction->cache->memory.reserved_bytes);
    return compaction->start_bytes > reserved ? compaction->start_bytes - reserved : 0;
}

static bool is_enough(const struct compaction *compaction)
{
    return freed_bytes(compaction) >= compaction->wanted_bytes;
}

static uint32_t idle_granules(const struct partly *partly)
{
    return partly->chunk->granules - partly->live_granules;
}

/* Most memory first. */
static int by_gain(const void *a, const void *b)
{
    uint32_t left = idle_granules(a);
    uint32_t right = idle_granules(b);
    return left > right ? -1 : left < right;
}

/*
 * Re-backs chunks that hold idle granules or, to prepare them for meshing, granules that are free in
 * part. What there is no room for is passed over: others that go first may make room.
 */
static vmm_status chunks_reback(struct compaction *compaction, bool to_mesh)
{
    struct survey survey;
    vmm_status status = vmm__survey_take(compaction->cache, &survey);
    if (status != VMM_OK)
        return status;
    if (survey.count > 0)
        qsort(survey.chunks, survey.count, sizeof *survey.chunks, by_gain);
    for (uint64_t i = 0; i < survey.count && status == VMM_OK && !is_enough(compaction); i++) {
        const struct partly *partly = &survey.chunks[i];
        if (partly->is_pinned || partly->chunk->granules == 1 ||
            (idle_granules(partly) == 0 && !to_mesh))
            continue;
        status = vmm__reback(compaction->cache, partly);
        compaction->lacked_room = compaction->lacked_room || vmm__is_shortage(status);
        bool may_go_on = compaction->cache->memory.astray == 0;
        if (may_go_on && (vmm__is_shortage(status) || status == VMM_ERR_UNSUPPORTED))
            status = VMM_OK;
    }
    vmm__survey_end(&survey);
    return status;
}

static vmm_status granules_mesh(struct compaction *compaction)
{
    struct survey survey;
    vmm_status status = vmm__survey_take(compaction->cache, &survey);
    if (status != VMM_OK)
        return status;
    uint64_t left_bytes = compaction->wanted_bytes - freed_bytes(compaction);
    status = vmm__mesh(compaction->cache, &survey, left_bytes);
    (void)vmm__limbo_drain(&compaction->cache->memory, NULL);
    vmm__survey_end(&survey);
    return status;
}

/* Chunks with idle granules are the cheapest; meshing may make the room that re-backing lacks. */
static vmm_status stages_run(struct compaction *compaction)
{
    vmm_status status = VMM_OK;
    for (int round = 0; round < 2 && status == VMM_OK; round++) {
        bool to_mesh = round > 0;
        if (!is_enough(compaction))
            status = chunks_reback(compaction, to_mesh);
        if (status == VMM_OK && !is_enough(compaction))
            status = granules_mesh(compaction);
    }
    return status;
}

/* What was freed since makes room in rings. */
static vmm_status rings_renew(struct vmm_cache *cache)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        (void)vmm__pool_poll_locked(pool, UINT32_MAX);
    vmm__rings_part_locked(cache);
    return vmm__rings_settle(cache);
}

/* Waits for the device and gives back what that left idle. */
static vmm_status device_settle(struct compaction *compaction, struct pool *held)
{
    struct vmm_cache *cache = compaction->cache;
    if (held != NULL)
        vmm__pool_unlock(held);
    vmm_status status = vmm__driver_device_wait(cache->driver);
    if (held != NULL)
        vmm__pool_lock(held);
    if (status != VMM_OK)
        return status;
    vmm__cache_pools_lock(cache, held);
    if (vmm__compact_may(cache)) /* another thread may have called first while this one waited */
        status = rings_renew(cache);
    vmm__cache_pools_unlock(cache, held);
    if (status != VMM_OK)
        return status;
    struct trim_order order = { .bytes = compaction->wanted_bytes,
                                .when = IDLE_FINISHED,
                                .held = held };
    (void)vmm__trim_idle(cache, &order);
    (void)vmm__limbo_drain(&cache->memory, NULL);
    return VMM_OK;
}

static vmm_status compaction_run(struct compaction *compaction, struct pool *held)
{
    struct vmm_cache *cache = compaction->cache;
    vmm_status status = device_settle(compaction, held);
    if (status != VMM_OK)
        return status;
    if (cache->memory.astray > 0)
        return VMM_NOT_READY; /* what is not mapped cannot be copied */
    vmm__cache_pools_lock(cache, held);
    if (vmm__compact_may(cache))
        status = stages_run(compaction);
    vmm__cache_pools_unlock(cache, held);
    return status;
}

/* Moves on with whatever may give a compaction something to gain. */
static uint64_t moment(struct vmm_cache *cache)
{
    vmm_figure allocations = vmm__figure_read(&cache->ledger.allocations);
    return allocations.allocated + allocations.freed +
           atomic_load_explicit(&cache->unpins, memory_order_relaxed) +
           vmm__driver_calls(cache->driver, DRIVER_CALL_map) +
           vmm__driver_calls(cache->driver, DRIVER_CALL_unmap);
}

vmm_status vmm__compact(struct vmm_cache *cache, struct pool *held, uint64_t bytes)
{
    if (!vmm__compact_may(cache))
        return VMM_NOT_READY;
    vmm__cache_post(cache, held);
    if (moment(cache) == cache->compacted_in_vain || vmm__privates_capture(cache))
        return VMM_NOT_READY;
    struct compaction compaction = { .cache = cache,
                                     .wanted_bytes = bytes,
                                     .start_bytes =
                                         vmm__figure_now(&cache->memory.reserved_bytes) };
    uint64_t copies = vmm__driver_calls(cache->driver, DRIVER_CALL_copy);
    vmm_status status = compaction_run(&compaction, held);
    uint64_t freed = freed_bytes(&compaction);
    if (vmm__driver_calls(cache->driver, DRIVER_CALL_copy) != copies)
        atomic_fetch_add_explicit(&cache->compactions, 1, memory_order_relaxed);
    vmm__cache_log(cache, "compact: wanted %llu MiB, freed %llu MiB, %u twins",
                   (unsigned long long)bytes >> 20, (unsigned long long)freed >> 20,
                   cache->memory.twins);
    if (freed > 0)
        return VMM_OK;
    if (status == VMM_OK && !compaction.lacked_room)
        cache->compacted_in_vain = moment(cache);
    return status == VMM_OK || vmm__is_shortage(status) ? VMM_NOT_READY : status;
}
