/* The slow paths of allocation and free: see alloc.h. */
#include "cache/alloc/alloc.h"
#include "cache/alloc/refill.h"
#include "cache/grow/source.h"
#include "cache/pool/pools.h"
#include "cache/pool/route.h"
#include "cache/share/import.h"
#include "cache/streams.h"
#include "lane/block_ref.h"

/* Locks a lane. A thread without a slot claims one if the lane has magazines, so that its next call may use one. */
static void lane_lock(struct vmm_cache *cache, struct lane *lane)
{
    vmm__cache_lane_lock_slow(cache, lane);
    if (atomic_load_explicit(&lane->magazines, memory_order_relaxed) != NULL)
        (void)vmm__thread_slot_mine();
}

/* Allocates from the lane's own free memory. VMM__NO_FIT also if each block is to have whole chunks of its own.
 * VMM__NOT_FOUND: the pool of the handle was destroyed, and the lane is another pool's. */
static vmm_status lane_alloc_cached(struct vmm_cache *cache, struct lane *lane,
                                    const vmm_pool *handle, uint64_t bytes, void **out)
{
    vmm_stream stream = lane->owner.stream;
    if (cache->no_caching || lane->owner.has_own_chunks)
        return VMM__NO_FIT;
    vmm__clock_tick_due(lane->clock, cache->announces_captures ? NULL : &stream);
    lane_lock(cache, lane);
    vmm_status status = vmm__lane_check_of(lane, handle);
    if (status == VMM_OK)
        status = vmm__lane_asleep_check("alloc", lane);
    if (status == VMM_OK)
        status = vmm__lane_take_locked(lane, bytes, out);
    vmm__biased_unlock(&lane->lock);
    if (status == VMM_OK && lane->owner.has_source)
        *out = vmm__source_outer(cache, *out);
    return status;
}

/* Chooses the lane of a request. *handle: the field of struct request, before and after. */
static vmm_status lane_choose(struct vmm_cache *cache, struct pool *pool, vmm_stream stream,
                              const vmm_pool **handle, struct lane **out)
{
    const char *function = pool == NULL ? "vmm_alloc" : "vmm_alloc_from";
    vmm_status status = vmm__cache_admit_work(cache, function);
    if (status == VMM_OK)
        status = vmm__stream_resolve(function, &stream);
    if (status != VMM_OK)
        return status;
    if (*handle != NULL)
        return vmm__pool_lane_of(cache, stream, out, handle);
    if (pool != NULL)
        return vmm__pool_lane(pool, stream, out);
    return vmm__slow_path_is_only(cache) ? vmm__route_lane(cache, stream, out, handle)
                                         : vmm__stream_lane(cache, stream, out);
}

/* Whether vmm__cache_admit() would admit the call. Does not look the cache up: the caller has already used it. */
static bool is_admitted(const struct vmm_cache *cache)
{
    return vmm__thread_slot_number() >= 0 && cache->generation == vmm__fork_generation();
}

vmm_status vmm__alloc_slow(struct vmm_cache *cache, struct pool *pool, size_t bytes,
                           vmm_stream stream, void **out)
{
    const vmm_pool *handle = NULL;
    struct lane_table *table = pool == NULL ? &cache->pool.table : &pool->table;
    struct lane *lane = vmm__lane_table_find(table, stream);
    bool is_plain = lane != NULL && !vmm__slow_path_is_only(cache);
    if (is_plain && vmm__magazine_take(lane, bytes, out))
        return VMM_OK;
    vmm_status status =
        is_plain && is_admitted(cache) ? VMM_OK : lane_choose(cache, pool, stream, &handle, &lane);
    if (status == VMM_OK)
        status = lane_alloc_cached(cache, lane, handle, bytes, out);
    if (status == VMM__NO_FIT)
        status = vmm__refill(cache, lane, handle, bytes, out);
    return status == VMM__NOT_FOUND ? vmm__alloc_slow(cache, pool, bytes, stream, out) : status;
}

/* Graphs use the addresses of a retained pool, and a source has no guard pages: there the block is an ordinary one. */
static void guards_settle(struct vmm_cache *cache, struct request *request)
{
    vmm__fair_lock(&cache->grow_lock);
    request->wants_guards =
        !vmm__lane_is_retained(request->lane) && !request->lane->owner.has_source;
    vmm__fair_unlock(&cache->grow_lock);
    request->is_alone = request->wants_guards;
    request->bytes = request->wants_guards ? request->bytes : request->padded_bytes;
}

/* A block with chunks of its own begins with its chunk, and no other block may use what an alignment skips. */
static vmm_status alignment_settle(const struct vmm_cache *cache, struct request *request)
{
    const struct lane *lane = request->lane;
    unsigned long long alignment = request->alignment;
    uint64_t granule_bytes = cache->vm.arena.granule_bytes;
    if (lane->owner.has_source)
        return vmm__error(
            VMM_ERR_UNSUPPORTED,
            "vmm_alloc_aligned: alignment is %llu; the memory of pool %s is that of its "
            "source, and has an alignment of %d",
            alignment, lane->owner.pool->name, LARGE_UNIT_BYTES);
    if (!lane->owner.has_own_chunks)
        return VMM_OK;
    request->alignment = 0;
    return alignment <= granule_bytes
               ? VMM_OK
               : vmm__error(VMM_ERR_UNSUPPORTED,
                            "vmm_alloc_aligned: alignment is %llu; blocks of pool %s have chunks "
                            "of their own, and can have %llu at most",
                            alignment, lane->owner.pool->name, (unsigned long long)granule_bytes);
}

