/*
 * What hooks.c and workspace.c do for PyTorch, as functions that return a status.
 *
 * Owns: nothing. May be called by: torch. Locks: those of the caches and of the recorder (record.h).
 */
#ifndef VMM_TORCH_HOOKS_H
#define VMM_TORCH_HOOKS_H

#include "api/find.h"
#include "torch/plugin.h"

/* Frees a block of a device. bytes: as requested; 0: looked up. */
vmm_status vmm__torch_block_free(struct torch_device *device, void *ptr, uint64_t bytes);

/* Finds the block that a pointer lies in, as vmm__find_owned() does, and the device that has it. If the status is
 * neither OK nor NOT_FOUND, *device is the one that failed. */
vmm_status vmm__torch_owned_find(const void *ptr, struct owned_block *out,
                                 struct torch_device **device);

/* See the members of vmm_torch_functions: find, stream_record, empty, fraction_set, oom_watch, largest_get. */
vmm_status vmm__torch_block_find(const void *address, vmm_item *item, int *device);
vmm_status vmm__torch_stream_record(void *ptr, vmm_stream stream);
vmm_status vmm__torch_empty(void);
vmm_status vmm__torch_fraction_set(int ordinal, double fraction);
void vmm__torch_oom_watch(vmm_torch_oom_fn watch);
vmm_status vmm__torch_largest_get(int ordinal, uint64_t *bytes);

#endif
