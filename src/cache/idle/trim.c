/* Releases idle memory: see trim.h. */
#include "cache/idle/trim.h"
#include "base/arith.h"
#include "base/error.h"
#include "cache/compact/compact.h"
#include "cache/pool/pools.h"

/* What a trim still has to put into limbo. */
struct left {
    uint64_t bytes;      /* rounded up to whole chunks */
    uint64_t most_bytes; /* a bound that the rounding does not exceed */
};

static struct left left_after(struct left left, uint64_t put_bytes)
{
    return (struct left){ .bytes = left.bytes - vmm__min(left.bytes, put_bytes),
                          .most_bytes = left.most_bytes - put_bytes };
}

/* Puts whole chunks of one free block into limbo, as many as the trim and the scan allow. */
static uint64_t block_trim(struct vmm_cache *cache, struct idle_scan *scan, struct block *block,
                           struct left left)
{
    uint64_t from = block->address;
    uint64_t put_bytes = 0;
    struct idle_run run;
    while (block != NULL && left.bytes > 0 &&
           vmm__idle_next(cache, scan, block, from, left.bytes, &run)) {
        if (!vmm__idle_cut(&cache->vm, left.most_bytes, &run))
            break;
        vmm_status status = vmm__idle_discard(cache, &run);
        if (status != VMM_OK) { /* no host memory: treat it as if its work still ran */
            vmm__idle_stick(scan, vmm__idle_epoch(cache, &run), status);
            break;
        }
        put_bytes += run.bytes;
        left = left_after(left, run.bytes);
        from = run.address + run.bytes;
        block = vmm__idle_behind(cache, &run);
    }
    return put_bytes;
}

static uint64_t heap_trim(struct vmm_cache *cache, const struct trim_request *trim,
                          struct idle_scan *scan, struct left left)
{
    uint64_t put_bytes = 0;
    struct size_index *index = &scan->from->index;
    struct size_node *node = vmm__size_index_largest(index);
    while (node != NULL && put_bytes < left.bytes && node->size >= cache->vm.arena.granule_bytes) {
        struct size_node *next = vmm__size_index_smaller(index, node);
        if ((const struct block *)node != trim->keep)
            put_bytes += block_trim(cache, scan, (struct block *)node, left_after(left, put_bytes));
        node = next;
    }
    return put_bytes;
}

static void trim_note(struct trim_request *trim, bool is_stuck, vmm_status status)
{
    trim->is_stuck = trim->is_stuck || is_stuck;
    if (trim->failed == VMM_OK && status != VMM__PENDING)
        trim->failed = status;
}

static uint64_t lane_trim(struct vmm_cache *cache, struct trim_request *trim,
                          struct idle_scan *scan, struct left left)
{
    struct lane *lane = scan->from->lane;
    vmm__lane_lock_beside(lane, trim->held);
    if (trim->what == TRIM_ALL)
        (void)vmm__slabs_purge(&lane->slabs);
    uint64_t put_bytes = heap_trim(cache, trim, scan, left);
    scan->from = &lane->small;
    if (put_bytes < left.bytes)
        put_bytes += heap_trim(cache, trim, scan, left_after(left, put_bytes));
    vmm__lane_unlock_beside(lane, trim->held);
    trim_note(trim, scan->stuck_epoch != UINT64_MAX, scan->failed);
    return put_bytes;
}

/* Trims a lane's expired memory. Does nothing if the work that stopped the last trim still runs. */
static uint64_t lane_trim_expired(struct vmm_cache *cache, struct trim_request *trim,
                                  struct expired *expired, struct idle_scan *scan, struct left left)
{
    if (expired->latest_epoch == 0)
        return 0;
    vmm_status status = vmm__clock_query(scan->from->lane->clock, expired->stuck_epoch);
    if (status != VMM_OK) {
        trim_note(trim, true, status);
        return 0;
    }
    scan->latest_epoch = expired->latest_epoch;
    uint64_t put_bytes = lane_trim(cache, trim, scan, left);
    bool is_stuck = scan->stuck_epoch != UINT64_MAX;
    expired->stuck_epoch = is_stuck ? scan->stuck_epoch : 0;
    if (!is_stuck && put_bytes < left.bytes)
        expired->latest_epoch = 0;
    return put_bytes;
}

/* The most that is worth releasing of a pool. If another one needs it, what the pool was promised stays: no other pool
 * may reserve that. */
static uint64_t pool_most_bytes(const struct trim_request *trim, const struct pool *pool)
{
    const struct account *account = &pool->account;
    if ((trim->pool != NULL && trim->pool != pool) ||
        (trim->leaves_sources && vmm__pool_has_source(pool)))
        return 0;
    if (trim->taker == NULL || trim->taker == pool)
        return UINT64_MAX;
    uint64_t staying_bytes = vmm__stat_now(&account->reserved_bytes) - account->counts.limbo_bytes;
    return staying_bytes - vmm__min(staying_bytes, account->least_bytes);
}