/* Chooses the lane, and drops or refuses what its pool does not allow. */
static vmm_status lane_settle(struct vmm_cache *cache, struct request *request)
{
    vmm_status status =
        lane_choose(cache, request->pool, request->stream, &request->handle, &request->lane);
    if (status == VMM_OK && request->wants_guards)
        guards_settle(cache, request);
    if (status == VMM_OK && request->alignment > 0)
        status = alignment_settle(cache, request);
    return status;
}

vmm_status vmm__alloc_request(struct vmm_cache *cache, struct request *request, void **out)
{
    const struct request asked = *request;
    bool has_more = request->alignment > 0 || request->is_unborrowed || request->wants_guards ||
                    request->handle != NULL;
    if (!has_more)
        return vmm__alloc_slow(cache, request->pool, request->bytes, request->stream, out);
    vmm_status status = lane_settle(cache, request);
    if (status != VMM_OK)
        return status;
    status = request->is_alone || request->alignment > 0
                 ? VMM__NO_FIT
                 : lane_alloc_cached(cache, request->lane, request->handle, request->bytes, out);
    if (status == VMM__NO_FIT)
        status = vmm__refill_request(cache, request, out);
    if (status != VMM__NOT_FOUND)
        return status;
    *request = asked; /* the pool is gone: choose again */
    return vmm__alloc_request(cache, request, out);
}

struct heap *vmm__alloc_sourced_owner(struct vmm_cache *cache, uint64_t *address)
{
    uint64_t inner = vmm__sourced_inner(&cache->vm, *address);
    struct heap *heap = inner == *address ? NULL : vmm__cache_heap_of(cache, inner);
    *address = heap == NULL ? *address : inner;
    return heap;
}

struct heap *vmm__free_lane_lock(struct vmm_cache *cache, uint64_t *address)
{
    struct heap *heap = vmm__alloc_owner(cache, address);
    while (heap != NULL) {
        struct lane *lane = heap->lane;
        if (!vmm__cache_lane_lock_fast(lane))
            lane_lock(cache, lane);
        struct heap *now = vmm__directory_heap(&cache->directory, *address);
        if (now == heap)
            return heap;
        vmm__biased_unlock(&lane->lock); /* it was transferred to another heap meanwhile */
        heap = now;
    }
    return NULL;
}

vmm_status vmm__awake_lane_lock(struct vmm_cache *cache, const char *function, uint64_t address,
                                struct lane **out)
{
    struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return vmm__block_ref_none(function, NULL, address);
    vmm_status status = vmm__lane_asleep_check(function, heap->lane);
    if (status == VMM_OK)
        *out = heap->lane;
    else
        vmm__biased_unlock(&heap->lane->lock);
    return status;
}

bool vmm__alloc_is_import(struct vmm_cache *cache, uint64_t address)
{
    struct block_ref ref;
    if (!vmm__import_owns(cache, address))
        return false;
    struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return false;
    bool is_import = heap->lane->owner.is_imported && vmm__block_ref_find_live(heap, address, &ref);
    vmm__biased_unlock(&heap->lane->lock);
    return is_import;
}

/* A free that is recorded does not use magazines: it is recorded under the lane's lock. */
vmm_status vmm__free_slow(struct vmm_cache *cache, uint64_t address, bool *should_poll)
{
    struct heap *heap = vmm__cache_heap_of(cache, address);
    uint64_t frees;
    bool is_recorded =
        (atomic_load_explicit(&cache->slow_path, memory_order_acquire) & SLOW_PATH_RECORDED) != 0;
    if (heap != NULL && !is_recorded && vmm__magazine_give(heap->lane, address, &frees)) {
        *should_poll = vmm__decay_should_poll(&cache->decay, &frees);
        return VMM_OK;
    }
    vmm_status status = is_admitted(cache) ? VMM_OK : vmm__cache_admit(cache, "vmm_free");
    if (status != VMM_OK)
        return status;
    uint64_t inner = address;
    heap = vmm__free_lane_lock(cache, &inner);
    if (heap == NULL)
        return VMM__NOT_FOUND;
    struct lane *lane = heap->lane;
    struct magazines *magazines = atomic_load_explicit(&lane->magazines, memory_order_relaxed);
    if (magazines != NULL)
        vmm__magazines_drain_locked(lane, magazines, vmm__magazines_pending(magazines));
    status = vmm__lane_give_locked(lane, heap, inner);
    if (status == VMM_OK && !lane->owner.is_imported)
        vmm__record_block(&cache->directory.recorder, TRACE_FREE, address);
    *should_poll = vmm__decay_should_poll(&cache->decay, &lane->frees) || cache->no_caching ||
                   lane->owner.is_imported;
    if (lane->owner.is_imported)
        atomic_store_explicit(&cache->has_freed_imports, true, memory_order_relaxed);
    vmm__biased_unlock(&lane->lock);
    return status;
}

vmm_status vmm__pin_slow(struct vmm_cache *cache, uint64_t address, bool pinned)
{
    struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return VMM__NOT_FOUND;
    struct lane *lane = heap->lane;
    vmm_status status = vmm__lane_pin_locked(heap, address, pinned);
    if (!pinned)
        atomic_fetch_add_explicit(&cache->unpins, 1, memory_order_relaxed);
    vmm__biased_unlock(&lane->lock);
    return status;
}

vmm_status vmm__name_slow(struct vmm_cache *cache, uint64_t address, const char *text)
{
    struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return VMM__NOT_FOUND;
    struct lane *lane = heap->lane;
    vmm_status status = vmm__lane_name_locked(heap, address, text);
    vmm__biased_unlock(&lane->lock);
    return status;
}
