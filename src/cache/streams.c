/* The lanes of closed and stale streams: see streams.h. */
#include "cache/streams.h"
#include "base/error.h"
#include "cache/pool/capture.h"

vmm_status vmm__stream_resolve(const char *function, vmm_stream *stream)
{
    if (*stream == STREAM_PER_THREAD)
        return vmm__error(
            VMM_ERR_INVALID_ARGUMENT,
            "%s: stream 0x2 (CU_STREAM_PER_THREAD) is a different stream on each thread: "
            "pass a stream that the program created",
            function);
    if (*stream == STREAM_LEGACY)
        *stream = NULL;
    return VMM_OK;
}

/* ---- Closing ------------------------------------------------------------------------------- */

/* Whether a lane, in any pool, is this open stream's: not one of a closed stream with the same handle. */
static bool is_open(const struct lane *lane, vmm_stream stream)
{
    return lane->stream == stream && !vmm__timeline_has_ended(&lane->timeline);
}

/* Settles a lane and begins a new epoch, so that a wait for the device covers all that was freed before. Leaves lanes
 * of retained pools alone. */
static void lane_settle(struct lane *lane)
{
    vmm__lane_lock(lane);
    if (!vmm__lane_is_retained(lane))
        (void)vmm__lane_settle_locked(lane);
    vmm__lane_unlock(lane);
}

/* Detaches a lane, so that other streams may use its free memory. */
static void lane_close(struct vmm_cache *cache, struct lane *lane)
{
    vmm__timeline_end(&lane->timeline);
    if (!lane->is_pooled)
        vmm__lanes_hide(&cache->lanes, lane);
    else if (lane->is_in_table)
        vmm__lane_table_leave(&lane->pool->table, lane);
    if (lane->is_pooled)
        vmm__lanes_pooled_end(&cache->lanes, lane);
    lane_settle(lane);
}

/* The lanes of an open stream: in the default pool, then in others. */
static struct lane *lane_first(const struct vmm_cache *cache, vmm_stream stream)
{
    struct lane *lane = vmm__lane_table_find(&cache->pool.table, stream);
    if (lane == NULL)
        lane = vmm__lanes_pooled_first(&cache->lanes, stream);
    while (lane != NULL && !is_open(lane, stream))
        lane = vmm__lanes_pooled_next(lane);
    return lane;
}

static struct lane *lane_next(const struct vmm_cache *cache, const struct lane *lane)
{
    vmm_stream stream = lane->stream;
    struct lane *next = lane->is_pooled ? vmm__lanes_pooled_next(lane)
                                        : vmm__lanes_pooled_first(&cache->lanes, stream);
    while (next != NULL && !is_open(next, stream))
        next = vmm__lanes_pooled_next(next);
    return next;
}

static vmm_status close_locked(struct vmm_cache *cache, vmm_stream stream, bool *is_stale)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    bool has_waits = false;
    for (struct lane *lane = lane_first(cache, stream); lane != NULL;
         lane = lane_next(cache, lane)) {
        struct timeline *timeline = &lane->timeline;
        vmm_status status = vmm__timeline_record_last(timeline);
        *is_stale = vmm__timeline_is_stale(timeline);
        if (status != VMM_OK)
            return status;
        vmm__lane_lock(lane);
        has_waits = has_waits || vmm__uses_has_waits(&lane->uses);
        vmm__lane_unlock(lane);
    }
    if (has_waits)
        vmm__cache_counters_flush(cache,
                                  NULL); /* before waits end, so that the totals stay exact */
    struct lane *next;
    for (struct lane *lane = lane_first(cache, stream); lane != NULL; lane = next) {
        next = lane_next(cache, lane);
        lane_close(cache, lane);
    }
    vmm__cache_lanes_vacate(cache);
    return VMM_OK;
}

vmm_status vmm__stream_end(struct vmm_cache *cache, vmm_stream stream, bool *is_stale)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = close_locked(cache, stream, is_stale);
    vmm__fair_unlock(&cache->grow_lock);
    if (status == VMM_OK)
        vmm__error_restore(&line);
    return status;
}

/* ---- Reuse ------------------------------------------------------------------------ */

/* Whether all work of a lane's closed stream has finished. */
static bool has_passed(struct lane *lane)
{
    struct timeline *timeline = &lane->timeline;
    return vmm__timeline_query(timeline, vmm__timeline_now(timeline)) == VMM_OK;
}

/* Lanes that each search checks. A search rotates its list, so that the next one checks other lanes. */
enum { CLOSED_PROBES = 2, STALE_PROBES = 2 };

