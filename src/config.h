/*
 * Configuration: what the caller set, filled up from the environment, checked.
 *
 * May be called by: entry.
 */
#ifndef VMM_CONFIG_H
#define VMM_CONFIG_H

#include "policy/cache.h"

/* Copies what the caller knows of vmm_config. ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED (fields from a
 * later version that are set). */
vmm_status vmm__config_read(const vmm_config *config, vmm_config *out);

/* Fills fields that are zero from VMM_DRIVER, VMM_NO_CACHING, VMM_FOOTPRINT, VMM_SHARING,
 * VMM_COMPACTION, VMM_DECAY_MS, VMM_ZERO, VMM_GUARD and VMM_MARKS. ERR_INVALID_ARGUMENT. */
vmm_status vmm__config_environment(vmm_config *config);

/* Whether fields go together, once all have been read. ERR_INVALID_ARGUMENT. */
vmm_status vmm__config_settle(const vmm_config *config);

/* The same for VMM_LIMIT, which may be a share of the device, and VMM_LOG, which may be a file to
 * be opened: both once the driver is open. */
vmm_status vmm__config_limit(uint64_t device_bytes, vmm_config *config);
vmm_status vmm__config_log(struct vmm_cache *cache);

#endif
