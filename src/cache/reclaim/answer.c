/* Answers to other processes' claims: see answer.h. */
#define _GNU_SOURCE
#include "cache/reclaim/answer.h"
#include "base/arith.h"
#include "base/hostmem.h"
#include "base/size.h"
#include "base/time.h"
#include "base/worker.h"
#include "cache/idle/trim.h"
#include "cache/pool/offer.h"
#include "cache/reclaim/pressure.h"
#include "monitor/process.h"

#include <stdio.h>
#include <string.h>

/* What others see is not older, as in the monitor. */
#define SHOW_NS (MONITOR_PERIOD_MS * UINT64_C(1000000))

/* All claims that wait now. More than idle memory serves only claims whose priority is at least the cache's own. */
struct claims {
    uint64_t want_bytes; /* of all; 0: there is none */
    uint64_t
        half_bytes; /* of those that the program may be asked for: half of their time is over */
    uint64_t late_bytes; /* of those that pools may sleep for: three quarters are */
    uint64_t half_ns; /* when half of the time was over, of the last one that half_bytes counts */
    uint64_t free_bytes; /* of the device */
    uint64_t begin_ns;   /* of the first of all */
    uint64_t rank;       /* how many others begin to give before this cache */
    bool is_being_given; /* one of these releases a part now */
    uint64_t pid;        /* of the first of all */
    char name[MONITOR_NAME_BYTES];
};

/* ---- What others show ------------------------------------------------------------------------ */

static bool gives_before(const struct neighbour_slot *slot, unsigned index,
                         const struct neighbour_slot *own, unsigned own_index)
{
    uint64_t spare_bytes = vmm__claim_spare_bytes(slot);
    uint64_t own_bytes = vmm__claim_spare_bytes(own);
    if (spare_bytes == 0)
        return false;
    if (slot->priority != own->priority)
        return slot->priority < own->priority;
    return spare_bytes != own_bytes ? spare_bytes > own_bytes : index < own_index;
}

/* Counts a claim whose priority is not lower than the cache's by how much of its time is over. If several threads of a
 * claimant claim, that is the time of the first one, for all their bytes. */
static void time_add(const struct neighbour_slot *slot, uint64_t want_bytes, uint64_t now_ns,
                     struct claims *claims)
{
    uint64_t half_ns = slot->begin_ns + (slot->end_ns - slot->begin_ns) / 2;
    uint64_t late_ns = half_ns + (slot->end_ns - half_ns) / 2;
    if (now_ns >= half_ns) {
        claims->half_bytes += want_bytes;
        claims->half_ns = vmm__max(claims->half_ns, half_ns);
    }
    if (now_ns >= late_ns)
        claims->late_bytes += want_bytes;
}

static void claim_add(const struct vmm_cache *cache, const struct neighbour_slot *slot,
                      uint64_t now_ns, struct claims *claims)
{
    bool is_first = claims->want_bytes == 0;
    uint64_t want_bytes = vmm__min(slot->want_bytes, cache->driver->total_bytes);
    claims->want_bytes += want_bytes;
    if (slot->priority >= cache->neighbours->slot.priority)
        time_add(slot, want_bytes, now_ns, claims);
    if (!is_first && claims->begin_ns <= slot->begin_ns)
        return;
    claims->begin_ns = slot->begin_ns;
    claims->pid = slot->pid;
    memcpy(claims->name, slot->name, sizeof claims->name);
}

/* Counts another cache that gives before this one. */
static void other_add(const struct neighbour_slot *slot, uint64_t now_ns, struct claims *claims)
{
    claims->rank++;
    if (slot->giving_ns != 0 && now_ns - slot->giving_ns < CLAIM_TRY_NS)
        claims->is_being_given = true;
}

static struct claims claims_read(const struct vmm_cache *cache)
{
    const struct neighbours *own = cache->neighbours;
    struct claims claims = { .want_bytes = 0 };
    struct neighbour_slot slots[NEIGHBOUR_SLOTS];
    uint64_t now_ns = vmm__time_ns();
    const struct neighbour_slot self = vmm__claim_own_slot(cache->neighbours);
    uint64_t others = vmm__neighbours_read(&own->record, slots);
    while (others != 0) {
        unsigned i = vmm__neighbour_take(&others);
        if (vmm__claim_is_shown(&slots[i], now_ns))
            claim_add(cache, &slots[i], now_ns, &claims);
        else if (gives_before(&slots[i], i, &self, own->record.slot))
            other_add(&slots[i], now_ns, &claims);
    }
    return claims;
}

