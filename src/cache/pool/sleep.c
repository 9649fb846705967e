/* Requests to sleep and to wake, and the phases of pools: see sleep.h. */
#include "cache/pool/sleep.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/thread.h"
#include "cache/pool/pool_sleep.h"
#include "cache/pool/pools.h"
#include "cache/pool/route.h"
#include "cache/reserve/reserve.h"

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

/* Sets a phase. A pool that is then not retained gives up the memory of reserved blocks that were freed meanwhile. */
static void phase_set_locked(struct pool *pool, vmm_pool_phase phase)
{
    bool was_awake = pool->phase == VMM_POOL_AWAKE;
    bool is_awake = phase == VMM_POOL_AWAKE;
    pool->phase = phase;
    vmm__pool_keeping_settle(pool);
    if (was_awake != is_awake)
        lanes_mark_locked(pool, !is_awake);
    if (!vmm__pool_is_retained(pool))
        vmm__reserves_end_locked(pool->cache, pool);
}

static void phases_set_locked(const struct sleep_request *request, vmm_pool_phase phase)
{
    for (uint64_t i = 0; i < request->count; i++)
        phase_set_locked(request->pools[i], phase);
}

/* ---- The sleep that a claim has begun ------------------------------------------------------ */

bool vmm__sleep_claimed_wait_locked(const struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    struct claimed *claimed = &cache->pools.claimed;
    VMM_ASSERT_HELD(&cache->grow_lock);
    if (claimed->pool != pool || claimed->thread == vmm__thread_self())
        return false;
    vmm__fair_unlock(&cache->grow_lock);
    vmm__mutex_lock(&claimed->lock);
    while (claimed->pool == pool)
        (void)vmm__mutex_wait(&claimed->lock, &claimed->ended, NULL);
    vmm__mutex_unlock(&claimed->lock);
    vmm__fair_lock(&cache->grow_lock);
    return true;
}

/* While it waits for the sleep of one pool, another one may be claimed. */
static void claimed_wait_locked(const struct sleep_request *request)
{
    uint64_t i = 0;
    while (i < request->count)
        i = vmm__sleep_claimed_wait_locked(request->pools[i]) ? 0 : i + 1;
}

static void claimed_set_locked(struct vmm_cache *cache, struct pool *pool)
{
    struct claimed *claimed = &cache->pools.claimed;
    VMM_ASSERT_HELD(&cache->grow_lock);
    VMM_HOLD(&claimed->lock);
    claimed->pool = pool;
    claimed->thread = vmm__thread_self();
    (void)pthread_cond_broadcast(&claimed->ended);
}

void vmm__sleep_begin_claimed_locked(const struct sleep_request *request)
{
    phases_set_locked(request, VMM_POOL_SLEEPING);
    claimed_set_locked(request->cache, request->pools[0]);
}

void vmm__sleep_end_claimed_locked(struct vmm_cache *cache)
{
    claimed_set_locked(cache, NULL);
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
static const char *begin_obstacle(const struct pool *pool, bool is_wake)
{
    vmm_pool_phase from = is_wake ? VMM_POOL_ASLEEP : VMM_POOL_AWAKE;
    if (pool->phase != from && pool->phase != VMM_POOL_OFFERED)
        return "goes to sleep or wakes in another call";
    if (vmm__pool_has_source(pool))
        return "has a source, whose memory cannot be unmapped";
    return !is_wake && is_exported(pool) ? "has exported blocks" : NULL;
}

static const char *function_of(const struct sleep_request *request)
{
    return request->is_wake ? "vmm_pool_wake" : "vmm_pool_sleep";
}

/* Whether a pool needs nothing. */
static bool is_done(const struct pool *pool, bool is_wake)
{
    return pool->phase == (is_wake ? VMM_POOL_AWAKE : VMM_POOL_ASLEEP);
}

/* Fails if a pool cannot begin. */
static vmm_status pools_check_locked(const struct sleep_request *request)
{
    for (uint64_t i = 0; i < request->count; i++) {
        const struct pool *pool = request->pools[i];
        const char *obstacle =
            is_done(pool, request->is_wake) ? NULL : begin_obstacle(pool, request->is_wake);
        if (obstacle != NULL)
            return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: pool %s %s", function_of(request),
                              pool->name, obstacle);
    }
    return VMM_OK;
}

static bool is_offer(const struct sleep_request *request)
{
    return !request->is_wake && request->options.on_claim != 0;
}

