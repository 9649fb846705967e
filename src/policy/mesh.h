/*
 * Meshing: two places of the arena whose live bytes do not overlap share one chunk (as Mesh, PLDI
 * 2019, does for malloc with pages of one size; here any layout of blocks will do). The guest's live
 * bytes are copied into what is free in the host's memory; then the guest's addresses are mapped to
 * it, and the guest's own memory goes back. What is live in one place is lent in the other: nobody
 * can have it there (ring.h). A ring of places that share a chunk already can be a guest as a whole.
 *
 * For compact, which decides, and promises: no work of the device is in flight, and no thread submits
 * any meanwhile.
 * May be called by: compact. Locks: the grow lock and every pool's lock.
 */
#ifndef VMM_POLICY_MESH_H
#define VMM_POLICY_MESH_H

#include "policy/survey.h"

/*
 * Meshes chunks of one granule among a survey's until about `bytes` of memory are freed, or no more
 * pairs are found: ERR_HOST_OOM, ERR_DRIVER, with what was meshed before. Freed memory is in limbo.
 */
vmm_status vmm__mesh(struct vmm_cache *cache, const struct survey *survey, uint64_t bytes);

#endif