/* ---- Give ------------------------------------------------------------------------------------ */

/* The cache or the process ends: the thread makes no more calls of the driver. A thread that ended at exit() would be a
 * leak to ThreadSanitizer, so it rests. */
static bool has_ended(const struct neighbours *own)
{
    return atomic_load_explicit(&own->stops, memory_order_acquire) ||
           !vmm__neighbour_is_joined(&own->record);
}

static bool claims_itself(struct neighbours *own)
{
    VMM_HOLD(&own->lock);
    return own->claims != NULL;
}

/* When the need began that the cache answers now: the begin of the first claim or, without claims, the moment since
 * which headroom is not free. */
static uint64_t need_begin(struct neighbours *own, const struct claims *claims, bool has_headroom)
{
    if (has_headroom)
        own->tight_ns = 0;
    else if (own->tight_ns == 0)
        own->tight_ns = vmm__time_ns();
    return claims->want_bytes > 0 ? claims->begin_ns : own->tight_ns;
}

/* What the device has less than some of the claims want. */
static uint64_t short_bytes(const struct claims *claims, uint64_t want_bytes)
{
    return want_bytes - vmm__min(want_bytes, claims->free_bytes);
}

/* Reads all claims, and returns what the device is short of for them and its headroom; 0 also while others begin, or
 * this cache claims. A claimant withdraws before it takes the memory, so the device is asked first: memory that it has
 * taken is no longer missing. */
static uint64_t missing_bytes(const struct vmm_cache *cache, struct claims *claims)
{
    struct neighbours *own = cache->neighbours;
    uint64_t free_bytes = vmm__cache_device_bytes(cache);
    *claims = claims_read(cache);
    uint64_t left_bytes = free_bytes - vmm__min(claims->want_bytes, free_bytes);
    uint64_t headroom_bytes = vmm__headroom_missing_bytes(cache, left_bytes);
    claims->free_bytes = free_bytes;
    uint64_t begin_ns = need_begin(own, claims, headroom_bytes == 0);
    if (claims_itself(own) || claims->is_being_given ||
        vmm__time_ns() < begin_ns + claims->rank * CLAIM_SLICE_NS)
        return 0;
    return short_bytes(claims, claims->want_bytes) + headroom_bytes;
}

/* A part is free: counts it, and tells the claimants, if there are any. */
static void part_give(struct vmm_cache *cache, uint64_t bytes, bool is_claimed)
{
    struct neighbours *own = cache->neighbours;
    vmm__count(&cache->counts.neighbour_given_bytes, bytes);
    if (is_claimed)
        atomic_store_explicit(&own->given_ns, vmm__time_ns(), memory_order_relaxed);
    own->shown_ns = 0;
    vmm__neighbour_ring(&own->record, BELL_GIVEN);
}

static void given_log(struct vmm_cache *cache, const struct claims *claims, uint64_t bytes)
{
    if (claims->want_bytes == 0) {
        vmm__cache_log(cache, "neighbours: gave %s, for the headroom of the device",
                       vmm__size_text(bytes).text);
        return;
    }
    vmm__cache_log(cache, "neighbours: gave %s, which process %llu (%s) claims",
                   vmm__size_text(bytes).text, (unsigned long long)claims->pid, claims->name);
}

/* Releases what waited, and has finished since the last call of the program. */
static uint64_t passed_give(struct vmm_cache *cache)
{
    uint64_t released_bytes;
    VMM_HOLD_FAIR(&cache->grow_lock);
    vmm__lanes_counters_flush(&cache->lanes, NULL); /* before waits end */
    (void)vmm__trim_passed_locked(cache, NULL, &released_bytes);
    return released_bytes;
}

/* Shows that the cache releases a part: those behind it wait, because the device does not have it yet. 0: it does
 * not. */
static void giving_show(struct neighbours *own, uint64_t giving_ns)
{
    VMM_HOLD(&own->lock);
    own->slot.giving_ns = giving_ns;
    vmm__neighbour_write(&own->record, &own->slot);
}

