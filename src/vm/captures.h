/*
 * The captures that the program has announced (vmm_capture_announce()), in all caches of the process.
 *
 * An event of all work that is recorded beside a capture spoils it, also one of another device. So a clock records
 * under the lock of this module, after it has asked here, and an announcement, which comes before the capture begins,
 * takes the same lock.
 *
 * Owns: the announcements. Invariants:
 *  1. an announcement stands until it is retracted, or until its capture is seen to be over: the stream is not being
 *     captured, and it was before, or the thread that announced the capture asks, or has ended. That thread begins the
 *     capture before it calls the library again. Only that thread asks about the per-thread default stream.
 * May be called by: vm, api. Locks: its own, process-wide. Under it a clock takes that of the events and the driver's,
 * and calls its watch (clock.h).
 */
#ifndef VMM_VM_CAPTURES_H
#define VMM_VM_CAPTURES_H

#include "driver/driver.h"

void vmm__captures_lock(void);
void vmm__captures_unlock(void);

/* Whether an announced capture stands; of this stream. */
bool vmm__captures_any_locked(void);
bool vmm__captures_has_locked(vmm_stream stream);

/* Before the first use of what follows, by each cache: a child of fork() then begins without announcements, with a lock
 * that no thread holds. ERR_HOST_OOM. */
vmm_status vmm__captures_open(void);

/* See vmm_capture_announce() and vmm_capture_retract(). `driver` is asked about the stream. ERR_HOST_OOM. Retract
 * returns whether the announcement stood. */
vmm_status vmm__captures_announce(struct driver *driver, vmm_stream stream);
bool vmm__captures_retract(const struct driver *driver, vmm_stream stream);

/* Drops all announcements of a driver that ends. */
void vmm__captures_forget(const struct driver *driver);

#endif