uint64_t vmm__trim_idle(struct vmm_cache *cache, struct trim_request *trim)
{
    uint64_t put_bytes = 0;
    struct left all = { .bytes = trim->bytes,
                        .most_bytes = trim->most_bytes == 0 ? UINT64_MAX : trim->most_bytes };
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL && put_bytes < all.bytes;
         lane = lane->list_next) {
        struct left left = left_after(all, put_bytes);
        uint64_t pool_bytes = pool_most_bytes(trim, lane->owner.pool);
        left.bytes = vmm__min(left.bytes, pool_bytes);
        if (trim->most_bytes != 0)
            left.most_bytes = vmm__min(left.most_bytes, pool_bytes);
        if (left.bytes == 0)
            continue;
        struct idle_scan scan = vmm__idle_scan(&lane->large, NULL, trim->when);
        struct expired *expired = trim->what == TRIM_DECAYED ? &lane->decayed : &lane->trimmed;
        put_bytes += trim->what == TRIM_ALL ? lane_trim(cache, trim, &scan, left)
                                            : lane_trim_expired(cache, trim, expired, &scan, left);
    }
    return put_bytes;
}

/* ---- Expired memory ---------------------------------------------------------------------- */

static uint64_t excess_bytes(const struct vm *memory, uint64_t keep_bytes)
{
    uint64_t staying_bytes = vmm__stat_now(&memory->reserved_bytes) - memory->counts.limbo_bytes;
    return staying_bytes > keep_bytes ? staying_bytes - keep_bytes : 0;
}

/* Discards at most most_bytes of the trim target. *has_more: it stopped there, so more may be left whose work has
 * finished. */
static vmm_status target_discard(struct vmm_cache *cache, uint64_t most_bytes, bool *has_more)
{
    uint64_t bytes = excess_bytes(&cache->vm, cache->trim_target_keep_bytes);
    struct trim_request trim = { .bytes = vmm__min(bytes, most_bytes),
                                 .what = TRIM_TARGET,
                                 .when = IDLE_FINISHED };
    uint64_t put_bytes = vmm__trim_idle(cache, &trim);
    *has_more = put_bytes >= trim.bytes && put_bytes < bytes;
    cache->has_trim_target = *has_more || (trim.is_stuck && put_bytes < bytes);
    return trim.failed;
}

static uint64_t lane_idle_bytes(const struct vm *memory, struct lane *lane)
{
    if (vmm__lane_is_retained(lane))
        return 0;
    vmm__lane_lock(lane);
    uint64_t idle_bytes = vmm__idle_sum(memory, &lane->large).idle_bytes +
                          vmm__idle_sum(memory, &lane->small).idle_bytes;
    vmm__lane_unlock(lane);
    return idle_bytes;
}

uint64_t vmm__trim_idle_bytes(struct vmm_cache *cache)
{
    uint64_t idle_bytes = 0;
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next)
        idle_bytes += lane_idle_bytes(&cache->vm, lane);
    return idle_bytes;
}

static struct trim_request trim_part(struct vmm_cache *cache)
{
    return (struct trim_request){ .when = IDLE_FINISHED,
                                  .taker = &cache->pool,
                                  .leaves_sources = true };
}

static uint64_t pool_parts_bytes(const struct trim_request *part, const struct pool *pool)
{
    uint64_t idle_bytes = 0;
    for (struct lane *lane = pool->lanes; lane != NULL; lane = lane->next_of_pool)
        idle_bytes += vmm__lane_has_memory(lane) ? lane_idle_bytes(&pool->cache->vm, lane) : 0;
    return vmm__min(idle_bytes, pool_most_bytes(part, pool));
}

uint64_t vmm__trim_parts_bytes(struct vmm_cache *cache)
{
    const struct trim_request part = trim_part(cache);
    uint64_t bytes = pool_parts_bytes(&part, &cache->pool);
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        bytes += pool_parts_bytes(&part, pool);
    return bytes;
}

/* The bytes that decay may release: idle memory above decay_keep_bytes. */
static uint64_t decay_most_bytes(struct vmm_cache *cache)
{
    if (cache->decay.keep_bytes == 0)
        return UINT64_MAX;
    uint64_t idle_bytes = vmm__trim_idle_bytes(cache);
    return idle_bytes - vmm__min(idle_bytes, cache->decay.keep_bytes);
}

