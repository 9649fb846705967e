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
        pool = pool->next_in_bucket;
    return pool;
}

void vmm__pools_add_apart(struct pools *pools, struct pool *pool)
{
    if (pools->last != NULL)
        pools->last->next = pool;
    else
        pools->first = pool;
    pools->last = pool;
    atomic_fetch_add_explicit(&pools->count, 1, memory_order_relaxed);
}

void vmm__pools_add(struct pools *pools, struct pool *pool)
{
    _Atomic(struct pool *) *bucket = &pools->buckets[bucket_of(pool->stream)];
    pool->next_in_bucket = atomic_load_explicit(bucket, memory_order_relaxed);
    vmm__pools_add_apart(pools, pool);
    atomic_store_explicit(bucket, pool, memory_order_release);
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
