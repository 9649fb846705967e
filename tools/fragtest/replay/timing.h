/*
 * Measures what the calls of a policy take, on the host and in the driver.
 *
 * Time per operation: the host's clock times each call of the policy, and the cost of reading the
 * clock, measured before the run, is subtracted. From the sum of a pass the host's time in driver
 * calls is subtracted and the driver's own clock added. On a real device the two are the same; on
 * the sim driver this gives the modelled time. Fills, checks and the replayer's bookkeeping are not
 * timed, and the replayer's own waits for the device are subtracted.
 * Owns: nothing beyond itself. May be called by: replayer. Locks: none (one thread).
 */
#ifndef FRAGTEST_TIMING_H
#define FRAGTEST_TIMING_H

#include "driver/driver.h"

struct timing {
    struct driver *driver;
    uint64_t clock_ns;                 /* cost of one timed nothing */
    uint64_t calls[DRIVER_CALL_COUNT]; /* when the run began */
    uint64_t stalls;                   /* the same */
    uint64_t policy_ns;                /* of this pass */
    uint64_t driver_ns;                /* when the pass began */
    uint64_t host_ns;                  /* the same */
    uint64_t waits;                    /* the replayer's own */
    uint64_t waits_driver_ns;
    uint64_t waits_host_ns;
};

/* A run begins; a pass of it begins. */
void timing_begin(struct timing *timing, struct driver *driver);
void timing_pass(struct timing *timing);

/* Adds a call of the policy that began at start_ns of vmm__time_ns() and ends now. */
void timing_call(struct timing *timing, uint64_t start_ns);

/* Lets the device finish; the wait is not counted. */
vmm_status timing_settle(struct timing *timing);

/* The pass so far: the policy's time, with driver calls by the driver's clock; and the driver's time,
 * which includes calls outside of the policy's. */
double timing_pass_ns(const struct timing *timing);
uint64_t timing_pass_driver_ns(const struct timing *timing);

/* The run so far. */
uint64_t timing_calls(const struct timing *timing, enum driver_call call);
uint64_t timing_stalls(const struct timing *timing);

#endif
