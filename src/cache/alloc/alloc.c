/* The slow paths of allocation and free: see alloc.h. */
#include "cache/alloc/alloc.h"
#include "cache/alloc/refill.h"
#include "cache/grow/source.h"
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

static vmm_status lane_alloc_cached(struct vmm_cache *cache, struct lane *lane, uint64_t bytes,
                                    void **out)
{
    vmm_stream stream = lane->stream;
    vmm__clock_tick_due(lane->clock, cache->announces_captures ? NULL : &stream);
    lane_lock(cache, lane);
    vmm_status status = vmm__lane_asleep_check("alloc", lane);
    if (status == VMM_OK)
        status = vmm__lane_take_locked(lane, bytes, out);
    vmm__biased_unlock(&lane->lock);
    if (status == VMM_OK && lane->has_source)
        *out = vmm__source_outer(cache, *out);
    return status;
}

/* The lane of a request: in the given pool; NULL: in the one that pushes and routes choose. */
static vmm_status lane_choose(struct vmm_cache *cache, struct pool *pool, vmm_stream stream,
                              struct lane **out)
{
    const char *function = pool == NULL ? "vmm_alloc" : "vmm_alloc_from";
    vmm_status status = vmm__cache_admit_work(cache, function);
    if (status == VMM_OK)
        status = vmm__stream_resolve(function, &stream);
    if (status != VMM_OK)
        return status;
    if (pool != NULL)
        return vmm__pool_lane(pool, stream, out);
    return vmm__slow_path_is_only(cache) ? vmm__route_lane(cache, stream, out)
                                         : vmm__cache_lane(cache, stream, out);
}

static vmm_status lane_alloc(struct vmm_cache *cache, struct lane *lane, size_t bytes,
                             bool is_unborrowed, void **out)
{
    struct request request = { .lane = lane, .bytes = bytes, .is_unborrowed = is_unborrowed };
    request.is_alone = cache->no_caching || lane->has_own_chunks;
    vmm_status status = request.is_alone ? VMM__NO_FIT : lane_alloc_cached(cache, lane, bytes, out);
    return status == VMM__NO_FIT ? vmm__refill_request(cache, &request, out) : status;
}

/* Whether vmm__cache_admit() would pass, but for its look-up of the handle: the caller has already used the cache. */
static bool is_admitted(const struct vmm_cache *cache)
{
    return vmm__thread_slot_number() >= 0 && cache->generation == vmm__fork_generation();
}

vmm_status vmm__alloc_slow(struct vmm_cache *cache, struct pool *pool, size_t bytes,
                           vmm_stream stream, void **out)
{
    struct lane_table *table = pool == NULL ? &cache->pool.table : &pool->table;
    struct lane *lane = vmm__lane_table_find(table, stream);
    bool is_plain = lane != NULL && !vmm__slow_path_is_only(cache);
    if (is_plain && vmm__magazine_take(lane, bytes, out))
        return VMM_OK;
    vmm_status status =
        is_plain && is_admitted(cache) ? VMM_OK : lane_choose(cache, pool, stream, &lane);
    return status == VMM_OK ? lane_alloc(cache, lane, bytes, false, out) : status;
}

vmm_status vmm__alloc_unborrowed(struct vmm_cache *cache, struct pool *pool, size_t bytes,
                                 vmm_stream stream, void **out)
{
    struct lane *lane;
    vmm_status status = lane_choose(cache, pool, stream, &lane);
    return status == VMM_OK ? lane_alloc(cache, lane, bytes, true, out) : status;
}

vmm_status vmm__alloc_alone(struct vmm_cache *cache, struct pool *pool, size_t bytes,
                            size_t padded_bytes, vmm_stream stream, void **out, bool *is_alone)
{
    struct lane *lane;
    vmm_status status = lane_choose(cache, pool, stream, &lane);
    if (status != VMM_OK)
        return status;
    vmm__fair_lock(&cache->grow_lock);
    *is_alone = !vmm__lane_is_retained(lane) && !lane->has_source;
    vmm__fair_unlock(&cache->grow_lock);
    if (!*is_alone)
        return lane_alloc(cache, lane, padded_bytes, false, out);
    struct request request = { .lane = lane, .bytes = bytes, .is_alone = true };
    return vmm__refill_request(cache, &request, out);
}

/* A request for an aligned block. */
struct aligned {
    struct lane *lane;
    struct heap *heap;
    uint64_t bytes;       /* as the program asked for */
    uint64_t block_bytes; /* of the block */
    uint64_t alignment;
};

