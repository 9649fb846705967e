/* The steps of reclaim: see reclaim.h. */
#include "cache/reclaim/reclaim.h"
#include "base/arith.h"
#include "cache/claim.h"
#include "cache/compact/compact.h"
#include "cache/grow/grow.h"
#include "cache/grow/source.h"
#include "cache/idle/borrow.h"
#include "cache/idle/transfer.h"
#include "cache/idle/trim.h"
#include "cache/pool/pools.h"
#include "cache/reclaim/oom_report.h"
#include "cache/reclaim/pressure.h"

/* A step returns VMM_OK if the request may now succeed, or any internal outcome if it has nothing to give. An error
 * ends the request, but for one that says that memory ran out: the request is tried again. */
typedef vmm_status (*reclaim_step)(struct vmm_cache *cache, struct request *request);

static vmm_status ok_if(bool has_given)
{
    return has_given ? VMM_OK : VMM__NOTHING;
}

static vmm_status step_passed(struct vmm_cache *cache, struct request *request)
{
    uint64_t released_bytes = 0;
    return ok_if(vmm__trim_passed_locked(cache, request->lane, &released_bytes));
}

/* What a request still needs. */
struct need {
    uint64_t grow_bytes;        /* the new memory that it needs */
    uint64_t bytes;             /* to release before the driver, or a limit, allows that much */
    const struct pool *pool;    /* its own limit refuses: only its memory helps; NULL: all does */
    bool is_limited;            /* a limit refuses, not the device */
    const struct block *beside; /* the free block that the new memory extends, or NULL */
};

static struct need need_of(struct vmm_cache *cache, const struct request *request)
{
    const struct pool *pool = request->lane->owner.pool;
    struct need need = { .beside = NULL };
    if (!vmm__request_is_plain(request))
        need.grow_bytes = request->new_bytes;
    else if (request->lane->owner.has_source)
        need.grow_bytes = vmm__source_segment_bytes(cache, request->heap, request->block_bytes);
    else if (request->is_alone) /* it extends no free block */
        need.grow_bytes = vmm__align_up(request->block_bytes, cache->vm.arena.granule_bytes);
    else
        need.grow_bytes = vmm__grow_bytes(cache, request->heap, request->block_bytes, &need.beside);
    uint64_t short_bytes = vmm__account_short_bytes(&pool->account, need.grow_bytes);
    need.pool = short_bytes > 0 ? pool : NULL;
    if (short_bytes == 0 && cache->vm.limit_bytes != 0)
        short_bytes = vmm__vm_short_bytes(&cache->vm, &pool->account, need.grow_bytes);
    need.is_limited = short_bytes != 0;
    /* 0: the driver refuses, and does not say how much it is short of */
    need.bytes = short_bytes != 0 ? short_bytes : need.grow_bytes;
    return need;
}

/* Puts idle memory whose work has finished into limbo; last of all the free block that growth would extend. */
static uint64_t idle_discard(struct vmm_cache *cache, const struct request *request)
{
    struct need need = need_of(cache, request);
    struct trim_request trim = { .when = IDLE_FINISHED,
                                 .held = request->lane,
                                 .bytes = need.bytes,
                                 .pool = need.pool,
                                 .taker = request->lane->owner.pool,
                                 .keep = need.beside };
    uint64_t put_bytes = vmm__trim_idle(cache, &trim);
    if (put_bytes < trim.bytes && need.beside != NULL) {
        trim.bytes -= put_bytes;
        trim.keep = NULL;
        put_bytes += vmm__trim_idle(cache, &trim);
    }
    return put_bytes;
}

static vmm_status step_idle_finished(struct vmm_cache *cache, struct request *request)
{
    uint64_t released_bytes = 0;
    if (idle_discard(cache, request) > 0)
        (void)vmm__limbo_drain(&cache->vm, &released_bytes);
    return ok_if(released_bytes > 0);
}

static vmm_status step_view(struct vmm_cache *cache, struct request *request)
{
    (void)cache;
    bool is_raised = request->from < GROW_VIEW;
    request->from = is_raised ? GROW_VIEW : request->from;
    return ok_if(is_raised);
}

/* A run of another stream that is long enough is transferred at its address, without mapping; growth makes
 * views of shorter ones. */
static vmm_status step_follow(struct vmm_cache *cache, struct request *request)
{
    bool may_follow = vmm__clock_is_own(request->lane->clock) &&
                      !vmm__lane_is_retained(request->lane); /* see vmm__idle_usual() */
    if (!vmm__request_is_plain(request) || !may_follow)
        return VMM__NOTHING;
    bool is_raised = request->from < GROW_FOLLOW;
    request->from = GROW_FOLLOW;
    vmm_status status = vmm__transfer(cache, request, IDLE_FOLLOW);
    return status == VMM__NO_FIT ? ok_if(is_raised) : status;
}

