/*
 * Reclaim: what a request that finds no memory tries, one step after the other. After each step that may have freed
 * memory, the refill is tried again; reclaim then goes on with the same step, or from the start where noted.
 *
 *  1. Return blocks, slabs and limbo chunks whose work has finished.
 *  2. Let growth make views with as little new memory as possible, whatever the footprint target is, and search free
 *     blocks without a bound.
 *  3. Also take other streams' idle memory whose work is unfinished, in place or in views; the requesting stream waits
 *     for it on the device.
 *  4. Release just enough idle chunks of any stream whose work has finished.
 *  5. Serve a small block from another stream's memory (reuse/share.h). Otherwise put just enough idle chunks whose
 *     work is unfinished into limbo.
 *  6. In debug mode, empty the quarantine, with no lock held; restart.
 *  7. Wait on the host for the oldest chunk in limbo.
 *  8. Wait on the host for freed blocks that other streams still use, for released graph pools and for stale
 *     streams; restart after each.
 *  9. Put all idle chunks into limbo and wait for them.
 * 10. Call the program's pressure function, with no lock held; if it freed something, restart. At most 64 calls for
 *     each request.
 * 11. Compact: move live bytes together and release the memory that they pinned (compact/compact.h).
 *
 * May be called by: refill. Locks: the caller holds the grow lock and the requesting pool's lock. Steps that wait for
 * the device drop the pool's lock while they wait; steps 6 and 10 drop both.
 */
#ifndef VMM_CACHE_RECLAIM_RECLAIM_H
#define VMM_CACHE_RECLAIM_RECLAIM_H

#include "cache/request.h"

/* The step that a request has reached. Starts zeroed. */
struct reclaim {
    unsigned step;
};

/* Runs steps until one may have freed memory (VMM_OK: try the refill again), one fails (its error), or all are done
 * (VMM__NOTHING). Returns no other internal outcome. */
vmm_status vmm__reclaim_next(struct vmm_cache *cache, struct request *request,
                             struct reclaim *reclaim);

/* Writes the error line of a request that ran out of memory or addresses, and returns `status`. */
vmm_status vmm__reclaim_report(struct vmm_cache *cache, const struct request *request,
                               vmm_status status);

#endif