/* Takes free memory of the heap, or new memory for it. */
static vmm_status aligned_serve(struct vmm_cache *cache, void *context, void **out)
{
    const struct aligned *aligned = context;
    const struct arena *arena = &cache->vm.arena;
    uint64_t padding = vmm__max(aligned->alignment, arena->granule_bytes) - arena->granule_bytes;
    vmm_status status = VMM_OK;
    (void)vmm__lane_poll_locked(aligned->lane, UINT32_MAX);
    struct block *block =
        vmm__heap_find_aligned(aligned->heap, aligned->block_bytes, aligned->alignment);
    if (block == NULL)
        status = vmm__grow_alone(cache, aligned->heap, aligned->block_bytes + padding, &block);
    if (status != VMM_OK)
        return status;
    return vmm__lane_take_aligned_locked(aligned->lane, aligned->heap, block, aligned->bytes,
                                         aligned->block_bytes, aligned->alignment, out);
}

/* A block with chunks of its own begins with its chunk, and no other block may use what an alignment skips. */
static vmm_status aligned_alloc_own(struct vmm_cache *cache, struct lane *lane, uint64_t bytes,
                                    uint64_t alignment, void **out)
{
    uint64_t granule_bytes = cache->vm.arena.granule_bytes;
    if (lane->has_source)
        return vmm__error(
            VMM_ERR_UNSUPPORTED,
            "vmm_alloc_aligned: alignment is %llu; the memory of pool %s is that of its "
            "source, and has an alignment of %d",
            (unsigned long long)alignment, lane->pool->name, LARGE_UNIT_BYTES);
    if (alignment <= granule_bytes)
        return lane_alloc(cache, lane, bytes, false, out);
    return vmm__error(VMM_ERR_UNSUPPORTED,
                      "vmm_alloc_aligned: alignment is %llu; blocks of pool %s have chunks of "
                      "their own, and can have %llu at most",
                      (unsigned long long)alignment, lane->pool->name,
                      (unsigned long long)granule_bytes);
}

vmm_status vmm__alloc_aligned(struct vmm_cache *cache, struct pool *pool, size_t bytes,
                              uint64_t alignment, vmm_stream stream, void **out)
{
    struct lane *lane;
    struct aligned aligned = { .bytes = bytes, .alignment = alignment };
    vmm_status status = lane_choose(cache, pool, stream, &lane);
    if (status != VMM_OK)
        return status;
    if (lane->has_own_chunks || lane->has_source)
        return aligned_alloc_own(cache, lane, bytes, alignment, out);
    /* objects of slabs have no alignment of their own */
    uint64_t least_bytes = vmm__max(bytes, SLAB_LARGEST_BYTES + 1);
    aligned.block_bytes = vmm__cache_block_bytes(cache, least_bytes);
    bool is_small = aligned.block_bytes <= LANE_SMALL_LARGEST_BYTES && !cache->no_caching;
    aligned.lane = lane;
    aligned.heap = is_small ? &lane->small : &lane->large;
    struct request request = { .lane = lane, .serve = aligned_serve, .context = &aligned };
    if (!vmm__add_checked(aligned.block_bytes, alignment, &request.bytes))
        request.bytes = UINT64_MAX;
    return vmm__refill_request(cache, &request, out);
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
    bool is_import = heap->lane->is_imported && vmm__block_ref_find_live(heap, address, &ref);
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
        return vmm__reserved_free(cache, address);
    struct lane *lane = heap->lane;
    struct magazines *magazines = atomic_load_explicit(&lane->magazines, memory_order_relaxed);
    if (magazines != NULL)
        vmm__magazines_drain_locked(lane, magazines, vmm__magazines_pending(magazines));
    status = vmm__lane_give_locked(lane, heap, inner);
    if (status == VMM_OK && !lane->is_imported)
        vmm__record_block(&cache->directory.recorder, TRACE_FREE, address);
    *should_poll = vmm__decay_should_poll(&cache->decay, &lane->frees) || cache->no_caching ||
                   lane->is_imported;
    if (lane->is_imported)
        atomic_store_explicit(&cache->has_freed_imports, true, memory_order_relaxed);
    vmm__biased_unlock(&lane->lock);
    return status;
}

vmm_status vmm__pin_slow(struct vmm_cache *cache, uint64_t address, bool pinned)
{
    struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return vmm__reserved_pin(cache, address, pinned);
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
        return vmm__reserved_name(cache, address, text);
    struct lane *lane = heap->lane;
    vmm_status status = vmm__lane_name_locked(heap, address, text);
    vmm__biased_unlock(&lane->lock);
    return status;
}
