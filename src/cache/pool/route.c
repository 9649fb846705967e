/* Routes and pushes: see route.h. */
#include "cache/pool/route.h"
#include "base/callback.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "cache/cache.h"
#include "cache/pool/pools.h"
#include "cache/streams.h"

/* A pool that the thread pushed. */
struct push {
    struct push *outer;
    const struct vmm_cache *cache;
    const vmm_pool *handle;
};

static _Thread_local struct push *innermost;

static bool is_accepted(const struct vmm_cache *cache, const struct route *route, vmm_stream stream)
{
    if (route->filter == NULL)
        return true;
    struct callback callback;
    vmm__callback_begin(&callback, cache, true);
    bool accepts = route->filter(route->context, stream) != 0;
    vmm__callback_end(&callback);
    return accepts;
}

void vmm__routes_init(struct vmm_cache *cache)
{
    vmm__mutex_init(&cache->routes.lock);
}

void vmm__routes_fini(struct routes *routes)
{
    while (routes->first != NULL) {
        struct route *route = routes->first;
        routes->first = route->next;
        vmm__host_free(route, sizeof *route);
    }
    vmm__mutex_fini(&routes->lock);
}

/* The listener for a lost device sets the flag, too; it may do so at any time, so the device is checked after the flag
 * is written. */
void vmm__route_slow_path_set(struct vmm_cache *cache)
{
    const struct routes *routes = &cache->routes;
    bool is_slow_path_only = cache->no_caching || routes->first != NULL || routes->pushes > 0 ||
                             cache->pool.phase != VMM_POOL_AWAKE;
    vmm__slow_path_set(cache, SLOW_PATH_ONLY, is_slow_path_only);
    if (vmm__driver_is_lost(cache->driver))
        vmm__slow_path_set(cache, SLOW_PATH_ONLY, true);
}

/* ---- Routes -------------------------------------------------------------------------------- */

/* The link to the route to a pool; to NULL if there is none. */
static struct route **link_find(struct routes *routes, const struct pool *pool)
{
    struct route **link = &routes->first;
    while (*link != NULL && (*link)->pool != pool)
        link = &(*link)->next;
    return link;
}

static void route_enter(struct vmm_cache *cache, struct route *route)
{
    struct routes *routes = &cache->routes;
    vmm__mutex_lock(&routes->lock);
    route->next = routes->first;
    routes->first = route;
    vmm__mutex_unlock(&routes->lock);
    route->pool->routes++;
    vmm__route_slow_path_set(cache);
}

static vmm_status add_locked(const struct route *wanted)
{
    struct vmm_cache *cache = wanted->pool->cache;
    VMM_ASSERT_HELD(&cache->grow_lock);
    if (*link_find(&cache->routes, wanted->pool) != NULL)
        return VMM__IN_USE;
    struct route *route = vmm__host_alloc(1, sizeof *route);
    if (route == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_pool_route: no host memory for the route");
    *route = *wanted;
    route_enter(cache, route);
    return VMM_OK;
}

vmm_status vmm__route_add(struct pool *pool, vmm_pool_filter filter, void *context)
{
    const struct route wanted = { .pool = pool, .filter = filter, .context = context };
    VMM_HOLD_FAIR(&pool->cache->grow_lock);
    return add_locked(&wanted);
}

static struct route *remove_locked(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    struct routes *routes = &cache->routes;
    VMM_ASSERT_HELD(&cache->grow_lock);
    vmm__mutex_lock(&routes->lock);
    struct route **link = link_find(routes, pool);
    struct route *route = *link;
    if (route != NULL)
        *link = route->next;
    vmm__mutex_unlock(&routes->lock);
    if (route == NULL)
        return NULL;
    pool->routes--;
    vmm__route_slow_path_set(cache);
    return route;
}

vmm_status vmm__route_remove(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    vmm__fair_lock(&cache->grow_lock);
    struct route *route = remove_locked(pool);
    vmm__fair_unlock(&cache->grow_lock);
    if (route == NULL)
        return VMM__NOT_FOUND;
    vmm__host_free(route, sizeof *route);
    return VMM_OK;
}

/* ---- Pushes -------------------------------------------------------------------------------- */

static void pushes_count(struct pool *pool, bool is_more)
{
    struct vmm_cache *cache = pool->cache;
    VMM_HOLD_FAIR(&cache->grow_lock);
    cache->routes.pushes += is_more ? 1 : UINT64_MAX;
    pool->routes += is_more ? 1 : UINT64_MAX;
    vmm__route_slow_path_set(cache);
}

vmm_status vmm__route_push(struct pool *pool)
{
    struct push *push = vmm__host_alloc(1, sizeof *push);
    if (push == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_pool_push: no host memory for the push");
    *push = (struct push){ .outer = innermost, .cache = pool->cache, .handle = pool->handle };
    innermost = push;
    pushes_count(pool, true);
    return VMM_OK;
}

/* The cache may have been destroyed since; then only the thread's record is left. */
vmm_status vmm__route_pop(const vmm_pool *handle)
{
    struct push *push = innermost;
    if (push == NULL || push->handle != handle)
        return VMM__NOT_FOUND;
    innermost = push->outer;
    vmm__host_free(push, sizeof *push);
    struct pool *pool = vmm__handle_find(HANDLE_POOL, handle);
    if (pool != NULL)
        pushes_count(pool, false);
    return VMM_OK;
}

static struct pool *pushed_find(const struct vmm_cache *cache)
{
    const struct push *push = innermost;
    while (push != NULL && push->cache != cache)
        push = push->outer;
    return push == NULL ? NULL : vmm__handle_find(HANDLE_POOL, push->handle);
}

/* The pool of the latest route that accepts the stream. The caller holds a lock that guards the routes, so the pool
 * stays until it lets go. */
static struct pool *routed_find(struct vmm_cache *cache, vmm_stream stream)
{
    const struct route *route = cache->routes.first;
    while (route != NULL && !is_accepted(cache, route, stream))
        route = route->next;
    return route == NULL ? &cache->pool : route->pool;
}

/* VMM__NOT_FOUND if no route leads to another pool than the default one. */
static vmm_status routed_lane(struct vmm_cache *cache, vmm_stream stream, struct lane **out,
                              const vmm_pool **handle)
{
    struct routes *routes = &cache->routes;
    vmm__mutex_lock(&routes->lock);
    struct pool *pool = routed_find(cache, stream);
    struct lane *lane = vmm__lane_table_find(&pool->table, stream);
    *handle = pool == &cache->pool ? NULL : pool->handle;
    vmm__mutex_unlock(&routes->lock);
    vmm_status status = VMM_OK;
    if (lane == NULL) {
        vmm__fair_lock(&cache->grow_lock);
        pool = routed_find(cache, stream); /* another thread may have changed the routes */
        *handle = pool == &cache->pool ? NULL : pool->handle;
        status = *handle == NULL ? VMM__NOT_FOUND : vmm__pool_lane_locked(pool, stream, &lane);
        vmm__fair_unlock(&cache->grow_lock);
    }
    if (status == VMM_OK)
        *out = lane;
    return status;
}

vmm_status vmm__route_lane(struct vmm_cache *cache, vmm_stream stream, struct lane **out,
                           const vmm_pool **handle)
{
    struct pool *pool = pushed_find(cache);
    *handle = NULL;
    if (pool != NULL)
        return vmm__pool_lane(pool, stream, out);
    vmm_status status = routed_lane(cache, stream, out, handle);
    return status == VMM__NOT_FOUND ? vmm__stream_lane(cache, stream, out) : status;
}
