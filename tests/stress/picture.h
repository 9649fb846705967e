/*
 * What the program can see of a cache: its blocks and the figures that a call which failed must not
 * have changed.
 *
 * Left out of the comparison, because the header allows it or because they count the attempt:
 *  - chunks, reserved, idle and free memory: before a request fails with out of memory it releases idle memory of
 *    every stream, and memory that it mapped is released or becomes free;
 *  - blocks in limbo for other streams: the request waited for those streams, so the blocks may be free and active
 *    bytes may be lower;
 *  - calls, stalls, waits, retries, failures, compactions, questions to the program;
 *  - the number of streams: the cache knows a stream from the first call that names it;
 *  - with a guard, what was in quarantine and has gone from there: it is given up before memory is short. And sums
 *    and peaks: figures are those of the pools, and a block that could not be prepared was handed out by one, was
 *    for a moment in use, and was given back.
 *
 * Owns nothing. May be called by: the operations.
 */
#ifndef STRESS_PICTURE_H
#define STRESS_PICTURE_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>

enum { PICTURE_ITEMS = 2048 };

/* What pools have handed out beyond what the program knows of. */
struct guarded {
    uint64_t canary_bytes; /* around live blocks */
    uint64_t kept;         /* so many */
};

struct picture_item {
    vmm_item_state state;
    uint64_t address;
    uint64_t bytes;
    uint64_t requested_bytes;
    vmm_stream stream;
    vmm_pool_id pool;
    int is_small;
};

struct picture {
    unsigned count;
    struct picture_item items[PICTURE_ITEMS]; /* live and waiting, in rising order of address */
    vmm_stats stats;
    struct guarded guarded;
    bool is_guarded;
};

/* Nothing in a cache without a guard. */
struct guarded guarded_by(const vmm_cache *cache);

void picture_take(vmm_cache *cache, struct picture *picture);

/* What differs, in one line; NULL: nothing that a call which failed may not have changed. may_undo: the call may have
 * allocated a block and freed it again. */
const char *picture_difference(const struct picture *before, const struct picture *after,
                               bool may_undo);

#endif
