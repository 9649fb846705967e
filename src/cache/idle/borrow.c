/* Blocks from another lane's free memory: see borrow.h. */
#include "cache/idle/borrow.h"
#include "base/arith.h"
#include "base/error.h"
#include "lane/block_ref.h"

/* Takes an allocation back that failed: the lane's own stream may have the block again at once, as before. */
static void block_return(struct lane *from, struct heap *heap, uint64_t address, uint64_t bytes)
{
    struct block_ref ref;
    VMM_QUIET();
    if (vmm__lane_find_live_locked(from, heap, address, &ref)) {
        uint64_t block_bytes = vmm__block_ref_bytes(&ref);
        (void)vmm__lane_give_locked(from, heap, address);
        vmm__counters_undo(&from->counters, bytes, block_bytes);
    }
}

/* The latest free in the chunks of a block, which may lie in a view. */
static uint64_t block_epoch(const struct vmm_cache *cache, uint64_t address, uint64_t bytes)
{
    const struct vm *vm = &cache->vm;
    uint64_t granule = vmm__arena_granule(&vm->arena, address);
    uint64_t end = vmm__arena_granule(&vm->arena, address + bytes - 1) + 1;
    uint64_t epoch = 0;
    while (granule < end) {
        const struct chunk *chunk = vmm__vm_chunk(vm, granule);
        epoch =
            vmm__max(epoch, vmm__directory_epoch(&cache->directory, chunk->first, chunk->granules));
        granule = vmm__chunk_mapping(vm, chunk, granule) + chunk->granules;
    }
    return epoch;
}

/* The epoch of the last free in the memory of a block that was just allocated. */
static uint64_t last_epoch(const struct vmm_cache *cache, const struct lane *from,
                           const struct heap *heap, uint64_t address, uint64_t bytes)
{
    bool is_object = heap->is_small && bytes <= SLAB_LARGEST_BYTES;
    return is_object ? vmm__clock_now(from->clock) /* slabs do not stamp objects */
                     : block_epoch(cache, address, bytes);
}

/* VMM_OK if the epoch has passed. If lanes have clocks of their own, the stream of `to` waits for it on the device. */
static vmm_status epoch_clear(struct lane *from, uint64_t epoch, const struct lane *to)
{
    return vmm__clock_is_own(from->clock) ? vmm__clock_follow(from->clock, epoch, to->owner.stream)
                                          : vmm__clock_query(from->clock, epoch);
}

/* Makes the host wait for the epoch without the lanes' locks. The block stays allocated, so no other call gets it. */
static vmm_status epoch_await(struct lane *from, uint64_t epoch, struct lane *to)
{
    vmm__lane_unlock(from);
    vmm__lane_unlock(to);
    vmm_status status = vmm__clock_wait(from->clock, epoch);
    vmm__lane_lock(to);
    vmm__lane_lock_second(from);
    return status;
}

/* Makes the stream of `to` a user of a block whose memory it may use. */
static vmm_status block_hand(struct lane *from, struct heap *heap, uint64_t address,
                             const struct lane *to)
{
    vmm_status status = vmm__lane_use_locked(from, heap, address, to);
    if (status == VMM_OK)
        vmm__notes_lend(&from->notes, address, vmm__lane_user(to), !vmm__clock_is_own(from->clock));
    return status;
}

/* The smallest free block that holds the request: blocks with chunks of their own, and those of a cache without
 * caching, are not split. */
static vmm_status whole_take(const struct vmm_cache *cache, struct lane *from, uint64_t bytes,
                             void **out)
{
    uint64_t granule_bytes = cache->vm.arena.granule_bytes;
    uint64_t need_bytes = vmm__align_up(vmm__cache_block_bytes(cache, bytes), granule_bytes);
    struct size_node *node = vmm__size_index_find(&from->large.index, need_bytes, SEARCH_WHOLE);
    if (node == NULL)
        return VMM__NO_FIT;
    return vmm__lane_take_block_locked(from, (struct block *)node, 0, bytes, out);
}

static vmm_status hole_take(const struct vmm_cache *cache, struct lane *from, uint64_t bytes,
                            void **out)
{
    if (from->owner.has_own_chunks || cache->no_caching)
        return whole_take(cache, from, bytes, out);
    return vmm__lane_take_any_locked(from, bytes, out);
}

static vmm_status lane_borrow(const struct vmm_cache *cache, struct lane *from, struct lane *to,
                              uint64_t bytes, bool waits, void **out)
{
    void *block;
    (void)vmm__lane_poll_locked(from, UINT32_MAX);
    vmm__lane_counters_flush(from);
    vmm_status status = hole_take(cache, from, bytes, &block);
    if (status != VMM_OK)
        return status;
    uint64_t address = (uint64_t)(uintptr_t)block;
    struct heap *heap = vmm__directory_heap(from->large.directory, address);
    uint64_t epoch = last_epoch(cache, from, heap, address, bytes);
    status = epoch_clear(from, epoch, to);
    if (status == VMM__PENDING && waits)
        status = epoch_await(from, epoch, to);
    if (status == VMM_OK)
        status = block_hand(from, heap, address, to);
    if (status == VMM_OK)
        *out = block;
    else
        block_return(from, heap, address, bytes);
    vmm__lane_counters_flush(from);
    return status;
}

/* Whether a lane may give blocks to another one. */
typedef bool (*may_fn)(const struct lane *from, const struct lane *to);

/* Skips lanes that fail for any reason. The grow lock keeps the list as it is. */
static vmm_status lanes_borrow(struct vmm_cache *cache, struct lane *to, uint64_t bytes, may_fn may,
                               bool waits, void **out)
{
    vmm_status status = VMM__NO_FIT;
    if (vmm__lane_is_retained(to) || cache->debug != NULL || to->owner.has_own_chunks ||
        to->owner.has_source)
        return VMM__NO_FIT;
    vmm__lane_counters_flush(to);
    for (struct lane *from = cache->lanes.stocked.first; from != NULL && status != VMM_OK;
         from = from->list_next) {
        if (!may(from, to))
            continue;
        vmm__lane_lock_second(from);
        status = lane_borrow(cache, from, to, bytes, waits, out);
        vmm__lane_unlock(from);
    }
    return status == VMM_OK ? VMM_OK : VMM__NO_FIT;
}

/* Blocks that a destroyed pool left with chunks of their own stay whole: the driver gets those back instead. */
static bool may_give(const struct lane *from, const struct lane *to)
{
    return from != to && from->owner.pool == to->owner.pool && !from->owner.has_own_chunks;
}

vmm_status vmm__borrow(struct vmm_cache *cache, struct lane *to, uint64_t bytes, bool waits,
                       void **out)
{
    return lanes_borrow(cache, to, bytes, may_give, waits, out);
}

static bool may_lend(const struct lane *from, const struct lane *to)
{
    const struct pool *pool = from->owner.pool;
    return pool->lends && pool != to->owner.pool && pool->handle != NULL &&
           pool->phase == VMM_POOL_AWAKE;
}

vmm_status vmm__lend(struct vmm_cache *cache, struct lane *to, uint64_t bytes, void **out)
{
    vmm_status status = lanes_borrow(cache, to, bytes, may_lend, false, out);
    return status == VMM_OK ? VMM_OK : lanes_borrow(cache, to, bytes, may_lend, true, out);
}
