/*
 * Trims and compactions: moments of a run at which a policy gives back memory, and how much it still holds then.
 *
 * Each pass is divided into equal shares; each share has one moment, after a random operation. The
 * moments are the same for every policy, for trims and for compactions, and in every run.
 * Owns: the excess of each moment. May be called by: replayer; the outcome is read by table and json.
 * Locks: none (one thread).
 */
#ifndef FRAGTEST_TRIMS_H
#define FRAGTEST_TRIMS_H

#include <stdbool.h>
#include <stdint.h>

/* The bar for what stays reserved beyond live bytes: a share of them, and a few chunks. */
#define TRIMS_BAR_PERCENT 2U
#define TRIMS_BAR_BYTES   (16U << 20)

struct trims {
    uint32_t count; /* of a pass */
    uint32_t op_count;
    uint32_t done; /* in this pass */
    uint32_t next; /* the next one follows this operation */
    uint64_t random;
    uint64_t *excesses; /* of each in the run */
};

struct trims_outcome {
    uint64_t count;
    uint64_t over_bar;           /* those after which more than the bar stayed reserved */
    uint64_t worst_excess_bytes; /* most reserved beyond live bytes right after one */
    uint64_t worst_live_bytes;   /* at that moment */
    uint64_t median_excess_bytes;
    uint64_t worst_driver_ns; /* of one */
};

/* Begins a run of some passes with op_count operations and `count` moments each. False: no host memory. */
bool trims_init(struct trims *trims, uint32_t count, uint32_t op_count, unsigned passes);
void trims_fini(struct trims *trims);
void trims_pass(struct trims *trims);

/* Whether a moment is due after this operation. Several may be: ask until none is. */
bool trims_due(struct trims *trims, uint32_t op);

void trims_note(struct trims *trims, struct trims_outcome *outcome, uint64_t live_bytes,
                uint64_t reserved_bytes, uint64_t driver_ns);

/* Finds the median, at the end of a run. */
void trims_end(struct trims *trims, struct trims_outcome *outcome);

#endif
