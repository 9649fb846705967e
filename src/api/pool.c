/* The public functions of pools: see "Pools" in include/vmmcache/vmmcache.h. */
#include "api/config.h"
#include "api/internal.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/hostmem.h"
#include "cache/alloc/alloc.h"
#include "cache/alloc/refill.h"
#include "cache/grow/source.h"
#include "cache/idle/trim.h"
#include "cache/pool/life.h"
#include "cache/pool/place.h"
#include "cache/pool/pools.h"
#include "cache/pool/route.h"
#include "cache/streams.h"
#include "debug/debug_mode.h"
#include "debug/nvtx.h"

#include <string.h>

vmm_status vmm__api_pool(vmm_pool *handle, const char *function, const void *argument,
                         const char *name, struct pool **out)
{
    struct pool *pool = vmm__handle_find(HANDLE_POOL, handle);
    *out = pool;
    if (pool == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: %p is not a pool, or was destroyed",
                          function, (void *)handle);
    vmm_status status = vmm__cache_admit(pool->cache, function);
    if (status == VMM_OK && argument == NULL)
        status = vmm__cache_missing(function, name);
    return status;
}

vmm_status vmm__api_pool_work(vmm_pool *handle, const char *function, const void *argument,
                              const char *name, struct pool **out)
{
    vmm_status status = vmm__api_pool(handle, function, argument, name, out);
    return status == VMM_OK ? vmm__cache_admit_work((*out)->cache, function) : status;
}

/* The pool of a call without another pointer to check. */
static vmm_status pool_admit(vmm_pool *handle, const char *function, struct pool **out)
{
    return vmm__api_pool(handle, function, handle, "pool", out);
}

static vmm_status pool_refuse(const char *function, const struct pool *pool, const char *why)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: pool %s %s", function, pool->name, why);
}

void vmm__api_trim_without_caching(vmm_cache *cache)
{
    if (!cache->no_caching)
        return;
    VMM_QUIET();
    (void)vmm__trim(cache, 0, NULL);
    (void)vmm__source_return(cache, NULL);
}

/* ---- Life ---------------------------------------------------------------------------------- */

static vmm_status source_check(const vmm_pool_options *options)
{
    const vmm_segment_source *source = &options->source;
    bool is_none = source->alloc == NULL && source->free == NULL && source->segment_bytes == 0;
    if (is_none)
        return VMM_OK;
    if (source->alloc == NULL || source->free == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_pool_create: source has no function %s",
                          source->alloc == NULL ? "alloc" : "free");
    if (options->shareable)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_pool_create: shareable: memory of a source cannot be exported");
    return VMM_OK;
}

static vmm_status options_read(const vmm_pool_options *options, vmm_pool_options *out)
{
    static const struct options_kind kind = { .what = "vmm_pool_create",
                                              .init = "VMM_POOL_OPTIONS_INIT",
                                              .least_bytes = sizeof options->struct_size,
                                              .bytes = sizeof *out };
    *out = (vmm_pool_options)VMM_POOL_OPTIONS_INIT;
    vmm_status status = vmm__options_read(&kind, options, out);
    if (status != VMM_OK)
        return status;
    if (out->kind != VMM_POOL_GENERAL && out->kind != VMM_POOL_GRAPH)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_pool_create: kind is %d, which is no kind",
                          (int)out->kind);
    if (out->on_sleep != VMM_ON_SLEEP_KEEP && out->on_sleep != VMM_ON_SLEEP_DISCARD)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_pool_create: on_sleep is %d, which is no value of it",
                          (int)out->on_sleep);
    if (out->shareable < VMM_SHARE_NONE || out->shareable > VMM_SHARE_FABRIC)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_pool_create: shareable is %d, which is no value of it",
                          out->shareable);
    out->limit_bytes = vmm__limit_bytes(out->limit_bytes);
    if (out->limit_bytes != 0 && out->reserve_bytes > out->limit_bytes)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_pool_create: reserve_bytes is %llu, above limit_bytes, %llu",
                          (unsigned long long)out->reserve_bytes,
                          (unsigned long long)out->limit_bytes);
    return source_check(out);
}

