/* Figures of small and large requests: see figures.h. */
#include "torch/figures.h"

static void figure_raise(vmm_figure *figure, uint64_t amount)
{
    figure->current += amount;
    figure->allocated += amount;
    if (figure->current > figure->peak)
        figure->peak = figure->current;
}

static void figure_lower(vmm_figure *figure, uint64_t amount)
{
    figure->current -= amount;
    figure->freed += amount;
}

void vmm__figures_init(struct figures *figures)
{
    vmm__biased_init(&figures->lock);
}

static __attribute__((noinline)) void returned_subtract_locked(struct figures *figures)
{
    atomic_store_explicit(&figures->has_returned, false, memory_order_relaxed);
    for (int kind = 0; kind < TORCH_KINDS; kind++) {
        struct returned *returned = &figures->returned[kind];
        figure_lower(&figures->kinds[kind].active_bytes,
                     atomic_exchange_explicit(&returned->bytes, 0, memory_order_relaxed));
        figure_lower(&figures->kinds[kind].active,
                     atomic_exchange_explicit(&returned->blocks, 0, memory_order_relaxed));
    }
}

static void figures_lock(struct figures *figures)
{
    if (!vmm__biased_enter(&figures->lock))
        vmm__biased_visit(&figures->lock);
    if (atomic_load_explicit(&figures->has_returned, memory_order_acquire))
        returned_subtract_locked(figures);
}

static void figures_unlock(struct figures *figures)
{
    vmm__biased_drop(&figures->lock);
}

void vmm__figures_take(struct figures *figures, uint64_t requested_bytes, uint64_t block_bytes)
{
    vmm_torch_kind_figures *kind = &figures->kinds[vmm__torch_kind(requested_bytes)];
    figures_lock(figures);
    figure_raise(&kind->requested_bytes, requested_bytes);
    figure_raise(&kind->allocated_bytes, block_bytes);
    figure_raise(&kind->active_bytes, block_bytes);
    figure_raise(&kind->allocations, 1);
    figure_raise(&kind->active, 1);
    figures_unlock(figures);
}

void vmm__figures_give(struct figures *figures, uint64_t requested_bytes, uint64_t block_bytes,
                       bool waits)
{
    vmm_torch_kind_figures *kind = &figures->kinds[vmm__torch_kind(requested_bytes)];
    figures_lock(figures);
    figure_lower(&kind->requested_bytes, requested_bytes);
    figure_lower(&kind->allocated_bytes, block_bytes);
    figure_lower(&kind->allocations, 1);
    if (!waits) {
        figure_lower(&kind->active_bytes, block_bytes);
        figure_lower(&kind->active, 1);
    }
    figures_unlock(figures);
}

void vmm__figures_change(struct figures *figures, const vmm_change *change)
{
    int kind = change->is_small ? TORCH_SMALL : TORCH_LARGE;
    switch (change->kind) {
    case VMM_CHANGE_MAP:
        vmm__figure_add(&figures->reserved[kind], change->bytes);
        break;
    case VMM_CHANGE_UNMAP:
        vmm__figure_subtract(&figures->reserved[kind], change->bytes);
        break;
    case VMM_CHANGE_WAIT: /* vmm__figures_give() is told */
        break;
    case VMM_CHANGE_FREE:
        atomic_fetch_add_explicit(&figures->returned[kind].bytes, change->bytes,
                                  memory_order_relaxed);
        atomic_fetch_add_explicit(&figures->returned[kind].blocks, 1, memory_order_relaxed);
        atomic_store_explicit(&figures->has_returned, true, memory_order_release);
        break;
    }
}

static vmm_figure reserved_read_locked(const struct figures *figures, int kind)
{
    vmm_figure reserved = vmm__figure_read(&figures->reserved[kind]);
    reserved.allocated -= figures->reserved_before[kind].allocated;
    reserved.freed -= figures->reserved_before[kind].freed;
    return reserved;
}

void vmm__figures_read(struct figures *figures, vmm_torch_figures *out)
{
    figures_lock(figures);
    out->small = figures->kinds[TORCH_SMALL];
    out->large = figures->kinds[TORCH_LARGE];
    out->small.reserved_bytes = reserved_read_locked(figures, TORCH_SMALL);
    out->large.reserved_bytes = reserved_read_locked(figures, TORCH_LARGE);
    figures_unlock(figures);
}

static void figure_reset(vmm_figure *figure, bool accumulated)
{
    figure->peak = figure->current;
    if (accumulated)
        figure->allocated = figure->freed = 0;
}

static void kind_reset(vmm_torch_kind_figures *kind, bool accumulated)
{
    figure_reset(&kind->requested_bytes, accumulated);
    figure_reset(&kind->allocated_bytes, accumulated);
    figure_reset(&kind->active_bytes, accumulated);
    figure_reset(&kind->allocations, accumulated);
    figure_reset(&kind->active, accumulated);
}

void vmm__figures_reset(struct figures *figures, bool accumulated)
{
    figures_lock(figures);
    for (int kind = 0; kind < TORCH_KINDS; kind++) {
        kind_reset(&figures->kinds[kind], accumulated);
        vmm__figure_reset_peak(&figures->reserved[kind]);
        if (accumulated)
            figures->reserved_before[kind] = vmm__figure_read(&figures->reserved[kind]);
    }
    figures_unlock(figures);
}
