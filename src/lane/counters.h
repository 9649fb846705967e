/*
 * Allocation statistics: the totals of a cache and of its pools, and the counters of each lane that feed them.
 *
 * Code that holds a lane's lock updates the lane's counters, which costs the fast path a few
 * additions. A flush adds what changed since the last flush to the totals.
 *
 * The peaks of the totals are exact if only one lane's counters change between two flushes. That
 * holds while one thread makes all calls (the cache flushes a lane when the thread switches to
 * another), or while all calls use one uncontended stream (a block that a magazine keeps counts as
 * live until it is drained). Otherwise the totals are shared: each lane flushes when its allocated bytes have
 * changed by more than the slack, which is 4 MiB or 1/256 of the peak, whichever is more, and
 * grows up to 1/8 of the peak while flushes are microseconds apart. Peaks of bytes may then be
 * off by the slack for each stream, and by its last freed block, which counts until it is settled.
 *
 * Owns: nothing. Invariants:
 *  1. each total is the sum over all counters, except for what they have not flushed yet:
 *     current - flushed, and taken;
 *  2. the peak of a counter is the highest value of current since the last flush.
 * May be called by: lane, cache, debug, api. Locks: the lane's lock guards its counters; the totals are atomic.
 */
#ifndef VMM_LANE_COUNTERS_H
#define VMM_LANE_COUNTERS_H

#include "base/stat.h"

#include <stdbool.h>

/* The totals of a pool, or of the cache. */
struct totals {
    struct totals *parent; /* of a pool: the cache's totals; NULL in these */
    struct atomic_stat requested_bytes;
    struct atomic_stat allocated_bytes;
    struct atomic_stat active_bytes;
    struct atomic_stat allocations;
    _Atomic uint64_t lately_active_bytes; /* peak since the last trim, which no reset changes */
    _Atomic bool is_shared; /* the cache's: counters of several lanes change concurrently */
};

/* One statistic of a lane. */
struct counter {
    uint64_t current;
    uint64_t peak;
    uint64_t taken; /* since the last flush */
    uint64_t flushed;
};

struct counters {
    struct counter requested_bytes;
    struct counter allocated_bytes;
    struct counter allocations;
    uint64_t low_bytes; /* a change of allocated bytes beyond low or high flushes the counters */
    uint64_t high_bytes;
    uint64_t slack_bytes; /* distance of both bounds from the last flush */
    uint64_t flushed_ns;
    /* Active, not allocated: freed, but other streams still use it; or hidden. */
    uint64_t waiting_bytes;
    uint64_t hidden_taken; /* of active bytes, since the last flush */
    uint64_t allocations_flushed;
    uint64_t active_peak_bytes;
    uint64_t active_flushed_bytes;
};

/* What debug mode has of a block and the program has not: active, not allocated. */
struct hidden {
    uint64_t requested_bytes;
    uint64_t bytes;
    uint64_t blocks; /* 1: all of it */
};

void vmm__counters_init(struct counters *counters);

/* Whether the lane has live blocks. Needs no lock: the answer is that of some moment. */
bool vmm__counters_have_blocks(const struct counters *counters);

/* Adds what changed since the last flush to the totals, and to those of the cache. */
void vmm__counters_flush(struct counters *counters, struct totals *totals);

/* How many allocations the lane has made. */
static inline uint64_t vmm__counters_allocations(const struct counters *counters)
{
    return counters->allocations_flushed + counters->allocations.taken;
}

static inline uint64_t vmm__counters_active_bytes(const struct counters *counters)
{
    return counters->allocated_bytes.current + counters->waiting_bytes;
}

static inline void vmm__counters_active_raise(struct counters *counters)
{
    uint64_t active_bytes = vmm__counters_active_bytes(counters);
    if (active_bytes > counters->active_peak_bytes)
        counters->active_peak_bytes = active_bytes;
}

static inline void vmm__counter_raise(struct counter *counter)
{
    if (counter->current > counter->peak)
        counter->peak = counter->current;
}

static inline void vmm__counter_add(struct counter *counter, uint64_t amount)
{
    counter->taken += amount;
    counter->current += amount;
    vmm__counter_raise(counter);
}

