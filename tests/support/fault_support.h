/*
 * A workload on a cache over the sim driver, in which one driver call or one allocation of host memory
 * is made to fail, once or for ever. Whatever fails, the public call that was under way says so with a
 * status that its documentation names, the cache's records stay consistent, contents survive, and the
 * rest of the workload goes on. When the faults are over everything can be given back; unless the device is
 * lost: then frees succeed, all else is refused, and the end of the cache leaves no host memory.
 *
 * FAULT_TEST(test) tells on failure at which fault it was.
 */
#ifndef VMM_FAULT_SUPPORT_H
#define VMM_FAULT_SUPPORT_H

#include "support/sim_support.h"

#define FAULT_TEST(name) cmocka_unit_test_teardown(name, fault_teardown)

enum { FAULT_WORKLOADS = 3 };

struct fault {
    unsigned workload;
    uint64_t call; /* of the driver; 0: none */
    vmm_status status;
    bool for_ever;
    uint64_t allocation; /* of host memory; 0: none */
};

/* Runs a workload; returns how many driver calls, or allocations, there were. */
uint64_t fault_run(const struct fault *fault);

/* Every call of the driver in all workloads fails, one a run. */
void fault_calls_swept(bool for_ever);

/* Every allocation fails. */
void fault_allocations_swept(void);

/* What all workloads come through when nothing fails. */
struct fault_reach {
    uint64_t retries;
    uint64_t ooms;
    uint64_t stalls;
    uint64_t stale;   /* these four summed over all operations */
    uint64_t ordered; /* by a trim that left something */
    uint64_t decayed; /* but in use still */
    uint64_t twins;
    uint64_t compactions;
    uint64_t copies;
};
struct fault_reach fault_reach(void);

int fault_teardown(void **state);

#endif
