/*
 * The registry: the live caches of the process. A handle that is not in it belongs to a destroyed cache, or is not a
 * cache, and must not be dereferenced.
 *
 * Owns: a table of addresses, which it compares and never dereferences. If the table is full, further caches are only
 * counted, and every handle passes while there are any.
 * May be called by: cache, api. Locks: none (atomics).
 */
#ifndef VMM_CACHE_REGISTRY_H
#define VMM_CACHE_REGISTRY_H

#include <stdbool.h>

struct vmm_cache;

void vmm__registry_add(const struct vmm_cache *cache);

/* Removes a cache; false if it is not registered, or another thread has just removed it. */
bool vmm__registry_remove(const struct vmm_cache *cache);

bool vmm__registry_has(const struct vmm_cache *cache);

#endif
