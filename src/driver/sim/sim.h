/*
 * Controls and reports of the sim driver beyond the table, for tests and tools.
 *
 * Owns: nothing. May be called by: tests, bench, tools, from any thread. Locks: the driver's own.
 */
#ifndef VMM_DRIVER_SIM_SIM_H
#define VMM_DRIVER_SIM_SIM_H

#include "driver/driver.h"
#include "driver/soft/violations.h"

/* Sets the lag. A piece of work (fill, check, copy, save, load) finishes only after `operations` more pieces are
 * submitted on any stream and everything before it on its stream has finished. 0: it finishes at submission. A delay,
 * save or load also waits until the clock reaches its end. When the host waits for work, that work finishes. */
void vmm__sim_lag_set(struct driver *driver, uint64_t operations);

/* A stream whose next piece of work may finish now: all earlier work of the stream and everything it waits for have
 * finished, and a delay has ended. */
struct sim_choice {
    vmm_stream stream; /* may have been destroyed */
    uint64_t number;   /* number of that piece, in submission order */
};

/* Returns the index of the choice that finishes; `count` or more: none. Must not call the driver. */
typedef uint32_t (*sim_order_fn)(void *context, const struct sim_choice *choices, uint32_t count);

/* Lets a test choose the order in which work finishes, instead of the lag. At each submission and each event query,
 * `choose` is called until it returns none or no choice is left: any number of streams can advance by any number of
 * pieces, and a stream that is never chosen stalls until the host waits for it. A wait of the host finishes only the
 * work it waits for. NULL returns to the lag. */
void vmm__sim_order_set(struct driver *driver, sim_order_fn choose, void *context);

/* Injects faults into numbered calls. Memory and event operations (those counted in driver->tally) are numbered from 1
 * in call order; this function restarts the count. Call `number` returns `status` without any effect, and with for_ever
 * so do all later calls. Exception: clear, read, save and load have submitted their work before they fail (D1).
 * number 0 turns faults off. */
void vmm__sim_fail_at(struct driver *driver, uint64_t number, vmm_status status, bool for_ever);
uint64_t vmm__sim_calls(struct driver *driver);        /* numbered calls since then */
uint64_t vmm__sim_faults_fired(struct driver *driver); /* injected faults among them */

/* Makes the device one whose memory is the system's (driver/system_memory.h), which now is as the text says, in the
 * form of /proc/meminfo. What the driver has created counts as taken from it already. False: the text does not say. */
bool vmm__sim_system_memory_set(struct driver *driver, const char *meminfo);

/* Violations, which vmm__soft_violations() counts: misuse that CUDA accepts but that fails later. The driver records it
 * and does not refuse it. An unmap is a violation if the host has not observed the end of the work on that memory, by a
 * wait or a completed event, even if the work has in fact finished. */

/* Returns one line about the first mismatch that mismatches() counts, or "". */
const char *vmm__sim_mismatch(struct driver *driver);

/* Mappings that the device can access, and one of its peers cannot. */
uint64_t vmm__sim_peerless(struct driver *driver);

/* What exists now; all zero after everything is released. */
struct sim_census {
    uint64_t reservations;
    uint64_t mappings;
    uint64_t handles;        /* created or imported, and not released */
    uint64_t physical_bytes; /* of created ones; including released ones that are still mapped */
    uint64_t pinned_bytes;
    uint64_t events;
};
struct sim_census vmm__sim_census(struct driver *driver);

#endif
