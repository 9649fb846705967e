/*
 * Regions: tags for the memory that a thread allocates, so that a program can put the pools of a tag to sleep.
 *
 * Owns: a list of PyTorch's pools and of the pools of tags, and for each thread the regions that it is in. Invariants:
 *  1. a tag has at most two pools on a device: one whose contents a sleep keeps, and one whose contents it discards;
 *  2. a thread's regions are what it pushed (vmm_pool_push), in this order. A route that begins inside a region is
 *     pushed too, since a push comes before every route: a capture must get memory of its graph's pool.
 * May be called by: pools, provider, and the program through vmmcache/torch.h. Locks: `members_lock`, a leaf, guards
 * the list; vmm__torch_pools.
 */
#ifndef VMM_TORCH_REGIONS_H
#define VMM_TORCH_REGIONS_H

#include "base/mutex.h"
#include "torch/plugin.h"
#include "vmmcache/torch_provider.h"

/* Held while a pool is found by its id and used, and while one is destroyed, so that no thread uses a pool that another
 * one destroys. A pool with a source is destroyed without it, because that calls the program. */
extern struct mutex vmm__torch_pools;

/* Lists a new pool of PyTorch; it gets the tag of the region that the calling thread is in. ERR_HOST_OOM. */
vmm_status vmm__torch_region_note(int ordinal, vmm_pool *pool, const vmm_pool_options *options);

/* The options with which a pool was created. */
vmm_pool_options vmm__torch_region_options(const vmm_pool *pool);

/* Has a pool destroyed later that cannot be destroyed because it sleeps, or has a source and live blocks. False if
 * neither is so. */
bool vmm__torch_region_defer(const vmm_pool *pool);

/* Destroys the pools that PyTorch has ended, except those that cannot be destroyed yet. */
void vmm__torch_region_end_deferred(void);

/* Keeps a route to a pool in force while the calling thread is in a region of the device; uncover() ends that. */
vmm_status vmm__torch_region_cover(int ordinal, vmm_pool *pool);
void vmm__torch_region_uncover(const vmm_pool *pool);

/* The function that vmm_torch_unmapping() and vmm_torch_mapped() call; NULL: none. */
void vmm__torch_sleep_watch(vmm_torch_sleep_fn watch);

#endif
