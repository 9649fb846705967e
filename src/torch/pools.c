/* PyTorch's pools: see pools.h. */
#include "torch/pools.h"
#include "base/error.h"
#include "base/mutex.h"
#include "torch/record.h"
#include "torch/regions.h"

/* ---- Finding pools -------------------------------------------------------------------------- */

/* Returns NULL if the device has no cache or no such pool. */
static vmm_pool *pool_find(int ordinal, vmm_pool_id id)
{
    const struct torch_device *device = vmm__torch_find(ordinal);
    return device == NULL ? NULL : vmm_pool_find(vmm__torch_cache_of(device), id);
}

static vmm_status pool_get(int ordinal, vmm_pool_id id, vmm_pool **out)
{
    vmm_pool *pool = pool_find(ordinal, id);
    if (pool != NULL) {
        *out = pool;
        return VMM_OK;
    }
    if (vmm__torch_is_forked())
        return vmm__torch_forked_error();
    if (vmm__torch_find(ordinal) == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "device %d has no cache", ordinal);
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "device %d has no pool (%llu, %llu)", ordinal,
                      (unsigned long long)id.first, (unsigned long long)id.second);
}

/* pool_get() that locks vmm__torch_pools, unless it fails. A child of fork() finds no device, and takes no lock. */
static vmm_status pool_get_lock(int ordinal, vmm_pool_id id, vmm_pool **out)
{
    if (vmm__torch_find(ordinal) == NULL)
        return pool_get(ordinal, id, out);
    vmm__mutex_lock(&vmm__torch_pools);
    vmm_status status = pool_get(ordinal, id, out);
    if (status != VMM_OK)
        vmm__mutex_unlock(&vmm__torch_pools);
    return status;
}

/* ---- Uses ----------------------------------------------------------------------------------- */

/* Idle memory of a pool that lends goes to other pools while nothing retains it. */
static vmm_status pool_create(int ordinal, vmm_pool_options options)
{
    vmm_pool *pool = NULL;
    options.kind = options.use_on_oom ? VMM_POOL_GENERAL : VMM_POOL_GRAPH;
    vmm_status status = vmm_pool_create(vmm_torch_cache(ordinal), &options, &pool);
    if (status != VMM_OK)
        return status;
    status = vmm__torch_region_note(ordinal, pool, &options);
    VMM_QUIET();
    if (status != VMM_OK)
        (void)vmm_pool_destroy(pool, 0);
    return status;
}

vmm_status vmm__torch_pool_use(int ordinal, vmm_pool_id id)
{
    struct torch_device *device = NULL;
    vmm_status status = vmm__torch_open(ordinal, &device);
    if (status != VMM_OK)
        return status;
    if (id.first == 0 && id.second == 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "the id of a graph pool is zeros");
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.user_id = id;
    VMM_HOLD(&vmm__torch_pools);
    vmm_pool *pool = pool_find(ordinal, id);
    return pool != NULL ? vmm_pool_retain(pool) : pool_create(ordinal, options);
}

/* A capture that failed may have left its route. */
static void route_end(vmm_pool *pool)
{
    VMM_QUIET();
    (void)vmm_pool_unroute(pool);
    vmm__torch_region_uncover(pool);
}

static vmm_status pool_end(vmm_pool *pool)
{
    route_end(pool);
    vmm_status status = vmm_pool_destroy(pool, 1);
    return status != VMM_OK && vmm__torch_region_defer(pool) ? VMM_OK : status;
}

/* Whether the end of a pool, or a trim, calls the program. */
static bool calls_source(const vmm_pool *pool)
{
    return vmm__torch_region_options(pool).source.alloc != NULL;
}

vmm_status vmm__torch_pool_leave(int ordinal, vmm_pool_id id)
{
    vmm_pool *pool = NULL;
    vmm_status status = pool_get_lock(ordinal, id, &pool);
    if (status != VMM_OK)
        return status;
    bool is_last = vmm_pool_uses(pool) == 0;
    bool calls = is_last && calls_source(pool);
    if (!calls)
        status = is_last ? pool_end(pool) : vmm_pool_drop(pool);
    vmm__mutex_unlock(&vmm__torch_pools);
    return calls ? pool_end(pool) : status;
}

uint64_t vmm__torch_pool_uses(int ordinal, vmm_pool_id id)
{
    VMM_QUIET();
    vmm_pool *pool = NULL;
    if (pool_get_lock(ordinal, id, &pool) != VMM_OK)
        return 0;
    uint64_t uses = vmm_pool_uses(pool) + 1;
    vmm__mutex_unlock(&vmm__torch_pools);
    return uses;
}

/* Makes a pool anew: the library takes options at the creation only. */
static vmm_status pool_make_anew_locked(int ordinal, vmm_pool *pool,
                                        const vmm_pool_options *options)
{
    VMM_ASSERT_HELD(&vmm__torch_pools);
    vmm_stats stats = VMM_STATS_INIT;
    vmm_status status = vmm_pool_stats_get(pool, &stats);
    if (status != VMM_OK)
        return status;
    if (stats.reserved_bytes.current > 0 || vmm_pool_uses(pool) > 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "pool (%llu, %llu) is in use: its options can only be set before that",
                          (unsigned long long)options->user_id.first,
                          (unsigned long long)options->user_id.second);
    status = vmm_pool_destroy(pool, 0);
    return status == VMM_OK ? pool_create(ordinal, *options) : status;
}

