/*
 * A model built from the changes of vmm_listen(): mapped ranges, their owners, blocks that wait.
 *
 * model_verify() compares it with a walk. The cache reports each change of memory under the lock that a walk holds, so
 * the two always agree, even while other threads allocate and free.
 */
#ifndef VMM_WATCH_SUPPORT_H
#define VMM_WATCH_SUPPORT_H

#include "support/graph_support.h"
#include "support/ranges.h"

#include <pthread.h>

/* The most blocks that wait. */
enum { WAITS = 4096 };

struct model {
    pthread_mutex_t lock; /* changes come from several threads */
    struct ranges mapped;
    unsigned waits;
    uint64_t waiting[WAITS];
    uint64_t waiting_bytes;
    uint64_t changes;
    const char *trouble;   /* assertions belong to the main thread, without locks */
    uint64_t seen_bytes;   /* by the walk under way */
    uint64_t walked_bytes; /* mapped when it began; no memory may change its address meanwhile */
};

/* Notes a change; context is a model. */
void change_note(void *context, const vmm_change *change);

/* Compares the model with a walk; NULL, or what is wrong. For any thread. */
const char *model_compare(struct cache_test *test, struct model *model);

/* Fails unless model and walk agree, also on waiting blocks. No other thread may use the cache. */
void model_verify(struct cache_test *test, struct model *model);

/* Start listening to a cache without memory; compare, then stop. */
struct model *listen_begin(struct cache_test *test);
void listen_end(struct cache_test *test, struct model *model);

#endif
