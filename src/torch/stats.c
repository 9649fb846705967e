/* Statistics of small and large requests: see stats.h. */
#include "torch/stats.h"

static void stat_raise(vmm_stat *figure, uint64_t amount)
{
    figure->current += amount;
    figure->allocated += amount;
    if (figure->current > figure->peak)
        figure->peak = figure->current;
}

static void stat_lower(vmm_stat *figure, uint64_t amount)
{
    figure->current -= amount;
    figure->freed += amount;
}

void vmm__torch_stats_init(struct stats *stats)
{
    vmm__biased_init(&stats->lock);
}

static __attribute__((noinline)) void returned_subtract_locked(struct stats *stats)
{
    VMM_ASSERT_HELD(&stats->lock);
    atomic_store_explicit(&stats->has_returned, false, memory_order_relaxed);
    for (int kind = 0; kind < TORCH_KINDS; kind++) {
        struct returned *returned = &stats->returned[kind];
        stat_lower(&stats->kinds[kind].active_bytes,
                   atomic_exchange_explicit(&returned->bytes, 0, memory_order_relaxed));
        stat_lower(&stats->kinds[kind].active,
                   atomic_exchange_explicit(&returned->blocks, 0, memory_order_relaxed));
    }
}

static void stats_lock(struct stats *stats)
{
    if (!vmm__biased_lock_fast(&stats->lock))
        vmm__biased_lock_slow(&stats->lock);
    if (atomic_load_explicit(&stats->has_returned, memory_order_acquire))
        returned_subtract_locked(stats);
}

static void stats_unlock(struct stats *stats)
{
    vmm__biased_unlock(&stats->lock);
}

/* Two addresses to choose from, because a product with the size of a record costs more. */
static vmm_torch_kind_stats *kind_of(struct stats *stats, uint64_t requested_bytes)
{
    return vmm__torch_kind(requested_bytes) == TORCH_SMALL ? &stats->kinds[TORCH_SMALL]
                                                           : &stats->kinds[TORCH_LARGE];
}

void vmm__torch_stats_alloc(struct stats *stats, uint64_t requested_bytes, uint64_t block_bytes)
{
    vmm_torch_kind_stats *kind = kind_of(stats, requested_bytes);
    stats_lock(stats);
    stat_raise(&kind->requested_bytes, requested_bytes);
    stat_raise(&kind->allocated_bytes, block_bytes);
    stat_raise(&kind->active_bytes, block_bytes);
    stat_raise(&kind->allocations, 1);
    stat_raise(&kind->active, 1);
    stats_unlock(stats);
}

void vmm__torch_stats_free(struct stats *stats, uint64_t requested_bytes, uint64_t block_bytes,
                           bool waits)
{
    vmm_torch_kind_stats *kind = kind_of(stats, requested_bytes);
    stats_lock(stats);
    stat_lower(&kind->requested_bytes, requested_bytes);
    stat_lower(&kind->allocated_bytes, block_bytes);
    stat_lower(&kind->allocations, 1);
    if (!waits) {
        stat_lower(&kind->active_bytes, block_bytes);
        stat_lower(&kind->active, 1);
    }
    stats_unlock(stats);
}

void vmm__torch_stats_change(struct stats *stats, const vmm_change *change, uint64_t block_bytes)
{
    int kind = change->is_small ? TORCH_SMALL : TORCH_LARGE;
    switch (change->kind) {
    case VMM_CHANGE_MAP:
        vmm__stat_add(&stats->reserved[kind], change->bytes);
        break;
    case VMM_CHANGE_UNMAP:
        vmm__stat_subtract(&stats->reserved[kind], change->bytes);
        break;
    case VMM_CHANGE_WAIT: /* vmm__torch_stats_free() counts it */
        break;
    case VMM_CHANGE_FREE: /* by the request, as its allocation: its heap may be the other kind's */
        kind = vmm__torch_kind(change->requested_bytes);
        atomic_fetch_add_explicit(&stats->returned[kind].bytes, block_bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&stats->returned[kind].blocks, 1, memory_order_relaxed);
        atomic_store_explicit(&stats->has_returned, true, memory_order_release);
        break;
    }
}

static vmm_stat reserved_read_locked(const struct stats *stats, int kind)
{
    VMM_ASSERT_HELD(&stats->lock);
    vmm_stat reserved = vmm__stat_read(&stats->reserved[kind]);
    reserved.allocated -= stats->reserved_before[kind].allocated;
    reserved.freed -= stats->reserved_before[kind].freed;
    return reserved;
}

void vmm__torch_stats_read(struct stats *stats, vmm_torch_stats *out)
{
    stats_lock(stats);
    out->small = stats->kinds[TORCH_SMALL];
    out->large = stats->kinds[TORCH_LARGE];
    out->small.reserved_bytes = reserved_read_locked(stats, TORCH_SMALL);
    out->large.reserved_bytes = reserved_read_locked(stats, TORCH_LARGE);
    stats_unlock(stats);
}

static void stat_reset(vmm_stat *figure, bool accumulated)
{
    figure->peak = figure->current;
    if (accumulated)
        figure->allocated = figure->freed = 0;
}

static void kind_reset(vmm_torch_kind_stats *kind, bool accumulated)
{
    stat_reset(&kind->requested_bytes, accumulated);
    stat_reset(&kind->allocated_bytes, accumulated);
    stat_reset(&kind->active_bytes, accumulated);
    stat_reset(&kind->allocations, accumulated);
    stat_reset(&kind->active, accumulated);
}

void vmm__torch_stats_reset(struct stats *stats, bool accumulated)
{
    stats_lock(stats);
    for (int kind = 0; kind < TORCH_KINDS; kind++) {
        kind_reset(&stats->kinds[kind], accumulated);
        vmm__stat_reset_peak(&stats->reserved[kind]);
        if (accumulated)
            stats->reserved_before[kind] = vmm__stat_read(&stats->reserved[kind]);
    }
    stats_unlock(stats);
}
