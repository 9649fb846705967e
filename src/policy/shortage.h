/*
 * What a request that failed for want of memory says: what was needed, what there is and who has it,
 * and what would help. One line.
 *
 * Reads, changes nothing. May be called by: ladder. Locks: the grow lock and the lock of the pool
 * that the request is of; the others' are taken inside.
 */
#ifndef VMM_POLICY_SHORTAGE_H
#define VMM_POLICY_SHORTAGE_H

#include "policy/cache.h"

struct shortage {
    vmm_status status;       /* ERR_DEVICE_OOM or ERR_ADDRESS_SPACE */
    const struct pool *pool; /* locked by the caller */
    uint64_t bytes;          /* as asked for */
    uint64_t grow_bytes;     /* to be had from the driver for it: whole granules */
};

/* Leaves the line in vmm__error() and returns the status. */
vmm_status vmm__shortage_tell(struct vmm_cache *cache, const struct shortage *shortage);

/* What the device has free beyond the cache; UINT64_MAX if it does not say. */
uint64_t vmm__shortage_device_bytes(const struct vmm_cache *cache);

#endif