/* Sets the options that are not NULL. */
static vmm_status options_set(int ordinal, vmm_pool_id id, const bool *use_on_oom,
                              const bool *no_split, const vmm_segment_source *source)
{
    vmm_pool *pool = NULL;
    vmm_status status = pool_get_lock(ordinal, id, &pool);
    if (status != VMM_OK)
        return status;
    vmm_pool_options before = vmm__torch_region_options(pool);
    vmm_pool_options options = before;
    options.use_on_oom = use_on_oom != NULL ? *use_on_oom : before.use_on_oom;
    options.no_split = no_split != NULL ? *no_split : before.no_split;
    options.source = source != NULL ? *source : before.source;
    if (source != NULL || options.use_on_oom != before.use_on_oom ||
        options.no_split != before.no_split)
        status = pool_make_anew_locked(ordinal, pool, &options);
    vmm__mutex_unlock(&vmm__torch_pools);
    return status;
}

vmm_status vmm__torch_pool_source(int ordinal, vmm_pool_id id, const vmm_segment_source *source)
{
    const vmm_segment_source recorded = { .alloc = vmm__record_segment_alloc,
                                          .free = vmm__record_segment_free,
                                          .context = (void *)(uintptr_t)source,
                                          .segment_bytes = source->segment_bytes };
    return options_set(ordinal, id, NULL, NULL, &recorded);
}

vmm_status vmm__torch_pool_use_on_oom(int ordinal, vmm_pool_id id, int is_on)
{
    return options_set(ordinal, id, &(bool){ is_on != 0 }, NULL, NULL);
}

vmm_status vmm__torch_pool_no_split(int ordinal, vmm_pool_id id)
{
    return options_set(ordinal, id, NULL, &(bool){ true }, NULL);
}

/* ---- Routes --------------------------------------------------------------------------------- */

vmm_status vmm__torch_pool_route(int ordinal, vmm_pool_id id, vmm_pool_filter filter, void *context)
{
    vmm_pool *pool = NULL;
    vmm_status status = pool_get(ordinal, id, &pool);
    if (status == VMM_OK)
        status = vmm_pool_route(pool, filter, context);
    if (status != VMM_OK)
        return status;
    status = vmm__torch_region_cover(ordinal, pool);
    VMM_QUIET();
    if (status != VMM_OK)
        (void)vmm_pool_unroute(pool);
    return status;
}

vmm_status vmm__torch_pool_unroute(int ordinal, vmm_pool_id id)
{
    vmm_pool *pool = NULL;
    vmm_status status = pool_get(ordinal, id, &pool);
    if (status == VMM_OK)
        vmm__torch_region_uncover(pool);
    return status == VMM_OK ? vmm_pool_unroute(pool) : status;
}

vmm_status vmm__torch_pool_cover(int ordinal, vmm_pool_id id)
{
    vmm_pool *pool = NULL;
    vmm_status status = pool_get(ordinal, id, &pool);
    return status == VMM_OK ? vmm__torch_region_cover(ordinal, pool) : status;
}

void vmm__torch_pool_uncover(int ordinal, vmm_pool_id id)
{
    VMM_QUIET();
    vmm_pool *pool = NULL;
    if (pool_get(ordinal, id, &pool) == VMM_OK)
        vmm__torch_region_uncover(pool);
}

vmm_status vmm__torch_pool_begin(int ordinal, vmm_pool_id id, vmm_pool_filter filter, void *context)
{
    vmm_status status = vmm__torch_pool_use(ordinal, id);
    if (status != VMM_OK)
        return status;
    status = vmm__torch_pool_route(ordinal, id, filter, context);
    if (status == VMM_OK)
        return VMM_OK;
    VMM_QUIET();
    (void)vmm__torch_pool_leave(ordinal, id); /* other uses keep their route */
    return status;
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* Without the lock where it calls the program. */
vmm_status vmm__torch_pool_trim(int ordinal, vmm_pool_id id)
{
    struct error_line line;
    vmm_pool *pool = NULL;
    if (vmm__torch_is_forked())
        return vmm__torch_forked_error();
    vmm__torch_region_end_deferred(); /* PyTorch empties a pool that it has ended */
    if (vmm__torch_pool_uses(ordinal, id) == 0)
        return VMM_OK;
    vmm_status status = vmm_wait(vmm_torch_cache(ordinal));
    vmm__error_save(&line);
    if (status != VMM_OK || pool_get_lock(ordinal, id, &pool) != VMM_OK) {
        vmm__error_restore(&line);
        return status;
    }
    bool calls = calls_source(pool);
    if (!calls)
        status = vmm_pool_trim(pool, 0, NULL);
    vmm__mutex_unlock(&vmm__torch_pools);
    return calls ? vmm_pool_trim(pool, 0, NULL) : status;
}

vmm_status vmm__torch_pool_walk(int ordinal, vmm_pool_id id, vmm_visitor visit, void *context)
{
    vmm_pool *pool = NULL;
    vmm_status status = pool_get(ordinal, id, &pool);
    return status == VMM_OK ? vmm_pool_walk(pool, visit, context) : status;
}

/* A recording gets the block afterwards, as it does one whose allocation was under way when it started. */
vmm_status vmm__torch_pool_place(int ordinal, vmm_pool_id id, uint64_t address, size_t bytes,
                                 vmm_stream stream)
{
    vmm_pool *pool = NULL;
    void *block = (void *)(uintptr_t)address;
    vmm_status status = pool_get(ordinal, id, &pool);
    if (status == VMM_OK)
        status = vmm_pool_place(pool, block, bytes, stream);
    if (status != VMM_OK)
        return status;
    struct torch_device *device = vmm__torch_find(ordinal);
    uint64_t block_bytes = vmm_block_bytes(vmm__torch_cache_of(device), bytes);
    vmm__torch_stats_alloc(&device->stats, bytes, block_bytes);
    if (vmm__torch_records())
        vmm__record_late_alloc(device, block);
    return VMM_OK;
}
