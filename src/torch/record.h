/*
 * The recorder: records in a device's history what its cache reports of memory and blocks, with the stacks of the calls
 * that make the changes.
 *
 * The order of events is the order in which the changes happened, because the cache reports each with the locks held
 * under which it happens (api/heard.h), and a snapshot walks with all of them.
 * Blocks that were live when recording started are in the live map without an ALLOC event. An allocation under way
 * at that moment is recorded by the first snapshot, or wait, that finds its block.
 * Snapshots show the stacks that a recording has counted until their blocks are freed, also after it has ended, as
 * PyTorch's do.
 *
 * Owns: the settings of the recording, and for each thread the call that it is in. May be called by: torch. Locks:
 * `recording` guards the settings; it is taken before the caches' locks.
 */
#ifndef VMM_TORCH_RECORD_H
#define VMM_TORCH_RECORD_H

#include "torch/device.h"
#include "vmmcache/torch_provider.h"

/* A call of a cache whose changes have the thread's stack. */
struct recorded_call {
    const struct torch_device *device;
    const struct recorded_call *outer;
    uint64_t stack;
};

/* Call these around a call of the cache. The caller of begin holds no lock. is_free: the stack is one of a free. */
void vmm__record_begin(struct recorded_call *call, const struct torch_device *device, bool is_free);
void vmm__record_end(const struct recorded_call *call);

/* Records that a request of such a call ran out of memory. */
void vmm__record_oom(struct torch_device *device, uint64_t bytes, vmm_stream stream);

/* Returns the stack that calls which free or release record, or 0. The caller holds no lock, and ends its use with
 * vmm__history_stack_drop(). */
uint64_t vmm__record_stack(void);

/* Forgets a block that was freed after a recording that knew it, but not one that lies there now; and records one that
 * a snapshot finds, with the cache's locks held. */
void vmm__record_late_free(struct torch_device *device, const void *ptr);
void vmm__record_found(struct torch_device *device, const vmm_item *item);

/* Records a change of the device's cache, whose locks are held; or only that a block is free, which a recording that
 * has ended may know. */
void vmm__record_change(struct torch_device *device, const vmm_change *change);

/* Starts recording a device that has just got its cache, if other devices are being recorded. */
void vmm__record_newcomer(struct torch_device *device);

/* vmm_torch_history_start() with all that a recording can have. */
vmm_status vmm__record_start(const vmm_torch_recording *wanted);

#endif
