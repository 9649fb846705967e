/*
 * The recorder: makes calls of a cache and records them in its history, with the changes that the cache reports.
 *
 * The order of events is the order in which the changes happened, because
 *  1. each recorded call, and each snapshot, holds the history's `order`;
 *  2. a free is recorded before it is made, and cancelled if it fails: so no reuse of the memory can be recorded
 *     before the free, even if another thread trims meanwhile;
 *  3. changes are recorded with the cache's locks held.
 * The recorder releases `order` while it calls the program's pressure or misuse function or those of a source, because
 * they may allocate, free, take snapshots, or wait for a thread that does.
 * Blocks that were live when recording started are in the live map without an ALLOC event. An allocation under way
 * at that moment is recorded when it ends, or by the first snapshot that finds its block.
 * Snapshots show the stacks that a recording has counted until their blocks are freed, also after it has ended, as
 * PyTorch's do.
 *
 * Owns: the settings of the recording. May be called by: torch. Locks: `recording` guards the settings; it is taken
 * before a history's `order`.
 */
#ifndef VMM_TORCH_RECORD_H
#define VMM_TORCH_RECORD_H

#include "torch/device.h"
#include "vmmcache/torch_provider.h"

/* vmm_alloc(), vmm_free() and vmm_trim() to nothing, recorded. */
vmm_status vmm__record_alloc(struct torch_device *device, size_t bytes, vmm_stream stream,
                             void **out);
vmm_status vmm__record_free(struct torch_device *device, void *ptr);
vmm_status vmm__record_trim(struct torch_device *device);

/* Returns the stack that calls which free or release record, or 0. The caller holds no lock, and ends its use with
 * vmm__history_stack_drop(). */
uint64_t vmm__record_stack(void);

/* Record a block that was allocated by a call that began before recording started; forget one that was freed by such a
 * call, or after a recording that knew it; and record one that a snapshot finds, with the cache's locks and `order`
 * held. */
void vmm__record_late_alloc(struct torch_device *device, const void *ptr);
void vmm__record_late_free(struct torch_device *device, const void *ptr);
void vmm__record_found(struct torch_device *device, const vmm_item *item);

/* Whether an item of a walk is a block. As in traces, each unit with memory of a reserved block becomes one, instead of
 * the block itself. */
bool vmm__record_is_block(vmm_item *item);

/* Records a change of the device's cache, whose locks are held. A recording that has ended may know the block, too. */
void vmm__record_change(struct torch_device *device, const vmm_change *change);

/* Starts recording a device that has just got its cache, if other devices are being recorded. */
void vmm__record_newcomer(struct torch_device *device);

/* Calls the program's pressure function: see vmm_pressure_fn. */
int vmm__record_pressure(void *device, vmm_pool *pool, size_t bytes);

/* Sets the function that a request calls before the program's pressure function; NULL: none. reclaims(): whether there
 * is one. */
void vmm__record_reclaim_set(vmm_torch_reclaim_fn reclaim);
bool vmm__record_reclaims(void);

/* vmm_torch_history_start() with all that a recording can have. */
vmm_status vmm__record_start(const vmm_torch_recording *wanted);

/* Calls the program's misuse function: see vmm_misuse_fn. */
void vmm__record_misuse(void *device, const char *line);

/* Call the program's functions of a source: see vmm_segment_source. */
void *vmm__record_segment_alloc(void *source, size_t bytes, vmm_stream stream);
void vmm__record_segment_free(void *source, void *segment, size_t bytes);

#endif
