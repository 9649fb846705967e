/*
 * Checks settings: reads them, and creates a cache with them.
 * Owns: nothing. May be called by: torch (it checks settings before it opens a device); api. Locks: none.
 */
#ifndef VMM_API_CREATE_TRIAL_H
#define VMM_API_CREATE_TRIAL_H

#include "vmmcache/vmmcache.h"

/* Does what vmm_create() does, except that VMM_TRACE and VMM_MONITOR have no effect on the cache. `out` is not NULL. */
vmm_status vmm__cache_create_trial(const vmm_config *config, vmm_cache **out);

/* Reads fields and environment as vmm_create() does, without a device. ERR_INVALID_ARGUMENT: one of them is wrong. */
vmm_status vmm__cache_settings_check(const vmm_config *config);

#endif
