/*
 * Chooses the driver of a run. The library never takes host memory by itself, so fragtest asks for
 * each driver by name.
 *
 * Owns: nothing. May be called by: main. Locks: none (one thread).
 */
#ifndef FRAGTEST_PICK_H
#define FRAGTEST_PICK_H

#include "driver/driver.h"

#include <stddef.h>

/*
 * Opens the driver that is wanted. For VMM_DRIVER_DEFAULT that is cuda where there is a GPU, else
 * host; `choice` then gets one line that says which and why, else it becomes empty. On failure
 * vmm_last_error() says why.
 */
vmm_status pick_driver(vmm_driver_kind wanted, struct driver **out, char *choice, size_t capacity);

#endif