/* Whether a request is for a block that may lie in any hole. */
static bool takes_holes(const struct request *request)
{
    return vmm__request_is_plain(request) && !request->is_alone;
}

/* In debug mode blocks have the sizes that its records say. */
static vmm_status step_misfit(struct vmm_cache *cache, struct request *request)
{
    if (!takes_holes(request) || cache->debug != NULL)
        return VMM__NOTHING;
    return ok_if(vmm__lane_take_any_locked(request->lane, request->bytes, &request->found) ==
                 VMM_OK);
}

static vmm_status hole_borrow(struct vmm_cache *cache, struct request *request, bool waits)
{
    if (!takes_holes(request) || request->is_unborrowed)
        return VMM__NOTHING;
    return ok_if(vmm__borrow(cache, request->lane, request->bytes, waits, &request->found) ==
                 VMM_OK);
}

static vmm_status step_borrow(struct vmm_cache *cache, struct request *request)
{
    return hole_borrow(cache, request, false);
}

static vmm_status step_wait_borrow(struct vmm_cache *cache, struct request *request)
{
    return hole_borrow(cache, request, true);
}

/* The host waits that one request may make. Other threads use the lane meanwhile, and may take what was
 * waited for, so the waits need a bound. */
enum { WAITS_MOST = 1024 };

/* Also succeeds if another thread has emptied the quarantine since this request last looked. Other threads run
 * while no lock is held, so the request begins anew. */
static vmm_status step_quarantine(struct vmm_cache *cache, struct request *request)
{
    if (request->waits >= WAITS_MOST ||
        !vmm__pressure_quarantine(cache, request->lane, &request->given))
        return VMM__NOTHING;
    request->waits++;
    vmm__request_begin(request);
    return VMM_OK;
}

/* The epoch of the idle memory that was freed first, among that of one clock whose work is unfinished. clock NULL:
 * there is none. */
struct unfinished {
    struct clock *clock;
    uint64_t epoch;
};

static bool run_pass_over(void *context, const struct idle_run *run)
{
    (void)context;
    (void)run;
    return true;
}

static void heap_look(struct vmm_cache *cache, struct heap *heap, struct unfinished *oldest)
{
    struct idle_scan scan = vmm__idle_scan(heap, NULL, IDLE_FINISHED);
    (void)vmm__idle_visit_heap(cache, &scan, run_pass_over, NULL);
    bool is_older = oldest->clock == NULL || scan.stuck_epoch < oldest->epoch;
    if (scan.stuck_epoch != UINT64_MAX && is_older)
        *oldest = (struct unfinished){ .clock = heap->clock, .epoch = scan.stuck_epoch };
}

/* Epochs of different clocks cannot be compared, so it looks at the lanes from *next on until it has found something on
 * a lane's own clock. *next: the lane behind. */
static struct unfinished oldest_unfinished(struct vmm_cache *cache, const struct request *request,
                                           struct lane **next)
{
    const struct pool *only = need_of(cache, request).pool;
    struct unfinished oldest = { .clock = NULL };
    while (*next != NULL && (oldest.clock == NULL || !vmm__clock_is_own(oldest.clock))) {
        struct lane *lane = *next;
        *next = lane->list_next;
        if (only != NULL && only != lane->owner.pool)
            continue;
        vmm__lane_lock_beside(lane, request->lane);
        heap_look(cache, &lane->large, &oldest);
        heap_look(cache, &lane->small, &oldest);
        vmm__lane_unlock_beside(lane, request->lane);
    }
    return oldest;
}

/* While it waits for the work, idle memory stays where it is: its own stream may use it at any time. A capture stops
 * the clock of its stream; the step then waits for another lane's clock. If it finds no unfinished work, it releases
 * what has finished since step_idle_finished. */
static vmm_status step_wait_idle(struct vmm_cache *cache, struct request *request)
{
    struct lane *next = cache->lanes.stocked.first; /* the grow lock keeps the list as it is */
    vmm_status status = VMM__PENDING;
    while (status == VMM__PENDING && request->waits < WAITS_MOST) {
        struct unfinished oldest = oldest_unfinished(cache, request, &next);
        if (oldest.clock == NULL)
            return step_idle_finished(cache, request);
        vmm__lane_unlock(request->lane);
        status = vmm__clock_wait(oldest.clock, oldest.epoch);
        vmm__lane_lock(request->lane);
        request->waits += status == VMM_OK; /* a captured stream's clock answers at once */
    }
    return status;
}

