/* Creates and destroys pools: see life.h. */
#include "cache/pool/life.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "cache/pool/pool_backup.h"
#include "cache/pool/pools.h"
#include "cache/pool/sleep.h"

/* ---- Life ---------------------------------------------------------------------------------- */

static vmm_status pool_open(struct vmm_cache *cache, struct pool *pool)
{
    pool->cache = cache;
    pool->totals.parent = &cache->totals;
    vmm_status status = vmm__lane_table_init(&pool->table, POOL_TABLE_BITS);
    if (status != VMM_OK)
        return status;
    pool->handle = vmm__handle_open(HANDLE_POOL, pool);
    if (pool->handle != NULL) {
        vmm__account_add(&cache->vm, &pool->account);
        return VMM_OK;
    }
    vmm__lane_table_fini(&pool->table);
    return vmm__error(VMM_ERR_HOST_OOM, "pool: the process has no handle left for another pool");
}

vmm_status vmm__pools_init(struct vmm_cache *cache)
{
    (void)snprintf(cache->pool.name, sizeof cache->pool.name, "default");
    cache->pool.account.name = cache->pool.name;
    vmm_status status = pool_open(cache, &cache->pool);
    if (status != VMM_OK)
        return status;
    vmm__mutex_init(&cache->pools.list_lock);
    vmm__mutex_init(&cache->pools.claimed.lock);
    (void)pthread_cond_init(&cache->pools.claimed.ended, NULL);
    return VMM_OK;
}

void vmm__pools_close(struct vmm_cache *cache)
{
    (void)vmm__handle_close(cache->pool.handle);
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (pool->handle != NULL)
            (void)vmm__handle_close(pool->handle);
    }
}

void vmm__pools_fini(struct vmm_cache *cache)
{
    while (cache->pools.first != NULL) {
        struct pool *pool = cache->pools.first;
        cache->pools.first = pool->next;
        vmm__pool_backup_end(cache, vmm__pool_backup_leave(pool));
        vmm__pool_free(pool);
    }
    vmm__pool_backup_end(cache, vmm__pool_backup_leave(&cache->pool));
    vmm__pool_backups_fini(cache);
    vmm__lane_table_fini(&cache->pool.table);
    (void)pthread_cond_destroy(&cache->pools.claimed.ended);
    vmm__mutex_fini(&cache->pools.claimed.lock);
    vmm__mutex_fini(&cache->pools.list_lock);
}

/* ---- Create -------------------------------------------------------------------------------- */

static bool ids_equal(vmm_pool_id a, vmm_pool_id b)
{
    return a.first == b.first && a.second == b.second;
}

/* The pool of the program with a user id; NULL: none. */
static struct pool *id_find(const struct vmm_cache *cache, vmm_pool_id id)
{
    struct pool *pool = cache->pools.first;
    while (pool != NULL && !(pool->handle != NULL && ids_equal(pool->id, id)))
        pool = pool->next;
    return pool;
}

