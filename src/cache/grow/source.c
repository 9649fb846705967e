/* Memory of sources: see source.h. */
#include "cache/grow/source.h"
#include "base/arith.h"
#include "base/callback.h"
#include "base/error.h"
#include "cache/idle/trim.h"
#include "cache/pool/life.h"

/* ---- Segments back ------------------------------------------------------------------------- */

/* If the program's function fails in a call, the line of the call that runs the function stays. */
static void segment_return(const struct vmm_cache *cache, struct sourced_segment *segment)
{
    struct callback callback;
    vmm_segment_free_fn give = segment->source.free;
    VMM_QUIET();
    vmm__callback_begin(&callback, cache, false);
    give(segment->source.context, (void *)(uintptr_t)segment->outer, segment->bytes);
    vmm__callback_end(&callback);
}

/* Takes a segment whose work has finished out of limbo; NULL: there is none, or another thread has the lock and the
 * caller does not wait. */
static struct sourced_segment *ready_take(struct vmm_cache *cache, bool waits)
{
    if (!vmm__source_has_ready(cache))
        return NULL;
    if (waits)
        vmm__fair_lock(&cache->grow_lock);
    else if (!vmm__fair_try_lock(&cache->grow_lock))
        return NULL;
    struct sourced_segment *segment = vmm__limbo_take_segment(&cache->vm);
    vmm__fair_unlock(&cache->grow_lock);
    return segment;
}

static uint64_t ready_return(struct vmm_cache *cache, const struct pool *pool, bool waits)
{
    uint64_t bytes = 0;
    struct sourced_segment *segment;
    while ((segment = ready_take(cache, waits)) != NULL) {
        bool counts = pool == NULL || segment->account == &pool->account;
        bytes += counts ? segment->bytes : 0;
        segment_return(cache, segment);
        vmm__sourced_call_end(&cache->vm, segment->account);
        vmm__sourced_free(segment);
    }
    return bytes;
}

uint64_t vmm__source_return(struct vmm_cache *cache, const struct pool *pool)
{
    return ready_return(cache, pool, true);
}

void vmm__source_poll(struct vmm_cache *cache)
{
    (void)ready_return(cache, NULL, false);
}

void vmm__source_return_locked(struct vmm_cache *cache, struct lane *held)
{
    vmm__cache_locks_drop(cache, held);
    (void)vmm__source_return(cache, NULL);
    vmm__cache_locks_take(cache, held);
}

void vmm__source_end(struct vmm_cache *cache)
{
    struct sourced_segments *segments = &cache->vm.segments;
    struct sourced_segment *segment = vmm__sourced_take_closed(segments);
    for (; segment != NULL; segment = vmm__sourced_take_closed(segments)) {
        segment_return(cache, segment);
        vmm__sourced_free(segment);
    }
}

vmm_status vmm__source_leave(struct pool *pool)
{
    uint64_t released_bytes;
    vmm_status status = vmm__pool_unretain(pool);
    if (status != VMM_OK)
        return status;
    status = vmm__cache_wait_all(pool->cache);
    if (status == VMM_OK)
        status = vmm__trim_pool(pool, 0, &released_bytes);
    (void)vmm__source_return(pool->cache, NULL);
    return status;
}

/* ---- New segments -------------------------------------------------------------------------- */

/* A small heap grows by granules, as others do; a block with chunks of its own has a segment of its own. */
uint64_t vmm__source_segment_bytes(const struct vmm_cache *cache, const struct heap *heap,
                                   uint64_t bytes)
{
    const struct lane *lane = heap->lane;
    bool is_exact = heap->is_small || lane->owner.has_own_chunks || cache->no_caching;
    uint64_t least_bytes = is_exact ? 0 : lane->owner.pool->source.segment_bytes;
    uint64_t segment_bytes;
    if (!vmm__align_up_checked(vmm__max(bytes, least_bytes), cache->vm.arena.granule_bytes,
                               &segment_bytes))
        return UINT64_MAX;
    return segment_bytes;
}