/* Pools that need no work leave the request: an offer ends, or begins, at once. */
static void pools_begin_locked(struct sleep_request *request)
{
    bool offers = is_offer(request);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < request->count; i++) {
        struct pool *pool = request->pools[i];
        if (pool->phase == VMM_POOL_OFFERED)
            phase_set_locked(pool, VMM_POOL_AWAKE);
        if (is_done(pool, request->is_wake))
            continue;
        if (!offers) {
            request->pools[kept++] = pool;
            continue;
        }
        pool->offer = (struct offer){ .options = request->options,
                                      .epoch = vmm__clock_advance(&pool->cache->clock) };
        phase_set_locked(pool, VMM_POOL_OFFERED);
    }
    request->count = kept;
    phases_set_locked(request, request->is_wake ? VMM_POOL_WAKING : VMM_POOL_SLEEPING);
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
        pools_begin_locked(request);
    return status;
}

/* Where the clock does not cover all streams, it never says that all work has finished: then the host waits now. If
 * that fails, the pools do not sleep before another wait has succeeded. */
static void offers_settle(struct vmm_cache *cache)
{
    if (vmm__clock_is_context(&cache->clock))
        return;
    VMM_QUIET();
    (void)vmm__clock_wait_all(&cache->clock);
}

vmm_status vmm__sleep_begin(struct sleep_request *request)
{
    struct vmm_cache *cache = request->cache;
    vmm__fair_lock(&cache->grow_lock);
    claimed_wait_locked(request);
    vmm_status status = begin_locked(request);
    vmm__fair_unlock(&cache->grow_lock);
    if (status == VMM_OK && is_offer(request))
        offers_settle(cache);
    return status;
}

void vmm__sleep_cancel(const struct sleep_request *request)
{
    vmm_pool_phase awake = request->is_claimed ? VMM_POOL_OFFERED : VMM_POOL_AWAKE;
    VMM_HOLD_FAIR(&request->cache->grow_lock);
    phases_set_locked(request, request->is_wake ? VMM_POOL_ASLEEP : awake);
}

static struct pool_sleep job_of(const struct sleep_request *request, uint64_t number,
                                struct claim *claim)
{
    return (struct pool_sleep){ .cache = request->cache,
                                .options = &request->options,
                                .claim = claim,
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
    vmm_status status = request->is_claimed ? VMM_OK : work_wait(request);
    uint64_t tried = 0;
    for (; tried < request->count && status == VMM_OK; tried++)
        status = vmm__pool_sleep(&jobs[tried]);
    if (status != VMM_OK)
        sleep_undo(jobs, tried);
    return status;
}

/* Two calls that kept what they have woken could wait for each other. So the one that claims later puts all of it back
 * to sleep, lets the other one go on, and begins again. */
static vmm_status pools_wake(const struct sleep_request *request, struct pool_sleep *jobs)
{
    vmm_status status = VMM_OK;
    uint64_t tried = 0;
    while (tried < request->count && status == VMM_OK) {
        status = vmm__pool_wake(&jobs[tried++]);
        if (status != VMM__PENDING)
            continue;
        while (tried > 0)
            vmm__pool_sleep_again(&jobs[--tried]);
        vmm__claim_give_way(request->cache, jobs[0].claim);
        status = VMM_OK;
    }
    return status;
}

static vmm_status wake_run(const struct sleep_request *request, struct pool_sleep *jobs)
{
    vmm_status status = work_wait(request);
    if (status == VMM_OK)
        status = pools_wake(request, jobs);
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
    vmm_pool_phase awake = request->is_claimed ? VMM_POOL_OFFERED : VMM_POOL_AWAKE;
    VMM_HOLD_FAIR(&request->cache->grow_lock);
    for (uint64_t i = 0; i < request->count; i++) {
        phase_set_locked(request->pools[i], jobs[i].ends_asleep ? VMM_POOL_ASLEEP : awake);
        vmm__pool_sleep_free(&jobs[i]);
    }
}

vmm_status vmm__sleep_run(const struct sleep_request *request)
{
    if (request->count == 0)
        return VMM_OK;
    struct claim claim = { .gives_way = request->is_wake };
    struct pool_sleep *jobs = vmm__host_alloc(request->count, sizeof *jobs);
    if (jobs == NULL) {
        vmm__sleep_cancel(request);
        return vmm__error(VMM_ERR_HOST_OOM, "%s: no host memory for the work on %llu pools",
                          function_of(request), (unsigned long long)request->count);
    }
    for (uint64_t i = 0; i < request->count; i++)
        jobs[i] = job_of(request, i, &claim);
    vmm_status status = request->is_wake ? wake_run(request, jobs) : sleep_run(request, jobs);
    request_log(request, status);
    request_end(request, jobs);
    vmm__host_free(jobs, request->count * sizeof *jobs);
    return status;
}

vmm_status vmm__sleep_end_locked(struct pool *pool)
{
    bool is_offered = pool->phase == VMM_POOL_OFFERED;
    vmm_status status = is_offered ? VMM_OK : vmm__pool_sleep_release_locked(pool);
    if (status == VMM_OK)
        phase_set_locked(pool, VMM_POOL_AWAKE);
    return status;
}
