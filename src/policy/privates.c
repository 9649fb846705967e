/* Memory of captured graphs: see privates.h. */
#include "policy/privates.h"
#include "base/callback.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "policy/cache.h"
#include "policy/streams.h"

void vmm__privates_init(struct privates *privates)
{
    vmm__lock_init(&privates->lock);
}

void vmm__privates_fini(struct privates *privates)
{
    while (privates->captures != NULL) {
        struct capture *capture = privates->captures;
        privates->captures = capture->next;
        vmm__host_free(capture, sizeof *capture);
    }
    while (privates->pools != NULL) {
        struct private_pool *owner = privates->pools;
        privates->pools = owner->next;
        vmm__host_free(owner, sizeof *owner);
    }
    vmm__lock_fini(&privates->lock);
}

static struct private_pool *private_find(const struct privates *privates, vmm_pool_id id)
{
    struct private_pool *owner = privates->pools;
    while (owner != NULL && !vmm__pool_ids_equal(owner->id, id))
        owner = owner->next;
    return owner;
}

/* The link to the capture of an id; to NULL if there is none. */
static struct capture **capture_link(struct privates *privates, vmm_pool_id id)
{
    struct capture **link = &privates->captures;
    while (*link != NULL && !vmm__pool_ids_equal((*link)->id, id))
        link = &(*link)->next;
    return link;
}

/* While captures are under way, every request asks whether it belongs to one. A device may be lost meanwhile,
 * and its watch set what is cleared here: so it is looked at last. */
static void detour_set(struct vmm_cache *cache)
{
    bool has_detour = cache->no_caching || cache->privates.captures != NULL;
    atomic_store_explicit(&cache->has_detour, has_detour, memory_order_seq_cst);
    if (vmm__driver_is_lost(cache->driver))
        atomic_store_explicit(&cache->has_detour, true, memory_order_seq_cst);
}

static void captures_add(struct vmm_cache *cache, struct capture *capture)
{
    vmm__lock_take(&cache->privates.lock);
    capture->next = cache->privates.captures;
    cache->privates.captures = capture;
    vmm__lock_drop(&cache->privates.lock);
    detour_set(cache);
}

/* ---- Begin, end ---------------------------------------------------------------------------- */

/* Nobody comes back to a pool that a private pool, or a stream that has ended, left: what was freed there since is not in a slab that
 * waits for more. */
static void left_settle(struct pool *pool)
{
    vmm__pool_lock(pool);
    (void)vmm__pool_settle_locked(pool);
    vmm__pool_unlock(pool);
}

/* So that what was freed before can be told to be finished while the stream is being captured. */
static void streams_mark(struct vmm_cache *cache)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__cache_post(cache, NULL); /* before waits end and are posted */
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (!vmm__pool_has_memory(pool))
            continue;
        if (pool->is_apart && !pool->is_held)
            left_settle(pool);
        (void)vmm__timeline_mark(&pool->timeline, vmm__timeline_now(&pool->timeline));
    }
    vmm__error_restore(&line);
}

static vmm_status begin_locked(struct vmm_cache *cache, const struct capture *capture)
{
    struct privates *privates = &cache->privates;
    if (*capture_link(privates, capture->id) != NULL)
        return VMM_NOT_READY;
    struct private_pool *owner = private_find(privates, capture->id);
    struct capture *record = vmm__host_alloc(1, sizeof *record);
    if (record == NULL)
        goto fail_record;
    if (owner == NULL) {
        owner = vmm__host_alloc(1, sizeof *owner);
        if (owner == NULL)
            goto fail_private;
        owner->id = capture->id;
        owner->next = privates->pools;
        privates->pools = owner;
    }
    owner->uses++;
    owner->is_leaving = false;
    *record = *capture;
    streams_mark(cache);
    captures_add(cache, record);
    return VMM_OK;

fail_private:
    vmm__host_free(record, sizeof *record);
fail_record:
    return vmm__error(VMM_ERR_HOST_OOM, "pool begin: no host memory for a private pool");
}

vmm_status vmm__private_begin(struct vmm_cache *cache, const struct capture *capture)
{
    vmm__fair_take(&cache->grow_lock);
    vmm_status status = begin_locked(cache, capture);
    vmm__fair_drop(&cache->grow_lock);
    return status;
}

