/* Accounts of pools, posted to the ledger of their cache: see ledger.h. */
#define _GNU_SOURCE
#include "heap/ledger.h"
#include "base/clock.h"

enum { SLACK_LEAST_BYTES = 4 << 20, SLACK_SHARE_OF_PEAK = 256, SLACK_MOST_SHARE_OF_PEAK = 8 };

/* Postings closer than this double the slack, and one that is farther brings it back. */
enum { POSTING_OFTEN_NS = 10000, POSTING_SELDOM_NS = 1000000 };

static void figure_post(struct account_figure *from, struct figure *to)
{
    (void)vmm__figure_post(to, from->peak - from->posted, from->current - from->posted,
                           from->taken);
    *from = (struct account_figure){ .current = from->current,
                                     .peak = from->current,
                                     .posted = from->current };
}

static void active_post(struct account *account, struct ledger *ledger)
{
    uint64_t bytes = vmm__account_active_bytes(account);
    uint64_t posted = account->active_posted_bytes;
    uint64_t peak = vmm__figure_post(&ledger->active_bytes, account->active_peak_bytes - posted,
                                     bytes - posted, account->allocated_bytes.taken);
    vmm__peak_raise(&ledger->lately_active_bytes, peak);
    account->active_peak_bytes = bytes;
    account->active_posted_bytes = bytes;
}

static uint64_t slack_next(struct account *account, const struct ledger *ledger)
{
    uint64_t peak = atomic_load_explicit(&ledger->allocated_bytes.peak, memory_order_relaxed);
    uint64_t least = vmm__max(SLACK_LEAST_BYTES, peak / SLACK_SHARE_OF_PEAK);
    uint64_t slack = account->slack_bytes;
    uint64_t now_ns = vmm__clock_ns();
    if (now_ns - account->posted_ns < POSTING_OFTEN_NS)
        slack *= 2;
    if (now_ns - account->posted_ns > POSTING_SELDOM_NS)
        slack = 0;
    account->posted_ns = now_ns;
    return vmm__max(least, vmm__min(slack, peak / SLACK_MOST_SHARE_OF_PEAK));
}

/* When it is to be posted next without being asked. */
static void bounds_set(struct account *account, const struct ledger *ledger)
{
    account->low_bytes = 0;
    account->high_bytes = UINT64_MAX;
    if (!atomic_load_explicit(&ledger->is_shared, memory_order_relaxed))
        return;
    account->slack_bytes = slack_next(account, ledger);
    uint64_t now = account->allocated_bytes.current;
    account->low_bytes = now - vmm__min(now, account->slack_bytes);
    account->high_bytes = now + account->slack_bytes;
}

void vmm__account_init(struct account *account)
{
    *account = (struct account){ .high_bytes = UINT64_MAX };
}

void vmm__account_post(struct account *account, struct ledger *ledger)
{
    active_post(account, ledger);
    figure_post(&account->requested_bytes, &ledger->requested_bytes);
    figure_post(&account->allocated_bytes, &ledger->allocated_bytes);
    figure_post(&account->allocations, &ledger->allocations);
    bounds_set(account, ledger);
}
