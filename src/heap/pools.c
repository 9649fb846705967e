/* Finding a stream's pool: see pools.h. */
#include "heap/pools.h"

static unsigned bucket_of(vmm_stream stream)
{
    uint64_t hash = (uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15);
    return (unsigned)(hash >> 56);
}

struct pool *vmm__pools_find(const struct pools *pools, vmm_stream stream)
{
    struct pool *pool =
        atomic_load_explicit(&pools->buckets[bucket_of(stream)], memory_order_acquire);
    while (pool != NULL && pool->stream != stream)
        pool = atomic_load_explicit(&pool->next_in_bucket, memory_order_acquire);
    return pool;
}

void vmm__pools_add_apart(struct pools *pools, struct pool *pool)
{
    atomic_store_explicit(&pool->is_apart, true, memory_order_relaxed);
    if (pools->last != NULL)
        pools->last->next = pool;
    else
        pools->first = pool;
    pools->last = pool;
}

void vmm__pools_add(struct pools *pools, struct pool *pool)
{
    vmm__pools_add_apart(pools, pool);
    vmm__pools_show(pools, pool);
}

void vmm__pools_show(struct pools *pools, struct pool *pool)
{
    _Atomic(struct pool *) *bucket = &pools->buckets[bucket_of(pool->stream)];
    struct pool *next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(&pool->next_in_bucket, next, memory_order_release);
    atomic_store_explicit(&pool->is_apart, false, memory_order_release);
    atomic_store_explicit(bucket, pool, memory_order_release);
}

void vmm__pools_hide(struct pools *pools, struct pool *pool)
{
    _Atomic(struct pool *) *link = &pools->buckets[bucket_of(pool->stream)];
    struct pool *found = atomic_load_explicit(link, memory_order_relaxed);
    while (found != pool) {
        link = &found->next_in_bucket;
        found = atomic_load_explicit(link, memory_order_relaxed);
    }
    struct pool *next = atomic_load_explicit(&pool->next_in_bucket, memory_order_relaxed);
    atomic_store_explicit(&pool->is_apart, true, memory_order_release);
    atomic_store_explicit(link, next, memory_order_release);
}

void vmm__pools_touch(struct pools *pools, struct pool *pool)
{
    if (pools->recent == pool)
        return;
    if (pool->recent_prev != NULL)
        pool->recent_prev->recent_next = pool->recent_next;
    if (pool->recent_next != NULL)
        pool->recent_next->recent_prev = pool->recent_prev;
    pool->recent_prev = NULL;
    pool->recent_next = pools->recent;
    if (pools->recent != NULL)
        pools->recent->recent_prev = pool;
    pools->recent = pool;
}

vmm_status vmm__pools_fini(struct pools *pools)
{
    vmm_status first = VMM_OK;
    while (pools->first != NULL) {
        struct pool *pool = pools->first;
        pools->first = pool->next;
        vmm_status status = vmm__pool_close(pool);
        first = first == VMM_OK ? status : first;
    }
    return first;
}
