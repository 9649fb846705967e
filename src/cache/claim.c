/* Asks other processes for memory: see claim.h. */
#define _GNU_SOURCE
#include "cache/claim.h"
#include "base/arith.h"
#include "base/callback.h"
#include "base/list.h"
#include "base/size.h"
#include "base/time.h"

/* A cache that claims within this time after it gave memory takes turns with another process. */
#define TURN_NS UINT64_C(1000000000)

/* The end of the claims of a request that has given up: a time in the past. */
enum { CLAIM_OVER = 1 };

/* ---- The slot -------------------------------------------------------------------------------- */

/* Shows the time of the claim that began first. It is also the first to end, because all last as long. */
static void slot_write_locked(struct neighbours *neighbours)
{
    struct neighbour_slot *slot = &neighbours->slot;
    slot->end_ns = neighbours->claims != NULL ? UINT64_MAX : 0;
    for (const struct claim *claim = neighbours->claims; claim != NULL; claim = claim->next)
        slot->end_ns = vmm__min(slot->end_ns, claim->end_ns);
    slot->begin_ns = slot->end_ns - vmm__min(slot->end_ns, neighbours->wait_ns);
    vmm__neighbour_write(&neighbours->record, slot);
}

static void claim_show(struct vmm_cache *cache, struct claim *claim, uint64_t want_bytes)
{
    struct neighbours *neighbours = cache->neighbours;
    VMM_HOLD(&neighbours->lock);
    claim->next = neighbours->claims;
    neighbours->claims = claim;
    neighbours->slot.want_bytes += want_bytes;
    neighbours->slot.claims = vmm__count_read(&cache->counts.neighbour_claims);
    slot_write_locked(neighbours);
}

static void claim_withdraw(struct neighbours *neighbours, struct claim *claim, uint64_t want_bytes)
{
    VMM_HOLD(&neighbours->lock);
    VMM_LIST_REMOVE(&neighbours->claims, claim, next);
    neighbours->slot.want_bytes -= want_bytes;
    slot_write_locked(neighbours);
}

/* ---- Headroom -------------------------------------------------------------------------------- */

uint64_t vmm__headroom_missing_bytes(const struct vmm_cache *cache, uint64_t free_bytes)
{
    uint64_t headroom_bytes = cache->driver->total_bytes >> HEADROOM_SHIFT;
    return headroom_bytes - vmm__min(headroom_bytes, free_bytes);
}

void vmm__headroom_look(struct vmm_cache *cache)
{
    if (cache->neighbours != NULL &&
        vmm__headroom_missing_bytes(cache, vmm__cache_device_bytes(cache)) > 0)
        vmm__neighbour_ring(&cache->neighbours->record, BELL_ASKED);
}

/* ---- A claim --------------------------------------------------------------------------------- */

/* Waits until the device has so much free memory. Returns how much it has. */
static uint64_t memory_wait(struct vmm_cache *cache, uint64_t want_bytes, uint64_t end_ns)
{
    const struct neighbour_record *record = &cache->neighbours->record;
    uint64_t free_bytes;
    uint64_t now_ns;
    do {
        uint32_t state = vmm__neighbour_bell(record, BELL_GIVEN);
        free_bytes = vmm__cache_device_bytes(cache);
        now_ns = vmm__time_ns();
        if (free_bytes >= want_bytes || now_ns >= end_ns)
            break;
        vmm__neighbour_ring(record, BELL_ASKED);
        vmm__neighbour_wait(record, BELL_GIVEN, state, vmm__min(end_ns - now_ns, CLAIM_SLICE_NS));
    } while (true);
    return free_bytes;
}

/* The first claim of a request. */
static void claim_begin(struct vmm_cache *cache, struct claim *claim, uint64_t now_ns)
{
    struct neighbours *neighbours = cache->neighbours;
    uint64_t given_ns = atomic_load_explicit(&neighbours->given_ns, memory_order_relaxed);
    claim->end_ns = now_ns + neighbours->wait_ns;
    vmm__count(&cache->counts.neighbour_claims, 1);
    if (given_ns == 0 || now_ns - vmm__min(now_ns, given_ns) >= TURN_NS)
        return;
    vmm__count(&cache->counts.neighbour_turns, 1);
    vmm__cache_log(cache,
                   "neighbours: claims memory %llu ms after it gave some away: processes take the "
                   "same memory from each other in turn; a floor or a limit would stop that",
                   (unsigned long long)(now_ns - vmm__min(now_ns, given_ns)) / 1000000);
}

/* Whether another thread of the cache claims, and began before this claim. */
static bool is_behind_own(struct neighbours *neighbours, const struct claim *claim)
{
    bool is_found = false;
    VMM_HOLD(&neighbours->lock);
    for (const struct claim *own = neighbours->claims; own != NULL; own = own->next)
        is_found |= own->end_ns < claim->end_ns;
    return is_found;
}

/* Whether another claim, of this cache or of another one, began before this claim. False once the time of this one is
 * over. */