vmm_status vmm_pool_create(vmm_cache *cache, const vmm_pool_options *options, vmm_pool **out)
{
    vmm_pool_options settings;
    vmm_status status = vmm__api_admit_work(cache, "vmm_pool_create", out, "out");
    if (status == VMM_OK)
        status = options_read(options, &settings);
    if (status == VMM_OK && settings.source.alloc != NULL && cache->nvtx != NULL)
        status = vmm__error(VMM_ERR_UNSUPPORTED,
                            "vmm_pool_create: source: nvtx cannot show memory of a source");
    if (status == VMM_OK)
        status = vmm__pool_create(cache, &settings, out);
    if (status == VMM_OK)
        vmm__record_pool(cache, *out);
    return status;
}

/* vmm__pool_destroy() refuses a pool whose memory vmm__source_leave() could not give back, and begins the pool's own
 * use again, which that one had ended. */
static vmm_status sourced_destroy(struct pool *pool)
{
    struct error_line before;
    struct error_line line;
    vmm__error_save(&before);
    vmm_status left = vmm__source_leave(pool);
    vmm__error_save(&line);
    vmm_status status = vmm__pool_destroy(pool, false);
    if (status == VMM_OK)
        vmm__error_restore(&before);
    else if (left != VMM_OK)
        vmm__error_restore(&line);
    return status == VMM_OK || left == VMM_OK ? status : left;
}

vmm_status vmm_pool_destroy(vmm_pool *handle, int adopt)
{
    struct pool *pool;
    vmm_status status = pool_admit(handle, "vmm_pool_destroy", &pool);
    if (status != VMM_OK)
        return status;
    vmm_cache *cache = pool->cache;
    char name[POOL_NAME_BYTES];
    memcpy(name, pool->name, sizeof name);
    struct api_call call = API_CALL(cache, "vmm_pool_destroy");
    vmm_status found = vmm__debug_flush(&call); /* blocks in quarantine hold memory */
    status =
        vmm__pool_has_source(pool) ? sourced_destroy(pool) : vmm__pool_destroy(pool, adopt != 0);
    if (status == VMM_OK)
        vmm__record_note(cache, "vmm_pool_destroy: %s", name);
    vmm__api_trim_without_caching(cache);
    return status == VMM_OK ? found : status;
}

vmm_pool *vmm_cache_pool(vmm_cache *cache)
{
    return vmm__cache_admit(cache, "vmm_cache_pool") == VMM_OK ? cache->pool.handle : NULL;
}

vmm_pool *vmm_pool_find(vmm_cache *cache, vmm_pool_id id)
{
    bool is_some = id.first != 0 || id.second != 0;
    if (vmm__cache_admit(cache, "vmm_pool_find") != VMM_OK || !is_some)
        return NULL;
    return vmm__pool_find(cache, id);
}

/* ---- Memory -------------------------------------------------------------------------------- */

vmm_status vmm_alloc_from(vmm_pool *handle, size_t bytes, vmm_stream stream, void **out)
{
    struct pool *pool = vmm__handle_find(HANDLE_POOL, handle);
    if (pool == NULL || out == NULL)
        return vmm__api_pool(handle, "vmm_alloc_from", out, "out", &pool);
    struct lane *lane = vmm__alloc_lane_lock_unless_in(pool->cache, pool, stream,
                                                       SLOW_PATH_ONLY | SLOW_PATH_RECORDED);
    if (lane == NULL)
        return vmm__api_alloc_slow(pool->cache, pool, bytes, stream, out, API_CALLER);
    vmm_status status = vmm__lane_take_locked(lane, bytes, out);
    vmm__biased_unlock(&lane->lock);
    return status == VMM__NO_FIT ? vmm__refill(pool->cache, lane, NULL, bytes, out) : status;
}

