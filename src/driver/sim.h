/*
 * What tests and tools may turn and read on the sim driver, beyond the table.
 *
 * May be called by: tests, bench, tools. All of it from any thread.
 */
#ifndef VMM_DRIVER_SIM_H
#define VMM_DRIVER_SIM_H

#include "driver/driver.h"

/*
 * Work lags behind: a piece of work (fill, check, copy) is finished only once `operations` more
 * pieces of work were submitted, on whatever stream, and everything before it on its stream is
 * finished. 0: finished when submitted. A delay is finished only once the clock has come far
 * enough, too. A wait of the host finishes what it waits for.
 */
void vmm__sim_lag_set(struct driver *driver, uint64_t operations);

/*
 * Fails numbered calls. Calls of the memory and event operations (those that are counted in
 * driver->tally) are numbered from 1 in the order in which they are made; numbering starts anew
 * here. Call `number` returns `status` without doing anything; with for_ever all later ones too.
 * number 0 turns it off.
 */
void vmm__sim_fail_at(struct driver *driver, uint64_t number, vmm_status status, bool for_ever);
uint64_t vmm__sim_calls(struct driver *driver);        /* numbered calls since then */
uint64_t vmm__sim_faults_fired(struct driver *driver); /* of them, made to fail */

/*
 * Violations: what CUDA lets pass but punishes later. They are recorded, not refused.
 * Returns how many; text (may be NULL) gets the first one's one-line story, or "".
 */
uint64_t vmm__sim_violations(struct driver *driver, const char **text);

/* The one-line story of the first place that mismatches() counts, or "". */
const char *vmm__sim_mismatch(struct driver *driver);

/* What is there now; all zero after everything was given back. */
struct sim_census {
    uint64_t reservations;
    uint64_t mappings;
    uint64_t handles;        /* not released */
    uint64_t physical_bytes; /* including released handles that are still mapped */
    uint64_t events;
};
struct sim_census vmm__sim_census(struct driver *driver);

#endif
