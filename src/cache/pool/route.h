/*
 * Routes and pushes: which pool serves a request that names none.
 *
 * Owns: the routes of a cache, and for each thread the pools that it pushed. Invariants:
 *  1. at most one route leads to a pool; pool->routes counts it and all pushes of the pool;
 *  2. while a cache has a route or a push, no request takes the fast path.
 * May be called by: cache, api. Locks: routes change under the grow lock and `lock`, and are read under either, and so
 * are their filters called. Otherwise `lock` is a leaf.
 */
#ifndef VMM_CACHE_POOL_ROUTE_H
#define VMM_CACHE_POOL_ROUTE_H

#include "cache/cache.h"

struct route {
    struct route *next;
    struct pool *pool;
    vmm_pool_filter filter; /* NULL: every stream */
    void *context;
};

void vmm__routes_init(struct vmm_cache *cache);
void vmm__routes_fini(struct routes *routes);

/* See vmm_pool_route(), vmm_pool_push() and so on. They take the grow lock. VMM__IN_USE: a route leads to the pool
 * already. VMM__NOT_FOUND: none does; the pool is not the last that the thread pushed. */
vmm_status vmm__route_add(struct pool *pool, vmm_pool_filter filter, void *context);
vmm_status vmm__route_remove(struct pool *pool);
vmm_status vmm__route_push(struct pool *pool);
vmm_status vmm__route_pop(const vmm_pool *handle);

/* Decides whether requests may take the fast path. The caller holds the grow lock. */
void vmm__route_slow_path_set(struct vmm_cache *cache);

/* The lane for a request that names no pool. *handle: the handle of the pool that a route chose; NULL: a push chose the
 * pool, or it is the default one. Other threads may end the route and destroy the pool meanwhile: then the lane is that
 * of another pool. */
vmm_status vmm__route_lane(struct vmm_cache *cache, vmm_stream stream, struct lane **out,
                           const vmm_pool **handle);

#endif
