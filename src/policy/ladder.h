/*
 * The ladder: what is tried, one step after the other, when a request cannot be met. After each
 * step that gave something, the request is tried again from the start.
 *
 *  1. waits and limbo whose time has passed, and slabs without live objects;
 *  2. idle chunks are stolen before anything is asked of the driver;
 *  3. other streams' idle memory too, with a wait put into the requesting stream;
 *  4. idle chunks, of any stream, whose work has finished: just enough of them;
 *  5. idle chunks whose work is still running: into limbo, just enough;
 *  6. the quarantine of a guard is given back, with no lock held, and what other threads have just taken out of it
 *     counts, too; the request begins anew;
 *  7. the host waits for the oldest of limbo;
 *  8. the host waits for blocks that other streams use, for released private pools and for streams that are
 *     gone, and climbs from the start again;
 *  9. all idle chunks go, and the host waits for them;
 *  10. the program is asked for memory (vmm_config.pressure), with no lock held; if it says that it
 *     freed some, the request begins anew. At most 64 times a request;
 *  11. live bytes move together, so that what they pin comes free (compact.h).
 *
 * May be called by: supply. Locks: the grow lock and the requesting pool's lock; steps that wait
 * for the device drop the pool's lock meanwhile, and steps 6 and 10 both.
 */
#ifndef VMM_POLICY_LADDER_H
#define VMM_POLICY_LADDER_H

#include "policy/grow.h"

struct request {
    struct pool *pool;
    struct heap *heap;
    uint64_t bytes;       /* as asked for */
    uint64_t block_bytes; /* of the block that the heap lacks */
    bool is_alone;        /* the block lies apart from all others */
    enum grow_from from;  /* starts with GROW_TARGET; the ladder goes further */
    unsigned waits;       /* of the host, so far */
    unsigned questions;   /* to the program, so far */
    uint64_t given;       /* by a guard's quarantine, when it was last asked; 0: never */
    bool was_compacted;   /* and tried once more, though that gave nothing back */
};

/* How far up the ladder a request is. Starts zeroed. */
struct ladder {
    unsigned step;
};

/* Climbs until a step gives something (VMM_OK: try again), or the top is reached (VMM_NOT_READY).
 */
vmm_status vmm__ladder_climb(struct vmm_cache *cache, struct request *request,
                             struct ladder *ladder);

/* Leaves the line of a request that failed for want of memory or addresses, and returns `status`. */
vmm_status vmm__ladder_report(struct vmm_cache *cache, const struct request *request,
                              vmm_status status);

#endif