static vmm_status block_place(const struct api_call *call, struct request *request)
{
    vmm_cache *cache = call->cache;
    void *block = (void *)(uintptr_t)request->address;
    vmm_status status;
    if (cache->debug != NULL)
        status = vmm__debug_alloc(call, request, &block);
    else
        status = vmm__place(request->pool, request->address, request->bytes, request->stream);
    if (status == VMM_OK && cache->debug == NULL && cache->nvtx != NULL)
        vmm__nvtx_register(cache, block, request->bytes);
    if (status == VMM_OK)
        vmm__record_new_block(call, request, block);
    return status;
}

vmm_status vmm_pool_place(vmm_pool *handle, void *address, size_t bytes, vmm_stream stream)
{
    struct pool *pool;
    vmm_status status = vmm__api_pool_work(handle, "vmm_pool_place", address, "address", &pool);
    if (status == VMM_OK)
        status = vmm__stream_resolve("vmm_pool_place", &stream);
    if (status != VMM_OK)
        return status;
    struct api_call call = API_CALL(pool->cache, "vmm_pool_place");
    struct request request = {
        .pool = pool, .bytes = bytes, .stream = stream, .address = (uint64_t)(uintptr_t)address
    };
    return block_place(&call, &request);
}

/* The live blocks of a pool. */
struct live_list {
    void **items;
    uint64_t count;
    uint64_t capacity;
    bool has_all;
};

static int live_add(void *context, const vmm_item *item)
{
    struct live_list *list = context;
    if (item->kind != VMM_ITEM_BLOCK || item->state != VMM_ITEM_LIVE)
        return 0;
    list->has_all = vmm__host_array_grow((void **)&list->items, &list->capacity, list->count,
                                         sizeof *list->items);
    if (!list->has_all)
        return 1;
    list->items[list->count++] = (void *)(uintptr_t)item->address;
    return 0;
}

/* Returns the first error. */
static vmm_status list_free(vmm_cache *cache, const struct live_list *list)
{
    vmm_status first = VMM_OK;
    struct error_line line;
    for (uint64_t i = 0; i < list->count; i++) {
        vmm_status status = vmm_free(cache, list->items[i]);
        if (status == VMM_OK || first != VMM_OK)
            continue;
        first = status;
        vmm__error_save(&line);
    }
    if (first != VMM_OK)
        vmm__error_restore(&line);
    return first;
}

vmm_status vmm_pool_free_all(vmm_pool *handle)
{
    struct pool *pool;
    struct live_list list = { .has_all = true };
    vmm_status status = pool_admit(handle, "vmm_pool_free_all", &pool);
    if (status != VMM_OK)
        return status;
    vmm__walk(pool->cache, pool, live_add, &list);
    if (list.has_all)
        status = list_free(pool->cache, &list);
    else
        status =
            vmm__error(VMM_ERR_HOST_OOM, "vmm_pool_free_all: no host memory to list %llu blocks",
                       (unsigned long long)list.count + 1);
    vmm__host_free(list.items, list.capacity * sizeof *list.items);
    return status;
}

vmm_status vmm_pool_trim(vmm_pool *handle, size_t keep_bytes, size_t *released)
{
    struct pool *pool;
    uint64_t released_bytes;
    vmm_status status = vmm__api_pool_work(handle, "vmm_pool_trim", handle, "pool", &pool);
    if (status != VMM_OK)
        return status;
    struct api_call call = API_CALL(pool->cache, "vmm_pool_trim");
    vmm_status found = vmm__debug_flush(&call); /* blocks in quarantine hold memory */
    status = vmm__trim_pool(pool, keep_bytes, &released_bytes);
    released_bytes += vmm__source_return(pool->cache, pool);
    if (status == VMM_OK)
        vmm__record_note(pool->cache, "vmm_pool_trim: %s released %llu bytes", pool->name,
                         (unsigned long long)released_bytes);
    if (status == VMM_OK && found != VMM_OK)
        return found;
    if (status == VMM_OK && released != NULL)
        *released = released_bytes;
    return status;
}

