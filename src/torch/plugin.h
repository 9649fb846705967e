/*
 * The settings, and the creation of one cache per device at the device's first use.
 *
 * Owns: the settings. Invariants:
 *  1. settings do not change once a cache exists;
 *  2. after fork() the child touches no cache of its parent: frees do nothing, every other call fails.
 * May be called by: torch. Locks: `opening` guards the settings and the creation of caches.
 */
#ifndef VMM_TORCH_PLUGIN_H
#define VMM_TORCH_PLUGIN_H

#include "torch/abi.h"
#include "torch/device.h"

/* Returns a device's record, and creates its cache if there is none. Errors: as vmm_create(). */
vmm_status vmm__torch_open(int ordinal, struct torch_device **out);

/* Sets the limit of a device's cache to a fraction of its memory, at least one byte. A fraction of 1 means the limit of
 * the settings, which no fraction exceeds. */
vmm_status vmm__torch_fraction_limit(struct torch_device *device, vmm_cache *cache,
                                     double fraction);

/* The fraction that caches begin with from now on. */
void vmm__torch_fraction_begin(double fraction);
double vmm__torch_fraction_first(void);

/* From now on, settings that name all devices (UINT64_MAX) give a new cache none: vmm__torch_peers_add() does, when
 * PyTorch asks. */
void vmm__torch_peers_defer(void);

/* The devices that have access to a device's memory; before it has a cache, those that will have it at once. */
uint64_t vmm__torch_peers(int ordinal);

/* Gives devices that the settings name access. Creates the cache. ERR_INVALID_ARGUMENT: one is not named; else as
 * vmm_peers_add(). */
vmm_status vmm__torch_peers_add(int ordinal, uint64_t devices);

/* From now on blocks of new caches can be shared with other processes, as far as settings and devices allow. New memory
 * then costs the driver more. */
void vmm__torch_class_note(void);

/* Whether a cache exists or is being created, so that settings no longer change. */
bool vmm__torch_is_open(void);

/* The function that receives each change of every cache, beside the library's own; NULL: none. */
void vmm__torch_change_watch(void (*watch)(int device, const vmm_change *change));

/* Whether other streams still use the block that the calling thread has just freed. */
bool vmm__torch_waits(const void *ptr);

#endif
