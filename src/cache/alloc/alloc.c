/* The slow paths of allocation and free: see alloc.h. */
#include "cache/alloc/alloc.h"
#include "cache/alloc/refill.h"
#include "cache/streams.h"

/* Locks a pool. A thread without a slot claims one if the pool has magazines, so that its next call may use one. */
static void pool_lock(struct vmm_cache *cache, struct pool *pool)
{
    vmm__cache_pool_lock_slow(cache, pool);
    if (atomic_load_explicit(&pool->magazines, memory_order_relaxed) != NULL)
        (void)vmm__thread_slot_mine();
}

static vmm_status pool_alloc_cached(struct vmm_cache *cache, struct pool *pool, uint64_t bytes,
                                    void **out)
{
    pool_lock(cache, pool);
    vmm_status status = vmm__pool_take_locked(pool, bytes, out);
    vmm__biased_unlock(&pool->lock);
    return status;
}

/* The pool of a request: the stream's own, or that of a graph pool. */
static vmm_status pool_choose(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_alloc");
    if (status == VMM_OK)
        status = vmm__stream_resolve("vmm_alloc", &stream);
    if (status != VMM_OK)
        return status;
    bool is_slow_path_only = atomic_load_explicit(&cache->is_slow_path_only, memory_order_acquire);
    return is_slow_path_only ? vmm__graph_pool_choose(cache, stream, out)
                             : vmm__cache_pool(cache, stream, out);
}

static vmm_status pool_alloc(struct vmm_cache *cache, struct pool *pool, size_t bytes, void **out)
{
    if (cache->no_caching) {
        vmm__cache_pool_activate(cache, pool);
        return vmm__refill(cache, pool, bytes, out);
    }
    vmm_status status = pool_alloc_cached(cache, pool, bytes, out);
    return status == VMM__NO_FIT ? vmm__refill(cache, pool, bytes, out) : status;
}

/* Whether vmm__cache_admit() would pass. Leaves out the registry: the caller has followed the handle already. */
static bool is_admitted(const struct vmm_cache *cache)
{
    return vmm__thread_slot_number() >= 0 && cache->generation == vmm__fork_generation();
}

vmm_status vmm__alloc_slow(struct vmm_cache *cache, size_t bytes, vmm_stream stream, void **out)
{
    struct pool *pool = vmm__pools_find(&cache->pools, stream);
    bool is_plain =
        pool != NULL && !atomic_load_explicit(&cache->is_slow_path_only, memory_order_acquire);
    if (is_plain && vmm__magazine_take(pool, bytes, out))
        return VMM_OK;
    vmm_status status = is_plain && is_admitted(cache) ? VMM_OK : pool_choose(cache, stream, &pool);
    return status == VMM_OK ? pool_alloc(cache, pool, bytes, out) : status;
}

vmm_status vmm__alloc_detached(struct vmm_cache *cache, size_t bytes, size_t padded_bytes,
                               vmm_stream stream, void **out, bool *is_detached)
{
    struct pool *pool;
    vmm_status status = pool_choose(cache, stream, &pool);
    if (status != VMM_OK)
        return status;
    vmm__fair_lock(&cache->grow_lock);
    *is_detached = !pool->is_in_use;
    vmm__fair_unlock(&cache->grow_lock);
    if (!*is_detached)
        return pool_alloc(cache, pool, padded_bytes, out);
    vmm__cache_pool_activate(cache, pool);
    return vmm__refill_detached(cache, pool, bytes, out);
}

struct heap *vmm__free_pool_lock(struct vmm_cache *cache, uint64_t address)
{
    struct heap *heap = vmm__alloc_heap_of(cache, address);
    while (heap != NULL) {
        struct pool *pool = heap->pool;
        if (!vmm__cache_pool_lock_fast(cache, pool))
            pool_lock(cache, pool);
        struct heap *now = vmm__directory_heap(&cache->directory, address);
        if (now == heap)
            return heap;
        vmm__biased_unlock(&pool->lock); /* it was transferred to another heap meanwhile */
        heap = now;
    }
    return NULL;
}

vmm_status vmm__free_slow(struct vmm_cache *cache, uint64_t address, bool *should_poll)
{
    struct heap *heap = vmm__alloc_heap_of(cache, address);
    uint64_t frees;
    if (heap != NULL && vmm__magazine_give(heap->pool, address, &frees)) {
        *should_poll = vmm__decay_should_poll(&cache->decay, &frees);
        return VMM_OK;
    }
    vmm_status status = is_admitted(cache) ? VMM_OK : vmm__cache_admit(cache, "vmm_free");
    if (status != VMM_OK)
        return status;
    heap = vmm__free_pool_lock(cache, address);
    if (heap == NULL)
        return VMM__NOT_FOUND;
    struct pool *pool = heap->pool;
    struct magazines *magazines = atomic_load_explicit(&pool->magazines, memory_order_relaxed);
    if (magazines != NULL)
        vmm__magazines_drain_locked(pool, magazines, vmm__magazines_pending(magazines));
    status = vmm__pool_give_locked(pool, heap, address);
    *should_poll = vmm__decay_should_poll(&cache->decay, &pool->frees) || cache->no_caching;
    vmm__biased_unlock(&pool->lock);
    return status;
}

vmm_status vmm__pin_slow(struct vmm_cache *cache, uint64_t address, bool pinned)
{
    struct heap *heap = vmm__free_pool_lock(cache, address);
    if (heap == NULL)
        return VMM__NOT_FOUND;
    struct pool *pool = heap->pool;
    vmm_status status = vmm__pool_pin_locked(heap, address, pinned);
    if (!pinned)
        atomic_fetch_add_explicit(&cache->unpins, 1, memory_order_relaxed);
    vmm__biased_unlock(&pool->lock);
    return status;
}
