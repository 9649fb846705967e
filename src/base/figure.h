/*
 * One statistic over time: now, peak, and all that was ever added. Any thread may add; many additions
 * and subtractions that one thread counted for itself are posted at once.
 *
 * Invariant 1: current <= peak, and freed = allocated - current is never negative.
 */
#ifndef VMM_BASE_FIGURE_H
#define VMM_BASE_FIGURE_H

#include "base/arith.h"
#include "vmmcache/vmmcache.h"

#include <stdatomic.h>

struct figure {
    _Atomic uint64_t current;
    _Atomic uint64_t peak;
    _Atomic uint64_t allocated;
};

static inline void vmm__peak_raise(_Atomic uint64_t *peak, uint64_t to)
{
    uint64_t now = atomic_load_explicit(peak, memory_order_relaxed);
    while ((int64_t)to > (int64_t)now &&
           !atomic_compare_exchange_weak_explicit(peak, &now, to, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

/* Changes by `change`, which may be less than nothing (modulo 2^64), by way of `rise` at its highest.
 * Returns what it was then. */
static inline uint64_t vmm__figure_post(struct figure *figure, uint64_t rise, uint64_t change,
                                        uint64_t allocated)
{
    atomic_fetch_add_explicit(&figure->allocated, allocated, memory_order_relaxed);
    uint64_t before = atomic_fetch_add_explicit(&figure->current, change, memory_order_relaxed);
    vmm__peak_raise(&figure->peak, before + rise);
    return before + rise;
}

static inline void vmm__figure_add(struct figure *figure, uint64_t amount)
{
    (void)vmm__figure_post(figure, amount, amount, amount);
}

static inline void vmm__figure_subtract(struct figure *figure, uint64_t amount)
{
    atomic_fetch_sub_explicit(&figure->current, amount, memory_order_relaxed);
}

static inline uint64_t vmm__figure_now(const struct figure *figure)
{
    return atomic_load_explicit(&figure->current, memory_order_relaxed);
}

static inline void vmm__figure_reset_peak(struct figure *figure)
{
    atomic_store_explicit(&figure->peak, vmm__figure_now(figure), memory_order_relaxed);
}

/* Invariant 1 holds of what is read, even while others are adding. */
static inline vmm_figure vmm__figure_read(const struct figure *figure)
{
    uint64_t current = vmm__figure_now(figure);
    uint64_t peak = atomic_load_explicit(&figure->peak, memory_order_relaxed);
    uint64_t allocated = atomic_load_explicit(&figure->allocated, memory_order_relaxed);
    allocated = vmm__max(allocated, current);
    return (vmm_figure){ .current = current,
                         .peak = vmm__max(peak, current),
                         .allocated = allocated,
                         .freed = allocated - current };
}

#endif