/* A lane without memory, of any closed stream whose work has finished. */
static struct lane *closed_find(struct vmm_cache *cache)
{
    for (int probe = 0; probe < CLOSED_PROBES; probe++) {
        struct lane *lane = vmm__lane_list_rotate(&cache->lanes.vacant_detached);
        if (lane != NULL && has_passed(lane))
            return lane;
    }
    return NULL;
}

/* Whether the driver rejects a lane's stream and no record refers to its timeline. Queries the driver only if it has
 * rejected the stream before, and queries it again because a new stream may have the same handle now. */
static bool is_stale(struct vmm_cache *cache, const struct lane *lane)
{
    bool is_capturing;
    return vmm__timeline_is_unknown(&lane->timeline) &&
           vmm__timeline_is_unreferenced(&lane->timeline) &&
           vmm__driver_capturing(cache->driver, lane->stream, &is_capturing) ==
               VMM_ERR_INVALID_ARGUMENT;
}

/* A lane without memory of a stale stream; closes the stream. */
static struct lane *stale_find(struct vmm_cache *cache)
{
    for (int probe = 0; probe < STALE_PROBES; probe++) {
        struct lane *lane = vmm__lane_list_rotate(&cache->lanes.vacant);
        if (lane == NULL || !is_stale(cache, lane))
            continue;
        vmm__timeline_end(&lane->timeline);
        vmm__lanes_hide(&cache->lanes, lane);
        return lane;
    }
    return NULL;
}

static bool lane_resume(struct vmm_cache *cache, struct lane *lane, vmm_stream stream)
{
    if (lane == NULL || vmm__timeline_resume(&lane->timeline, stream) != VMM_OK)
        return false;
    vmm__lanes_show(&cache->lanes, lane, stream);
    return true;
}

bool vmm__stream_resume(struct vmm_cache *cache, vmm_stream stream, struct lane **out)
{
    struct error_line line;
    vmm__error_save(&line);
    *out = vmm__lanes_find_closed(&cache->lanes, stream);
    bool is_found = lane_resume(cache, *out, stream);
    if (!is_found) {
        *out = closed_find(cache);
        if (*out == NULL)
            *out = stale_find(cache);
        is_found = lane_resume(cache, *out, stream);
    }
    vmm__error_restore(&line);
    return is_found;
}

bool vmm__stream_serves(struct lanes *lanes, struct lane *lane, vmm_stream stream)
{
    struct timeline *timeline = &lane->timeline;
    if (!vmm__timeline_has_ended(timeline))
        return lane->stream == stream;
    struct error_line line;
    vmm__error_save(&line);
    bool serves = has_passed(lane) && vmm__timeline_resume(timeline, stream) == VMM_OK;
    vmm__error_restore(&line);
    if (serves)
        vmm__lanes_pooled_give(lanes, lane, stream);
    return serves;
}

/* ---- Stale streams --------------------------------------------------------------------- */

vmm_status vmm__stream_wait_stale(struct vmm_cache *cache, struct lane *lane, bool has_capture)
{
    vmm__fair_lock(&cache->grow_lock);
    has_capture = has_capture || cache->routes.captures > 0;
    if (!has_capture)
        lane_settle(lane);
    vmm__fair_unlock(&cache->grow_lock);
    return has_capture ? VMM__PENDING : vmm__timeline_wait_stale(&lane->timeline);
}

static bool any_is_stale(const struct vmm_cache *cache, const struct pool *pool)
{
    bool is_stale = false;
    for (const struct lane *lane = cache->lanes.first; lane != NULL && !is_stale; lane = lane->next)
        is_stale = (pool == NULL || lane->pool == pool) && vmm__timeline_is_stale(&lane->timeline);
    return is_stale;
}

/* One wait for the device serves all stale streams. */
vmm_status vmm__streams_wait_stale_locked(struct vmm_cache *cache, const struct pool *pool)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    if (!any_is_stale(cache, pool) || vmm__capture_is_under_way(cache))
        return VMM__NOTHING;
    for (struct lane *lane = cache->lanes.first; lane != NULL; lane = lane->next) {
        if (!vmm__timeline_is_stale(&lane->timeline))
            continue;
        lane_settle(lane);
        lane->leaving_epoch = vmm__timeline_advance(&lane->timeline);
    }
    vmm_status status = vmm__driver_device_wait(cache->driver);
    for (struct lane *lane = cache->lanes.first; lane != NULL && status == VMM_OK;
         lane = lane->next) {
        if (vmm__timeline_is_stale(&lane->timeline))
            vmm__timeline_pass_stale(&lane->timeline, lane->leaving_epoch);
    }
    return status;
}
