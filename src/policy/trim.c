/* Giving idle memory back: see trim.h. */
#include "policy/trim.h"
#include "base/arith.h"
#include "base/error.h"
#include "policy/compact.h"
#include "policy/ring.h"

/* Trims from one check of all invariants to the next; 0: none. See VMM_CHECK. */
enum { CHECK_EVERY = VMM_CHECK >= 1 ? 1 : 0 };

/* Puts whole chunks of one free block into limbo, as many as the order and the quest allow. */
static uint64_t block_trim(struct vmm_cache *cache, const struct trim_order *order,
                           struct idle_quest *quest, struct block *block, uint64_t bytes)
{
    uint64_t from = block->address;
    uint64_t put_bytes = 0;
    struct idle_run run;
    while (block != NULL && put_bytes < bytes &&
           vmm__idle_next(cache, quest, block, from, bytes - put_bytes, &run)) {
        if (order->is_most && !vmm__idle_cut(&cache->memory, bytes - put_bytes, &run))
            break;
        vmm_status status = vmm__idle_discard(cache, &run);
        if (status != VMM_OK) { /* for want of host memory: the same as if work still ran */
            vmm__idle_stick(quest, vmm__idle_epoch(cache, &run), status);
            break;
        }
        put_bytes += run.bytes;
        from = run.address + run.bytes;
        block = vmm__idle_behind(cache, &run);
    }
    return put_bytes;
}

static uint64_t heap_trim(struct vmm_cache *cache, const struct trim_order *order,
                          struct idle_quest *quest, uint64_t bytes)
{
    uint64_t put_bytes = 0;
    struct size_index *index = &quest->from->index;
    struct size_node *node = vmm__size_index_largest(index);
    while (node != NULL && put_bytes < bytes && node->size >= cache->memory.arena.granule_bytes) {
        struct size_node *next = vmm__size_index_smaller(index, node);
        if ((const struct block *)node != order->keep)
            put_bytes += block_trim(cache, order, quest, (struct block *)node, bytes - put_bytes);
        node = next;
    }
    return put_bytes;
}

static void order_note(struct trim_order *order, bool is_stuck, vmm_status status)
{
    order->is_stuck = order->is_stuck || is_stuck;
    if (order->failed == VMM_OK && status != VMM_NOT_READY)
        order->failed = status;
}

static uint64_t pool_trim(struct vmm_cache *cache, struct trim_order *order,
                          struct idle_quest *quest, uint64_t bytes)
{
    struct pool *pool = quest->from->pool;
    vmm__pool_lock_beside(pool, order->held);
    if (order->what == TRIM_ALL)
        (void)vmm__slabs_purge(&pool->slabs, vmm__timeline_now(&pool->timeline));
    uint64_t put_bytes = heap_trim(cache, order, quest, bytes);
    quest->from = &pool->small;
    if (put_bytes < bytes)
        put_bytes += heap_trim(cache, order, quest, bytes - put_bytes);
    vmm__pool_unlock_beside(pool, order->held);
    order_note(order, quest->stuck_epoch != UINT64_MAX, quest->failed);
    return put_bytes;
}

/* What is overdue in a pool, unless nothing more of it can have finished since the last time. */
static uint64_t pool_trim_overdue(struct vmm_cache *cache, struct trim_order *order,
                                  struct overdue *overdue, struct idle_quest *quest, uint64_t bytes)
{
    if (overdue->latest_epoch == 0)
        return 0;
    vmm_status status = vmm__timeline_query(&quest->from->pool->timeline, overdue->stuck_epoch);
    if (status != VMM_OK) {
        order_note(order, true, status);
        return 0;
    }
    quest->latest_epoch = overdue->latest_epoch;
    uint64_t put_bytes = pool_trim(cache, order, quest, bytes);
    bool is_stuck = quest->stuck_epoch != UINT64_MAX;
    overdue->stuck_epoch = is_stuck ? quest->stuck_epoch : 0;
    if (!is_stuck && put_bytes < bytes)
        overdue->latest_epoch = 0;
    return put_bytes;
}

uint64_t vmm__trim_idle(struct vmm_cache *cache, struct trim_order *order)
{
    uint64_t put_bytes = 0;
    for (struct pool *pool = cache->pools.first; pool != NULL && put_bytes < order->bytes;
         pool = pool->next) {
        struct idle_quest quest = vmm__idle_quest(&pool->large, NULL, order->when);
        struct overdue *overdue = order->what == TRIM_DECAYED ? &pool->decayed : &pool->trimmed;
        uint64_t left_bytes = order->bytes - put_bytes;
        put_bytes += order->what == TRIM_ALL
                         ? pool_trim(cache, order, &quest, left_bytes)
                         : pool_trim_overdue(cache, order, overdue, &quest, left_bytes);
    }
    return put_bytes;
}

/* ---- What is overdue ---------------------------------------------------------------------- */

static uint64_t excess_bytes(const struct memory *memory, uint64_t keep_bytes)
{
    uint64_t staying_bytes = vmm__figure_now(&memory->reserved_bytes) - memory->limbo_bytes;
    return staying_bytes > keep_bytes ? staying_bytes - keep_bytes : 0;
}

static vmm_status ordered_put(struct vmm_cache *cache)
{
    struct trim_order order = { .bytes = excess_bytes(&cache->memory, cache->order_keep_bytes),
                                .what = TRIM_ORDERED,
                                .when = IDLE_FINISHED };
    uint64_t put_bytes = vmm__trim_idle(cache, &order);
    cache->order_stands = order.is_stuck && put_bytes < order.bytes;
    return order.failed;
}

