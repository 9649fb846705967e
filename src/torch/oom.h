/*
 * Reports a request that ran out of memory to the program's listener, before the caller sees the failure.
 *
 * Owns: the listener. Invariants:
 *  1. requests that the listener makes itself are not reported to it on the same thread;
 *  2. vmm_last_error() describes the request that failed, whatever the listener did.
 * Called by: hooks. Locks: none; the listener is called without locks.
 */
#ifndef VMM_TORCH_OOM_H
#define VMM_TORCH_OOM_H

#include "torch/device.h"

/* Calls vmm_torch_oom_listen()'s function if the status says that memory ran out. */
void vmm__torch_oom_tell(const struct torch_device *device, vmm_status status, uint64_t bytes);

#endif