/* Gives what has finished, then idle memory, a part at a time. */
static void idle_give(struct vmm_cache *cache)
{
    struct neighbours *own = cache->neighbours;
    struct claims claims;
    struct claims served = { .want_bytes = 0 };
    uint64_t given_bytes = 0;
    uint64_t missing;
    bool is_first = true;
    while ((missing = missing_bytes(cache, &claims)) > 0) {
        giving_show(own, vmm__time_ns());
        uint64_t bytes = is_first ? passed_give(cache) : 0;
        is_first = false;
        if (bytes == 0)
            bytes = vmm__trim_part(cache, missing, own->slot.floor_bytes);
        if (bytes == 0)
            break;
        part_give(cache, bytes, claims.want_bytes > 0);
        given_bytes += bytes;
        served = claims.want_bytes > 0 ? claims : served;
    }
    if (!is_first)
        giving_show(own, 0);
    if (given_bytes > 0)
        given_log(cache, &served, given_bytes);
}

/* What the cache will give when its work has finished: idle memory above the floor, and blocks that wait. */
static uint64_t coming_bytes(struct vmm_cache *cache)
{
    vmm__neighbours_show(cache); /* counts everything */
    struct neighbour_slot slot = vmm__claim_own_slot(cache->neighbours);
    uint64_t active_bytes = vmm__stat_now(&cache->totals.active_bytes);
    slot.idle_bytes += active_bytes - vmm__min(active_bytes, slot.live_bytes);
    return vmm__claim_spare_bytes(&slot);
}

/* Asks the program after half of a claim's time, never for headroom. Asks again while it frees memory and that is not
 * enough; when it frees nothing, not before half of another claim's time is over. */
static bool program_ask(struct vmm_cache *cache)
{
    struct neighbours *own = cache->neighbours;
    struct claims claims;
    bool is_turn = missing_bytes(cache, &claims) > 0;
    uint64_t bytes = short_bytes(&claims, claims.half_bytes);
    if (!is_turn || !own->asks_program || bytes == 0)
        return false;
    if (claims.half_ns > own->asked_ns)
        own->questions_left = QUESTIONS_MOST;
    else if (own->questions_left == 0 || bytes <= coming_bytes(cache))
        return false;
    own->asked_ns = claims.half_ns;
    bool has_freed = vmm__pressure_call(cache, cache->pool.handle, bytes);
    own->questions_left = has_freed ? own->questions_left - 1 : 0;
    return has_freed;
}

static void sleep_log(struct vmm_cache *cache, const struct claims *claims,
                      const struct offer_taken *taken)
{
    vmm__cache_log(cache, "neighbours: pool %s sleeps: gave %s, which process %llu (%s) claims",
                   taken->name, vmm__size_text(taken->bytes).text, (unsigned long long)claims->pid,
                   claims->name);
}

/* Puts offered pools to sleep, one at a time. */
static void pools_give(struct vmm_cache *cache)
{
    struct neighbours *own = cache->neighbours;
    struct claims claims;
    struct offer_taken taken;
    uint64_t bytes;
    while (missing_bytes(cache, &claims) > 0 &&
           (bytes = short_bytes(&claims, claims.late_bytes)) > 0 && !has_ended(own) &&
           vmm__offer_take(cache, bytes, own->slot.floor_bytes, &taken)) {
        if (taken.bytes > 0)
            part_give(cache, taken.bytes, true);
        if (taken.has_failed)
            continue;
        vmm__count(&cache->counts.neighbour_sleeps, 1);
        sleep_log(cache, &claims, &taken);
    }
}

/* The claimants ring until they are served, so this need not wait for what is not idle yet. */
static void claims_answer(struct vmm_cache *cache)
{
    idle_give(cache);
    while (!has_ended(cache->neighbours) && program_ask(cache))
        idle_give(cache);
    pools_give(cache);
}

/* ---- Show ------------------------------------------------------------------------------------ */

