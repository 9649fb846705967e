/*
 * One request that a lane could not serve from its own free memory: what it needs, and how far its refill has got.
 *
 * Lives on the stack of the thread that refills (alloc/refill.c), which holds the grow lock; each reclaim step may
 * change it.
 * Owns: nothing. May be called by: cache. Locks: the grow lock and the lane's lock.
 */
#ifndef VMM_CACHE_REQUEST_H
#define VMM_CACHE_REQUEST_H

#include "cache/grow/grow.h"

struct request {
    struct lane *lane;    /* of the requesting stream; locked */
    uint64_t bytes;       /* as the program asked for; with `serve`: of new memory at most */
    struct demand demand; /* on the heap of `lane` that must serve it */
    bool is_alone;        /* the block gets granules of its own, away from all others */
    bool is_unborrowed;   /* the block must not come from another lane */
    /* Maps memory at a place of its own, which no heap can serve: for a reserved block, or a block that grows. Called
     * with the grow lock and the lane's lock, again after each reclaim step that may have freed memory. NULL: the
     * request is for a block of a heap. */
    vmm_status (*serve)(struct vmm_cache *cache, void *context, void **out);
    void *context;
    uint64_t serve_bytes; /* of new memory that serve() needs; it may find that these are fewer */
    enum grow_from from;  /* GROW_TARGET at first; reclaim steps raise it */
    unsigned step;        /* of reclaim that it has reached */
    unsigned waits;       /* host waits so far */
    bool has_waited;      /* for all work of the device */
    unsigned questions;   /* calls of the pressure function so far */
    /* Blocks that the quarantine had given back at the last flush; 0: no flush yet. */
    uint64_t given;
    void *found; /* the block that a reclaim step has found for it; NULL: none */
};

#endif