/*
 * The oldest entry of limbo may be the old home of a relocated chunk, which frees addresses but no memory, so the step
 * waits until the first chunk is released. It drops the lane's lock while it waits, so that frees never wait for the
 * device.
 */
static vmm_status step_wait_limbo(struct vmm_cache *cache, struct request *request)
{
    uint64_t released_bytes = 0;
    bool any = false;
    vmm_status status = VMM_OK;
    const struct pool *only = need_of(cache, request).pool;
    const struct account *account = only == NULL ? NULL : &only->account;
    vmm__lane_unlock(request->lane);
    while (status == VMM_OK && released_bytes == 0 && !vmm__source_has_ready(cache) &&
           request->waits < WAITS_MOST) {
        request->waits++;
        status = vmm__limbo_wait(&cache->vm, account, &released_bytes);
        any = any || status == VMM_OK;
    }
    vmm__lane_lock(request->lane);
    return status == VMM_OK || status == VMM__NOTHING ? ok_if(any) : status;
}

/* What a waiting block waits for that would help: an event of a stream, else an epoch, whose clock a capture may stop.
 * False if no block waits. */
static bool oldest_use(struct vmm_cache *cache, const struct request *request, struct event **event,
                       uint64_t *epoch)
{
    const struct pool *only = need_of(cache, request).pool;
    bool found = false;
    *event = NULL;
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL && *event == NULL;
         lane = lane->list_next) {
        if (only != NULL && only != lane->owner.pool)
            continue;
        vmm__lane_lock_beside(lane, request->lane);
        found = vmm__notes_oldest(&lane->notes, event, epoch) || found;
        vmm__lane_unlock_beside(lane, request->lane);
    }
    return found;
}

/* Waits for an event, which it drops, or for an epoch. */
static vmm_status use_wait(struct clock *clock, struct event *event, uint64_t epoch)
{
    if (event == NULL)
        return vmm__clock_wait(clock, epoch);
    vmm_status status = vmm__clock_event_wait(clock, event);
    vmm__event_drop(clock->events, event);
    return status;
}

static vmm_status step_wait_uses(struct vmm_cache *cache, struct request *request)
{
    struct event *event;
    uint64_t epoch;
    if (request->waits >= WAITS_MOST || !oldest_use(cache, request, &event, &epoch))
        return VMM__NOTHING;
    request->waits++;
    vmm__lane_unlock(request->lane);
    vmm_status status = use_wait(&cache->clock, event, epoch);
    vmm__lane_lock(request->lane);
    if (status == VMM_OK)
        (void)step_passed(cache, request);
    return status;
}

/* Pools that were destroyed or dropped while work may have used their memory. */
static vmm_status step_wait_pools(struct vmm_cache *cache, struct request *request)
{
    const struct pool *only = need_of(cache, request).pool;
    if (only != NULL && !only->is_leaving)
        return VMM__NOTHING;
    vmm__lane_unlock(request->lane);
    vmm_status status = vmm__pools_leave_wait_locked(cache);
    vmm__lane_lock(request->lane);
    return status == VMM_OK ? VMM_OK : VMM__NOTHING;
}

/* The bytes that compaction must free: what the request needs beyond a limit, or beyond what the device has free. */
static uint64_t shortfall_bytes(const struct vmm_cache *cache, const struct need *need)
{
    uint64_t limit_bytes = cache->vm.limit_bytes;
    uint64_t grow_bytes = need->grow_bytes;
    if (need->pool != NULL)
        return need->bytes;
    uint64_t total_bytes = vmm__stat_now(&cache->vm.reserved_bytes) + grow_bytes;
    uint64_t device_bytes = vmm__cache_device_bytes(cache);
    uint64_t bytes = grow_bytes - vmm__min(grow_bytes, device_bytes);
    if (limit_bytes != 0 && total_bytes > limit_bytes)
        bytes = vmm__max(bytes, total_bytes - limit_bytes);
    return bytes != 0 ? bytes : grow_bytes; /* the driver refuses without a reason */
}

/*
 * Does nothing if even all pinned memory would be too little. If compaction fails, the request fails with its
 * out-of-memory error, not with that of compaction; except for a lost device, and for live chunks that the driver
 * refuses to map again (remap_pending), which the program must know of.
 */
