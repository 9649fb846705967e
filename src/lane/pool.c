/* The lanes of a pool: see pool.h. */
#include "lane/pool.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "lane/lane.h"

void vmm__pool_leave(struct lane *lane)
{
    *lane->pool_link = lane->next_of_pool;
    if (lane->next_of_pool != NULL)
        lane->next_of_pool->pool_link = lane->pool_link;
}

void vmm__pool_join(struct pool *pool, struct lane *lane)
{
    if (lane->pool != NULL)
        vmm__pool_leave(lane);
    lane->pool = pool;
    lane->hasty_takes = 0;
    lane->next_of_pool = pool->lanes;
    lane->pool_link = &pool->lanes;
    if (lane->next_of_pool != NULL)
        lane->next_of_pool->pool_link = &lane->next_of_pool;
    pool->lanes = lane;
}

static size_t table_bytes(const struct lane_table *table)
{
    return ((size_t)1 << table->bits) * sizeof *table->buckets;
}

vmm_status vmm__lane_table_init(struct lane_table *table, unsigned bits)
{
    table->bits = bits;
    table->buckets = vmm__host_table_alloc(table_bytes(table));
    if (table->buckets != NULL)
        return VMM_OK;
    return vmm__error(VMM_ERR_HOST_OOM, "pool: no host memory for the table of its streams");
}

void vmm__lane_table_fini(struct lane_table *table)
{
    vmm__host_table_free(table->buckets, table_bytes(table));
}

static _Atomic(struct lane *) *bucket_of(const struct lane_table *table, vmm_stream stream)
{
    uint64_t hash = (uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15);
    return &table->buckets[hash >> (64 - table->bits)];
}

struct lane *vmm__lane_table_find(const struct lane_table *table, vmm_stream stream)
{
    struct lane *lane = atomic_load_explicit(bucket_of(table, stream), memory_order_acquire);
    while (lane != NULL && lane->stream != stream)
        lane = atomic_load_explicit(&lane->next_in_bucket, memory_order_acquire);
    return lane;
}

void vmm__lane_table_enter(struct lane_table *table, struct lane *lane)
{
    _Atomic(struct lane *) *bucket = bucket_of(table, lane->stream);
    struct lane *next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(&lane->next_in_bucket, next, memory_order_release);
    atomic_store_explicit(bucket, lane, memory_order_release);
    lane->is_in_table = true;
}

void vmm__lane_table_leave(struct lane_table *table, struct lane *lane)
{
    _Atomic(struct lane *) *link = bucket_of(table, lane->stream);
    struct lane *found = atomic_load_explicit(link, memory_order_relaxed);
    while (found != lane) {
        link = &found->next_in_bucket;
        found = atomic_load_explicit(link, memory_order_relaxed);
    }
    struct lane *next = atomic_load_explicit(&lane->next_in_bucket, memory_order_relaxed);
    atomic_store_explicit(link, next, memory_order_release);
    lane->is_in_table = false;
}
