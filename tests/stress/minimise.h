/*
 * Shortens a sequence that fails: delta debugging over operations, then over their arguments.
 *
 * May be called by: stress. Locks: none (one thread).
 */
#ifndef STRESS_MINIMISE_H
#define STRESS_MINIMISE_H

#include "child.h"
#include "sequence.h"

struct minimise {
    struct child_report *report;
    enum control_kind control;
    vmm_driver_kind kind;
    unsigned patience_ms;
    bool is_listed; /* on standard output */
    uint64_t tries; /* so far */
};

/* Runs a sequence once, in a child. The report tells the rest. */
enum child_outcome sequence_run(struct minimise *minimise, const struct sequence *sequence,
                                bool is_quiet);

/*
 * Leaves in *sequence what fails in the same way with as few operations, and as small arguments, as were found.
 * False: it does not fail at all.
 */
bool sequence_minimise(struct minimise *minimise, struct sequence *sequence);

#endif
