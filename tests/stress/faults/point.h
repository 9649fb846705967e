/*
 * Points: the numbered calls of a run at which something can be made to fail.
 *
 * The run of a scenario reaches its points one after the other. Where a fault is to be injected the
 * process clones itself (without the handlers of fork(), which are not what is tested): in the child
 * that call fails, with one code, and the child goes on until it has shown that nothing is broken; the
 * parent goes on as if nothing had been. So the run before a point is made once, not for each fault.
 *
 * Calls of the system are made by threads, which clones do not have: there a child runs the scenario from
 * its start, and knows the fault's number beforehand.
 *
 * Invariants:
 *  1. only the thread that runs the scenario reaches points, and none while it is asleep;
 *  2. the same seed gives the same points.
 *
 * May be called by: all of the sweep. One thread.
 */
#ifndef FAULTS_POINT_H
#define FAULTS_POINT_H

#include "fault.h"

#include <sys/types.h>

enum { SWEEP_SYSTEM_POINTS = 1 << 16, SWEEP_SCENARIOS = 32, ALL_VARIANTS = 1000 };

/* What is to be injected. */
struct sweep_order {
    bool kinds[KINDS];
    uint64_t seed;
    uint64_t slice; /* of `slices`, from 1 */
    uint64_t slices;
    uint64_t scenario; /* from 1; 0: all */
    uint64_t at;       /* only at the point of that number; 0: at all */
    uint64_t variant;  /* only that one, or ALL_VARIANTS */
    uint64_t pairs;    /* of faults, in each scenario */
};

/* Counted by all processes of a sweep, in memory that they share. */
struct sweep_sums {
    uint64_t children[KINDS];
    uint64_t fired[KINDS]; /* faults */
    uint64_t operations;
    uint64_t failures;
    uint64_t hits[SWEEP_CALLS][SWEEP_CODES];
    uint64_t system_points; /* of the scenario that is swept, and their calls */
    uint8_t system_calls[SWEEP_SYSTEM_POINTS];
};

extern struct sweep_sums *sweep_sums;

/* ---- For the scenario that runs ----------------------------------------------------------------- */

/* Points are reached only between wake and sleep: within calls of the library. */
void sweep_wake(void);
void sweep_sleep(void);

/* The call is about to be made. True: it fails instead, with *code. */
bool sweep_point(unsigned call, int *code);

/* Faults that were injected into this process. */
uint64_t sweep_fired(void);

/* The fault of this child; NULL: nothing has failed. */
const struct sweep_fault *sweep_fault(void);

/* Whether a call can fail that has not been made yet. */
bool sweep_may_fire(void);

/* A bit for each status that faults have put into calls of the library since this was last called. */
unsigned sweep_statuses_take(void);

/* Whether faults go on for ever. */
bool sweep_goes_on(void);

/* No more faults in this process. */
void sweep_heal(void);

/* Ends a child whose run was whole; returns in any other process. */
void sweep_child_end(uint64_t operations);

/* Tells what is wrong, at which fault, and ends the process. */
_Noreturn void sweep_broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Puts the points into the driver's table; what a driver itself allocates is no point. */
void sweep_shim(struct driver *driver);

/* As fork(), but without its handlers: 0 in the child. The process must have no other thread. */
pid_t sweep_clone(void);

/* Whether the run makes clones, or is one. */
bool sweep_has_clones(void);

/* ---- For the command --------------------------------------------------------------------------- */

/* The run to come counts points only. Returns about how many children a sweep would have made of it. */
void sweep_count_begin(const struct sweep_order *order, unsigned scenario);
uint64_t sweep_count_end(void);
bool sweep_counts(void);

/* The run to come, of a scenario that was counted before, makes children as the order says; `step` is
 * called for each that has ended. */
void sweep_begin(const struct sweep_order *order, unsigned scenario, void (*step)(void *context),
                 void *context);
void sweep_end(void);

/* Runs a scenario in a child for each fault of the system's calls. */
void sweep_system(const struct sweep_order *order, unsigned scenario,
                  void (*run)(unsigned scenario),
                  void (*step)(void *context, uint64_t done, uint64_t total), void *context);

/* The closing table: what was injected, and which pairs of call and code were hit. */
void table_write(FILE *out, const struct sweep_order *order, double seconds);

#endif
