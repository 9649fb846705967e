/*
 * Recording: calls of a cache that are told to its history, and changes that the cache tells of.
 *
 * How events come to be in the order in which things came about: each call is made with the history's
 * `order` held, and so is a picture; a free is told before it is made, and struck should it fail, so that
 * nothing that the memory serves next can be told before, not even by a thread that trims in passing;
 * changes are told with the cache's locks held. While the program is asked for memory (vmm_config.pressure), or told
 * of a misuse, `order` is dropped: it may allocate, free blocks, take pictures, or wait for a thread that does. What was live when recording began is known,
 * though not told; changes are told from then on, and calls know that they are before. An allocation that was under way then is told when it has ended, or by a picture that finds
 * its block earlier.
 *
 * Owns: the settings of recording. May be called by: torch. Locks: `recording` guards the settings; it
 * comes before a history's `order`.
 */
#ifndef VMM_TORCH_RECORD_H
#define VMM_TORCH_RECORD_H

#include "torch/history.h"

struct torch_device;

/* vmm_alloc() and vmm_free(), told. The last: *waits says whether other streams still use the block. */
vmm_status vmm__record_alloc(struct torch_device *device, size_t bytes, vmm_stream stream,
                             void **out);
vmm_status vmm__record_free(struct torch_device *device, void *ptr);

/* A block was handed out, or taken back, without being told; and one that a picture finds, with the
 * cache's locks and `order` held. */
void vmm__record_late_alloc(struct torch_device *device, const void *ptr);
void vmm__record_late_free(struct torch_device *device, const void *ptr);
void vmm__record_found(struct torch_device *device, const vmm_item *item);

/* A change of the device's cache, whose locks are held. */
void vmm__record_change(struct torch_device *device, const vmm_change *change);

/* A device has got its cache: it is recorded, too, if any are. */
void vmm__record_newcomer(struct torch_device *device);

/* Asks the program for memory: see vmm_pressure_fn. */
int vmm__record_pressure(void *device, size_t bytes);

/* Tells the program of a misuse: see vmm_misuse_fn. */
void vmm__record_misuse(void *device, const char *line);

#endif
