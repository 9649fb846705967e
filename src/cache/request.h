/*
 * One request for memory, from the public function to the last step of reclaim: what is asked for, what the lane of its
 * stream is missing, and how far the search has got.
 *
 * Lives on the stack of the thread that asks. Who asks sets the first part, and leaves the rest 0; alloc/alloc.c finds
 * the lane, alloc/refill.c sets the rest, and each step of reclaim may change it.
 * Owns: nothing. May be called by: cache, debug, api. Locks: from the refill on, the grow lock and the lane's lock.
 */
#ifndef VMM_CACHE_REQUEST_H
#define VMM_CACHE_REQUEST_H

#include "cache/cache.h"
#include "cache/claim.h"

/* Where new free memory may come from. Reclaim goes from the first on to the last. */
enum grow_from {
    GROW_TARGET, /* new memory within the target, else a view, else new memory beyond the target */
    GROW_VIEW,   /* a view with as little new memory as possible, else new memory */
    GROW_FOLLOW /* as GROW_VIEW; the stream waits, on the device, for other streams' work on their idle chunks */
};

struct request {
    struct pool *pool; /* which the program keeps alive; NULL: see the next */
    /* A pool that another thread may destroy meanwhile: the request then goes to the default one. NULL: the pool that
     * pushes and routes choose. From alloc.c on: what a route chose; NULL: the program keeps the pool alive. */
    const vmm_pool *handle;
    vmm_stream stream;
    uint64_t bytes;     /* as the program asked for; with `serve`: of new memory at most */
    uint64_t alignment; /* a power of two above 512; 0: none */
    uint64_t address;   /* that it must get; 0: any */
    bool is_unborrowed; /* the block must not come from another lane */
    bool
        wants_guards; /* whole granules of its own between guard pages; false after the call: it has none */
    uint64_t padded_bytes; /* that it has instead of `bytes` if it cannot have guard pages */
    /* Maps memory at a place of its own, which no heap can serve: for a reserved block, or a block that grows. Called
     * with the grow lock and the lane's lock, again after each reclaim step that may have freed memory. NULL: the
     * request is for a block of a heap. */
    vmm_status (*serve)(struct vmm_cache *cache, void *context, void **out);
    void *context;

    struct lane *lane; /* of the requesting stream; locked */
    bool is_alone;     /* the block gets granules of its own, away from all others */
    struct heap *heap; /* of `lane`, that must serve it */
    uint64_t block_bytes;
    uint64_t
        new_bytes; /* of memory that an alignment, or serve(), needs at most; 0: as the heap grows */
    uint64_t kept_bytes; /* free, but not for this request: the footprint target adds them */

    bool has_queued;     /* for the grow lock: other threads held it */
    enum grow_from from; /* see vmm__request_begin(); steps of reclaim raise it, or begin anew */
    unsigned step;       /* of reclaim that it has reached */
    /* Of the lane, as that step knew it: it changes if the pool is destroyed. */
    const vmm_pool *owner;
    unsigned waits;     /* host waits so far */
    vmm_status refused; /* how the last refill failed; VMM_OK: memory has not run out */
    struct claim claim; /* of other processes' memory */
    unsigned questions; /* calls of the pressure function so far */
    /* Blocks that the quarantine had given back at the last flush; 0: no flush yet. */
    uint64_t given;
    void *found; /* the block that a reclaim step has found for it; NULL: none */
};

/* Whether any free block that is long enough serves it. */
static inline bool vmm__request_is_plain(const struct request *request)
{
    return request->serve == NULL && request->alignment == 0;
}

/* Begins anew, at first and when other threads have run without the locks. A source has no views, so its
 * requests begin with the last value: what lies before would only ask the source again. */
static inline void vmm__request_begin(struct request *request)
{
    request->from = request->lane->owner.has_source ? GROW_FOLLOW : GROW_TARGET;
}

/* Whether a request leaves other heaps their room (heap.h): one that needs room itself does, while memory has not run
 * out. Others gather whole intervals, which rooms would part. */
static inline bool vmm__request_leaves_room(const struct request *request)
{
    return request->refused == VMM_OK && request->heap->room_granules > 0;
}

/* Lock the lanes that a request searches for idle memory, beside its own, and unlock them. Until memory has run out,
 * these are few, and those that other threads use are left as they are (vmm__lane_lock_for_scan()). */
void vmm__request_lanes_lock(struct vmm_cache *cache, const struct request *request);
void vmm__request_lanes_unlock(struct vmm_cache *cache, const struct heap *heap);

#endif
