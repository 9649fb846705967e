/*
 * The public entry points: check arguments, take from the stream's pool, else ask policy.
 * No logic of their own. See include/vmmcache/vmmcache.h for what each promises.
 */
#include "vmmcache/vmmcache.h"
#include "base/error.h"
#include "guard/guard.h"
#include "marks.h"
#include "policy/handout.h"
#include "policy/supply.h"
#include "policy/trim.h"

/* ---- Memory ------------------------------------------------------------------------------- */

/* Who called the function that this is written in. */
#define CALLER __builtin_return_address(0)

/* For whoever cannot enter a pool, which nobody can if there is a guard, or marks. Apart from the fast paths, which
 * then need no room on the stack. */
static __attribute__((noinline)) vmm_status
alloc_apart(vmm_cache *cache, size_t bytes, vmm_stream stream, void **out, const void *caller)
{
    if (cache->guard == NULL && cache->marks == NULL)
        return vmm__handout_visit(cache, bytes, stream, out);
    struct guard_call call = { .cache = cache, .function = "vmm_alloc", .caller = caller };
    vmm_status status = vmm__cache_admit_work(cache, "vmm_alloc"); /* before any of their locks */
    if (status != VMM_OK)
        return status;
    if (cache->guard != NULL)
        return vmm__guard_alloc(&call, bytes, stream, out);
    status = vmm__handout_visit(cache, bytes, stream, out);
    if (status == VMM_OK)
        vmm__marks_set(cache, *out, bytes);
    return status;
}

vmm_status vmm_alloc(vmm_cache *cache, size_t bytes, vmm_stream stream, void **out)
{
    if (cache == NULL || out == NULL)
        return vmm__cache_missing("vmm_alloc", cache == NULL ? "cache" : "out");
    struct pool *pool = vmm__handout_enter(cache, stream);
    if (pool == NULL)
        return alloc_apart(cache, bytes, stream, out, CALLER);
    vmm_status status = vmm__pool_take_locked(pool, bytes, out);
    vmm__biased_drop(&pool->lock);
    return status == VMM_NOT_READY ? vmm__supply(cache, pool, bytes, out) : status;
}

/* For an address that no heap owns. */
static vmm_status unknown_pointer(const vmm_cache *cache, const char *function, const void *ptr)
{
    bool is_inside = vmm__arena_contains(&cache->memory.arena, (uint64_t)(uintptr_t)ptr);
    return vmm__error(
        VMM_ERR_UNKNOWN_POINTER, "%s: 0x%llx is not an address of this cache's blocks: %s",
        function, (unsigned long long)(uintptr_t)ptr,
        is_inside ? "no memory is there, or no more" : "it lies outside of the cache's arena");
}

/* What may be due after a block was taken back. The free does not fail if this does: what cannot go back now
 * is tried again later. */
static __attribute__((noinline)) void after_free(vmm_cache *cache)
{
    struct error_line line;
    if (!cache->no_caching && !vmm__decay_is_due(&cache->decay))
        return;
    vmm__error_save(&line);
    (void)(cache->no_caching ? vmm__trim(cache, 0, NULL) : vmm__tick(cache));
    vmm__error_restore(&line);
}

static __attribute__((noinline)) vmm_status free_apart(vmm_cache *cache, const void *ptr,
                                                       bool *looks, const void *caller)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (cache->guard == NULL && cache->marks == NULL)
        return vmm__handout_return(cache, address, looks);
    struct guard_call call = { .cache = cache, .function = "vmm_free", .caller = caller };
    vmm_status status = vmm__cache_admit(cache, "vmm_free"); /* before any of their locks */
    if (status != VMM_OK)
        return status;
    return cache->guard != NULL ? vmm__guard_free(&call, address, looks)
                                : vmm__marks_return(cache, ptr, looks);
}

vmm_status vmm_free(vmm_cache *cache, void *ptr)
{
    if (cache == NULL)
        return vmm__cache_missing("vmm_free", "cache");
    if (ptr == NULL)
        return VMM_OK;
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    bool looks = false;
    struct heap *heap = vmm__handout_owner_enter(cache, address);
    vmm_status status;
    if (heap == NULL) {
        status = free_apart(cache, ptr, &looks, CALLER);
    } else {
        struct pool *pool = heap->pool;
        status = vmm__pool_give_locked(pool, heap, address);
        looks = vmm__decay_looks(&cache->decay, &pool->frees) || cache->no_caching;
        vmm__biased_drop(&pool->lock);
    }
    if (status == VMM_NOT_READY)
        return unknown_pointer(cache, "vmm_free", ptr);
    if (looks && status == VMM_OK)
        after_free(cache);
    return status;
}

