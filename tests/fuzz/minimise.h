/*
 * Shortens a sequence that fails: delta debugging over operations, then over their arguments.
 *
 * May be called by: fuzz_cache. Locks: none (one thread).
 */
#ifndef FUZZ_MINIMISE_H
#define FUZZ_MINIMISE_H

#include "child.h"
#include "sequence.h"

struct minimise {
    struct child_report *report;
    enum plant_kind plant;
    unsigned patience_ms;
    bool is_listed;    /* on standard output */
    uint64_t tries;    /* so far */
    uint64_t shortest; /* operations left */
    void (*step)(void *context, const struct minimise *minimise);
    void *context;
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
