/* Memory of captured graphs: see graph_pools.h. */
#include "cache/graph/graph_pools.h"
#include "base/callback.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/cache.h"
#include "cache/streams.h"

void vmm__graph_pools_init(struct graph_pools *graph_pools)
{
    vmm__mutex_init(&graph_pools->lock);
}

void vmm__graph_pools_fini(struct graph_pools *graph_pools)
{
    while (graph_pools->captures != NULL) {
        struct capture *capture = graph_pools->captures;
        graph_pools->captures = capture->next;
        vmm__host_free(capture, sizeof *capture);
    }
    while (graph_pools->pools != NULL) {
        struct graph_pool *owner = graph_pools->pools;
        graph_pools->pools = owner->next;
        vmm__host_free(owner, sizeof *owner);
    }
    vmm__mutex_fini(&graph_pools->lock);
}

static struct graph_pool *graph_pool_find(const struct graph_pools *graph_pools, vmm_pool_id id)
{
    struct graph_pool *owner = graph_pools->pools;
    while (owner != NULL && !vmm__lane_ids_equal(owner->id, id))
        owner = owner->next;
    return owner;
}

/* The link to the capture of an id; to NULL if there is none. */
static struct capture **capture_link(struct graph_pools *graph_pools, vmm_pool_id id)
{
    struct capture **link = &graph_pools->captures;
    while (*link != NULL && !vmm__lane_ids_equal((*link)->id, id))
        link = &(*link)->next;
    return link;
}

/* During a capture every request takes the slow path, which checks whether it belongs to the capture. The listener for a
 * lost device sets the flag, too; it may do so at any time, so the device is checked after the flag is written. */
static void slow_path_only_set(struct vmm_cache *cache)
{
    bool is_slow_path_only = cache->no_caching || cache->graph_pools.captures != NULL;
    atomic_store_explicit(&cache->is_slow_path_only, is_slow_path_only, memory_order_seq_cst);
    if (vmm__driver_is_lost(cache->driver))
        atomic_store_explicit(&cache->is_slow_path_only, true, memory_order_seq_cst);
}

static void capture_add(struct vmm_cache *cache, struct capture *capture)
{
    vmm__mutex_lock(&cache->graph_pools.lock);
    capture->next = cache->graph_pools.captures;
    cache->graph_pools.captures = capture;
    vmm__mutex_unlock(&cache->graph_pools.lock);
    slow_path_only_set(cache);
}

/* ---- Begin, end ---------------------------------------------------------------------------- */

/* Settles a detached lane. Its stream does not use it any longer, so no slab need be spared for later requests. */
static void detached_settle(struct lane *lane)
{
    vmm__lane_lock(lane);
    (void)vmm__lane_settle_locked(lane);
    vmm__lane_unlock(lane);
}

/* Records an event on every stream, because none can be recorded during a capture: memory that was freed before the
 * capture can then be reused in it. */
static void streams_record(struct vmm_cache *cache)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__cache_counters_flush(cache, NULL); /* before waits end, so that the totals stay exact */
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        if (!vmm__lane_has_memory(lane))
            continue;
        if (lane->is_detached && !lane->is_in_use)
            detached_settle(lane);
        (void)vmm__timeline_record(&lane->timeline, vmm__timeline_now(&lane->timeline));
    }
    vmm__error_restore(&line);
}

static vmm_status begin_locked(struct vmm_cache *cache, const struct capture *capture)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    struct graph_pools *graph_pools = &cache->graph_pools;
    if (*capture_link(graph_pools, capture->id) != NULL)
        return VMM__IN_USE;
    struct graph_pool *owner = graph_pool_find(graph_pools, capture->id);
    struct capture *record = vmm__host_alloc(1, sizeof *record);
    if (record == NULL)
        goto fail_record;
    if (owner == NULL) {
        owner = vmm__host_alloc(1, sizeof *owner);
        if (owner == NULL)
            goto fail_pool;
        owner->id = capture->id;
        owner->next = graph_pools->pools;
        graph_pools->pools = owner;
    }
    owner->uses++;
    owner->is_leaving = false;
    *record = *capture;
    streams_record(cache);
    capture_add(cache, record);
    return VMM_OK;

fail_pool:
    vmm__host_free(record, sizeof *record);
fail_record:
    return vmm__error(VMM_ERR_HOST_OOM, "vmm_pool_begin: no host memory for a graph pool");
}

vmm_status vmm__graph_pool_begin(struct vmm_cache *cache, const struct capture *capture)
{
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = begin_locked(cache, capture);
    vmm__fair_unlock(&cache->grow_lock);
    return status;
}