/* Notes that `user` uses a live block; user NULL: only looks whether the block is live. */
static vmm_status block_use(vmm_cache *cache, const void *ptr, struct pool *user)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct heap *heap = vmm__handout_owner(cache, address);
    if (heap == NULL)
        return unknown_pointer(cache, "vmm_use", ptr);
    struct pool *pool = heap->pool;
    struct timeline *timeline = user == NULL ? &pool->timeline : &user->timeline;
    vmm_status status = vmm__pool_use_locked(pool, heap, address, timeline);
    vmm__biased_drop(&pool->lock);
    return status;
}

vmm_status vmm_use(vmm_cache *cache, void *ptr, vmm_stream other)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_use");
    if (status != VMM_OK)
        return status;
    struct guard_call call = {
        .cache = cache, .function = "vmm_use", .caller = CALLER, .is_use = true
    };
    status = vmm__guard_inner(&call, &ptr);
    if (status != VMM_OK)
        return status;
    struct pool *user = vmm__pools_find(&cache->pools, other);
    if (user == NULL) { /* a stream gets a pool only for a block that is live */
        status = block_use(cache, ptr, NULL);
        if (status == VMM_OK)
            status = vmm__cache_pool(cache, other, &user);
    }
    return status == VMM_OK ? block_use(cache, ptr, user) : status;
}

vmm_status vmm_stream_end(vmm_cache *cache, vmm_stream stream)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_stream_end");
    if (status != VMM_OK)
        return status;
    if (stream == NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_stream_end: the default stream has no end");
    bool is_gone = false;
    status = vmm__guard_stream_end(cache, stream, &is_gone);
    if (status != VMM_NOT_READY)
        return status;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_stream_end: stream %p %s", stream,
                      is_gone ? "was destroyed before" : "is being captured");
}

static vmm_status block_pin(const struct guard_call *call, void *ptr, bool pinned)
{
    vmm_cache *cache = call->cache;
    const char *function = call->function;
    vmm_status status = vmm__cache_admit(cache, function);
    if (status == VMM_OK)
        status = vmm__guard_inner(call, &ptr);
    if (status != VMM_OK)
        return status;
    status = vmm__handout_pin(cache, (uint64_t)(uintptr_t)ptr, pinned);
    return status == VMM_NOT_READY ? unknown_pointer(cache, function, ptr) : status;
}

vmm_status vmm_pin(vmm_cache *cache, void *ptr)
{
    struct guard_call call = { .cache = cache, .function = "vmm_pin", .caller = CALLER };
    return block_pin(&call, ptr, true);
}

vmm_status vmm_unpin(vmm_cache *cache, void *ptr)
{
    struct guard_call call = { .cache = cache, .function = "vmm_unpin", .caller = CALLER };
    return block_pin(&call, ptr, false);
}

vmm_status vmm_trim(vmm_cache *cache, size_t keep_bytes, size_t *released)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_trim");
    if (status != VMM_OK)
        return status;
    vmm__cache_called(cache);
    struct guard_call call = { .cache = cache, .function = "vmm_trim", .caller = CALLER };
    vmm_status found = vmm__guard_flush(&call);
    uint64_t released_bytes;
    status = vmm__trim(cache, keep_bytes, &released_bytes);
    if (status == VMM_OK && found != VMM_OK)
        return found;
    if (status == VMM_OK && released != NULL)
        *released = released_bytes;
    return status;
}

vmm_status vmm_wait(vmm_cache *cache)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_wait");
    return status == VMM_OK ? vmm__private_wait(cache) : status;
}

vmm_status vmm_tick(vmm_cache *cache)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_tick");
    return status == VMM_OK ? vmm__tick(cache) : status;
}

vmm_status vmm_limit_set(vmm_cache *cache, uint64_t limit_bytes)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_limit_set");
    if (status != VMM_OK)
        return status;
    vmm__fair_take(&cache->grow_lock);
    cache->memory.limit_bytes = limit_bytes;
    vmm__fair_drop(&cache->grow_lock);
    return VMM_OK;
}

vmm_status vmm_watch(vmm_cache *cache, vmm_watch_fn watch, void *context)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_watch");
    if (status != VMM_OK)
        return status;
    vmm__fair_take(&cache->grow_lock);
    vmm__cache_pools_lock(cache, NULL);
    cache->directory.watch =
        (struct watch){ .tell = watch,
                        .context = context,
                        .owner = cache,
                        .is_of_memory = cache->guard != NULL && vmm__guard_watches(cache->guard) };
    vmm__cache_pools_unlock(cache, NULL);
    vmm__fair_drop(&cache->grow_lock);
    return VMM_OK;
}

vmm_status vmm_log_write(vmm_cache *cache, const char *line)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_log_write");
    if (status != VMM_OK)
        return status;
    if (line == NULL)
        return vmm__cache_missing("vmm_log_write", "line");
    vmm__cache_log(cache, "%s", line);
    return VMM_OK;
}

vmm_status vmm__cache_check(vmm_cache *cache)
{
    vmm__fair_take(&cache->grow_lock);
    vmm_status status = vmm__cache_check_locked(cache);
    vmm__fair_drop(&cache->grow_lock);
    return status;
}
