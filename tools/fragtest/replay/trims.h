/*
 * Trims: moments of a run at which a policy gives back all the memory that it can, and how much it
 * still holds then.
 *
 * Each pass is divided into equal shares; each share has one trim, at a random operation. The
 * moments are the same for every policy and in every run.
 * Owns: nothing beyond itself. May be called by: replayer; the outcome is read by table and json.
 * Locks: none (one thread).
 */
#ifndef FRAGTEST_TRIMS_H
#define FRAGTEST_TRIMS_H

#include <stdbool.h>
#include <stdint.h>

/* The bar for what stays reserved beyond live bytes after a trim: a share of them, and a few chunks. */
#define TRIMS_BAR_PERCENT 2U
#define TRIMS_BAR_BYTES   (16U << 20)

struct trims {
    uint32_t count; /* of a pass */
    uint32_t op_count;
    uint32_t done; /* in this pass */
    uint32_t next; /* the next one follows this operation */
    uint64_t random;
};

struct trims_outcome {
    uint64_t count;
    uint64_t over_bar;           /* trims after which more than the bar stayed reserved */
    uint64_t worst_excess_bytes; /* most reserved beyond live bytes right after a trim */
    uint64_t worst_live_bytes;   /* at that moment */
};

/* Begins a run whose passes have op_count operations and `count` trims each; begins each pass. */
void trims_init(struct trims *trims, uint32_t count, uint32_t op_count);
void trims_pass(struct trims *trims);

/* Whether a trim is due after this operation. Several may be: ask until none is. */
bool trims_due(struct trims *trims, uint32_t op);

void trims_note(struct trims_outcome *outcome, uint64_t live_bytes, uint64_t reserved_bytes);

#endif
