/*
 * What is handed out: a cache's ledger, and each pool's account of its part. An account is counted by
 * whoever holds the pool's lock and costs the fast path a few additions; now and then it is posted to
 * the ledger.
 *
 * The ledger's peaks are exact if between any two postings only one account changes: as long as one
 * thread makes all calls (policy posts a pool when the thread turns to another), or all calls
 * are for one stream. Otherwise the ledger is shared, and each account is posted when it has changed by more than
 * 4 MiB and 1/256 of the peak: peaks may be off by as much for each stream.
 *
 * Owns: nothing. Invariants:
 *  1. the ledger's figures are what was posted; sums over the accounts differ from that by
 *     current - posted;
 *  2. peak is the highest that current was since the last posting, except for what was added since the last
 *     subtraction: that is looked at before it can fall.
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
    _Atomic bool is_shared; /* several accounts change at a time */
};

/* One figure of a pool. */
struct account_figure {
    uint64_t current;
    uint64_t peak; /* see invariant 2 */
    uint64_t allocated;
    uint64_t posted; /* current at the last posting */
};

struct account {
    struct account_figure requested_bytes;
    struct account_figure allocated_bytes;
    struct account_figure active_bytes;
    struct account_figure allocations;
    uint64_t low_bytes; /* allocated bytes beyond which it is to be posted */
    uint64_t high_bytes;
};

void vmm__account_init(struct account *account);

/* Posts what has changed since it was last posted. */
void vmm__account_post(struct account *account, struct ledger *ledger);

static inline void vmm__account_figure_add(struct account_figure *figure, uint64_t amount)
{
    figure->current += amount;
    figure->allocated += amount;
}

static inline void vmm__account_figure_subtract(struct account_figure *figure, uint64_t amount)
{
    figure->peak = vmm__max(figure->peak, figure->current);
    figure->current -= amount;
}

static inline void vmm__account_take(struct account *account, struct ledger *ledger,
                                     uint64_t requested_bytes, uint64_t bytes)
{
    vmm__account_figure_add(&account->requested_bytes, requested_bytes);
    vmm__account_figure_add(&account->allocated_bytes, bytes);
    vmm__account_figure_add(&account->active_bytes, bytes);
    vmm__account_figure_add(&account->allocations, 1);
    if (account->allocated_bytes.current > account->high_bytes)
        vmm__account_post(account, ledger);
}

static inline void vmm__account_give(struct account *account, struct ledger *ledger,
                                     uint64_t requested_bytes, uint64_t bytes)
{
    vmm__account_figure_subtract(&account->requested_bytes, requested_bytes);
    vmm__account_figure_subtract(&account->allocated_bytes, bytes);
    vmm__account_figure_subtract(&account->allocations, 1);
    if (account->allocated_bytes.current < account->low_bytes)
        vmm__account_post(account, ledger);
}

/* What was given back is in nobody's use any more. */
static inline void vmm__account_release(struct account *account, uint64_t bytes)
{
    vmm__account_figure_subtract(&account->active_bytes, bytes);
}

#endif
