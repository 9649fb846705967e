/*
 * Operations of the host driver beyond the table, for tests, tools and examples.
 *
 * Owns: nothing. May be called by: tests, bench, tools, from any thread. Locks: the driver's own.
 */
#ifndef VMM_DRIVER_HOST_HOST_H
#define VMM_DRIVER_HOST_HOST_H

#include "driver/driver.h"
#include "driver/soft/violations.h"

/* Queues a host function as a kernel. It runs once, on a worker thread, in stream order. It may access accessible
 * memory and may block, but must not submit work to this driver. ERR_HOST_OOM, or ERR_DRIVER if the system cannot
 * create worker threads. */
vmm_status vmm__host_launch(struct driver *driver, void (*kernel)(void *context), void *context,
                            vmm_stream stream);

#endif
