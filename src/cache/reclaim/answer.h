/*
 * Answers to other processes' claims (claim.h), and headroom, by a thread of each cache that has neighbours. It gives,
 * while the device is short of what is claimed, in the order of cost:
 *
 *  1. idle memory whose work has finished, above the floor; also what finishes before the claim ends;
 *  2. what the program's pressure function frees, if the program allows it, once half of a claim's time is over;
 *  3. pools that the program has offered (pool/offer.h), which go to sleep one at a time, once three quarters are.
 *
 * The last two serve only claims whose priority is not lower than the cache's, each by its own time.
 *
 * For the device's headroom it gives idle memory only.
 *
 * Among caches the lowest priority begins, then who has most to give, each a slice of time after the one before, and
 * not while one before it releases a part. Each looks at the device before it gives a part, so together they give
 * hardly more than is missing. A cache that claims itself gives nothing meanwhile.
 *
 * Owns: the neighbours of a cache. May be called by: api. Locks: the thread takes the grow lock for each part that it
 * gives, the bytes of CHUNKS_AT_ONCE chunks, and the neighbours' lock. It holds no lock while the program's function
 * runs; a sleep takes the grow lock in turns (pool/sleep.h).
 */
#ifndef VMM_CACHE_RECLAIM_ANSWER_H
#define VMM_CACHE_RECLAIM_ANSWER_H

#include "cache/claim.h"

/* Joins the others on the device and starts the thread. If that fails, the cache works without, and the log says why.
 * The configuration is settled. */
void vmm__neighbours_begin(struct vmm_cache *cache, const vmm_config *config, const char *folder);

/* Stops the thread and leaves. Does nothing without neighbours. */
void vmm__neighbours_end(struct vmm_cache *cache);

/* Shows the others what the cache has now. Takes the grow lock. */
void vmm__neighbours_show(struct vmm_cache *cache);

#endif
