/* Expires idle memory by time: see decay.h. */
#define _GNU_SOURCE
#include "cache/decay.h"
#include "base/callback.h"
#include "base/time.h"

enum { NS_PER_MS = 1000000 };

static uint64_t host_clock(void *context)
{
    (void)context;
    return vmm__time_ns();
}

uint64_t vmm__decay_clock_ns(const struct decay *decay)
{
    struct callback callback;
    vmm__callback_begin(&callback, decay->owner, true);
    uint64_t now_ns = decay->clock(decay->clock_context);
    vmm__callback_end(&callback);
    return now_ns;
}

void vmm__decay_init(struct decay *decay, const vmm_config *config, const void *owner)
{
    *decay = (struct decay){ .period_ns = (uint64_t)config->decay_ms * NS_PER_MS,
                             .keep_bytes = config->decay_keep_bytes,
                             .clock = config->clock != NULL ? config->clock : host_clock,
                             .clock_context = config->clock_context,
                             .owner = owner };
    if (decay->period_ns != 0)
        atomic_store(&decay->period_begin_ns, vmm__decay_clock_ns(decay));
}

/* If another thread has begun a period with a later reading, the difference wraps: one needless period end. */
static bool period_is_over(const struct decay *decay)
{
    uint64_t begin_ns = atomic_load_explicit(&decay->period_begin_ns, memory_order_relaxed);
    return decay->period_ns != 0 && vmm__decay_clock_ns(decay) - begin_ns >= decay->period_ns;
}

bool vmm__decay_is_due(const struct decay *decay)
{
    return atomic_load_explicit(&decay->is_stuck, memory_order_relaxed) || period_is_over(decay);
}

static void lane_period_end(struct lane *lane)
{
    vmm__lane_lock(lane);
    lane->decayed = (struct expired){ .latest_epoch = lane->period_epoch };
    lane->period_epoch = vmm__lane_settle_locked(lane);
    vmm__lane_unlock(lane);
}

bool vmm__decay_period_end(struct decay *decay, struct lanes *lanes)
{
    if (!period_is_over(decay))
        return false;
    atomic_store_explicit(&decay->period_begin_ns, vmm__decay_clock_ns(decay),
                          memory_order_relaxed);
    vmm__lanes_counters_flush(lanes, NULL); /* before waits end */
    for (struct lane *lane = lanes->stocked.first; lane != NULL; lane = lane->list_next)
        lane_period_end(lane);
    return true;
}