/* Whether the limit, or the device, has room for what all pools have been promised. */
static vmm_status promise_check(const struct vmm_cache *cache, uint64_t bytes)
{
    uint64_t limit = vmm__vm_limit_bytes(&cache->vm);
    uint64_t promised = 0;
    if (bytes == 0)
        return VMM_OK;
    for (const struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        promised += pool->account.least_bytes;
    if (bytes <= limit && promised <= limit - bytes)
        return VMM_OK;
    return vmm__error(VMM_ERR_DEVICE_OOM,
                      "vmm_pool_create: reserve_bytes of %llu: other pools reserve %llu of %llu",
                      (unsigned long long)bytes, (unsigned long long)promised,
                      (unsigned long long)limit);
}

static void options_take(struct pool *pool, const vmm_pool_options *options, uint64_t number)
{
    pool->id = options->user_id;
    if (options->name != NULL)
        (void)snprintf(pool->name, sizeof pool->name, "%s", options->name);
    else
        (void)snprintf(pool->name, sizeof pool->name, "#%llu", (unsigned long long)number);
    vmm__line_make(pool->name);
    pool->kind = options->kind;
    pool->uses = vmm__pool_own_uses(pool);
    pool->on_sleep = options->on_sleep;
    pool->account.name = pool->name;
    pool->account.limit_bytes = options->limit_bytes;
    pool->account.reach = (vmm_share_reach)options->shareable;
    pool->has_own_chunks = options->shareable != VMM_SHARE_NONE || options->no_split != 0;
    pool->lends = options->use_on_oom != 0;
    pool->source = options->source;
}

static vmm_status create_locked(struct vmm_cache *cache, const vmm_pool_options *options,
                                vmm_pool **out)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    vmm_pool_id id = options->user_id;
    if (!ids_equal(id, (vmm_pool_id){ 0, 0 }) && id_find(cache, id) != NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_pool_create: another pool has the user id (%llu, %llu)",
                          (unsigned long long)id.first, (unsigned long long)id.second);
    vmm_status status = promise_check(cache, options->reserve_bytes);
    if (status != VMM_OK)
        return status;
    struct pool *pool = vmm__host_alloc(1, sizeof *pool);
    if (pool == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_pool_create: no host memory for the pool");
    status = pool_open(cache, pool);
    if (status != VMM_OK) {
        vmm__host_free(pool, sizeof *pool);
        return status;
    }
    options_take(pool, options, ++cache->pools.created);
    vmm__account_promise(&cache->vm, &pool->account, options->reserve_bytes);
    vmm__pool_keeping_settle(pool);
    vmm__pools_insert(&cache->pools, pool);
    *out = pool->handle;
    return VMM_OK;
}

/* Asks the device anew for each pool with fabric handles: there are few, and the answer changes with the machine's
 * configuration. */
static vmm_status reach_check(struct driver *driver, int reach)
{
    if (reach == VMM_SHARE_NONE)
        return VMM_OK;
    vmm_status status = vmm__driver_sharing_check(driver, "vmm_pool_create");
    if (status != VMM_OK || reach == VMM_SHARE_MACHINE)
        return status;
    status = vmm__driver_fabric_check(driver);
    if (status == VMM_OK || status == VMM_ERR_LOST)
        return status;
    return vmm__error(status, "vmm_pool_create: shareable: %.440s", vmm_last_error());
}

vmm_status vmm__pool_create(struct vmm_cache *cache, const vmm_pool_options *options,
                            vmm_pool **out)
{
    vmm_status status = reach_check(cache->driver, options->shareable);
    if (status != VMM_OK)
        return status;
    VMM_HOLD_FAIR(&cache->grow_lock);
    status = create_locked(cache, options, out);
    return status;
}

vmm_pool *vmm__pool_find(struct vmm_cache *cache, vmm_pool_id id)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    const struct pool *pool = id_find(cache, id);
    vmm_pool *handle = pool == NULL ? NULL : pool->handle; /* another thread may destroy it */
    return handle;
}

/* ---- Destroy ------------------------------------------------------------------------------- */

static vmm_status destroy_refuse(const struct pool *pool, const char *why)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_pool_destroy: pool %s %s", pool->name, why);
}

static vmm_status destroy_check(struct pool *pool, bool adopts)
{
    if (pool == &pool->cache->pool)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_pool_destroy: the default pool lives as long as its cache");
    if (pool->routes > 0)
        return destroy_refuse(pool, "is pushed or routed");
    if (pool->uses > vmm__pool_own_uses(pool))
        return destroy_refuse(pool, "is retained");
    vmm__pool_counters_flush(pool);
    bool has_blocks = vmm__stat_now(&pool->totals.allocations) > 0;
    bool has_hidden = pool->cache->debug != NULL && vmm__stat_now(&pool->totals.active_bytes) > 0;
    if (has_blocks && vmm__pool_has_source(pool))
        return destroy_refuse(pool, "has live blocks, and their memory is that of its source");
    if (!adopts && has_blocks)
        return destroy_refuse(pool, "has live blocks, and adopt is 0");
    if (pool->phase == VMM_POOL_SLEEPING || pool->phase == VMM_POOL_WAKING)
        return destroy_refuse(pool, "goes to sleep or wakes");
    if (pool->phase != VMM_POOL_AWAKE && (has_blocks || has_hidden)) /* debug mode keeps blocks */
        return destroy_refuse(pool, "has live blocks, and sleeps: wake it first");
    return VMM_OK;
}

