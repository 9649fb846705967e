/* Requests to sleep and to wake, and the phases of pools: see sleep.h. */
#include "cache/pool/sleep.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/pool/pool_sleep.h"

/* ---- Phases -------------------------------------------------------------------------------- */

/* Marks the lanes of a pool, so that they serve no request, or serve again. */
static void lanes_mark_locked(struct pool *pool, bool is_asleep)
{
    struct vmm_cache *cache = pool->cache;
    bool is_default = pool == &cache->pool;
    VMM_ASSERT_HELD(&cache->grow_lock);
    for (struct lane *lane = pool->lanes; lane != NULL; lane = lane->next_of_pool) {
        if (is_asleep && !is_default && lane->is_in_table)
            vmm__lane_table_leave(&pool->table, lane);
        vmm__lane_lock(lane);
        lane->is_asleep = is_asleep;
        lane->stays_awake = false;
        vmm__lane_unlock(lane);
    }
    if (is_default)
        vmm__route_slow_path_set(cache);
}

/* Reserved blocks that were freed meanwhile have kept their memory. */
static void phase_set_locked(struct pool *pool, vmm_pool_phase phase)
{
    bool was_awake = pool->phase == VMM_POOL_AWAKE;
    bool is_awake = phase == VMM_POOL_AWAKE;
    pool->phase = phase;
    vmm__pool_keeping_settle(pool);
    if (was_awake != is_awake)
        lanes_mark_locked(pool, !is_awake);
    if (is_awake && !vmm__pool_is_used(pool))
        vmm__reserves_end_locked(pool->cache, pool);
}

static void phases_set_locked(const struct sleep_request *request, vmm_pool_phase phase)
{
    for (uint64_t i = 0; i < request->count; i++)
        phase_set_locked(request->pools[i], phase);
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Whether a pool has blocks that other processes may use. */
static bool is_exported(const struct pool *pool)
{
    bool has_exports = false;
    for (struct lane *lane = pool->lanes; lane != NULL && !has_exports; lane = lane->next_of_pool) {
        vmm__lane_lock(lane);
        has_exports = lane->exports > 0;
        vmm__lane_unlock(lane);
    }
    return has_exports;
}

/* The reason why a pool cannot begin; NULL: it can. */
static const char *begin_obstacle(const struct pool *pool, vmm_pool_phase from)
{
    if (pool->phase != from)
        return "goes to sleep or wakes in another call";
    if (vmm__pool_has_source(pool))
        return "has a source, whose memory cannot be unmapped";
    return from == VMM_POOL_AWAKE && is_exported(pool) ? "has exported blocks" : NULL;
}

static const char *function_of(const struct sleep_request *request)
{
    return request->is_wake ? "vmm_pool_wake" : "vmm_pool_sleep";
}

/* Fails if a pool cannot begin, and changes nothing then. Pools that need nothing leave the request. */
static vmm_status pools_check_locked(struct sleep_request *request)
{
    vmm_pool_phase from = request->is_wake ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE;
    vmm_pool_phase to = request->is_wake ? VMM_POOL_AWAKE : VMM_POOL_ASLEEP;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < request->count; i++) {
        const struct pool *pool = request->pools[i];
        const char *obstacle = pool->phase == to ? NULL : begin_obstacle(pool, from);
        if (obstacle != NULL)
            return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: pool %s %s", function_of(request),
                              pool->name, obstacle);
    }
    for (uint64_t i = 0; i < request->count; i++) {
        if (request->pools[i]->phase != to)
            request->pools[kept++] = request->pools[i];
    }
    request->count = kept;
    return VMM_OK;
}

/* The status of a request for which all work must end. */
static vmm_status captured_refuse(const struct sleep_request *request, vmm_status status)
{
    if (status != VMM__PENDING)
        return status;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: a capture is under way", function_of(request));
}

static vmm_status begin_locked(struct sleep_request *request)
{
    VMM_ASSERT_HELD(&request->cache->grow_lock);
    vmm_status status = captured_refuse(request, vmm__clock_capture_query(&request->cache->clock));
    if (status == VMM_OK)
        status = pools_check_locked(request);
    if (status == VMM_OK)
        phases_set_locked(request, request->is_wake ? VMM_POOL_WAKING : VMM_POOL_SLEEPING);
    return status;
}

vmm_status vmm__sleep_begin(struct sleep_request *request)
{
    vmm__fair_lock(&request->cache->grow_lock);
    vmm_status status = begin_locked(request);
    vmm__fair_unlock(&request->cache->grow_lock);
    return status;
}

