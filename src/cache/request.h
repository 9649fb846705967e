/*
 * One request for memory, from the public function to the last step of reclaim: what is asked for, what the lane of its
 * stream is missing, and how far the search has got.
 *
 * Lives on the stack of the thread that asks. The caller sets the first part, and leaves the rest 0. alloc/alloc.c
 * finds the lane, except for commits and resizes, which set it themselves. alloc/refill.c and the steps of reclaim set
 * the rest.
 * Owns: nothing. May be called by: cache, debug, api. Locks: the refill changes a request under the grow lock and the
 * lane's lock; before that no other thread knows it.
 */
#ifndef VMM_CACHE_REQUEST_H
#define VMM_CACHE_REQUEST_H

#include "cache/cache.h"
#include "cache/claim.h"

/* Where new free memory may come from. Reclaim goes from the first on to the last. */
enum grow_from {
    GROW_TARGET, /* new memory within the target, else a view, else new memory beyond the target */
    GROW_VIEW,   /* a view with as little new memory as possible, else new memory */
    GROW_FOLLOW /* as GROW_VIEW; the stream waits, on the device, for work on other streams' idle chunks */
};

struct request {
    struct pool *pool; /* which the program keeps alive; NULL: see `handle` */
    /* With `pool` NULL: a pool that another thread may destroy meanwhile; the request then goes to the default one.
     * Both NULL: pushes and routes choose the pool. Once alloc.c has chosen the lane, the handle of a pool that can
     * still be destroyed; NULL: the program keeps the lane's pool alive. */
    const vmm_pool *handle;
    vmm_stream stream;
    uint64_t bytes;     /* as the program asked for; with `serve`: the most new memory it needs */
    uint64_t alignment; /* a power of two above 512; 0: none */
    uint64_t address;   /* where the block must begin; 0: anywhere */
    bool is_unborrowed; /* the block must not come from another lane */
    bool
        wants_guards; /* a block on granules of its own, before a guard page; false after the call: it has none */
    uint64_t padded_bytes; /* instead of `bytes`, if the block cannot have a guard page */
    /* Serves the request instead of the heaps: commits a reserved block, or resizes a block. Called with the grow lock
     * and the lane's lock, again after each reclaim step that may have freed memory. NULL: the request is for a block
     * of a heap. */
    vmm_status (*serve)(struct vmm_cache *cache, void *context, void **out);
    void *context;

    struct lane *lane; /* of the requesting stream; locked */
    bool is_alone;     /* no other block gets a part of the granules of its block */
    struct heap *heap; /* of `lane`, that must serve it */
    uint64_t block_bytes;
    uint64_t
        new_bytes; /* the most new memory that an alignment, or serve(), needs; 0: the heap decides */
    uint64_t kept_bytes; /* free, but only for other pools: the footprint target adds them */

    bool has_queued;     /* it had to wait for the grow lock */
    enum grow_from from; /* see vmm__request_begin(); steps of reclaim raise it, or begin anew */
    unsigned step;       /* the step of reclaim that it has reached */
    /* The lane's pool when that step ran: it changes if the pool is destroyed. */
    const vmm_pool *owner;
    unsigned waits;     /* host waits so far */
    vmm_status refused; /* how the last refill failed; VMM_OK: memory has not run out */
    struct claim claim; /* of other processes' memory */
    unsigned questions; /* calls of the pressure function so far */
    /* The blocks that had ever left the quarantine when step_quarantine last emptied it; 0: it has not run. */
    uint64_t given;
    void *found; /* the block that a reclaim step has found for it; NULL: none */
};

/* Whether the heaps serve it, without an alignment: then any free block that is long enough does, unless is_alone. */
static inline bool vmm__request_is_plain(const struct request *request)
{
    return request->serve == NULL && request->alignment == 0;
}

/* Begins the search, or begins it anew after other threads have had the locks. Memory of a source has no views, so its
 * requests begin with the last value: the others would only ask the source again. */
static inline void vmm__request_begin(struct request *request)
{
    request->from = request->lane->owner.has_source ? GROW_FOLLOW : GROW_TARGET;
}

/* Whether a request leaves other heaps their room (heap.h): it does if its own heap has room, while memory has not run
 * out. Other requests take whole intervals, which rooms would part. */
static inline bool vmm__request_leaves_room(const struct request *request)
{
    return request->refused == VMM_OK && request->heap->room_granules > 0;
}

/* Lock the other lanes that a request searches for idle memory, and unlock them. Until memory has run out, these are at
 * most LANES_USUAL, and those that other threads use are not drained (vmm__lane_lock_for_scan()). */
void vmm__request_lanes_lock(struct vmm_cache *cache, const struct request *request);
void vmm__request_lanes_unlock(struct vmm_cache *cache, const struct heap *heap);

#endif
