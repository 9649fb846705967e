/*
 * The bill of a policy: what its calls take, on the host and of the driver.
 *
 * Time of an operation. Each call of the policy is timed by the host's clock, and the cost of
 * reading the clock, measured once beforehand, is taken off again. From a pass's sum the host's
 * time in driver calls is taken off and the driver's own clock put in its place: on a real device
 * the two are the same; on the sim driver this gives the modelled time. Fills, checks and the
 * replayer's own bookkeeping lie outside of the timed part, and its own waits for the device are on
 * nobody's bill.
 * Owns: nothing beyond itself. May be called by: replayer. Locks: none (one thread).
 */
#ifndef FRAGTEST_BILL_H
#define FRAGTEST_BILL_H

#include "driver/driver.h"

struct bill {
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
void bill_begin(struct bill *bill, struct driver *driver);
void bill_pass(struct bill *bill);

/* A call of the policy, which began when vmm__clock_ns() said start_ns, has ended. */
void bill_call(struct bill *bill, uint64_t start_ns);

/* Lets the device finish, on nobody's bill. */
vmm_status bill_settle(struct bill *bill);

/* Of the pass so far: the policy's time, with the driver's calls at the driver's clock; of that, the
 * driver's, which counts calls outside of timed ones, too. */
double bill_pass_ns(const struct bill *bill);
uint64_t bill_pass_driver_ns(const struct bill *bill);

/* Of the run so far. */
uint64_t bill_calls(const struct bill *bill, enum driver_call call);
uint64_t bill_stalls(const struct bill *bill);

#endif
