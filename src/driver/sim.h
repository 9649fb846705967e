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

/* A stream whose next piece of work may finish now: all before it on the stream has, what the stream was made
 * to wait for has, and a delay is over. */
struct sim_choice {
    vmm_stream stream; /* it may have been destroyed */
    uint64_t number;   /* of that piece, among all that were submitted */
};

/* Returns which of the choices finishes; `count` or more: none. Must not call the driver. */
typedef uint32_t (*sim_order_fn)(void *context, const struct sim_choice *choices, uint32_t count);

/*
 * Work finishes in an order that a test chooses, instead of by lag. With each piece of work that is submitted
 * and each event that is asked for, `choose` is called until it says none, or nothing is left: so any number
 * of streams get on by any number of pieces, and one that is never chosen stalls until the host waits for it.
 * A wait of the host finishes what it waits for, and no more. NULL: by lag again.
 */
void vmm__sim_order_set(struct driver *driver, sim_order_fn choose, void *context);

/*
 * Fails numbered calls. Calls of the memory and event operations (those that are counted in
 * driver->tally) are numbered from 1 in the order in which they are made; numbering starts anew
 * here. Call `number` returns `status` without doing anything; with for_ever all later ones too. Only clear and
 * read have submitted their work then, as a driver may that refuses afterwards (D1).
 * number 0 turns it off.
 */
void vmm__sim_fail_at(struct driver *driver, uint64_t number, vmm_status status, bool for_ever);
uint64_t vmm__sim_calls(struct driver *driver);        /* numbered calls since then */
uint64_t vmm__sim_faults_fired(struct driver *driver); /* of them, made to fail */

/*
 * Violations: what CUDA lets pass but punishes later. They are recorded, not refused. Unmapping counts as one
 * under work that the host has not seen the end of, by a wait or by an event that has passed, even if it
 * happens to have finished.
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
