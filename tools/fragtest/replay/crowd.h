/*
 * Three processes whose peaks come one after the other, on one device that holds one and a half of them: first each on
 * its own, then as neighbours. Real processes, on a device file of the host driver.
 *
 * May be called by: crowd_show, tests. Locks: none: what the processes share, each writes for itself, by turns.
 */
#ifndef FRAGTEST_CROWD_H
#define FRAGTEST_CROWD_H

#include "fragtest/replay/scene.h"

#define CROWD         3
#define CROWD_RUNS    2 /* without neighbours, and with them */
#define CROWD_PHASES  9 /* in each, one process has its peak */
#define CROWD_SAMPLES 8 /* a phase */

struct crowd_member {
    vmm_status status; /* of the first call that failed; VMM_OK: it has finished */
    unsigned phases;   /* that it has lived through */
    unsigned died_at;  /* the sample; only with a status */
    uint64_t mismatches;
    uint64_t peak_bytes; /* reserved */
    uint64_t claims;
    uint64_t wait_ns;
    uint64_t given_bytes;
};

struct crowd_sample {
    uint64_t live_bytes[CROWD];
    uint64_t reserved_bytes[CROWD];
};

struct crowd_run {
    struct crowd_member members[CROWD];
    struct crowd_sample samples[CROWD_PHASES * CROWD_SAMPLES];
    unsigned sample_count;
    uint64_t ns;
};

struct crowd {
    struct scene_run
        run; /* SIZE: what each process needs at its peak; limit: the device, for all */
    struct crowd_run runs[CROWD_RUNS];
};

/* A signal that ends the program does so once the processes have ended and their folder is gone. ERR_DRIVER: the
 * processes could not be started, or left something behind; the line says what. */
vmm_status crowd_run(struct scene_run *run);

/* Whether all have finished with the right contents. */
bool crowd_survived(const struct crowd_run *run);

#endif
