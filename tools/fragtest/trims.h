/*
 * Trims: moments of a run at which a policy gives back all that it can, and what it holds then.
 *
 * The moments are random, one in each of equal shares of a pass, so that they are spread over the
 * whole of it; they are the same for each policy and in each run.
 * Owns: nothing beyond itself. May be called by: replayer; the outcome is read by table and json.
 * Locks: none (one thread).
 */
#ifndef FRAGTEST_TRIMS_H
#define FRAGTEST_TRIMS_H

#include <stdbool.h>
#include <stdint.h>

/* What may stay reserved after a trim beyond live bytes: a share of them, and a few chunks. */
#define TRIMS_BAR_PERCENT 2U
#define TRIMS_BAR_BYTES   (16U << 20)

struct trims {
    uint32_t count; /* of a pass */
    uint32_t op_count;
    uint32_t done; /* in this pass */
    uint32_t next; /* the operation after which the next one comes */
    uint64_t random;
};

struct trims_outcome {
    uint64_t count;
    uint64_t over_bar;           /* those after which more stayed reserved than the bar */
    uint64_t worst_excess_bytes; /* most reserved beyond live bytes right after a trim */
    uint64_t worst_live_bytes;   /* at that moment */
};

/* A run whose passes of op_count operations each have `count` trims; then each of its passes. */
void trims_init(struct trims *trims, uint32_t count, uint32_t op_count);
void trims_pass(struct trims *trims);

/* Whether a trim is due after this operation. Several may be: ask until none is. */
bool trims_due(struct trims *trims, uint32_t op);

void trims_note(struct trims_outcome *outcome, uint64_t live_bytes, uint64_t reserved_bytes);

#endif
