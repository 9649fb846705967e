/*
 * Handing out and taking back: the ways into the pool of a stream or of an address. A favourite
 * enters; others visit, or use their magazine if the pool is crowded.
 *
 * In a child of fork() no lock of the parent's has a favourite that lives, and no magazine's thread is on its seat
 * (base/seat.h); the same goes for a thread that the program may not call from (base/callback.h); and once the
 * device is lost every request has a detour. So whoever enters, or uses its magazine, need look for none of these.
 * May be called by: entry. Takes pools' locks, the grow lock for a stream's first pool.
 */
#ifndef VMM_POLICY_HANDOUT_H
#define VMM_POLICY_HANDOUT_H

#include "policy/cache.h"

/* Enters a stream's pool the fast way. NULL if that cannot be, the cache does not cache, or the request may
 * belong to a private pool. What one has left is nobody's, even if the turn is with it, and so is what a stream
 * that has ended left. */
static inline struct pool *vmm__handout_enter(struct vmm_cache *cache, vmm_stream stream)
{
    struct pool *pool = atomic_load_explicit(&cache->turn, memory_order_acquire);
    if (pool == NULL || atomic_load_explicit(&pool->is_apart, memory_order_acquire) ||
        pool->stream != stream) /* in this order: an ended stream's pool may become another's */
        pool = vmm__pools_find(&cache->pools, stream);
    bool has_detour = atomic_load_explicit(&cache->has_detour, memory_order_acquire);
    if (pool == NULL || has_detour || !vmm__cache_enter(cache, pool))
        return NULL;
    return pool;
}

/* Hands out what vmm_alloc() promises, for whoever could not enter. */
vmm_status vmm__handout_visit(struct vmm_cache *cache, size_t bytes, vmm_stream stream, void **out);

/* The same, for a block with whole granules of its own, between granules without memory. *is_alone: false
 * if graphs hold the stream's pool: then padded_bytes were handed out like any others. */
vmm_status vmm__handout_alone(struct vmm_cache *cache, size_t bytes, size_t padded_bytes,
                              vmm_stream stream, void **out, bool *is_alone);

static inline struct heap *vmm__handout_heap(const struct vmm_cache *cache, uint64_t address)
{
    if (!vmm__arena_contains(&cache->memory.arena, address))
        return NULL;
    return vmm__directory_heap(&cache->directory, address);
}

/* Enters the pool whose heap owns an address the fast way; NULL if that cannot be. The pool that has the
 * turn is the one to expect. */
static inline struct heap *vmm__handout_owner_enter(struct vmm_cache *cache, uint64_t address)
{
    struct heap *heap = NULL;
    struct pool *pool = atomic_load_explicit(&cache->turn, memory_order_acquire);
    if (pool == NULL) {
        heap = vmm__handout_heap(cache, address);
        pool = heap == NULL ? NULL : heap->pool;
    }
    if (pool == NULL || !vmm__cache_enter(cache, pool))
        return NULL;
    heap = vmm__pool_last_heap(pool, address);
    if (heap != NULL)
        return heap;
    heap = vmm__handout_heap(cache, address);
    if (heap != NULL && heap->pool == pool)
        return heap;
    vmm__biased_drop(&pool->lock); /* it is another's, or has just become so */
    return NULL;
}

/* Enters the pool whose heap owns an address; NULL, and nothing entered, if none does. */
struct heap *vmm__handout_owner(struct vmm_cache *cache, uint64_t address);

/* Takes back the block at an address, for whoever could not enter. *looks: whether to ask what is due.
 * VMM_NOT_READY if the address is nobody's. */
vmm_status vmm__handout_return(struct vmm_cache *cache, uint64_t address, bool *looks);

/* Has the bytes of a live block stay where they are from now on, or no more. VMM_NOT_READY if the address is
 * nobody's; else see vmm__pool_pin_locked(). */
vmm_status vmm__handout_pin(struct vmm_cache *cache, uint64_t address, bool pinned);

#endif