vmm_status vmm__private_end(struct vmm_cache *cache, vmm_pool_id id)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_take(&cache->grow_lock);
    vmm__lock_take(&cache->privates.lock);
    struct capture **link = capture_link(&cache->privates, id);
    struct capture *capture = *link;
    if (capture != NULL)
        *link = capture->next;
    vmm__lock_drop(&cache->privates.lock);
    detour_set(cache);
    (void)vmm__privates_leave_locked(cache); /* what may not be waited for before */
    vmm__error_restore(&line);
    vmm__fair_drop(&cache->grow_lock);
    if (capture == NULL)
        return VMM_NOT_READY;
    vmm__host_free(capture, sizeof *capture);
    return VMM_OK;
}

/* ---- The pool of a request ----------------------------------------------------------------- */

static bool capture_takes(const struct vmm_cache *cache, const struct capture *capture,
                          vmm_stream stream)
{
    if (capture->filter == NULL)
        return true;
    struct callback callback;
    vmm__callback_begin(&callback, cache, true);
    bool takes = capture->filter(capture->context, stream) != 0;
    vmm__callback_end(&callback);
    return takes;
}

/* The id of the capture that requests of a stream belong to; false if they belong to none. */
static bool capture_match(struct vmm_cache *cache, vmm_stream stream, vmm_pool_id *id)
{
    struct privates *privates = &cache->privates;
    vmm__lock_take(&privates->lock);
    const struct capture *capture = privates->captures;
    while (capture != NULL && !capture_takes(cache, capture, stream))
        capture = capture->next;
    if (capture != NULL)
        *id = capture->id;
    vmm__lock_drop(&privates->lock);
    return capture != NULL;
}

/* A pool of the stream that a private pool left, with nothing in it. */
static bool is_spare(struct pool *pool, vmm_stream stream)
{
    return pool->is_private && !pool->is_held && pool->stream == stream &&
           !vmm__pool_has_memory(pool) && vmm__stream_serves(pool);
}

static struct pool *held_find(const struct vmm_cache *cache, vmm_stream stream, vmm_pool_id id)
{
    struct pool *pool = cache->pools.first;
    while (pool != NULL && !(pool->is_held && pool->stream == stream &&
                             vmm__pool_ids_equal(pool->id, id) && vmm__stream_serves(pool)))
        pool = pool->next;
    return pool;
}

static vmm_status held_make(struct vmm_cache *cache, vmm_stream stream, vmm_pool_id id,
                            struct pool **out)
{
    struct pool *pool = cache->pools.first;
    while (pool != NULL && !is_spare(pool, stream))
        pool = pool->next;
    if (pool == NULL) {
        vmm_status status = vmm__cache_pool_open(cache, stream, &pool);
        if (status != VMM_OK)
            return status;
        pool->is_private = true;
        vmm__pools_add_apart(&cache->pools, pool);
    }
    pool->id = id;
    pool->is_held = true;
    *out = pool;
    return VMM_OK;
}

vmm_status vmm__private_pool(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    vmm_pool_id id;
    if (!capture_match(cache, stream, &id))
        return vmm__cache_pool(cache, stream, out);
    vmm__fair_take(&cache->grow_lock);
    const struct private_pool *owner = private_find(&cache->privates, id);
    bool is_in_use = owner != NULL && owner->uses > 0; /* or it has ended meanwhile */
    vmm_status status = VMM_OK;
    if (is_in_use) {
        *out = held_find(cache, stream, id);
        if (*out == NULL)
            status = held_make(cache, stream, id, out);
    }
    vmm__fair_drop(&cache->grow_lock);
    return is_in_use ? status : vmm__cache_pool(cache, stream, out);
}

/* ---- Captures under way ---------------------------------------------------------------------- */

/* If the driver does not say, it may be; unless it does not know the stream, or was told that it has ended. */
static bool stream_is_captured(const struct vmm_cache *cache, const struct pool *pool)
{
    bool is_captured = true;
    if (vmm__timeline_has_ended(&pool->timeline))
        return false;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status status = vmm__driver_capturing(cache->driver, pool->stream, &is_captured);
    vmm__error_restore(&line);
    return is_captured && status != VMM_ERR_INVALID_ARGUMENT;
}

