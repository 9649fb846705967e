/*
 * Creating a cache on a driver that somebody else opened: for tests, bench and tools, which want to
 * turn the driver's knobs and read its census.
 */
#ifndef VMM_CACHE_ON_H
#define VMM_CACHE_ON_H

#include "driver/driver.h"
#include "vmmcache/vmmcache.h"

/*
 * As vmm_create(), but on `driver`, which stays the caller's: vmm_destroy() does not close it, and
 * config's fields about the driver and all environment variables are ignored. NULL config:
 * defaults.
 */
vmm_status vmm__cache_create_on(const vmm_config *config, struct driver *driver, vmm_cache **out);

/* Checks every numbered invariant of every module; ERR_INTERNAL with the one that fails. */
vmm_status vmm__cache_check(vmm_cache *cache);

#endif
