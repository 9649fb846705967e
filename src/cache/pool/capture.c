/* Captures: see capture.h. */
#include "cache/pool/capture.h"
#include "base/error.h"

/* VMM__PENDING while the stream is captured. A closed stream, and one that the driver rejects, is not. */
static vmm_status stream_query(const struct vmm_cache *cache, const struct lane *lane)
{
    bool is_captured = false;
    struct error_line line;
    if (vmm__timeline_has_ended(&lane->timeline))
        return VMM_OK;
    vmm__error_save(&line);
    vmm_status status = vmm__driver_capturing(cache->driver, lane->stream, &is_captured);
    if (status == VMM_ERR_INVALID_ARGUMENT) {
        vmm__error_restore(&line);
        return VMM_OK;
    }
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

vmm_status vmm__capture_query(const struct vmm_cache *cache)
{
    return cache->routes.captures > 0 ? VMM__PENDING : streams_query(cache);
}

bool vmm__capture_is_under_way(const struct vmm_cache *cache)
{
    return cache->routes.captures > 0 || any_is_captured(cache);
}

/*
 * Waits for the whole device, because graphs may run on streams that the cache does not know; but only for the streams
 * if one of them is captured. If the wait fails, a stream unknown to the cache may be captured, so the streams are
 * waited for instead; the error is still returned.
 */
vmm_status vmm__capture_work_wait(struct vmm_cache *cache)
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

/* Settles a detached lane. Its stream does not use it any longer, so no slab need be spared for later requests. */
static void detached_settle(struct lane *lane)
{
    vmm__lane_lock(lane);
    (void)vmm__lane_settle_locked(lane);
    vmm__lane_unlock(lane);
}

void vmm__capture_streams_record(struct vmm_cache *cache)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__cache_counters_flush(cache, NULL); /* before waits end, so that the totals stay exact */
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        if (!vmm__lane_has_memory(lane))
            continue;
        if (!lane->is_in_table)
            detached_settle(lane);
        (void)vmm__timeline_record(&lane->timeline, vmm__timeline_now(&lane->timeline));
    }
    vmm__error_restore(&line);
}
