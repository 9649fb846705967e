/*
 * Creates a cache on a driver that the caller opened: for tests, benchmarks and tools, which configure the driver and
 * count its objects.
 *
 * Owns: nothing. May be called by: tests, bench, tools; api. Locks: as for the public functions.
 */
#ifndef VMM_API_CREATE_ON_H
#define VMM_API_CREATE_ON_H

#include "driver/driver.h"
#include "vmmcache/vmmcache.h"

/* Does what vmm_create() does, on a driver that the caller owns: vmm_destroy() does not close it. Ignores the
 * environment and the fields of config that concern the driver. NULL config: defaults. */
vmm_status vmm__cache_create_on(const vmm_config *config, struct driver *driver, vmm_cache **out);

/* Checks all numbered invariants of all modules. ERR_INTERNAL: the line names the one that fails. */
vmm_status vmm__cache_check(vmm_cache *cache);

#endif
