/* Streams and their lanes: see streams.h. */
#include "cache/streams.h"
#include "base/error.h"

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

/* ---- What the clock asks for ----------------------------------------------------------------- */

static bool stream_next(void *context, void **cursor, struct known_stream *out)
{
    struct vmm_cache *cache = context;
    struct lane *lane = *cursor;
    do
        lane = atomic_load_explicit(lane == NULL ? &cache->lanes.first : &lane->next,
                                    memory_order_acquire);
    while (lane != NULL && vmm__lane_has_ended(lane));
    *cursor = lane;
    if (lane == NULL)
        return false;
    *out = (struct known_stream){ .stream = lane->owner.stream, .is_gone = &lane->is_gone };
    return true;
}

/* Whether the program has blocks of a lane, or waits for one. */
static bool is_in_use(const struct lane *lane)
{
    return vmm__counters_have_blocks(&lane->counters) ||
           atomic_load_explicit(&lane->refills, memory_order_relaxed) > 0;
}

/* With captures announced no stream need be asked. *cursor counts the entries that were seen. */
static bool live_next(void *context, void **cursor, struct known_stream *out)
{
    struct vmm_cache *cache = context;
    uintptr_t seen = (uintptr_t)*cursor;
    while (seen < LANES_RECENT && !cache->announces_captures) {
        struct lane *lane =
            atomic_load_explicit(&cache->lanes.recent[seen++], memory_order_acquire);
        if (lane == NULL || vmm__lane_has_ended(lane) || !is_in_use(lane))
            continue;
        *cursor = (void *)seen;
        *out = (struct known_stream){ .stream = lane->owner.stream, .is_gone = &lane->is_gone };
        return true;
    }
    return false;
}

static void line_tell(void *context, const char *line)
{
    vmm__cache_log(context, "%s", line);
}

struct clock_watch vmm__streams_watch(struct vmm_cache *cache)
{
    return (struct clock_watch){
        .next = stream_next, .next_live = live_next, .tell = line_tell, .context = cache
    };
}

void vmm__streams_tick(struct vmm_cache *cache)
{
    vmm__clock_tick(&cache->clock);
    if (!cache->directory.has_own_clocks)
        return;
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next)
        vmm__clock_tick(lane->clock);
}

/* ---- Closing ------------------------------------------------------------------------------- */

/* Whether a lane, in any pool, is this open stream's: not one of a closed stream with the same handle. */
static bool is_open(const struct lane *lane, vmm_stream stream)
{
    return lane->owner.stream == stream && !vmm__lane_has_ended(lane);
}

/* Detaches a lane, so that other streams may use its free memory. Settles it, unless its pool is retained: no later
 * request of its stream will. */
static void lane_close(struct vmm_cache *cache, struct lane *lane)
{
    vmm__clock_end(lane->clock);
    atomic_store_explicit(&lane->has_ended, true, memory_order_release);
    atomic_fetch_add_explicit(&lane->ends, 1, memory_order_release);
    vmm__lanes_hide(&cache->lanes, lane);
    vmm__lane_lock(lane);
    if (!vmm__lane_is_retained(lane))
        (void)vmm__lane_settle_locked(lane);
    vmm__lane_unlock(lane);
}

/* The lane of an open stream after `lane`, which is NULL at first: that of the default pool, then those of others. */
static struct lane *lane_next(const struct vmm_cache *cache, vmm_stream stream,
                              const struct lane *lane)
{
    struct lane *next = lane == NULL ? vmm__lane_table_find(&cache->pool.table, stream) : NULL;
    if (next == NULL)
        next = lane != NULL && lane->owner.is_pooled
                   ? vmm__lanes_pooled_next(lane)
                   : vmm__lanes_pooled_first(&cache->lanes, stream);
    while (next != NULL && !is_open(next, stream))
        next = vmm__lanes_pooled_next(next);
    return next;
}

static vmm_status close_locked(struct vmm_cache *cache, vmm_stream stream)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    bool has_waits = false;
    struct lane *lane = NULL;
    while ((lane = lane_next(cache, stream, lane)) != NULL) {
        vmm_status status = vmm__clock_end_begin(lane->clock);
        if (status != VMM_OK)
            return status;
        vmm__lane_lock(lane);
        has_waits = has_waits || vmm__notes_have_waits(&lane->notes);
        vmm__lane_unlock(lane);
    }
    if (lane_next(cache, stream, NULL) != NULL)
        vmm__clock_stream_end(&cache->clock, stream);
    if (has_waits)
        vmm__lanes_counters_flush(&cache->lanes, NULL); /* before waits end */
    while ((lane = lane_next(cache, stream, lane)) != NULL)
        lane_close(cache, lane);
    vmm__clock_streams_sync();
    vmm__cache_lanes_vacate(cache);
    return VMM_OK;
}

