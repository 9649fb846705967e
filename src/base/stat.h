/*
 * A statistic over time: current value, peak, and the sum of all additions. Any thread may change it. A thread can
 * count its own additions and subtractions and flush them together.
 *
 * Those that are one number are in `struct counts`. A cache, its memory, each account and a driver have one, and count
 * there what they see; a read adds them up (api/stats.c).
 *
 * Invariant 1: current <= peak, and freed = allocated - current is never negative.
 * Owns: nothing. May be called by: everything. Locks: none (atomics).
 */
#ifndef VMM_BASE_STAT_H
#define VMM_BASE_STAT_H

#include "base/arith.h"
#include "vmmcache/vmmcache.h"

#include <stdatomic.h>

struct atomic_stat {
    _Atomic uint64_t current;
    _Atomic uint64_t peak;
    _Atomic uint64_t allocated;
};

struct counts {
#define COUNTS_MEMBER(name, ...) _Atomic uint64_t name;
    VMM_VALUE_MAP(COUNTS_MEMBER)
#undef COUNTS_MEMBER
};

static inline void vmm__count(_Atomic uint64_t *count, uint64_t amount)
{
    atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
}

static inline uint64_t vmm__count_read(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static inline void vmm__peak_raise(_Atomic uint64_t *peak, uint64_t to)
{
    uint64_t now = atomic_load_explicit(peak, memory_order_relaxed);
    while ((int64_t)to > (int64_t)now &&
           !atomic_compare_exchange_weak_explicit(peak, &now, to, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

/* Adds `change`, which may be negative (modulo 2^64). While the caller counted it, the value was at most `rise` above
 * its start. Returns that highest value. */
static inline uint64_t vmm__stat_flush(struct atomic_stat *stat, uint64_t rise, uint64_t change,
                                       uint64_t allocated)
{
    atomic_fetch_add_explicit(&stat->allocated, allocated, memory_order_relaxed);
    uint64_t before = atomic_fetch_add_explicit(&stat->current, change, memory_order_relaxed);
    vmm__peak_raise(&stat->peak, before + rise);
    return before + rise;
}

static inline void vmm__stat_add(struct atomic_stat *stat, uint64_t amount)
{
    (void)vmm__stat_flush(stat, amount, amount, amount);
}

static inline void vmm__stat_subtract(struct atomic_stat *stat, uint64_t amount)
{
    atomic_fetch_sub_explicit(&stat->current, amount, memory_order_relaxed);
}

static inline uint64_t vmm__stat_now(const struct atomic_stat *stat)
{
    return atomic_load_explicit(&stat->current, memory_order_relaxed);
}

static inline void vmm__stat_reset_peak(struct atomic_stat *stat)
{
    atomic_store_explicit(&stat->peak, vmm__stat_now(stat), memory_order_relaxed);
}

/* What it returns satisfies invariant 1, even while other threads add. */
static inline vmm_stat vmm__stat_read(const struct atomic_stat *stat)
{
    uint64_t current = vmm__stat_now(stat);
    uint64_t peak = atomic_load_explicit(&stat->peak, memory_order_relaxed);
    uint64_t allocated = atomic_load_explicit(&stat->allocated, memory_order_relaxed);
    allocated = vmm__max(allocated, current);
    return (vmm_stat){ .current = current,
                       .peak = vmm__max(peak, current),
                       .allocated = allocated,
                       .freed = allocated - current };
}

#endif