static bool any_is_captured(const struct vmm_cache *cache)
{
    const struct pool *pool = cache->pools.first;
    while (pool != NULL && !stream_is_captured(cache, pool))
        pool = pool->next;
    return pool != NULL;
}

bool vmm__privates_capture(const struct vmm_cache *cache)
{
    return cache->privates.captures != NULL || any_is_captured(cache);
}

/*
 * Graphs are launched on streams that the cache does not know: only if one that it knows is being captured it is not
 * the device that is waited for. If the driver refuses to wait once, it may do so for the streams, or for the next
 * time; where a private pool is begun, a stream that nobody knows may be the reason.
 */
vmm_status vmm__privates_work_wait(struct vmm_cache *cache)
{
    bool waits_for_streams = any_is_captured(cache);
    vmm_status status =
        waits_for_streams ? vmm__cache_wait(cache) : vmm__driver_device_wait(cache->driver);
    if (status == VMM_OK || status == VMM_ERR_LOST)
        return status;
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__cache_wait(cache);
    vmm__error_restore(&line);
    return status;
}

/* ---- Leaving ------------------------------------------------------------------------------- */

vmm_status vmm__private_release(struct vmm_cache *cache, vmm_pool_id id)
{
    vmm_status status = VMM_OK;
    vmm__fair_take(&cache->grow_lock);
    struct private_pool *owner = private_find(&cache->privates, id);
    if (owner == NULL || owner->uses == 0) {
        status = VMM_NOT_READY;
    } else if (--owner->uses == 0) {
        owner->is_leaving = true;
        status = vmm__privates_leave_locked(cache);
        status = status == VMM_NOT_READY ? VMM_OK : status;
    }
    vmm__fair_drop(&cache->grow_lock);
    return status;
}

static void pools_let_go(struct vmm_cache *cache, vmm_pool_id id)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (!pool->is_held || !vmm__pool_ids_equal(pool->id, id))
            continue;
        pool->is_held = false;
        pool->id = (vmm_pool_id){ 0, 0 };
    }
}

/* What was given back before the wait for the device has passed with it. */
static void pools_settle(struct vmm_cache *cache, bool has_waited)
{
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (!pool->is_held)
            continue;
        if (has_waited) {
            vmm__timeline_pass(&pool->timeline, pool->leaving_epoch);
            continue;
        }
        vmm__pool_lock(pool);
        pool->leaving_epoch = vmm__pool_settle_locked(pool);
        vmm__pool_unlock(pool);
    }
}

static bool any_leaves(const struct privates *privates)
{
    const struct private_pool *owner = privates->pools;
    while (owner != NULL && !owner->is_leaving)
        owner = owner->next;
    return owner != NULL;
}

vmm_status vmm__privates_leave_locked(struct vmm_cache *cache)
{
    struct privates *privates = &cache->privates;
    if (!any_leaves(privates) || vmm__privates_capture(cache))
        return VMM_NOT_READY;
    vmm__cache_post(cache, NULL); /* before waits end and are posted */
    pools_settle(cache, false);
    vmm_status status = vmm__driver_device_wait(cache->driver);
    if (status != VMM_OK)
        return status;
    pools_settle(cache, true);
    struct private_pool **link = &privates->pools;
    while (*link != NULL) {
        struct private_pool *owner = *link;
        if (!owner->is_leaving) {
            link = &owner->next;
            continue;
        }
        *link = owner->next;
        pools_let_go(cache, owner->id);
        vmm__host_free(owner, sizeof *owner);
    }
    return VMM_OK;
}

vmm_status vmm__private_wait(struct vmm_cache *cache)
{
    vmm_status status = vmm__cache_wait(cache);
    if (status != VMM_OK)
        return status;
    vmm__fair_take(&cache->grow_lock);
    status = vmm__privates_leave_locked(cache);
    vmm__fair_drop(&cache->grow_lock);
    return status == VMM_NOT_READY ? VMM_OK : status;
}

uint64_t vmm__privates_kept_bytes(struct vmm_cache *cache)
{
    uint64_t bytes = 0;
    if (cache->privates.pools == NULL)
        return 0;
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (!pool->is_held)
            continue;
        vmm__pool_lock(pool);
        bytes += pool->large.free_bytes + pool->small.free_bytes;
        vmm__pool_unlock(pool);
    }
    return bytes;
}