/* A later call asks again what a clock could not answer. A pool with a source has no memory left, and is destroyed
 * without an error. */
static vmm_status destroyed_leave(struct pool *pool)
{
    struct error_line line;
    bool has_source = vmm__pool_has_source(pool);
    vmm__error_save(&line);
    vmm_status status = vmm__pool_leave_locked(pool);
    if (has_source)
        vmm__error_restore(&line);
    return has_source ? VMM_OK : status;
}

static vmm_status destroy_locked(struct pool *pool, bool adopts, struct backup **backup)
{
    VMM_ASSERT_HELD(&pool->cache->grow_lock);
    vmm_status status = destroy_check(pool, adopts);
    if (status == VMM_OK && vmm__pool_has_source(pool) &&
        vmm__stat_now(&pool->account.reserved_bytes) > 0)
        status = destroy_refuse(pool, "has a source, and work on its memory has not ended");
    if (status == VMM_OK && pool->phase != VMM_POOL_AWAKE)
        status = vmm__sleep_end_locked(pool);
    if (status != VMM_OK) {
        pool->uses =
            vmm__max(pool->uses,
                     vmm__pool_own_uses(pool)); /* of one with a source: see vmm__pool_unretain() */
        vmm__pool_keeping_settle(pool);
        return status;
    }
    bool must_wait = vmm__pool_is_used(pool);
    (void)vmm__handle_close(pool->handle);
    pool->handle = NULL;
    pool->uses = 0;
    vmm__account_promise(&pool->cache->vm, &pool->account, 0);
    *backup = vmm__pool_backup_leave(pool);
    vmm__pool_keeping_settle(pool);
    if (must_wait)
        return destroyed_leave(pool);
    vmm__pool_end_locked(pool);
    return VMM_OK;
}

/* Ends the use of a graph pool, so that its memory can be released. */
static vmm_status unretain_locked(struct pool *pool)
{
    VMM_ASSERT_HELD(&pool->cache->grow_lock);
    vmm_status status = destroy_check(pool, false);
    if (status != VMM_OK || !vmm__pool_is_used(pool))
        return status;
    pool->uses = 0;
    vmm__pool_leave_begin(pool);
    status = vmm__pools_leave_wait_locked(pool->cache);
    if (status != VMM_OK)
        pool->uses = vmm__pool_own_uses(pool);
    vmm__pool_keeping_settle(pool);
    return status == VMM__NOTHING
               ? destroy_refuse(pool, "has a source, and a capture forbids to wait for the device")
               : status;
}

vmm_status vmm__pool_unretain(struct pool *pool)
{
    VMM_HOLD_FAIR(&pool->cache->grow_lock);
    return unretain_locked(pool);
}

/* After the end of the pool no function of its source runs. Another thread may be giving a segment back, or ask for one
 * because a route had led to the pool. */
static void source_wait_locked(struct pool *pool)
{
    struct vmm_cache *cache = pool->cache;
    VMM_ASSERT_HELD(&cache->grow_lock);
    while (vmm__sourced_is_called(&pool->account)) {
        vmm__fair_unlock(&cache->grow_lock);
        vmm__sourced_calls_wait(&cache->vm, &pool->account);
        vmm__fair_lock(&cache->grow_lock);
    }
}

vmm_status vmm__pool_destroy(struct pool *pool, bool adopts)
{
    struct vmm_cache *cache = pool->cache;
    struct backup *backup = NULL;
    vmm__fair_lock(&cache->grow_lock);
    (void)vmm__sleep_claimed_wait_locked(pool);
    source_wait_locked(pool);
    vmm_status status = destroy_locked(pool, adopts, &backup);
    vmm__fair_unlock(&cache->grow_lock);
    vmm__pool_backup_end(cache, backup); /* without the lock, because that takes long */
    return status;
}
