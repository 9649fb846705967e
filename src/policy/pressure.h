/*
 * Pressure: the program's own function is asked for memory before a request fails.
 *
 * The function may call the cache, and a request of its own that runs out of memory does not ask it
 * again: it would never end. Who is being asked is known by thread, not by cache, because requests
 * of other threads that run out meanwhile have every right to ask.
 *
 * Before that, a guard is asked for what is in quarantine.
 *
 * May be called by: ladder.
 */
#ifndef VMM_POLICY_PRESSURE_H
#define VMM_POLICY_PRESSURE_H

#include "policy/cache.h"

/*
 * Asks for `bytes` bytes. True if the program says that it freed something. False, too, if there is
 * nobody to ask, or if this thread was called by the one that is to be asked. The caller holds the
 * grow lock and the lock of `held`; both are dropped meanwhile, and everything may have changed.
 */
bool vmm__pressure_ask(struct vmm_cache *cache, struct pool *held, uint64_t bytes);

/* Has the quarantine given back. True if it has given blocks back since *given were, which is set anew: by this
 * call, or another thread's. With the same locks, which are dropped, too. */
bool vmm__pressure_quarantine(struct vmm_cache *cache, struct pool *held, uint64_t *given);

#endif
