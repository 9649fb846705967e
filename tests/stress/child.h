/*
 * Runs in a process of their own: a crash, an endless loop and a sanitizer's end are findings like others.
 *
 * Owns: one report, which parent and child share. May be called by: stress. Locks: none; the parent reads
 * what the child counts while it runs, and the rest when it has ended.
 */
#ifndef STRESS_CHILD_H
#define STRESS_CHILD_H

#include "stress.h"

#include <stdatomic.h>

enum child_outcome { CHILD_WELL = 0, CHILD_TROUBLE, CHILD_CRASH, CHILD_HANG };

struct child_report {
    _Atomic uint64_t seed;  /* of the run under way */
    _Atomic uint64_t index; /* of the operation under way */
    _Atomic uint64_t operations;
    _Atomic uint64_t runs; /* that ended well */
    struct stress_sums sums;
    enum child_outcome outcome;
    char trouble[TROUBLE_BYTES]; /* what was wrong; empty: nothing */
};

/* NULL: the system refuses the memory. */
struct child_report *child_report_make(void);

/*
 * Runs `work` in a child and waits until it has ended; work fills the report and returns false if it found trouble.
 * child_breathes() restarts the clock; a child that does not call it for `patience_ms` hangs. Quiet: discards what the
 * child writes. The parent calls `wait`, unless it is NULL, at each poll.
 */
struct child_job {
    bool (*work)(void *context, struct child_report *report);
    void *context;
    unsigned patience_ms;
    bool is_quiet;
    void (*wait)(void *context, const struct child_report *report);
    void *wait_context;
};
enum child_outcome child_run(const struct child_job *job, struct child_report *report);

/* Called by work. */
void child_breathes(unsigned patience_ms);

const char *child_outcome_name(enum child_outcome outcome);

#endif
