/*
 * One request that a lane could not serve from its own free memory: what it needs, and how far its refill has got.
 *
 * Lives on the stack of the thread that refills (alloc/refill.c), which holds the grow lock; each reclaim step may
 * change it.
 */
#ifndef VMM_CACHE_REQUEST_H
#define VMM_CACHE_REQUEST_H

#include "cache/grow/grow.h"

struct request {
    struct lane *lane;    /* of the requesting stream; locked */
    uint64_t bytes;       /* as the program asked for */
    struct demand demand; /* on the heap of `lane` that must serve it */
    bool is_detached;     /* the block gets granules of its own, away from all others */
    enum grow_from from;  /* GROW_TARGET at first; reclaim steps raise it */
    unsigned waits;       /* host waits so far */
    unsigned questions;   /* calls of the pressure function so far */
    /* Blocks that the quarantine had given back at the last flush; 0: no flush yet. */
    uint64_t given;
    void *shared; /* the block found for it in another stream's lane; NULL: none */
};

#endif
