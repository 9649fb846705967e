/* Asks other processes for memory: see claim.h. */
#define _GNU_SOURCE
#include "cache/reclaim/claim.h"
#include "base/arith.h"
#include "base/callback.h"
#include "base/size.h"
#include "base/time.h"
#include "cache/reclaim/oom_report.h"

/* Who claims so soon after it gave takes turns with another process. */
#define TURN_NS UINT64_C(1000000000)

static void count_add(_Atomic uint64_t *count, uint64_t more)
{
    atomic_fetch_add_explicit(count, more, memory_order_relaxed);
}

/* ---- The slot -------------------------------------------------------------------------------- */

static void claim_show(struct neighbours *neighbours, uint64_t want_bytes, uint64_t begin_ns,
                       uint64_t end_ns)
{
    struct neighbour_slot *slot = &neighbours->slot;
    vmm__mutex_lock(&neighbours->lock);
    if (neighbours->claimants++ == 0) {
        slot->begin_ns = begin_ns;
        slot->end_ns = 0;
    }
    slot->want_bytes += want_bytes;
    slot->end_ns = vmm__max(slot->end_ns, end_ns);
    slot->claims++;
    vmm__neighbour_write(&neighbours->record, slot);
    vmm__mutex_unlock(&neighbours->lock);
}

static void claim_withdraw(struct neighbours *neighbours, uint64_t want_bytes)
{
    vmm__mutex_lock(&neighbours->lock);
    neighbours->claimants--;
    neighbours->slot.want_bytes -= want_bytes;
    vmm__neighbour_write(&neighbours->record, &neighbours->slot);
    vmm__mutex_unlock(&neighbours->lock);
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
        free_bytes = vmm__oom_device_bytes(cache);
        now_ns = vmm__time_ns();
        if (free_bytes >= want_bytes || now_ns >= end_ns)
            break;
        vmm__neighbour_ring(record, BELL_ASKED);
        vmm__neighbour_wait(record, BELL_GIVEN, state, vmm__min(end_ns - now_ns, CLAIM_SLICE_NS));
    } while (true);
    return free_bytes;
}

/* The first claim of a request. */
static void claim_begin(struct vmm_cache *cache, struct request *request, uint64_t now_ns)
{
    struct neighbours *neighbours = cache->neighbours;
    uint64_t given_ns = atomic_load_explicit(&neighbours->given_ns, memory_order_relaxed);
    request->claim_end_ns = now_ns + neighbours->wait_ns;
    count_add(&neighbours->claims, 1);
    if (given_ns == 0 || now_ns - vmm__min(now_ns, given_ns) >= TURN_NS)
        return;
    count_add(&neighbours->turns, 1);
    vmm__cache_log(cache,
                   "neighbours: claims memory %llu ms after it gave some away: processes take the "
                   "same memory from each other in turn; a floor or a limit would stop that",
                   (unsigned long long)(now_ns - vmm__min(now_ns, given_ns)) / 1000000);
}

static void claim_end(struct vmm_cache *cache, uint64_t want_bytes, uint64_t got_bytes,
                      uint64_t begin_ns)
{
    struct neighbours *neighbours = cache->neighbours;
    uint64_t waited_ns = vmm__time_ns() - begin_ns;
    bool is_served = got_bytes >= want_bytes;
    count_add(&neighbours->waited_ns, waited_ns);
    count_add(&neighbours->misses, is_served ? 0 : 1);
    vmm__cache_log(cache, "neighbours: claimed until %s are free, %s after %llu ms: %s",
                   vmm__size_text(want_bytes).text, is_served ? "served" : "given up",
                   (unsigned long long)waited_ns / 1000000, vmm__size_text(got_bytes).text);
}

vmm_status vmm__claim(struct vmm_cache *cache, struct request *request, uint64_t grow_bytes)
{
    struct neighbours *neighbours = cache->neighbours;
    if (neighbours == NULL || vmm__callback_is_in(cache, false))
        return VMM__NOTHING;
    uint64_t free_bytes = vmm__oom_device_bytes(cache);
    if (free_bytes == UINT64_MAX) /* the driver fails */
        return VMM__NOTHING;
    uint64_t now_ns = vmm__time_ns();
    bool is_first = request->claim_end_ns == 0;
    if (is_first)
        claim_begin(cache, request, now_ns);
    if (is_first && free_bytes >= grow_bytes) /* it has come meanwhile */
        return VMM_OK;
    if (now_ns >= request->claim_end_ns)
        return VMM__NOTHING;
    /* what the device has, and does not give, does not count */
    uint64_t want_bytes = grow_bytes + (free_bytes >= grow_bytes ? free_bytes : 0);
    claim_show(neighbours, want_bytes, now_ns, request->claim_end_ns);
    vmm__cache_locks_drop(cache, request->lane);
    uint64_t got_bytes = memory_wait(cache, want_bytes, request->claim_end_ns);
    claim_withdraw(neighbours, want_bytes);
    claim_end(cache, want_bytes, got_bytes, now_ns);
    vmm__cache_locks_take(cache, request->lane);
    return got_bytes > free_bytes ? VMM_OK : VMM__NOTHING;
}