static uint64_t heap_idle_bytes(const struct memory *memory, const struct heap *heap)
{
    uint64_t bytes = 0;
    for (const struct size_node *node = vmm__size_index_largest(&heap->index);
         node != NULL && node->size >= memory->arena.granule_bytes;
         node = vmm__size_index_smaller(&heap->index, node))
        bytes += vmm__idle_bytes(memory, (const struct block *)node);
    return bytes;
}

/* How much may go so that decay leaves what it is to leave. */
static uint64_t decay_most_bytes(struct vmm_cache *cache)
{
    uint64_t idle_bytes = 0;
    if (cache->decay.keep_bytes == 0)
        return UINT64_MAX;
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (pool->is_held)
            continue;
        vmm__pool_lock(pool);
        idle_bytes += heap_idle_bytes(&cache->memory, &pool->large);
        idle_bytes += heap_idle_bytes(&cache->memory, &pool->small);
        vmm__pool_unlock(pool);
    }
    return idle_bytes - vmm__min(idle_bytes, cache->decay.keep_bytes);
}

static vmm_status decayed_put(struct vmm_cache *cache)
{
    struct trim_order order = { .bytes = decay_most_bytes(cache),
                                .is_most = true,
                                .what = TRIM_DECAYED,
                                .when = IDLE_FINISHED };
    (void)vmm__trim_idle(cache, &order);
    atomic_store_explicit(&cache->decay.is_stuck, order.is_stuck, memory_order_relaxed);
    return order.failed;
}

/* All that has become due. */
static vmm_status due_release(struct vmm_cache *cache, uint64_t *released)
{
    bool ages = vmm__decay_turn(&cache->decay, &cache->pools) || cache->decay.is_stuck;
    if (ages || cache->order_stands)
        vmm__rings_part(cache, NULL);
    vmm_status ordered = cache->order_stands ? ordered_put(cache) : VMM_OK;
    vmm_status decayed = ages ? decayed_put(cache) : VMM_OK;
    vmm_status drained = vmm__limbo_drain(&cache->memory, released);
    if (ordered != VMM_OK)
        return ordered;
    return decayed != VMM_OK ? decayed : drained;
}

static void trim_log(struct vmm_cache *cache, uint64_t released_bytes)
{
    vmm__cache_log(cache, "trim: kept %llu MiB, released %llu MiB, %llu MiB in limbo",
                   (unsigned long long)vmm__figure_now(&cache->memory.reserved_bytes) >> 20,
                   (unsigned long long)released_bytes >> 20,
                   (unsigned long long)cache->memory.limbo_bytes >> 20);
}

vmm_status vmm__trim_due_locked(struct vmm_cache *cache)
{
    uint64_t released_bytes = 0;
    vmm_status status = due_release(cache, &released_bytes);
    if (released_bytes == 0)
        return status;
    trim_log(cache, released_bytes);
    return vmm__cache_checked(cache, CHECK_EVERY, status);
}

/* ---- Entries ------------------------------------------------------------------------------ */

vmm_status vmm__tick(struct vmm_cache *cache)
{
    struct error_line line;
    if (!vmm__fair_try(&cache->grow_lock))
        return VMM_OK;
    vmm__error_save(&line);
    vmm_status status = vmm__trim_due_locked(cache);
    vmm__fair_drop(&cache->grow_lock);
    if (status == VMM_OK)
        vmm__error_restore(&line);
    return status;
}

/* From now on what is idle is overdue, and the program's needs are learnt anew. */
static void order_begin(struct vmm_cache *cache, uint64_t keep_bytes)
{
    cache->order_stands = true;
    cache->order_keep_bytes = keep_bytes;
    vmm__cache_post(cache, NULL); /* before waits end and are posted */
    atomic_store_explicit(&cache->ledger.lately_active_bytes,
                          vmm__figure_now(&cache->ledger.active_bytes), memory_order_relaxed);
    cache->is_fine = false;
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        vmm__pool_lock(pool);
        pool->trimmed = (struct overdue){ .latest_epoch = vmm__pool_settle_locked(pool) };
        vmm__pool_unlock(pool);
    }
}

/* What is still too much is pinned by live bytes, which may be moved. */
static vmm_status pinned_trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released)
{
    uint64_t before = vmm__figure_now(&cache->memory.reserved_bytes);
    if (excess_bytes(&cache->memory, keep_bytes) == 0 || !vmm__compact_may(cache) ||
        (cache->compaction == VMM_COMPACTION_AUTO && !vmm__compact_is_quiet(cache)))
        return VMM_OK;
    vmm_status status = vmm__compact(cache, NULL, excess_bytes(&cache->memory, keep_bytes));
    uint64_t after = vmm__figure_now(&cache->memory.reserved_bytes);
    *released += before - vmm__min(before, after); /* copies may stay, if they cannot go back */
    return status == VMM_NOT_READY ? VMM_OK : status;
}

vmm_status vmm__trim(struct vmm_cache *cache, uint64_t keep_bytes, uint64_t *released)
{
    uint64_t released_bytes = 0;
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_take(&cache->grow_lock);
    order_begin(cache, keep_bytes);
    vmm_status status = due_release(cache, &released_bytes);
    if (status == VMM_OK)
        status = pinned_trim(cache, keep_bytes, &released_bytes);
    trim_log(cache, released_bytes);
    status = vmm__cache_checked(cache, CHECK_EVERY, status);
    vmm__fair_drop(&cache->grow_lock);
    if (status != VMM_OK)
        return status;
    vmm__error_restore(&line);
    if (released != NULL)
        *released = released_bytes;
    return VMM_OK;
}
