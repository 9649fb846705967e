/* Lists and tables of pools: see pools.h. */
#include "pool/pools.h"
#include "base/error.h"
#include "base/hostmem.h"

enum { TABLE_BYTES = POOL_BUCKETS * sizeof(struct pool *) };

static unsigned bucket_of(vmm_stream stream)
{
    uint64_t hash = (uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15);
    return (unsigned)(hash >> (64 - POOL_BUCKET_BITS));
}

/* ---- Lists -------------------------------------------------------------------------------- */

static void list_leave(struct pool *pool)
{
    struct pool_list *list = pool->list;
    if (list == NULL)
        return;
    *(pool->list_prev != NULL ? &pool->list_prev->list_next : &list->first) = pool->list_next;
    *(pool->list_next != NULL ? &pool->list_next->list_prev : &list->last) = pool->list_prev;
    list->count--;
    pool->list = NULL;
}

/* Moves a pool to the end of a list, out of the list that it is in. */
static void list_move(struct pool *pool, struct pool_list *list)
{
    list_leave(pool);
    pool->list = list;
    pool->list_prev = list->last;
    pool->list_next = NULL;
    *(list->last != NULL ? &list->last->list_next : &list->first) = pool;
    list->last = pool;
    list->count++;
}

struct pool *vmm__pool_list_turn(struct pool_list *list)
{
    struct pool *pool = list->first;
    if (pool != NULL)
        list_move(pool, list);
    return pool;
}

/* Moves a pool without memory to the list of invariant 2. */
static void list_settle(struct pools *pools, struct pool *pool)
{
    if (pool->is_graph)
        list_leave(pool);
    else
        list_move(pool, pool->is_detached ? &pools->spare : &pools->vacant);
}

static void recent_leave(struct pools *pools, struct pool *pool)
{
    if (pool->recent_prev != NULL)
        pool->recent_prev->recent_next = pool->recent_next;
    else if (pools->recent == pool)
        pools->recent = pool->recent_next;
    if (pool->recent_next != NULL)
        pool->recent_next->recent_prev = pool->recent_prev;
    pool->recent_prev = NULL;
    pool->recent_next = NULL;
}

void vmm__pools_touch(struct pools *pools, struct pool *pool)
{
    if (pools->recent == pool)
        return;
    recent_leave(pools, pool);
    pool->recent_next = pools->recent;
    if (pools->recent != NULL)
        pools->recent->recent_prev = pool;
    pools->recent = pool;
    if (pool->list != &pools->stocked)
        list_move(pool, &pools->stocked);
}

void vmm__pools_vacate(struct pools *pools, struct pool *pool)
{
    recent_leave(pools, pool);
    list_settle(pools, pool);
}

/* ---- Buckets ------------------------------------------------------------------------------ */

struct pool *vmm__pools_find(const struct pools *pools, vmm_stream stream)
{
    struct pool *pool =
        atomic_load_explicit(&pools->buckets[bucket_of(stream)], memory_order_acquire);
    while (pool != NULL && pool->stream != stream)
        pool = atomic_load_explicit(&pool->next_in_bucket, memory_order_acquire);
    return pool;
}

struct pool *vmm__pools_find_closed(const struct pools *pools, vmm_stream stream)
{
    struct map_node *node = vmm__map_find(&pools->closed, (uint64_t)(uintptr_t)stream);
    return node == NULL ? NULL : VMM_MAP_RECORD(node, struct pool, closed);
}

static void bucket_enter(struct pools *pools, struct pool *pool)
{
    _Atomic(struct pool *) *bucket = &pools->buckets[bucket_of(pool->stream)];
    struct pool *next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(&pool->next_in_bucket, next, memory_order_release);
    atomic_store_explicit(&pool->is_detached, false, memory_order_release);
    atomic_store_explicit(bucket, pool, memory_order_release);
}

static void bucket_leave(struct pools *pools, struct pool *pool)
{
    _Atomic(struct pool *) *link = &pools->buckets[bucket_of(pool->stream)];
    struct pool *found = atomic_load_explicit(link, memory_order_relaxed);
    while (found != pool) {
        link = &found->next_in_bucket;
        found = atomic_load_explicit(link, memory_order_relaxed);
    }
    struct pool *next = atomic_load_explicit(&pool->next_in_bucket, memory_order_relaxed);
    atomic_store_explicit(&pool->is_detached, true, memory_order_release);
    atomic_store_explicit(link, next, memory_order_release);
}

void vmm__pools_show(struct pools *pools, struct pool *pool, vmm_stream stream)
{
    vmm__map_remove(&pools->closed, &pool->closed);
    atomic_store_explicit(&pool->stream, stream, memory_order_relaxed);
    bucket_enter(pools, pool);
    if (pool->list != &pools->stocked)
        list_settle(pools, pool);
}

void vmm__pools_hide(struct pools *pools, struct pool *pool)
{
    bucket_leave(pools, pool);
    pool->closed.key = (uint64_t)(uintptr_t)pool->stream;
    vmm__map_add(&pools->closed, &pool->closed);
    if (pool->list != &pools->stocked)
        list_settle(pools, pool);
}

/* ---- All ---------------------------------------------------------------------------------- */

static void all_add(struct pools *pools, struct pool *pool)
{
    *(pools->last != NULL ? &pools->last->next : &pools->first) = pool;
    pools->last = pool;
    pools->count++;
}

void vmm__pools_add_graph_pool(struct pools *pools, struct pool *pool)
{
    pool->is_graph = true;
    atomic_store_explicit(&pool->is_detached, true, memory_order_relaxed);
    pool->next_graph_pool = pools->graph_pools;
    pools->graph_pools = pool;
    all_add(pools, pool);
}

void vmm__pools_add(struct pools *pools, struct pool *pool)
{
    all_add(pools, pool);
    bucket_enter(pools, pool);
    list_settle(pools, pool);
}

vmm_status vmm__pools_init(struct pools *pools)
{
    *pools = (struct pools){ .buckets = vmm__host_table_alloc(TABLE_BYTES) };
    if (pools->buckets != NULL)
        return VMM_OK;
    return vmm__error(VMM_ERR_HOST_OOM, "vmm_create: no host memory for the table of streams");
}

vmm_status vmm__pools_fini(struct pools *pools)
{
    vmm_status first = VMM_OK;
    vmm__map_clear(&pools->closed, NULL);
    while (pools->first != NULL) {
        struct pool *pool = pools->first;
        pools->first = pool->next;
        vmm_status status = vmm__pool_close(pool);
        first = first == VMM_OK ? status : first;
    }
    vmm__host_table_free(pools->buckets, TABLE_BYTES);
    return first;
}