static vmm_status step_compact(struct vmm_cache *cache, struct request *request)
{
    if (!vmm__compact_may(cache))
        return VMM__NOTHING;
    vmm__lanes_counters_flush(&cache->lanes, request->lane);
    struct need need = need_of(cache, request);
    const struct pool *only = need.pool;
    uint64_t bytes = shortfall_bytes(cache, &need);
    uint64_t reserved_bytes =
        vmm__stat_now(only == NULL ? &cache->vm.reserved_bytes : &only->account.reserved_bytes);
    uint64_t live_bytes = vmm__stat_now(only == NULL ? &cache->totals.allocated_bytes
                                                     : &only->totals.allocated_bytes);
    if (reserved_bytes < live_bytes + bytes || request->waits >= WAITS_MOST)
        return VMM__NOTHING;
    request->waits++;
    vmm_status status = vmm__compact(cache, request->lane, only, bytes);
    bool is_reported = status == VMM_OK || status == VMM_ERR_LOST || cache->vm.remap_pending > 0;
    return is_reported ? status : VMM__NOTHING;
}

/* A block of another pool does not count for the limit of the request's own, so it does not help where that refuses. */
static vmm_status step_lend(struct vmm_cache *cache, struct request *request)
{
    if (!vmm__request_is_plain(request) || request->is_unborrowed ||
        need_of(cache, request).pool != NULL)
        return VMM__NOTHING;
    return ok_if(vmm__lend(cache, request->lane, request->bytes, &request->found) == VMM_OK);
}

/* Other processes cannot give what a limit refuses, nor addresses, nor what a source has. */
static vmm_status step_neighbours(struct vmm_cache *cache, struct request *request)
{
    if (cache->neighbours == NULL || request->refused != VMM_ERR_DEVICE_OOM ||
        request->lane->owner.has_source)
        return VMM__NOTHING;
    struct need need = need_of(cache, request);
    vmm_status status = need.is_limited
                            ? VMM__NOTHING
                            : vmm__claim(cache, &request->claim, request->lane, need.grow_bytes);
    if (status == VMM_OK)
        vmm__request_begin(request);
    return status;
}

/* Also succeeds if the function returned 0 but memory was released while it ran, for example by vmm_trim(). Other
 * threads run while no lock is held, so the request begins anew. */
static vmm_status step_pressure(struct vmm_cache *cache, struct request *request)
{
    if (request->questions >= QUESTIONS_MOST)
        return VMM__NOTHING;
    request->questions++;
    uint64_t bytes = need_of(cache, request).bytes;
    uint64_t reserved_bytes = vmm__stat_now(&cache->vm.reserved_bytes);
    if (!vmm__pressure_ask(cache, request->lane, bytes) &&
        vmm__stat_now(&cache->vm.reserved_bytes) >= reserved_bytes)
        return VMM__NOTHING;
    vmm__request_begin(request);
    return VMM_OK;
}

static const struct {
    reclaim_step run;
    bool restarts;
} reclaim_steps[] = {
#define RECLAIM_STEP_ENTRY(number, function, restarts) { function, restarts },
    RECLAIM_STEP_MAP(RECLAIM_STEP_ENTRY)
#undef RECLAIM_STEP_ENTRY
};

enum { RECLAIM_STEPS = sizeof reclaim_steps / sizeof reclaim_steps[0] };

/* Whether a status is internal (base/outcome.h): neither success nor an error that the program may see. */
static bool is_outcome(vmm_status status)
{
    return status >= VMM__PENDING;
}

/* Whether the pool was destroyed while a step held no lock: other limits hold for the memory of the default one. */
static bool has_new_owner(struct request *request)
{
    const vmm_pool *owner = request->lane->owner.pool->handle;
    bool is_new = owner != request->owner;
    request->owner = owner;
    return is_new;
}

vmm_status vmm__reclaim_next(struct vmm_cache *cache, struct request *request)
{
    for (; request->step < RECLAIM_STEPS; request->step++) {
        if (has_new_owner(request)) {
            vmm__request_begin(request);
            request->step = 0;
            return VMM_OK;
        }
        if (vmm__source_has_ready(cache)) { /* what the step before has released */
            vmm__source_return_locked(cache, request->lane);
            return VMM_OK;
        }
        vmm_status status = reclaim_steps[request->step].run(cache, request);
        if (status == VMM_OK && reclaim_steps[request->step].restarts)
            request->step = 0;
        if (!is_outcome(status))
            return status;
    }
    return VMM__NOTHING;
}

vmm_status vmm__reclaim_report(struct vmm_cache *cache, const struct request *request,
                               vmm_status status)
{
    struct oom oom = { .status = status, .lane = request->lane, .bytes = request->bytes };
    oom.grow_bytes = need_of(cache, request).grow_bytes;
    return vmm__oom_report(cache, &oom);
}
