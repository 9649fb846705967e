/* Trims at random moments: see trims.h. */
#include "fragtest/replay/trims.h"

#include "fragtest/trace/random.h"

#include <stdlib.h>

#define SEED 20250731U

/* The share of the next trim, and a moment in it. */
static void next_draw(struct trims *trims)
{
    uint64_t first = (uint64_t)trims->done * trims->op_count / trims->count;
    uint64_t end = (uint64_t)(trims->done + 1) * trims->op_count / trims->count;

    trims->next = (uint32_t)random_between(&trims->random, first, end > first ? end - 1 : first);
}

bool trims_init(struct trims *trims, uint32_t count, uint32_t op_count, unsigned passes)
{
    *trims = (struct trims){ .count = count, .op_count = op_count, .random = SEED };
    trims->excesses = calloc((size_t)count * passes + 1, sizeof(*trims->excesses));
    return trims->excesses != NULL;
}

void trims_fini(struct trims *trims)
{
    free(trims->excesses);
    trims->excesses = NULL;
}

void trims_pass(struct trims *trims)
{
    trims->done = 0;
    if (trims->count > 0)
        next_draw(trims);
}

bool trims_due(struct trims *trims, uint32_t op)
{
    if (trims->done == trims->count || op < trims->next)
        return false;
    trims->done++;
    if (trims->done < trims->count)
        next_draw(trims);
    return true;
}

void trims_note(struct trims *trims, struct trims_outcome *outcome, uint64_t live_bytes,
                uint64_t reserved_bytes, uint64_t driver_ns)
{
    uint64_t excess_bytes = reserved_bytes > live_bytes ? reserved_bytes - live_bytes : 0;

    if (excess_bytes > live_bytes / 100 * TRIMS_BAR_PERCENT + TRIMS_BAR_BYTES)
        outcome->over_bar++;
    if (outcome->count == 0 || excess_bytes > outcome->worst_excess_bytes) {
        outcome->worst_excess_bytes = excess_bytes;
        outcome->worst_live_bytes = live_bytes;
    }
    if (driver_ns > outcome->worst_driver_ns)
        outcome->worst_driver_ns = driver_ns;
    trims->excesses[outcome->count++] = excess_bytes;
}

static int by_size(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

void trims_end(struct trims *trims, struct trims_outcome *outcome)
{
    if (outcome->count == 0)
        return;
    qsort(trims->excesses, outcome->count, sizeof(*trims->excesses), by_size);
    outcome->median_excess_bytes = trims->excesses[outcome->count / 2];
}
