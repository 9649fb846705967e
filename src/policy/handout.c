/* Into pools by the slower ways: see handout.h. */
#include "policy/handout.h"
#include "policy/supply.h"

static bool is_crowded(const struct pool *pool)
{
    return atomic_load_explicit(&pool->is_crowded, memory_order_relaxed);
}

/* The thread's magazine is made when the pool has become crowded. */
static void block_know_locked(struct vmm_cache *cache, struct pool *pool, const void *block)
{
    uint64_t address = (uint64_t)(uintptr_t)block;
    struct magazine *magazine = vmm__magazine_find_locked(pool);
    if (magazine != NULL)
        vmm__magazine_know_locked(magazine, vmm__directory_heap(&cache->directory, address),
                                  address);
}

static vmm_status pool_visit(struct vmm_cache *cache, struct pool *pool, uint64_t bytes, void **out)
{
    vmm__cache_visit(cache, pool);
    vmm_status status = vmm__pool_take_locked(pool, bytes, out);
    if (status == VMM_OK && is_crowded(pool))
        block_know_locked(cache, pool, *out);
    vmm__biased_drop(&pool->lock);
    return status;
}

/* The pool that a request belongs to. */
static vmm_status pool_choose(struct vmm_cache *cache, vmm_stream stream, struct pool **out)
{
    vmm_status status = vmm__cache_admit_work(cache, "vmm_alloc");
    if (status != VMM_OK)
        return status;
    bool has_detour = atomic_load_explicit(&cache->has_detour, memory_order_acquire);
    return has_detour ? vmm__private_pool(cache, stream, out) : vmm__cache_pool(cache, stream, out);
}

static vmm_status pool_hand_out(struct vmm_cache *cache, struct pool *pool, size_t bytes,
                                void **out)
{
    if (cache->no_caching) {
        vmm__cache_turn(cache, pool);
        return vmm__supply(cache, pool, bytes, out);
    }
    vmm_status status = pool_visit(cache, pool, bytes, out);
    return status == VMM_NOT_READY ? vmm__supply(cache, pool, bytes, out) : status;
}

/* From what the thread keeps of a crowded pool. */
static bool magazine_hands_out(const struct pool *pool, size_t bytes, void **out)
{
    struct magazine *magazine = is_crowded(pool) ? vmm__magazine_mine(pool) : NULL;
    return magazine != NULL &&
           vmm__magazine_take(magazine, vmm__pool_place_bytes(bytes), bytes, out);
}

/* Whether nothing is to be refused, as mostly: what vmm__cache_admit() asks, but for the roll, for this handle has
 * been followed already. */
static bool is_usual(const struct vmm_cache *cache)
{
    return vmm__seat_is_taken() && cache->generation == vmm__fork_generation();
}

vmm_status vmm__handout_visit(struct vmm_cache *cache, size_t bytes, vmm_stream stream, void **out)
{
    struct pool *pool = vmm__pools_find(&cache->pools, stream);
    bool is_plain = pool != NULL && !atomic_load_explicit(&cache->has_detour, memory_order_acquire);
    if (is_plain && magazine_hands_out(pool, bytes, out))
        return VMM_OK;
    vmm_status status = is_plain && is_usual(cache) ? VMM_OK : pool_choose(cache, stream, &pool);
    return status == VMM_OK ? pool_hand_out(cache, pool, bytes, out) : status;
}

vmm_status vmm__handout_alone(struct vmm_cache *cache, size_t bytes, size_t padded_bytes,
                              vmm_stream stream, void **out, bool *is_alone)
{
    struct pool *pool;
    vmm_status status = pool_choose(cache, stream, &pool);
    if (status != VMM_OK)
        return status;
    vmm__fair_take(&cache->grow_lock);
    *is_alone = !pool->is_held;
    vmm__fair_drop(&cache->grow_lock);
    if (!*is_alone)
        return pool_hand_out(cache, pool, padded_bytes, out);
    vmm__cache_turn(cache, pool);
    return vmm__supply_alone(cache, pool, bytes, out);
}

struct heap *vmm__handout_owner(struct vmm_cache *cache, uint64_t address)
{
    struct heap *heap = vmm__handout_heap(cache, address);
    while (heap != NULL) {
        struct pool *pool = heap->pool;
        if (!vmm__cache_enter(cache, pool))
            vmm__cache_visit(cache, pool);
        struct heap *now = vmm__directory_heap(&cache->directory, address);
        if (now == heap)
            return heap;
        vmm__biased_drop(&pool->lock); /* it crossed to another heap meanwhile */
        heap = now;
    }
    return NULL;
}

/* In a crowded pool a thread keeps what it knows; when it has no room for more, all that it kept goes back. */
static bool magazine_keeps(struct vmm_cache *cache, struct pool *pool, uint64_t address,
                           bool *looks)
{
    struct magazine *magazine = is_crowded(pool) ? vmm__magazine_mine(pool) : NULL;
    if (magazine == NULL || !vmm__magazine_give(magazine, pool, address))
        return false;
    *looks = vmm__decay_looks(&cache->decay, &magazine->frees);
    return true;
}

vmm_status vmm__handout_return(struct vmm_cache *cache, uint64_t address, bool *looks)
{
    struct heap *heap = vmm__handout_heap(cache, address);
    if (heap != NULL && magazine_keeps(cache, heap->pool, address, looks))
        return VMM_OK;
    vmm_status status = is_usual(cache) ? VMM_OK : vmm__cache_admit(cache, "vmm_free");
    if (status != VMM_OK)
        return status;
    heap = vmm__handout_owner(cache, address);
    if (heap == NULL)
        return VMM_NOT_READY;
    struct pool *pool = heap->pool;
    if (is_crowded(pool)) {
        struct magazine *magazine = vmm__magazine_find_locked(pool);
        if (magazine != NULL)
            vmm__magazine_empty_locked(magazine, pool);
    }
    status = vmm__pool_give_locked(pool, heap, address);
    *looks = vmm__decay_looks(&cache->decay, &pool->frees) || cache->no_caching;
    vmm__biased_drop(&pool->lock);
    return status;
}

vmm_status vmm__handout_pin(struct vmm_cache *cache, uint64_t address, bool pinned)
{
    struct heap *heap = vmm__handout_owner(cache, address);
    if (heap == NULL)
        return VMM_NOT_READY;
    struct pool *pool = heap->pool;
    vmm_status status = vmm__pool_pin_locked(heap, address, pinned);
    if (!pinned)
        atomic_fetch_add_explicit(&cache->unpins, 1, memory_order_relaxed);
    vmm__biased_drop(&pool->lock);
    return status;
}
