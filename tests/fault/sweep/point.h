/*
 * Points: the numbered calls of a run at which something can be made to fail.
 *
 * The run of a chapter reaches its points one after the other. Where a fault is to be injected the
 * process clones itself (without the handlers of fork(), which are not what is tested): in the child
 * that call fails, with one code, and the child goes on until it has shown that nothing is broken; the
 * parent goes on as if nothing had been. So the run before a point is made once, not for each fault.
 *
 * Calls of the system are made by threads, which clones do not have: there a child runs the chapter from
 * its start, and the fault's number is told it beforehand.
 *
 * Invariants:
 *  1. only the thread that runs the chapter reaches points, and none while it is asleep;
 *  2. the same seed gives the same points.
 *
 * May be called by: all of the sweep. One thread.
 */
#ifndef SWEEP_POINT_H
#define SWEEP_POINT_H

#include "fault.h"

enum { SWEEP_SYSTEM_POINTS = 1 << 16, SWEEP_CHAPTERS = 32 };

/* What is to be injected. */
struct sweep_order {
    bool kinds[KINDS];
    uint64_t seed;
    uint64_t slice; /* of `slices`, from 1 */
    uint64_t slices;
    unsigned chapter; /* from 1; 0: all */
    uint64_t at;      /* only at the point of that number; 0: at all */
    int variant;      /* only that one; less than 0: all */
    uint64_t pairs;   /* of faults, in each chapter */
};

/* Counted by all processes of a sweep, in memory that they share. */
struct sweep_sums {
    uint64_t children[KINDS];
    uint64_t fired[KINDS]; /* faults */
    uint64_t operations;
    uint64_t failures;
    uint64_t hits[SWEEP_CALLS][SWEEP_CODES];
    uint64_t system_points; /* of the chapter that is swept, and their calls */
    uint8_t system_calls[SWEEP_SYSTEM_POINTS];
};

extern struct sweep_sums *sweep_sums;

/* ---- For the chapter that runs ----------------------------------------------------------------- */

/* No point is reached between these two; they nest. */
void sweep_sleep(void);
void sweep_wake(void);

/* The call is about to be made. True: it fails instead, with *code. */
bool sweep_point(unsigned call, int *code);

/* Faults that were injected into this process. */
uint64_t sweep_fired(void);

/* The fault of this child; NULL: nothing has failed. */
const struct sweep_fault *sweep_fault(void);

/* Whether a call can fail that has not been made yet. */
bool sweep_may_fire(void);

/* Whether faults go on for ever. */
bool sweep_goes_on(void);

/* No more faults in this process. */
void sweep_heal(void);

/* Ends a child whose run was whole; returns in any other process. */
void sweep_child_end(uint64_t operations);

/* Tells what is wrong, at which fault, and ends the process. */
_Noreturn void sweep_broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- For the command --------------------------------------------------------------------------- */

/* The run to come counts points only. Returns about how many children a sweep would have made of it. */
void sweep_count_begin(const struct sweep_order *order, unsigned chapter);
uint64_t sweep_count_end(void);
bool sweep_counts(void);

/* The run to come, of a chapter that was counted before, makes children as the order says; `step` is
 * called for each that has ended. */
void sweep_begin(const struct sweep_order *order, unsigned chapter, void (*step)(void *context),
                 void *context);
void sweep_end(void);

/* Runs a chapter in a child for each fault of the system's calls. */
void sweep_system(const struct sweep_order *order, unsigned chapter, void (*run)(unsigned chapter),
                  void (*step)(void *context, uint64_t done, uint64_t total), void *context);

#endif