vmm_status vmm__graph_pool_end(struct vmm_cache *cache, vmm_pool_id id)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm__mutex_lock(&cache->graph_pools.lock);
    struct capture **link = capture_link(&cache->graph_pools, id);
    struct capture *capture = *link;
    if (capture != NULL)
        *link = capture->next;
    vmm__mutex_unlock(&cache->graph_pools.lock);
    slow_path_only_set(cache);
    (void)vmm__graph_pools_leave_locked(
        cache); /* the capture forbade to wait for those that leave */
    vmm__error_restore(&line);
    vmm__fair_unlock(&cache->grow_lock);
    if (capture == NULL)
        return VMM__NOT_FOUND;
    vmm__host_free(capture, sizeof *capture);
    return VMM_OK;
}

/* ---- The lane of a request ----------------------------------------------------------------- */

static bool capture_accepts(const struct vmm_cache *cache, const struct capture *capture,
                            vmm_stream stream)
{
    if (capture->filter == NULL)
        return true;
    struct callback callback;
    vmm__callback_begin(&callback, cache, true);
    bool is_accepted = capture->filter(capture->context, stream) != 0;
    vmm__callback_end(&callback);
    return is_accepted;
}

/* Finds the newest capture whose filter accepts a stream. False if there is none. */
static bool capture_match(struct vmm_cache *cache, vmm_stream stream, vmm_pool_id *id)
{
    struct graph_pools *graph_pools = &cache->graph_pools;
    vmm__mutex_lock(&graph_pools->lock);
    const struct capture *capture = graph_pools->captures;
    while (capture != NULL && !capture_accepts(cache, capture, stream))
        capture = capture->next;
    if (capture != NULL)
        *id = capture->id;
    vmm__mutex_unlock(&graph_pools->lock);
    return capture != NULL;
}

/* Whether a former graph pool of the stream can be reused: not in use and without memory. */
static bool is_spare(struct lane *lane, vmm_stream stream)
{
    return !lane->is_in_use && lane->stream == stream && !vmm__lane_has_memory(lane) &&
           vmm__stream_serves(lane);
}

static struct lane *in_use_find(const struct vmm_cache *cache, vmm_stream stream, vmm_pool_id id)
{
    struct lane *lane = cache->lanes.graph_pools;
    while (lane != NULL && !(lane->is_in_use && lane->stream == stream &&
                             vmm__lane_ids_equal(lane->id, id) && vmm__stream_serves(lane)))
        lane = lane->next_graph_pool;
    return lane;
}

static vmm_status in_use_make(struct vmm_cache *cache, vmm_stream stream, vmm_pool_id id,
                              struct lane **out)
{
    struct lane *lane = cache->lanes.graph_pools;
    while (lane != NULL && !is_spare(lane, stream))
        lane = lane->next_graph_pool;
    if (lane == NULL) {
        vmm_status status = vmm__driver_stream_check(cache->driver, stream);
        if (status == VMM_OK)
            status = vmm__cache_lane_open(cache, stream, &lane);
        if (status != VMM_OK)
            return status;
        vmm__lanes_add_graph_pool(&cache->lanes, lane);
    }
    lane->id = id;
    lane->is_in_use = true;
    *out = lane;
    return VMM_OK;
}

vmm_status vmm__graph_pool_choose(struct vmm_cache *cache, vmm_stream stream, struct lane **out)
{
    vmm_pool_id id;
    if (!capture_match(cache, stream, &id))
        return vmm__cache_lane(cache, stream, out);
    vmm__fair_lock(&cache->grow_lock);
    const struct graph_pool *owner = graph_pool_find(&cache->graph_pools, id);
    bool is_in_use = owner != NULL && owner->uses > 0; /* otherwise it was released meanwhile */
    vmm_status status = VMM_OK;
    if (is_in_use) {
        *out = in_use_find(cache, stream, id);
        if (*out == NULL)
            status = in_use_make(cache, stream, id, out);
    }
    vmm__fair_unlock(&cache->grow_lock);
    return is_in_use ? status : vmm__cache_lane(cache, stream, out);
}

/* ---- Captures in progress ---------------------------------------------------------------------- */

/* VMM__PENDING while the stream is captured. A closed stream, and one that the driver rejects, is not. */
static vmm_status stream_query(const struct vmm_cache *cache, const struct lane *lane)
{
    bool is_captured = false;
    if (vmm__timeline_has_ended(&lane->timeline))
        return VMM_OK;
    vmm_status status = vmm__driver_capturing(cache->driver, lane->stream, &is_captured);
    if (status == VMM_ERR_INVALID_ARGUMENT)
        return VMM_OK;
    return status == VMM_OK && is_captured ? VMM__PENDING : status;
}

static vmm_status streams_query(const struct vmm_cache *cache)
{
    vmm_status status = VMM_OK;
    for (const struct lane *lane = cache->lanes.first; lane != NULL && status == VMM_OK;
         lane = lane->next)
        status = stream_query(cache, lane);
    return status;
}

/* True if the driver fails to say, because a stream may be captured then. */
static bool any_is_captured(const struct vmm_cache *cache)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = streams_query(cache);
    vmm__error_restore(&line);
    return status != VMM_OK;
}

vmm_status vmm__graph_pools_capture_query(const struct vmm_cache *cache)
{
    return cache->graph_pools.captures != NULL ? VMM__PENDING : streams_query(cache);
}