vmm_status vmm__stream_end(struct vmm_cache *cache, vmm_stream stream)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = close_locked(cache, stream);
    vmm__fair_unlock(&cache->grow_lock);
    return vmm__error_end(&line, status);
}

/* ---- Reuse ------------------------------------------------------------------------ */

static bool lane_give(struct lane *lane, vmm_stream stream)
{
    if (!vmm__clock_move(lane->clock, stream))
        return false;
    atomic_store_explicit(&lane->is_gone, false, memory_order_relaxed);
    lane->hasty_takes = 0;
    /* before the clock sees it as open */
    atomic_store_explicit(&lane->owner.stream, stream, memory_order_relaxed);
    atomic_store_explicit(&lane->has_ended, false, memory_order_release);
    return true;
}

bool vmm__stream_resume(struct vmm_cache *cache, vmm_stream stream, struct lane **out)
{
    struct lane *lane = vmm__lane_list_rotate(&cache->lanes.vacant_detached);
    if (lane == NULL || !lane_give(lane, stream))
        return false;
    vmm__lanes_show(&cache->lanes, lane);
    *out = lane;
    return true;
}

/* Whether no block of a lane is live or waits: the lane's next stream could reuse what is freed later at once, without
 * waiting for work on it. */
static bool is_left(struct lane *lane)
{
    vmm__lane_lock(lane);
    bool is_left = !vmm__counters_have_blocks(&lane->counters) && lane->counters.waiting_bytes == 0;
    vmm__lane_unlock(lane);
    return is_left;
}

/* Whether nothing can still use the memory of a lane. */
static bool has_passed(struct lane *lane)
{
    if (!vmm__lane_has_memory(lane))
        return true;
    VMM_QUIET();
    bool has_passed =
        is_left(lane) && vmm__clock_query(lane->clock, vmm__clock_now(lane->clock)) == VMM_OK;
    return has_passed;
}

bool vmm__stream_serves(struct lanes *lanes, struct lane *lane, vmm_stream stream)
{
    if (!vmm__lane_has_ended(lane))
        return lane->owner.stream == stream;
    bool serves = has_passed(lane) && lane_give(lane, stream);
    if (serves)
        vmm__lanes_pooled_give(lanes, lane);
    return serves;
}

/* ---- Lanes of streams ------------------------------------------------------------------------- */

vmm_status vmm__stream_lane_open(struct vmm_cache *cache, struct pool *pool, vmm_stream stream,
                                 struct lane **out)
{
    vmm_status status = vmm__lane_open(stream, &cache->directory, pool, out);
    bool has_fast_path = cache->nvtx == NULL && cache->debug == NULL && !pool->has_own_chunks &&
                         !pool->account.is_imported && !vmm__pool_has_source(pool);
    if (status == VMM_OK && !has_fast_path)
        vmm__biased_disable(&(*out)->lock);
    return status;
}

/* A lane for a stream that has none: that of a stream that ended, or a new one. */
static vmm_status lane_make(struct vmm_cache *cache, vmm_stream stream, struct lane **out)
{
    vmm_status status = vmm__driver_stream_check(cache->driver, stream);
    if (status != VMM_OK || vmm__stream_resume(cache, stream, out))
        return status;
    status = vmm__stream_lane_open(cache, &cache->pool, stream, out);
    if (status != VMM_OK)
        return status;
    (*out)->large.home = &cache->pool.home;
    (*out)->is_asleep = cache->pool.phase != VMM_POOL_AWAKE;
    vmm__lanes_add(&cache->lanes, *out);
    return status;
}

vmm_status vmm__stream_lane(struct vmm_cache *cache, vmm_stream stream, struct lane **out)
{
    struct lane *lane = vmm__lane_table_find(&cache->pool.table, stream);
    vmm_status status = VMM_OK;
    if (lane == NULL) {
        vmm__fair_lock(&cache->grow_lock);
        lane = vmm__lane_table_find(&cache->pool.table, stream);
        if (lane == NULL)
            status = lane_make(cache, stream, &lane);
        vmm__fair_unlock(&cache->grow_lock);
    }
    if (status == VMM_OK)
        *out = lane;
    return status;
}
