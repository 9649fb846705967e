/*
 * Allocation and free: finds the lane of a stream or of an address, locks it, and takes or returns a block.
 *
 * The fast path locks a lane whose lock is biased to the calling thread, without an atomic operation. The slow path
 * uses the thread's magazine, if the lane has magazines, or locks the lane otherwise.
 *
 * The fast path and the magazines check neither for fork() nor for callbacks: in a child of fork(), and in a callback
 * that may not call the cache, the thread has no thread slot (base/thread_slot.h, base/callback.h), so it owns no bias
 * and no magazine. A lost device sets SLOW_PATH_ONLY, which closes the fast path to allocations; frees need no device.
 *
 * Owns: nothing. May be called by: alloc, debug, api. Locks: takes lanes' locks, and the grow lock for a stream's first
 * lane and for a refill.
 */
#ifndef VMM_CACHE_ALLOC_ALLOC_H
#define VMM_CACHE_ALLOC_ALLOC_H

#include "cache/request.h"

/* Locks a stream's lane of the default pool on the fast path. NULL if the thread cannot, or if cache->slow_path has one
 * of `bits`. A detached lane does not count, even if it is the active one: its stream was closed, or it is of another
 * pool. */
static inline struct lane *vmm__alloc_lane_lock_unless(struct vmm_cache *cache, vmm_stream stream,
                                                       uint8_t bits)
{
    struct lane *lane = atomic_load_explicit(&cache->active_lane, memory_order_acquire);
    /* The stream is read last: a closed stream's lane may be given to another stream. */
    if (lane == NULL || atomic_load_explicit(&lane->is_detached, memory_order_acquire) ||
        lane->owner.stream != stream)
        lane = vmm__lane_table_find(&cache->pool.table, stream);
    uint8_t slow_path = atomic_load_explicit(&cache->slow_path, memory_order_acquire);
    if (lane == NULL || (slow_path & bits) != 0 || !vmm__cache_lane_lock_fast(lane))
        return NULL;
    return lane;
}

/* Locks a stream's lane in a given pool on the fast path; NULL if the thread cannot. */
static inline struct lane *vmm__alloc_lane_lock_unless_in(struct vmm_cache *cache,
                                                          const struct pool *pool,
                                                          vmm_stream stream, uint8_t bits)
{
    struct lane *lane = vmm__lane_table_find(&pool->table, stream);
    uint8_t slow_path = atomic_load_explicit(&cache->slow_path, memory_order_acquire);
    if (lane == NULL || (slow_path & bits) != 0 || !vmm__cache_lane_lock_fast(lane))
        return NULL;
    return lane;
}

/* vmm_alloc_from(), or with pool NULL vmm_alloc(), when the fast path could not lock the lane. */
vmm_status vmm__alloc_slow(struct vmm_cache *cache, struct pool *pool, size_t bytes,
                           vmm_stream stream, void **out);

/* Allocates for a request, which may also have an alignment, guard pages or a handle: see request.h. */
vmm_status vmm__alloc_request(struct vmm_cache *cache, struct request *request, void **out);

/* Locks the lane whose heap owns an address on the fast path, and returns the heap; NULL if the thread cannot, or if
 * cache->slow_path has one of `bits`. Tries the active lane first. */
static inline struct heap *vmm__free_lane_lock_unless(struct vmm_cache *cache, uint64_t address,
                                                      uint8_t bits)
{
    struct heap *heap = NULL;
    uint8_t slow_path = atomic_load_explicit(&cache->slow_path, memory_order_relaxed);
    if ((slow_path & bits) != 0)
        return NULL;
    struct lane *lane = atomic_load_explicit(&cache->active_lane, memory_order_acquire);
    if (lane == NULL) {
        heap = vmm__cache_heap_of(cache, address);
        lane = heap == NULL ? NULL : heap->lane;
    }
    if (lane == NULL || !vmm__cache_lane_lock_fast(lane))
        return NULL;
    heap = vmm__lane_last_heap(lane, address);
    if (heap != NULL)
        return heap;
    heap = vmm__cache_heap_of(cache, address);
    if (heap != NULL && heap->lane == lane)
        return heap;
    vmm__biased_unlock(&lane->lock); /* the address belongs, or now belongs, to another lane */
    return NULL;
}

/* The heap that owns an address of the program; NULL if none does. *address becomes its inner address (vm/vm.h), which
 * is no address of the program itself. */
struct heap *vmm__alloc_sourced_owner(struct vmm_cache *cache, uint64_t *address);
static inline struct heap *vmm__alloc_owner(struct vmm_cache *cache, uint64_t *address)
{
    struct heap *heap = vmm__cache_heap_of(cache, *address);
    bool is_plain = heap != NULL && !heap->lane->owner.has_source;
    return is_plain ? heap : vmm__alloc_sourced_owner(cache, address);
}

/* As vmm__alloc_owner(), and locks the heap's lane. NULL: no lane is locked. */
struct heap *vmm__free_lane_lock(struct vmm_cache *cache, uint64_t *address);

/* Locks the lane of a live block, so that its pool cannot go to sleep until the caller has submitted work on the block.
 * ERR_ASLEEP, ERR_UNKNOWN_POINTER: no lane is locked. */
vmm_status vmm__awake_lane_lock(struct vmm_cache *cache, const char *function, uint64_t address,
                                struct lane **out);

/* Whether a live imported block begins at an address. */
bool vmm__alloc_is_import(struct vmm_cache *cache, uint64_t address);

/* vmm_free() when the fast path could not lock the lane. *should_poll: whether the caller should run vmm__poll().
 * VMM__NOT_FOUND if no heap owns the address, or a reserved block begins there. */
vmm_status vmm__free_slow(struct vmm_cache *cache, uint64_t address, bool *should_poll);

/* Names the live block at an address; text NULL: removes its name. VMM__NOT_FOUND if no heap owns the address; else see
 * vmm__lane_name_locked(). */
vmm_status vmm__name_slow(struct vmm_cache *cache, uint64_t address, const char *text);

/* Pins the live block at an address, so that compaction does not move it, or unpins it. VMM__NOT_FOUND if no heap owns
 * the address; else see vmm__lane_pin_locked(). */
vmm_status vmm__pin_slow(struct vmm_cache *cache, uint64_t address, bool pinned);

#endif
