/*
 * What tests, tools and examples may do on the host driver beyond the table.
 *
 * May be called by: tests, bench, tools. From any thread.
 */
#ifndef VMM_DRIVER_HOST_H
#define VMM_DRIVER_HOST_H

#include "driver/driver.h"

/*
 * Queues a host function as a kernel: it runs once on a worker thread, in order of the stream. It
 * may touch memory that has access and may block, but must not submit work to this driver.
 * ERR_HOST_OOM, or ERR_DRIVER when the system refuses worker threads.
 */
vmm_status vmm__host_launch(struct driver *driver, void (*kernel)(void *context), void *context,
                            vmm_stream stream);

#endif
