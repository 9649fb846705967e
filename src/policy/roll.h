/*
 * The roll: which caches there are in the process. A handle that is not on it is that of a cache which is
 * gone, or no handle at all, and must not be followed.
 *
 * Owns: a table of addresses, which are compared and never followed. Caches for which it has no room are
 * counted; while there are any, every handle passes.
 * May be called by: policy, entry. Locks: none (atomics).
 */
#ifndef VMM_POLICY_ROLL_H
#define VMM_POLICY_ROLL_H

#include <stdbool.h>

struct vmm_cache;

void vmm__roll_enter(const struct vmm_cache *cache);

/* Takes a cache off; false if it was not on, or if another thread has just taken it off. */
bool vmm__roll_strike(const struct vmm_cache *cache);

bool vmm__roll_has(const struct vmm_cache *cache);

#endif