static vmm_status decayed_discard(struct vmm_cache *cache)
{
    uint64_t most_bytes = decay_most_bytes(cache);
    struct trim_request trim = {
        .bytes = most_bytes, .most_bytes = most_bytes, .what = TRIM_DECAYED, .when = IDLE_FINISHED
    };
    (void)vmm__trim_idle(cache, &trim);
    atomic_store_explicit(&cache->decay.is_stuck, trim.is_stuck, memory_order_relaxed);
    return trim.failed;
}

/* Releases the expired memory whose work has finished; of the trim target at most most_bytes, see target_discard(). */
static vmm_status expired_release(struct vmm_cache *cache, uint64_t most_bytes, bool *has_more,
                                  uint64_t *released)
{
    vmm__clock_tick_due(&cache->clock, NULL);
    vmm_status left = vmm__pools_leave_locked(cache);
    bool has_decayed = vmm__decay_period_end(&cache->decay, &cache->lanes) || cache->decay.is_stuck;
    *has_more = false;
    vmm_status ordered =
        cache->has_trim_target ? target_discard(cache, most_bytes, has_more) : VMM_OK;
    vmm_status decayed = has_decayed ? decayed_discard(cache) : VMM_OK;
    vmm_status drained = vmm__limbo_drain(&cache->vm, released);
    if (left != VMM_OK && left != VMM__NOTHING)
        return left;
    if (ordered != VMM_OK)
        return ordered;
    return decayed != VMM_OK ? decayed : drained;
}

static void trim_log(struct vmm_cache *cache, uint64_t released_bytes)
{
    vmm__cache_log(cache, "trim: kept %llu MiB, released %llu MiB, %llu MiB in limbo",
                   (unsigned long long)vmm__stat_now(&cache->vm.reserved_bytes) >> 20,
                   (unsigned long long)released_bytes >> 20,
                   (unsigned long long)cache->vm.counts.limbo_bytes >> 20);
}

vmm_status vmm__trim_expired_locked(struct vmm_cache *cache)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    uint64_t released_bytes = 0;
    bool has_more;
    uint64_t most_bytes =
        cache->trims == 0 ? UINT64_MAX : 0; /* while a trim runs, that one releases the rest */
    vmm_status status = expired_release(cache, most_bytes, &has_more, &released_bytes);
    vmm__cache_lanes_vacate(cache);
    if (released_bytes == 0)
        return status;
    trim_log(cache, released_bytes);
    return vmm__cache_checked(cache, CHECK_TRIM_EVERY, status);
}

/* ---- Public calls ------------------------------------------------------------------------------ */

vmm_status vmm__poll(struct vmm_cache *cache)
{
    struct error_line line;
    if (!vmm__fair_try_lock(&cache->grow_lock))
        return VMM_OK;
    vmm__error_save(&line);
    vmm_status status = vmm__trim_expired_locked(cache);
    vmm__fair_unlock(&cache->grow_lock);
    return vmm__error_end(&line, status);
}

/* Expires all memory that is idle now, and forgets the peak of active bytes. */
static void target_begin(struct vmm_cache *cache, uint64_t keep_bytes)
{
    cache->has_trim_target = true;
    cache->trim_target_keep_bytes = keep_bytes;
    vmm__lanes_counters_flush(&cache->lanes, NULL); /* before waits end */
    atomic_store_explicit(&cache->totals.lately_active_bytes,
                          vmm__stat_now(&cache->totals.active_bytes), memory_order_relaxed);
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        vmm__lane_lock(lane);
        lane->trimmed = (struct expired){ .latest_epoch = vmm__lane_settle_locked(lane) };
        lane->hasty_takes = 0;
        vmm__lane_unlock(lane);
    }
}

/* What a call releases before it lets others have their turn: the bytes of CHUNKS_AT_ONCE chunks. */
static uint64_t turn_bytes(const struct vm *memory)
{
    uint64_t chunks = vmm__max(vmm__stat_now(&memory->chunks), 1);
    uint64_t chunk_bytes = vmm__stat_now(&memory->reserved_bytes) / chunks;
    return vmm__max(chunk_bytes, memory->arena.granule_bytes) * CHUNKS_AT_ONCE;
}

static vmm_status target_release(struct vmm_cache *cache, uint64_t *released)
{
    vmm_status status = VMM_OK;
    bool has_more = true;
    cache->trims++;
    while (has_more && status == VMM_OK) {
        status = expired_release(cache, turn_bytes(&cache->vm), &has_more, released);
        if (has_more)
            vmm__cache_grow_turn(cache);
    }
    cache->trims--;
    return status;
}

/* Compacts if memory above keep_bytes is left: live bytes pin it. Counts memory for copies that the driver refuses to
 * release against *released. */