void vmm__neighbours_show(struct vmm_cache *cache)
{
    struct neighbours *own = cache->neighbours;
    vmm__fair_lock(&cache->grow_lock);
    uint64_t idle_bytes = vmm__trim_parts_bytes(cache);
    vmm__lanes_counters_flush(&cache->lanes, NULL);
    vmm__mutex_lock(&own->lock);
    own->slot.idle_bytes = idle_bytes;
    own->slot.limit_bytes = cache->vm.limit_bytes;
    own->slot.live_bytes = vmm__stat_now(&cache->totals.allocated_bytes);
    own->slot.reserved_bytes = vmm__stat_now(&cache->vm.reserved_bytes);
    own->slot.asleep_bytes = cache->vm.counts.asleep_bytes;
    own->slot.given_bytes = vmm__count_read(&cache->counts.neighbour_given_bytes);
    vmm__neighbour_write(&own->record, &own->slot);
    vmm__mutex_unlock(&own->lock);
    vmm__fair_unlock(&cache->grow_lock);
}

static void *neighbours_main(void *context)
{
    struct vmm_cache *cache = context;
    struct neighbours *own = cache->neighbours;
    while (!atomic_load_explicit(&own->stops, memory_order_acquire)) {
        uint32_t state = vmm__neighbour_bell(&own->record, BELL_ASKED);
        if (!has_ended(own))
            claims_answer(cache);
        if (!has_ended(own) && vmm__time_ns() - own->shown_ns >= SHOW_NS) {
            vmm__neighbours_show(cache);
            own->shown_ns = vmm__time_ns();
        }
        if (!atomic_load_explicit(&own->stops, memory_order_acquire))
            vmm__neighbour_wait(&own->record, BELL_ASKED, state, SHOW_NS);
    }
    return NULL;
}

/* ---- Begin and end --------------------------------------------------------------------------- */

static void settings_take(struct neighbours *own, const vmm_config *config)
{
    own->slot.priority = config->neighbours_priority;
    own->slot.floor_bytes = config->neighbours_floor_bytes;
    own->wait_ns = config->neighbours_wait_ms * UINT64_C(1000000);
    own->asks_program = config->neighbours_pressure == VMM_ON;
    vmm__process_name(own->slot.name, sizeof own->slot.name);
    if (config->neighbours_name != NULL)
        (void)snprintf(own->slot.name, sizeof own->slot.name, "%s", config->neighbours_name);
}

static vmm_status neighbours_open(struct vmm_cache *cache, const vmm_config *config,
                                  const char *folder)
{
    if (!cache->driver->is_shared)
        return vmm__error(VMM_ERR_UNSUPPORTED, "neighbours: no other process has memory of %s",
                          cache->driver->device_name);
    struct neighbours *own = vmm__host_alloc(1, sizeof *own);
    if (own == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "neighbours: no host memory");
    settings_take(own, config);
    vmm__mutex_init(&own->lock);
    vmm_status status =
        vmm__neighbour_join(&own->record, folder, cache->driver->uuid, sizeof cache->driver->uuid);
    if (status != VMM_OK)
        goto fail_join;
    cache->neighbours = own;
    vmm__neighbours_show(cache);
    if (vmm__worker_start(&own->thread, neighbours_main, cache) == 0)
        return VMM_OK;
    status = vmm__error(VMM_ERR_HOST_OOM, "neighbours: could not start a thread");
    cache->neighbours = NULL;
    vmm__neighbour_leave(&own->record);

fail_join:
    vmm__mutex_fini(&own->lock);
    vmm__host_free(own, sizeof *own);
    return status;
}

void vmm__neighbours_begin(struct vmm_cache *cache, const vmm_config *config, const char *folder)
{
    VMM_QUIET();
    if (neighbours_open(cache, config, folder) != VMM_OK)
        vmm__cache_log(cache, "%s; the cache works without", vmm_last_error());
}

void vmm__neighbours_end(struct vmm_cache *cache)
{
    struct neighbours *own = cache->neighbours;
    if (own == NULL)
        return;
    atomic_store_explicit(&own->stops, true, memory_order_release);
    vmm__neighbour_ring(&own->record, BELL_ASKED);
    (void)pthread_join(own->thread, NULL);
    cache->neighbours = NULL;
    vmm__neighbour_leave(&own->record);
    vmm__mutex_fini(&own->lock);
    vmm__host_free(own, sizeof *own);
}
