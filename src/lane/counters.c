/* Counters of lanes, and their flush into the totals of a pool and of the cache: see counters.h. */
#define _GNU_SOURCE
#include "lane/counters.h"
#include "base/time.h"

enum { SLACK_LEAST_BYTES = 4 << 20, SLACK_SHARE_OF_PEAK = 256, SLACK_MOST_SHARE_OF_PEAK = 8 };

/* Two flushes closer than FLUSH_OFTEN_NS double the slack; a gap longer than FLUSH_SELDOM_NS
 * resets it. */
enum { FLUSH_OFTEN_NS = 10000, FLUSH_SELDOM_NS = 1000000 };

static void stat_flush(const struct counter *from, struct atomic_stat *to)
{
    (void)vmm__stat_flush(to, from->peak - from->flushed, from->current - from->flushed,
                          from->taken);
}

static void counter_restart(struct counter *counter)
{
    *counter = (struct counter){ .current = counter->current,
                                 .peak = counter->current,
                                 .flushed = counter->current };
}

static void totals_flush(const struct counters *counters, struct totals *totals)
{
    uint64_t flushed = counters->active_flushed_bytes;
    uint64_t peak = vmm__stat_flush(&totals->active_bytes, counters->active_peak_bytes - flushed,
                                    vmm__counters_active_bytes(counters) - flushed,
                                    counters->allocated_bytes.taken + counters->hidden_taken);
    vmm__peak_raise(&totals->lately_active_bytes, peak);
    stat_flush(&counters->requested_bytes, &totals->requested_bytes);
    stat_flush(&counters->allocated_bytes, &totals->allocated_bytes);
    stat_flush(&counters->allocations, &totals->allocations);
}

static uint64_t slack_next(struct counters *counters, const struct totals *totals)
{
    uint64_t peak = atomic_load_explicit(&totals->allocated_bytes.peak, memory_order_relaxed);
    uint64_t least = vmm__max(SLACK_LEAST_BYTES, peak / SLACK_SHARE_OF_PEAK);
    uint64_t slack = counters->slack_bytes;
    uint64_t now_ns = vmm__time_ns();
    if (now_ns - counters->flushed_ns < FLUSH_OFTEN_NS)
        slack *= 2;
    if (now_ns - counters->flushed_ns > FLUSH_SELDOM_NS)
        slack = 0;
    counters->flushed_ns = now_ns;
    return vmm__max(least, vmm__min(slack, peak / SLACK_MOST_SHARE_OF_PEAK));
}

/* Sets the bounds of allocated bytes beyond which the next change flushes the counters. */
static void bounds_set(struct counters *counters, const struct totals *totals)
{
    counters->low_bytes = 0;
    counters->high_bytes = UINT64_MAX;
    if (!atomic_load_explicit(&totals->is_shared, memory_order_relaxed))
        return;
    counters->slack_bytes = slack_next(counters, totals);
    uint64_t now = counters->allocated_bytes.current;
    counters->low_bytes = now - vmm__min(now, counters->slack_bytes);
    counters->high_bytes = now + counters->slack_bytes;
}

/* ThreadSanitizer must not see the read of an aligned word that another thread may be writing. */
__attribute__((noinline, no_sanitize("thread"))) bool
vmm__counters_have_blocks(const struct counters *counters)
{
    return *(const volatile uint64_t *)&counters->allocations.current > 0;
}

void vmm__counters_init(struct counters *counters)
{
    *counters = (struct counters){ .high_bytes = UINT64_MAX };
}

void vmm__counters_flush(struct counters *counters, struct totals *totals)
{
    struct totals *root = totals;
    totals_flush(counters, totals);
    if (totals->parent != NULL) {
        root = totals->parent;
        totals_flush(counters, root);
    }
    counters->allocations_flushed += counters->allocations.taken;
    counter_restart(&counters->requested_bytes);
    counter_restart(&counters->allocated_bytes);
    counter_restart(&counters->allocations);
    counters->active_peak_bytes = vmm__counters_active_bytes(counters);
    counters->active_flushed_bytes = counters->active_peak_bytes;
    counters->hidden_taken = 0;
    bounds_set(counters, root);
}