static vmm_status pinned_trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released)
{
    uint64_t before = vmm__stat_now(&cache->vm.reserved_bytes) + *released;
    if (excess_bytes(&cache->vm, keep_bytes) == 0 || !vmm__compact_may(cache))
        return VMM_OK;
    vmm_status status = vmm__compact(cache, NULL, NULL, excess_bytes(&cache->vm, keep_bytes));
    uint64_t after = vmm__stat_now(&cache->vm.reserved_bytes);
    *released = before - vmm__min(before, after);
    return status == VMM__NOTHING ? VMM_OK : status;
}

vmm_status vmm__trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released)
{
    uint64_t released_bytes = 0;
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    target_begin(cache, keep_bytes);
    vmm_status status = target_release(cache, &released_bytes);
    if (status == VMM_OK)
        status = pinned_trim(cache, keep_bytes, &released_bytes);
    vmm__cache_lanes_vacate(cache);
    trim_log(cache, released_bytes);
    status = vmm__cache_checked(cache, CHECK_TRIM_EVERY, status);
    vmm__fair_unlock(&cache->grow_lock);
    if (status != VMM_OK)
        return status;
    vmm__error_restore(&line);
    if (released != NULL)
        *released = released_bytes;
    return VMM_OK;
}

bool vmm__trim_passed_locked(struct vmm_cache *cache, struct lane *held, uint64_t *released)
{
    bool any = false;
    *released = 0;
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        vmm__lane_lock_beside(lane, held);
        any = vmm__lane_poll_locked(lane, UINT32_MAX) == VMM_OK || any;
        any = vmm__slabs_purge(&lane->slabs) || any;
        vmm__lane_counters_flush(lane);
        vmm__lane_unlock_beside(lane, held);
    }
    (void)vmm__limbo_drain(&cache->vm, released);
    return any || *released > 0;
}

uint64_t vmm__trim_part(struct vmm_cache *cache, uint64_t bytes, uint64_t floor_bytes)
{
    uint64_t released_bytes = 0;
    VMM_HOLD_FAIR(&cache->grow_lock);
    struct trim_request trim = trim_part(cache);
    trim.most_bytes = excess_bytes(&cache->vm, floor_bytes);
    trim.bytes = vmm__min(vmm__min(bytes, trim.most_bytes), turn_bytes(&cache->vm));
    if (trim.bytes > 0 && vmm__trim_idle(cache, &trim) > 0)
        (void)vmm__limbo_drain(&cache->vm, &released_bytes);
    vmm__cache_lanes_vacate(cache);
    return released_bytes;
}

/* Discards at most `bytes` of a pool's idle memory whose work has finished, and drains limbo. Returns what it
 * discarded; adds to *released what the drain released of the pool. */
static uint64_t pool_discard(struct pool *pool, uint64_t bytes, uint64_t *released,
                             vmm_status *status)
{
    struct vmm_cache *cache = pool->cache;
    uint64_t reserved_bytes = vmm__stat_now(&pool->account.reserved_bytes);
    struct trim_request trim = { .bytes = bytes, .when = IDLE_FINISHED, .pool = pool };
    uint64_t put_bytes = bytes > 0 ? vmm__trim_idle(cache, &trim) : 0;
    vmm_status drained = vmm__limbo_drain(&cache->vm, NULL);
    *released += reserved_bytes - vmm__stat_now(&pool->account.reserved_bytes);
    *status = trim.failed != VMM_OK ? trim.failed : drained;
    return put_bytes;
}

static vmm_status pool_release(struct pool *pool, uint64_t keep_bytes, uint64_t *released)
{
    struct vmm_cache *cache = pool->cache;
    uint64_t reserved_bytes = vmm__stat_now(&pool->account.reserved_bytes);
    uint64_t staying_bytes = reserved_bytes - pool->account.counts.limbo_bytes;
    uint64_t left_bytes = staying_bytes - vmm__min(staying_bytes, keep_bytes);
    vmm_status status = VMM_OK;
    bool has_more = true;
    while (has_more && status == VMM_OK) {
        uint64_t bytes = vmm__min(left_bytes, turn_bytes(&cache->vm));
        uint64_t put_bytes = pool_discard(pool, bytes, released, &status);
        left_bytes -= vmm__min(left_bytes, put_bytes);
        has_more = put_bytes >= bytes && left_bytes > 0;
        if (has_more)
            vmm__cache_grow_turn(cache);
    }
    return status;
}

vmm_status vmm__trim_pool(struct pool *pool, uint64_t keep_bytes, uint64_t *released)
{
    struct vmm_cache *cache = pool->cache;
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    *released = 0;
    vmm__pool_settle(pool);
    vmm_status status = pool_release(pool, keep_bytes, released);
    vmm__cache_lanes_vacate(cache);
    trim_log(cache, *released);
    status = vmm__cache_checked(cache, CHECK_TRIM_EVERY, status);
    vmm__fair_unlock(&cache->grow_lock);
    return vmm__error_end(&line, status);
}
