/*
 * What workers on one cache share: the cache, its streams, an exchange of blocks.
 *
 * Locks: each place of the exchange has its own, the first trouble has one. The rest does not change while workers run.
 */
#ifndef STRESS_SHARED_H
#define STRESS_SHARED_H

#include "stress.h"

#include <pthread.h>

enum { STRESS_PLACES = 256 };

/* Where one worker leaves a block for another. */
struct stress_place {
    pthread_mutex_t mutex;
    struct model_block block; /* address 0: there is none */
};

/* What workers share. */
struct stress_shared {
    struct driver *driver;
    vmm_cache *cache;
    unsigned stream_count;
    vmm_stream streams[MODEL_STREAMS];
    uint64_t limit_bytes;
    uint64_t share_bytes; /* that a worker may have live */
    struct stress_place places[STRESS_PLACES];
    _Atomic bool goes_on; /* the round */
    pthread_mutex_t trouble_mutex;
    char trouble[TROUBLE_BYTES]; /* the first; empty: none */
};

#endif
