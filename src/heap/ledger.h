/*
 * What is handed out: a cache's ledger, and each pool's account of its part. An account is counted by
 * whoever holds the pool's lock and costs the fast path a few additions; now and then it is posted to
 * the ledger.
 *
 * The ledger's peaks are exact if between any two postings only one account changes: as long as one
 * thread makes all calls (policy posts a pool when the thread turns to another), or all calls are for
 * one stream that is not crowded (what magazines keep counts until they are called in). Otherwise the ledger
 * is shared, and each account is posted when its allocated bytes have changed by more than 4 MiB and
 * 1/256 of their peak, or by more, up to 1/8, while that is every few microseconds: peaks of bytes may be off by
 * as much for each stream.
 *
 * Owns: nothing. Invariants:
 *  1. the ledger's figures are the sums over its accounts but for what these have not posted yet:
 *     current - posted, and taken;
 *  2. an account's peak is the highest that current was since the last posting.
 * May be called by: pool, policy, report. Locks: an account's are its pool's; the ledger needs none.
 */
#ifndef VMM_HEAP_LEDGER_H
#define VMM_HEAP_LEDGER_H

#include "base/figure.h"

struct ledger {
    struct figure requested_bytes;
    struct figure allocated_bytes;
    struct figure active_bytes;
    struct figure allocations;
    _Atomic uint64_t
        lately_active_bytes; /* the peak since the last trim, whatever statistics forget */
    _Atomic bool is_shared;  /* several accounts change at a time */
};

/* One figure of a pool. Less than nothing, modulo 2^64, is current at times while part of what was
 * taken is counted apart (magazine.h). */
struct account_figure {
    uint64_t current;
    uint64_t peak;
    uint64_t taken; /* since the last posting */
    uint64_t posted;
};

struct account {
    struct account_figure requested_bytes;
    struct account_figure allocated_bytes;
    struct account_figure allocations;
    uint64_t low_bytes; /* allocated bytes beyond which it is posted unasked */
    uint64_t high_bytes;
    uint64_t slack_bytes; /* from there to where it was posted */
    uint64_t posted_ns;
    uint64_t waiting_bytes; /* given back and in use elsewhere still: active, but not allocated */
    uint64_t active_peak_bytes;
    uint64_t active_posted_bytes;
};

void vmm__account_init(struct account *account);

/* Posts what has changed since it was last posted. */
void vmm__account_post(struct account *account, struct ledger *ledger);

static inline uint64_t vmm__account_active_bytes(const struct account *account)
{
    return account->allocated_bytes.current + account->waiting_bytes;
}

static inline void vmm__account_active_raise(struct account *account)
{
    uint64_t active_bytes = vmm__account_active_bytes(account);
    if (active_bytes > account->active_peak_bytes)
        account->active_peak_bytes = active_bytes;
}

static inline void vmm__account_figure_raise(struct account_figure *figure)
{
    if ((int64_t)figure->current > (int64_t)figure->peak)
        figure->peak = figure->current;
}

static inline void vmm__account_figure_take(struct account_figure *figure, uint64_t amount)
{
    figure->taken += amount;
    figure->current += amount;
    vmm__account_figure_raise(figure);
}

static inline void vmm__account_take(struct account *account, struct ledger *ledger,
                                     uint64_t requested_bytes, uint64_t bytes)
{
    vmm__account_figure_take(&account->requested_bytes, requested_bytes);
    vmm__account_figure_take(&account->allocated_bytes, bytes);
    vmm__account_figure_take(&account->allocations, 1);
    vmm__account_active_raise(account);
    if (account->allocated_bytes.current > account->high_bytes)
        vmm__account_post(account, ledger);
}

static inline void vmm__account_give(struct account *account, struct ledger *ledger,
                                     uint64_t requested_bytes, uint64_t bytes)
{
    account->requested_bytes.current -= requested_bytes;
    account->allocated_bytes.current -= bytes;
    account->allocations.current--;
    if (account->allocated_bytes.current < account->low_bytes)
        vmm__account_post(account, ledger);
}

/* What was counted apart: a figure's change, modulo 2^64, and how much of it was taken. */
struct account_change {
    uint64_t change;
    uint64_t taken;
};

/* Moves it where it belongs. */
static inline void vmm__account_figure_merge(struct account_figure *figure,
                                             struct account_change *from)
{
    figure->taken += from->taken;
    figure->current += from->change;
    vmm__account_figure_raise(figure);
    *from = (struct account_change){ .change = 0 };
}

/* What was given back is in use elsewhere; and is so no more. */
static inline void vmm__account_wait(struct account *account, uint64_t bytes)
{
    account->waiting_bytes += bytes;
}

static inline void vmm__account_release(struct account *account, uint64_t bytes)
{
    account->waiting_bytes -= bytes;
}

#endif
