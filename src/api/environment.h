/*
 * Owns the list of all environment variables that begin with VMM_: those of the library, its tests and its tools.
 * Called by: api. Locks: none.
 */
#ifndef VMM_API_ENVIRONMENT_H
#define VMM_API_ENVIRONMENT_H

#include "cache/cache.h"

/* Logs environment variables that begin with VMM_ and are not on the list. Only the first cache of the process with a
 * log does so. */
void vmm__environment_check(struct vmm_cache *cache);

#endif