/* A promise above the limit could not be kept. */
vmm_status vmm_pool_limit_set(vmm_pool *handle, uint64_t limit_bytes)
{
    struct pool *pool;
    limit_bytes = vmm__limit_bytes(limit_bytes);
    vmm_status status = pool_admit(handle, "vmm_pool_limit_set", &pool);
    if (status != VMM_OK)
        return status;
    VMM_HOLD_FAIR(&pool->cache->grow_lock);
    uint64_t least_bytes = pool->account.least_bytes;
    if (limit_bytes != 0 && limit_bytes < least_bytes)
        return vmm__error(
            VMM_ERR_INVALID_ARGUMENT,
            "vmm_pool_limit_set: %llu bytes: pool %s has reserve_bytes of %llu, which is more",
            (unsigned long long)limit_bytes, pool->name, (unsigned long long)least_bytes);
    pool->account.limit_bytes = limit_bytes;
    return VMM_OK;
}

/* ---- Routes, pushes, uses ------------------------------------------------------------------ */

vmm_status vmm_pool_push(vmm_pool *handle)
{
    struct pool *pool;
    vmm_status status = pool_admit(handle, "vmm_pool_push", &pool);
    return status == VMM_OK ? vmm__route_push(pool) : status;
}

vmm_status vmm_pool_pop(vmm_pool *handle)
{
    const struct pool *pool = vmm__handle_find(HANDLE_POOL, handle); /* NULL: its cache is gone */
    vmm_status status = pool == NULL ? VMM_OK : vmm__cache_admit(pool->cache, "vmm_pool_pop");
    if (status == VMM_OK)
        status = vmm__route_pop(handle);
    if (status != VMM__NOT_FOUND)
        return status;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "vmm_pool_pop: %p is not the pool that this thread pushed last",
                      (void *)handle);
}

vmm_status vmm_pool_route(vmm_pool *handle, vmm_pool_filter filter, void *context)
{
    struct pool *pool;
    vmm_status status = vmm__api_pool_work(handle, "vmm_pool_route", handle, "pool", &pool);
    if (status == VMM_OK)
        status = vmm__route_add(pool, filter, context);
    return status == VMM__IN_USE ? pool_refuse("vmm_pool_route", pool, "has a route already")
                                 : status;
}

vmm_status vmm_pool_unroute(vmm_pool *handle)
{
    struct pool *pool;
    vmm_status status = pool_admit(handle, "vmm_pool_unroute", &pool);
    if (status != VMM_OK)
        return status;
    status = vmm__route_remove(pool);
    if (status == VMM__NOT_FOUND)
        return pool_refuse("vmm_pool_unroute", pool, "has no route");
    vmm__api_trim_without_caching(pool->cache);
    return status;
}

vmm_status vmm_pool_retain(vmm_pool *handle)
{
    struct pool *pool;
    vmm_status status = pool_admit(handle, "vmm_pool_retain", &pool);
    if (status == VMM_OK)
        vmm__pool_retain(pool);
    return status;
}

uint64_t vmm_pool_uses(vmm_pool *handle)
{
    struct pool *pool;
    return pool_admit(handle, "vmm_pool_uses", &pool) == VMM_OK ? vmm__pool_uses(pool) : 0;
}

vmm_status vmm_pool_drop(vmm_pool *handle)
{
    struct pool *pool;
    vmm_status status = pool_admit(handle, "vmm_pool_drop", &pool);
    if (status != VMM_OK)
        return status;
    status = vmm__pool_drop(pool);
    vmm__api_trim_without_caching(pool->cache);
    return status == VMM__NOT_FOUND ? pool_refuse("vmm_pool_drop", pool, "is not retained")
                                    : status;
}