/* The size of a live block changes. */
static inline void vmm__counters_grow(struct counters *counters, struct totals *totals,
                                      uint64_t requested_bytes, uint64_t bytes)
{
    vmm__counter_add(&counters->requested_bytes, requested_bytes);
    vmm__counter_add(&counters->allocated_bytes, bytes);
    vmm__counters_active_raise(counters);
    if (counters->allocated_bytes.current > counters->high_bytes)
        vmm__counters_flush(counters, totals);
}

/* Flushes if the lane has allocated much less than the totals know. */
static inline void vmm__counters_settle(struct counters *counters, struct totals *totals)
{
    if (counters->allocated_bytes.current < counters->low_bytes)
        vmm__counters_flush(counters, totals);
}

static inline void vmm__counters_shrink(struct counters *counters, struct totals *totals,
                                        uint64_t requested_bytes, uint64_t bytes)
{
    counters->requested_bytes.current -= requested_bytes;
    counters->allocated_bytes.current -= bytes;
    vmm__counters_settle(counters, totals);
}

static inline void vmm__counters_alloc(struct counters *counters, struct totals *totals,
                                       uint64_t requested_bytes, uint64_t bytes)
{
    vmm__counter_add(&counters->allocations, 1);
    vmm__counters_grow(counters, totals, requested_bytes, bytes);
}

/* Counts the free of a block that the lane keeps ready for the next request of its size: see vmm__heap_give_last(). The
 * totals learn of it when the block is settled, or at the next flush, so a thread that allocates and frees one block in
 * a loop changes no total. */
static inline void vmm__counters_free_last(struct counters *counters, uint64_t requested_bytes,
                                           uint64_t bytes)
{
    counters->allocations.current--;
    counters->requested_bytes.current -= requested_bytes;
    counters->allocated_bytes.current -= bytes;
}

static inline void vmm__counters_free(struct counters *counters, struct totals *totals,
                                      uint64_t requested_bytes, uint64_t bytes)
{
    vmm__counters_free_last(counters, requested_bytes, bytes);
    vmm__counters_settle(counters, totals);
}

/* Undoes an allocation that was freed again before the next flush, as if it never happened. */
static inline void vmm__counters_undo(struct counters *counters, uint64_t requested_bytes,
                                      uint64_t bytes)
{
    counters->requested_bytes.taken -= requested_bytes;
    counters->allocated_bytes.taken -= bytes;
    counters->allocations.taken--;
    counters->requested_bytes.peak = counters->requested_bytes.current;
    counters->allocated_bytes.peak = counters->allocated_bytes.current;
    counters->allocations.peak = counters->allocations.current;
    counters->active_peak_bytes = vmm__counters_active_bytes(counters);
}

/* Counts freed bytes that other streams still use, until vmm__counters_release(). */
static inline void vmm__counters_wait(struct counters *counters, uint64_t bytes)
{
    counters->waiting_bytes += bytes;
}

static inline void vmm__counters_release(struct counters *counters, uint64_t bytes)
{
    counters->waiting_bytes -= bytes;
}

/* Hides a part of a block, or counts it again. No peak rises. */
static inline void vmm__counters_shift(struct counters *counters, const struct hidden *hidden,
                                       bool is_hiding)
{
    uint64_t sign = is_hiding ? UINT64_MAX : 1; /* modulo 2^64 */
    counters->requested_bytes.current += sign * hidden->requested_bytes;
    counters->allocated_bytes.current += sign * hidden->bytes;
    counters->allocations.current += sign * hidden->blocks;
    counters->waiting_bytes -= sign * hidden->bytes;
}

/* Hides a part of a new block, as if the program had never asked for it. */
static inline void vmm__counters_hide(struct counters *counters, const struct hidden *hidden)
{
    vmm__counters_shift(counters, hidden, true);
    counters->requested_bytes.taken -= hidden->requested_bytes;
    counters->allocated_bytes.taken -= hidden->bytes;
    counters->hidden_taken += hidden->bytes;
}

#endif
