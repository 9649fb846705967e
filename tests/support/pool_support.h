/*
 * Functions of a pool that need its lock, for tests that lay a pool out by hand: each takes the lock for one call.
 * Unlike vmm__pool_lock(), it changes nothing else: the last freed block, for example, stays as it is.
 */
#ifndef VMM_POOL_SUPPORT_H
#define VMM_POOL_SUPPORT_H

#include "pool/pool.h"

/* Unlocks a pool after a call that returned `status`. */
static inline vmm_status pool_unlock(struct pool *pool, vmm_status status)
{
    vmm__biased_unlock(&pool->lock);
    return status;
}

static inline vmm_status pool_take(struct pool *pool, uint64_t bytes, void **out)
{
    vmm__biased_lock(&pool->lock);
    return pool_unlock(pool, vmm__pool_take_locked(pool, bytes, out));
}

static inline vmm_status pool_take_block(struct pool *pool, struct block *block, uint64_t bytes,
                                         void **out)
{
    vmm__biased_lock(&pool->lock);
    return pool_unlock(pool, vmm__pool_take_block_locked(pool, block, bytes, out));
}

static inline vmm_status pool_give(struct pool *pool, struct heap *heap, uint64_t address)
{
    vmm__biased_lock(&pool->lock);
    return pool_unlock(pool, vmm__pool_give_locked(pool, heap, address));
}

static inline vmm_status pool_use(struct pool *pool, struct heap *heap, uint64_t address,
                                  struct timeline *other)
{
    vmm__biased_lock(&pool->lock);
    return pool_unlock(pool, vmm__pool_use_locked(pool, heap, address, other));
}

static inline vmm_status pool_pin(struct heap *heap, uint64_t address, bool pinned)
{
    vmm__biased_lock(&heap->pool->lock);
    return pool_unlock(heap->pool, vmm__pool_pin_locked(heap, address, pinned));
}

static inline vmm_status pool_poll(struct pool *pool, unsigned most)
{
    vmm__biased_lock(&pool->lock);
    return pool_unlock(pool, vmm__pool_poll_locked(pool, most));
}

static inline vmm_status pool_check(struct pool *pool)
{
    vmm__biased_lock(&pool->lock);
    return pool_unlock(pool, vmm__pool_check_locked(pool));
}

#endif
