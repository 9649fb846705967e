/*
 * Re-backing: the live granules of a chunk move to chunks of their own, under the same addresses, and
 * the chunk goes back to the driver with the granules that were free.
 *
 * For compact, which decides, and promises: no work of the device is in flight, and no thread submits
 * any meanwhile.
 * May be called by: compact. Locks: the grow lock and every pool's lock.
 */
#ifndef VMM_POLICY_REBACK_H
#define VMM_POLICY_REBACK_H

#include "policy/survey.h"

/*
 * Re-backs a chunk that is alone: each run of full granules becomes a chunk, each granule that is
 * full in part a chunk of its own. For a moment it needs new memory for the live granules.
 * Idle granules are void then. ERR_DEVICE_OOM (there was no room for the copy), ERR_UNSUPPORTED (more
 * parts than it does at once), ERR_HOST_OOM, ERR_ADDRESS_SPACE, ERR_DRIVER: nothing has changed.
 */
vmm_status vmm__reback(struct vmm_cache *cache, const struct partly *partly);

#endif
