/*
 * Graph pools by user id, as a program with captured graphs uses them: the first capture into a pool creates it,
 * further ones retain it, and the release of the last one destroys it.
 */
#ifndef VMM_POOL_CALLS_H
#define VMM_POOL_CALLS_H

#include "vmmcache/vmmcache.h"

#include <pthread.h>

/* Threads may use one pool: finding and creating it is one step, and so is ending the last use. */
static pthread_mutex_t graph_pool_lock = PTHREAD_MUTEX_INITIALIZER;

static inline vmm_status graph_pool_use(vmm_cache *cache, vmm_pool_id id, vmm_pool **out)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.kind = VMM_POOL_GRAPH;
    options.user_id = id;
    *out = vmm_pool_find(cache, id);
    return *out != NULL ? vmm_pool_retain(*out) : vmm_pool_create(cache, &options, out);
}

/* Ends one use of a pool; the last one destroys it. */
static inline vmm_status graph_pool_leave(vmm_pool *pool)
{
    return vmm_pool_uses(pool) > 0 ? vmm_pool_drop(pool) : vmm_pool_destroy(pool, 1);
}

/* Uses the pool and leads requests to it. */
static inline vmm_status graph_pool_begin(vmm_cache *cache, vmm_pool_id id, vmm_pool_filter filter,
                                          void *context)
{
    vmm_pool *pool;
    (void)pthread_mutex_lock(&graph_pool_lock);
    vmm_status status = graph_pool_use(cache, id, &pool);
    if (status == VMM_OK) {
        status = vmm_pool_route(pool, filter, context);
        if (status != VMM_OK)
            (void)graph_pool_leave(pool);
    }
    (void)pthread_mutex_unlock(&graph_pool_lock);
    return status;
}

static inline vmm_status graph_pool_end(vmm_cache *cache, vmm_pool_id id)
{
    return vmm_pool_unroute(vmm_pool_find(cache, id));
}

static inline vmm_status graph_pool_release(vmm_cache *cache, vmm_pool_id id)
{
    (void)pthread_mutex_lock(&graph_pool_lock);
    vmm_status status = graph_pool_leave(vmm_pool_find(cache, id));
    (void)pthread_mutex_unlock(&graph_pool_lock);
    return status;
}

#endif