static bool is_behind(struct neighbours *neighbours, const struct claim *claim)
{
    struct neighbour_slot slots[NEIGHBOUR_SLOTS];
    uint64_t now_ns = vmm__time_ns();
    if (now_ns >= claim->end_ns)
        return false;
    bool is_found = is_behind_own(neighbours, claim);
    uint64_t others = vmm__neighbours_read(&neighbours->record, slots);
    while (others != 0 && !is_found) {
        const struct neighbour_slot *slot = &slots[vmm__neighbour_take(&others)];
        is_found = vmm__claim_is_shown(slot, now_ns) &&
                   slot->begin_ns < claim->end_ns - neighbours->wait_ns;
    }
    return is_found;
}

void vmm__claim_give_way(struct vmm_cache *cache, struct claim *claim)
{
    vmm__neighbour_ring(&cache->neighbours->record, BELL_GIVEN);
    do
        vmm__time_pause(CLAIM_SLICE_NS);
    while (is_behind(cache->neighbours, claim));
    claim->is_behind = false;
}

/* Says how a claim went once it is served, or its time is over. */
static void claim_end(struct vmm_cache *cache, const struct claim *claim, uint64_t want_bytes,
                      uint64_t got_bytes, uint64_t begin_ns)
{
    uint64_t now_ns = vmm__time_ns();
    uint64_t asked_ns = claim->end_ns - cache->neighbours->wait_ns;
    vmm__count(&cache->counts.neighbour_wait_ns, now_ns - begin_ns);
    if (got_bytes < want_bytes && now_ns < claim->end_ns)
        return;
    vmm__cache_log(cache, "neighbours: claimed until %s are free; %s are, after %llu ms",
                   vmm__size_text(want_bytes).text, vmm__size_text(got_bytes).text,
                   (unsigned long long)(now_ns - asked_ns) / 1000000);
}

/* Whether the device could not serve the request if all others gave it all that they have. */
static bool is_hopeless(struct vmm_cache *cache, const struct lane *held, uint64_t grow_bytes)
{
    uint64_t total_bytes = cache->driver->total_bytes;
    uint64_t own_bytes = 0;
    if (held != NULL) {
        vmm__lanes_counters_flush(&cache->lanes, held);
        own_bytes = vmm__stat_now(&cache->totals.active_bytes);
        own_bytes -= vmm__min(own_bytes, cache->vm.counts.asleep_bytes);
    }
    return grow_bytes > total_bytes - vmm__min(own_bytes, total_bytes);
}

/* Claims, and waits without the locks. A claim that may have to give way looks after a slice for an earlier one: both
 * show theirs by then, while at the end of a wait the earlier one would have withdrawn. */
static void claim_wait(struct vmm_cache *cache, struct claim *claim, struct lane *held,
                       uint64_t want_bytes, uint64_t end_ns)
{
    uint64_t begin_ns = vmm__time_ns();
    claim_show(cache, claim, want_bytes);
    if (held != NULL)
        vmm__cache_locks_drop(cache, held);
    uint64_t got_bytes =
        memory_wait(cache, want_bytes, vmm__min(begin_ns + CLAIM_SLICE_NS, end_ns));
    claim->is_behind =
        got_bytes < want_bytes && claim->gives_way && is_behind(cache->neighbours, claim);
    if (!claim->is_behind)
        got_bytes = memory_wait(cache, want_bytes, end_ns);
    claim_withdraw(cache->neighbours, claim, want_bytes);
    claim_end(cache, claim, want_bytes, got_bytes, begin_ns);
    if (held != NULL)
        vmm__cache_locks_take(cache, held);
}

/*
 * If the device has enough, another process may have given it back meanwhile, so the request is tried again first. If
 * the device refuses once more, it does not give all that it has (CUDA keeps a reserve), and the claim is for that much
 * more; but only for a slice, because another process may also have been quicker twice.
 */
vmm_status vmm__claim(struct vmm_cache *cache, struct claim *claim, struct lane *held,
                      uint64_t grow_bytes)
{
    if (cache->neighbours == NULL || !vmm__neighbour_is_joined(&cache->neighbours->record) ||
        vmm__callback_is_in(cache, false) || is_hopeless(cache, held, grow_bytes))
        return VMM__NOTHING;
    uint64_t free_bytes = vmm__cache_device_bytes(cache);
    uint64_t now_ns = vmm__time_ns();
    if (free_bytes == UINT64_MAX) /* the driver fails */
        return VMM__NOTHING;
    if (claim->end_ns == 0)
        claim_begin(cache, claim, now_ns);
    if (now_ns >= claim->end_ns) {
        vmm__count(&cache->counts.neighbour_misses, claim->end_ns == CLAIM_OVER ? 0 : 1);
        claim->end_ns = CLAIM_OVER;
        return VMM__NOTHING;
    }
    bool has_enough = free_bytes >= grow_bytes;
    bool is_tried = claim->is_tried;
    claim->is_tried = has_enough && !is_tried;
    if (claim->is_tried)
        return VMM_OK;
    uint64_t refused_bytes = has_enough ? free_bytes : 0;
    uint64_t slice_ns = has_enough ? CLAIM_SLICE_NS : CLAIM_TRY_NS;
    claim_wait(cache, claim, held, refused_bytes + grow_bytes,
               vmm__min(now_ns + slice_ns, claim->end_ns));
    return VMM_OK;
}
