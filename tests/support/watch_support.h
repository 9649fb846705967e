/*
 * A model of what a cache's changes tell (vmm_watch): which memory is there, whose it is, what waits.
 *
 * model_verified() compares it with a walk. Memory changes hands under the lock that a walk holds, so the
 * two agree at any time, whatever other threads do.
 */
#ifndef VMM_WATCH_SUPPORT_H
#define VMM_WATCH_SUPPORT_H

#include "support/graph_support.h"

#include <pthread.h>

/* Memory is told of in granules, of which a test has no more than these. */
enum { PLACES = 1024, WAITS = 4096 };

struct place {
    uint64_t address; /* 0: none is here */
    vmm_stream stream;
    vmm_pool_id pool;
    int is_small;
};

struct model {
    pthread_mutex_t lock; /* changes come from several threads */
    uint64_t granule_bytes;
    unsigned count;
    struct place places[PLACES];
    unsigned waits;
    uint64_t waiting[WAITS];
    uint64_t waiting_bytes;
    uint64_t changes;
    const char *trouble; /* assertions belong to the main thread, without locks */
    unsigned seen;       /* by the walk under way */
};

/* Notes a change; context is a model. */
void change_noted(void *context, const vmm_change *change);

/* Compares the model with a walk; NULL, or what is wrong. For any thread. */
const char *model_compared(struct cache_test *test, struct model *model);

/* Fails unless they agree, and on what waits too. Nobody else calls. */
void model_verified(struct cache_test *test, struct model *model);

/* Watches a cache that has no memory; ends that, after a comparison. */
struct model *watch_begun(struct cache_test *test);
void watch_ended(struct cache_test *test, struct model *model);

#endif