/* Calls the source without locks. The end of the pool waits for the call. */
static uint64_t source_call(struct vmm_cache *cache, struct lane *lane, uint64_t bytes)
{
    vmm_segment_source source = lane->owner.pool->source;
    struct callback callback;
    vmm__cache_locks_drop(cache, lane);
    vmm__callback_begin(&callback, cache, false);
    void *memory = source.alloc(source.context, bytes, lane->owner.stream);
    vmm__callback_end(&callback);
    vmm__cache_locks_take(cache, lane);
    return (uint64_t)(uintptr_t)memory;
}

/* Makes the memory a chunk, at addresses that stand for it, with a free granule on either side, so that it joins no
 * other extent. */
static vmm_status segment_open(struct vmm_cache *cache, struct account *account,
                               const struct sourced_segment *memory, uint64_t *granule)
{
    struct vm *vm = &cache->vm;
    uint64_t count = memory->bytes >> vm->arena.granule_shift;
    vmm_status status = vmm__account_check(vm, account, memory->bytes);
    if (status == VMM_OK)
        status = vmm__arena_find_or_extend(&vm->arena, count + 2, granule);
    if (status != VMM_OK)
        return status;
    ++*granule;
    vmm__arena_take(&vm->arena, *granule, count);
    return vmm__sourced_open(vm, account, *granule, memory);
}

/* Gives the heap the free block of a new segment. */
static vmm_status segment_attach(struct vmm_cache *cache, struct heap *heap, uint64_t granule,
                                 uint64_t bytes, struct block **out)
{
    struct vm *vm = &cache->vm;
    struct lane *lane = heap->lane;
    uint64_t address = vmm__arena_address(&vm->arena, granule);
    vmm__lanes_touch(&cache->lanes, lane); /* the locks were released meanwhile */
    vmm_status status = vmm__heap_attach(heap, address, bytes, vmm__clock_now(lane->clock));
    if (status == VMM_OK) {
        *out = vmm__heap_find(heap, address);
        return VMM_OK;
    }
    VMM_QUIET();
    vmm__vm_discard(vm, granule, bytes >> vm->arena.granule_shift, NULL, 0);
    (void)vmm__limbo_drain(vm, NULL);
    vmm__source_return_locked(cache, lane);
    return status;
}

/* Gives back memory that was refused. */
static void memory_return(struct vmm_cache *cache, struct lane *lane,
                          struct sourced_segment *memory)
{
    vmm__cache_locks_drop(cache, lane);
    segment_return(cache, memory);
    vmm__cache_locks_take(cache, lane);
}

static vmm_status segment_get(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                              struct block **out)
{
    struct lane *lane = heap->lane;
    struct pool *pool = lane->owner.pool;
    struct sourced_segment memory = { .source = pool->source, .bytes = bytes };
    uint64_t granule = 0;
    memory.outer = source_call(cache, lane, bytes);
    if (memory.outer == 0)
        return vmm__error(VMM_ERR_DEVICE_OOM, "pool %s: its source has no segment of %llu bytes",
                          pool->name, (unsigned long long)bytes);
    vmm_status status = segment_open(cache, &pool->account, &memory, &granule);
    if (status != VMM_OK) {
        memory_return(cache, lane, &memory);
        return status;
    }
    vmm__cache_log(cache, "source: pool %s: %llu bytes at 0x%llx", pool->name,
                   (unsigned long long)bytes, (unsigned long long)memory.outer);
    return segment_attach(cache, heap, granule, bytes, out);
}

vmm_status vmm__source_grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                            struct block **out)
{
    struct account *account = &heap->lane->owner.pool->account;
    uint64_t segment_bytes = vmm__source_segment_bytes(cache, heap, bytes);
    vmm_status status = vmm__account_check(&cache->vm, account, segment_bytes);
    if (status != VMM_OK)
        return status;
    vmm__sourced_call_begin(account);
    status = segment_get(cache, heap, segment_bytes, out);
    vmm__sourced_call_end(&cache->vm, account);
    return status;
}
