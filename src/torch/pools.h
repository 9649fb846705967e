/*
 * PyTorch's pools: one pool of a cache for each id of PyTorch, with a number of uses. PyTorch uses a pool once for each
 * graph that shares it, and once for each MemPool.
 *
 * Invariants: a pool has uses - 1 retains (vmm_pool_retain), so that the last leave destroys it.
 * Owns: nothing. May be called by: abi, provider. Locks: use, leave, uses, trim and what makes a pool anew hold
 * vmm__torch_pools (regions.h). All other calls are for pools that the caller uses.
 */
#ifndef VMM_TORCH_POOLS_H
#define VMM_TORCH_POOLS_H

#include "torch/plugin.h"

/* See the members of vmm_torch_functions with these names; abi.h has leave and unroute. */
vmm_status vmm__torch_pool_use(int ordinal, vmm_pool_id id);
uint64_t vmm__torch_pool_uses(int ordinal, vmm_pool_id id);
vmm_status vmm__torch_pool_use_on_oom(int ordinal, vmm_pool_id id, int is_on);
vmm_status vmm__torch_pool_no_split(int ordinal, vmm_pool_id id);
vmm_status vmm__torch_pool_source(int ordinal, vmm_pool_id id, const vmm_segment_source *source);
vmm_status vmm__torch_pool_route(int ordinal, vmm_pool_id id, vmm_pool_filter filter,
                                 void *context);
vmm_status vmm__torch_pool_cover(int ordinal, vmm_pool_id id);
void vmm__torch_pool_uncover(int ordinal, vmm_pool_id id);
vmm_status vmm__torch_pool_trim(int ordinal, vmm_pool_id id);
vmm_status vmm__torch_pool_walk(int ordinal, vmm_pool_id id, vmm_visitor visit, void *context);
vmm_status vmm__torch_pool_place(int ordinal, vmm_pool_id id, uint64_t address, size_t bytes,
                                 vmm_stream stream);

#endif
