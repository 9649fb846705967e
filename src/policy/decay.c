/* Idle memory grows old: see decay.h. */
#define _GNU_SOURCE
#include "policy/decay.h"
#include "base/callback.h"
#include "base/clock.h"

enum { NS_PER_MS = 1000000 };

static uint64_t host_clock(void *context)
{
    (void)context;
    return vmm__clock_ns();
}

static uint64_t clock_read(const struct decay *decay)
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
        atomic_store(&decay->period_begin_ns, clock_read(decay));
}

/* A clock that another thread read later may seem to go back: then it is looked at once too often. */
static bool period_is_over(const struct decay *decay)
{
    uint64_t begin_ns = atomic_load_explicit(&decay->period_begin_ns, memory_order_relaxed);
    return clock_read(decay) - begin_ns >= decay->period_ns;
}

bool vmm__decay_is_due(const struct decay *decay)
{
    return atomic_load_explicit(&decay->is_stuck, memory_order_relaxed) || period_is_over(decay);
}

/* Of all pools before the waits of any end, and are posted. */
static void pool_post(struct pool *pool)
{
    vmm__pool_lock(pool);
    vmm__account_post(&pool->account, pool->ledger);
    vmm__pool_unlock(pool);
}

static void pool_turn(struct pool *pool)
{
    vmm__pool_lock(pool);
    pool->decayed = (struct overdue){ .latest_epoch = pool->period_epoch };
    pool->period_epoch = vmm__pool_settle_locked(pool);
    vmm__pool_unlock(pool);
}

bool vmm__decay_turn(struct decay *decay, struct pools *pools)
{
    if (decay->period_ns == 0 || !period_is_over(decay))
        return false;
    atomic_store_explicit(&decay->period_begin_ns, clock_read(decay), memory_order_relaxed);
    for (struct pool *pool = pools->first; pool != NULL; pool = pool->next)
        pool_post(pool);
    for (struct pool *pool = pools->first; pool != NULL; pool = pool->next)
        pool_turn(pool);
    return true;
}