void vmm__sleep_cancel(const struct sleep_request *request)
{
    vmm__fair_lock(&request->cache->grow_lock);
    phases_set_locked(request, request->is_wake ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE);
    vmm__fair_unlock(&request->cache->grow_lock);
}

static struct pool_sleep job_of(const struct sleep_request *request, uint64_t number)
{
    return (struct pool_sleep){ .cache = request->cache,
                                .options = &request->options,
                                .pool = request->pools[number],
                                .ends_asleep = request->is_wake,
                                .copy = { .cache = request->cache } };
}

/* Waits for work that may use the pools, or memory that a wake needs. */
static vmm_status work_wait(const struct sleep_request *request)
{
    bool is_used = false;
    vmm__fair_lock(&request->cache->grow_lock);
    for (uint64_t i = 0; i < request->count; i++)
        is_used = is_used || vmm__pool_is_used(request->pools[i]);
    vmm__fair_unlock(&request->cache->grow_lock);
    return is_used ? captured_refuse(request, vmm__clock_wait_all(&request->cache->clock))
                   : vmm__cache_wait_all(request->cache);
}

/* Pools that slept before a later one failed wake again. */
static void sleep_undo(struct pool_sleep *jobs, uint64_t count)
{
    VMM_QUIET();
    for (uint64_t i = 0; i < count; i++) {
        if (!jobs[i].ends_asleep)
            continue;
        jobs[i].ends_asleep = vmm__pool_wake(&jobs[i]) != VMM_OK;
        vmm__pool_wake_end(&jobs[i]);
    }
}

static vmm_status sleep_run(const struct sleep_request *request, struct pool_sleep *jobs)
{
    vmm_status status = work_wait(request);
    uint64_t tried = 0;
    for (; tried < request->count && status == VMM_OK; tried++)
        status = vmm__pool_sleep(&jobs[tried]);
    if (status != VMM_OK)
        sleep_undo(jobs, tried);
    return status;
}

static vmm_status wake_run(const struct sleep_request *request, struct pool_sleep *jobs)
{
    vmm_status status = work_wait(request);
    for (uint64_t i = 0; i < request->count && status == VMM_OK; i++)
        status = vmm__pool_wake(&jobs[i]);
    for (uint64_t i = 0; i < request->count; i++) {
        jobs[i].ends_asleep = status != VMM_OK;
        vmm__pool_wake_end(&jobs[i]);
    }
    return status;
}

static void request_log(const struct sleep_request *request, vmm_status status)
{
    for (uint64_t i = 0; i < request->count; i++)
        vmm__cache_log(request->cache, "%s: pool %s%s%.400s", request->is_wake ? "wake" : "sleep",
                       request->pools[i]->name, status == VMM_OK ? "" : ": ",
                       status == VMM_OK ? "" : vmm_last_error());
}

/* Once its phase is set, other calls may use or destroy a pool. */
static void request_end(const struct sleep_request *request, struct pool_sleep *jobs)
{
    vmm__fair_lock(&request->cache->grow_lock);
    for (uint64_t i = 0; i < request->count; i++) {
        phase_set_locked(request->pools[i], jobs[i].ends_asleep ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE);
        vmm__pool_sleep_free(&jobs[i]);
    }
    vmm__fair_unlock(&request->cache->grow_lock);
}

vmm_status vmm__sleep_run(const struct sleep_request *request)
{
    struct pool_sleep *jobs = vmm__host_alloc(request->count + 1, sizeof *jobs);
    if (jobs == NULL) {
        vmm__sleep_cancel(request);
        return vmm__error(VMM_ERR_HOST_OOM, "%s: no host memory for the work on %llu pools",
                          function_of(request), (unsigned long long)request->count);
    }
    for (uint64_t i = 0; i < request->count; i++)
        jobs[i] = job_of(request, i);
    vmm_status status = request->is_wake ? wake_run(request, jobs) : sleep_run(request, jobs);
    request_log(request, status);
    request_end(request, jobs);
    vmm__host_free(jobs, (request->count + 1) * sizeof *jobs);
    return status;
}

vmm_status vmm__sleep_end_locked(struct pool *pool)
{
    vmm_status status = vmm__pool_sleep_release_locked(pool);
    if (status == VMM_OK)
        phase_set_locked(pool, VMM_POOL_AWAKE);
    return status;
}
