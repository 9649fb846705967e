/*
 * Reports of the drivers without a GPU, for tests and tools.
 *
 * Owns: nothing. May be called by: tests, bench, tools, from any thread. Locks: none.
 */
#ifndef VMM_DRIVER_SOFT_VIOLATIONS_H
#define VMM_DRIVER_SOFT_VIOLATIONS_H

#include "driver/driver.h"

/* Violations: misuse that is undefined or fails later in CUDA. Both drivers report the use of an invalid handle and
 * what would break a capture; sim.h names what sim reports, too. Returns the number of violations; text (may be NULL)
 * receives one line about the first, or "". */
uint64_t vmm__soft_violations(struct driver *driver, const char **text);

#endif