bool vmm__graph_pools_capture(const struct vmm_cache *cache)
{
    return cache->graph_pools.captures != NULL || any_is_captured(cache);
}

/*
 * Waits for the whole device, because graphs may run on streams that the cache does not know; but only for the streams
 * if one of them is captured. If the wait fails, a stream unknown to the cache may be captured, so the streams are
 * waited for instead; the error is still returned.
 */
vmm_status vmm__graph_pools_work_wait(struct vmm_cache *cache)
{
    bool waits_for_streams = any_is_captured(cache);
    vmm_status status =
        waits_for_streams ? vmm__cache_wait(cache) : vmm__driver_device_wait(cache->driver);
    if (status == VMM_OK || status == VMM_ERR_LOST)
        return status;
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__cache_wait(cache);
    vmm__error_restore(&line);
    return status;
}

/* ---- Release ------------------------------------------------------------------------------- */

vmm_status vmm__graph_pool_release(struct vmm_cache *cache, vmm_pool_id id)
{
    vmm_status status = VMM_OK;
    vmm__fair_lock(&cache->grow_lock);
    struct graph_pool *owner = graph_pool_find(&cache->graph_pools, id);
    if (owner == NULL || owner->uses == 0) {
        status = VMM__NOT_FOUND;
    } else if (--owner->uses == 0) {
        owner->is_leaving = true;
        status = vmm__graph_pools_leave_locked(cache);
        status = status == VMM__NOTHING ? VMM_OK : status;
    }
    vmm__fair_unlock(&cache->grow_lock);
    return status;
}

static void lanes_release(struct vmm_cache *cache, vmm_pool_id id)
{
    for (struct lane *lane = cache->lanes.graph_pools; lane != NULL; lane = lane->next_graph_pool) {
        if (!lane->is_in_use || !vmm__lane_ids_equal(lane->id, id))
            continue;
        lane->is_in_use = false;
        lane->id = (vmm_pool_id){ 0, 0 };
    }
}

/* Before the wait: settles the lanes in use and notes the epoch that the wait covers. After it: marks that epoch as
 * passed. Errors of events are dropped, because the wait makes the events needless. */
static void lanes_settle(struct vmm_cache *cache, bool has_waited)
{
    struct error_line line;
    vmm__error_save(&line);
    for (struct lane *lane = cache->lanes.graph_pools; lane != NULL; lane = lane->next_graph_pool) {
        if (!lane->is_in_use)
            continue;
        if (has_waited) {
            vmm__timeline_pass(&lane->timeline, lane->leaving_epoch);
            continue;
        }
        vmm__lane_lock(lane);
        lane->leaving_epoch = vmm__lane_settle_locked(lane);
        vmm__lane_unlock(lane);
    }
    vmm__error_restore(&line);
}

static bool any_leaves(const struct graph_pools *graph_pools)
{
    const struct graph_pool *owner = graph_pools->pools;
    while (owner != NULL && !owner->is_leaving)
        owner = owner->next;
    return owner != NULL;
}

vmm_status vmm__graph_pools_leave_locked(struct vmm_cache *cache)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    struct graph_pools *graph_pools = &cache->graph_pools;
    if (!any_leaves(graph_pools) || vmm__graph_pools_capture(cache))
        return VMM__NOTHING;
    vmm__cache_counters_flush(cache, NULL); /* before waits end, so that the totals stay exact */
    lanes_settle(cache, false);
    vmm_status status = vmm__driver_device_wait(cache->driver);
    if (status != VMM_OK)
        return status;
    lanes_settle(cache, true);
    struct graph_pool **link = &graph_pools->pools;
    while (*link != NULL) {
        struct graph_pool *owner = *link;
        if (!owner->is_leaving) {
            link = &owner->next;
            continue;
        }
        *link = owner->next;
        lanes_release(cache, owner->id);
        vmm__host_free(owner, sizeof *owner);
    }
    return VMM_OK;
}

vmm_status vmm__graph_pool_wait(struct vmm_cache *cache)
{
    vmm_status status = vmm__cache_wait(cache);
    if (status != VMM_OK)
        return status;
    vmm__fair_lock(&cache->grow_lock);
    status = vmm__graph_pools_leave_locked(cache);
    vmm__fair_unlock(&cache->grow_lock);
    return status == VMM__NOTHING ? VMM_OK : status;
}

uint64_t vmm__graph_pools_retained_bytes(struct vmm_cache *cache)
{
    uint64_t bytes = 0;
    if (cache->graph_pools.pools == NULL)
        return 0;
    for (struct lane *lane = cache->lanes.graph_pools; lane != NULL; lane = lane->next_graph_pool) {
        if (!lane->is_in_use)
            continue;
        vmm__lane_lock(lane);
        bytes += lane->large.free_bytes + lane->small.free_bytes;
        vmm__lane_unlock(lane);
    }
    return bytes;
}
