/*
 * Pressure: calls the program's pressure function before a request fails.
 *
 * The function may call the cache. If a request that it makes runs out of memory, that request does not call the
 * function again, because the recursion would not end. This is decided for each thread, so requests of other threads
 * may call the function at the same time.
 *
 * Also empties the quarantine of debug mode, which an earlier step asks for.
 *
 * Owns: nothing. May be called by: reclaim, answer. Locks: the caller holds the grow lock and the lane's lock, except
 * where stated; the program's function runs without both.
 */
#ifndef VMM_CACHE_RECLAIM_PRESSURE_H
#define VMM_CACHE_RECLAIM_PRESSURE_H

#include "cache/cache.h"

/* Calls of the function for one request, or for one claim of another process. */
enum { QUESTIONS_MOST = 64 };

/*
 * Calls the function with the bytes that are missing. True if it returns that it freed something. False without a call
 * if the cache has no function, or if this thread is inside it. The caller holds the grow lock and the lock of
 * `held`; both are dropped during the call, so everything may have changed on return.
 */
bool vmm__pressure_ask(struct vmm_cache *cache, struct lane *held, uint64_t bytes);

/* Calls the function, if there is one. The caller holds no lock. */
bool vmm__pressure_call(struct vmm_cache *cache, vmm_pool *pool, uint64_t bytes);

/* Returns the blocks in quarantine to their lanes. *given is the count of blocks ever returned, as of the last call,
 * and is updated. True if it rose, through this call or another thread's. Locks as for vmm__pressure_ask(). */
bool vmm__pressure_quarantine(struct vmm_cache *cache, struct lane *held, uint64_t *given);

#endif
