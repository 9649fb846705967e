/* Placed blocks: see place.h. */
#include "cache/pool/place.h"
#include "base/arith.h"
#include "base/error.h"
#include "cache/cache.h"
#include "cache/pool/pools.h"
#include "lane/block_ref.h"

struct place {
    struct lane *lane;
    struct heap *heap; /* that owns the address */
    uint64_t address;
    uint64_t inner; /* address: see vm/vm.h */
    uint64_t bytes; /* as the program asked for */
};

static vmm_status place_refuse(const struct place *place, const char *why)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_pool_place: %llu bytes at 0x%llx: %s",
                      (unsigned long long)place->bytes, (unsigned long long)place->address, why);
}

static vmm_status place_refuse_other(const struct place *place, const char *what, const char *name)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "vmm_pool_place: %llu bytes at 0x%llx: the address belongs to %s %s",
                      (unsigned long long)place->bytes, (unsigned long long)place->address, what,
                      name);
}

/* Says what is in the way. */
static vmm_status place_refuse_taken(const struct place *place)
{
    struct block_ref ref;
    if (!vmm__block_ref_around(place->heap, place->inner, &ref))
        return place_refuse(place, "not all of them are free and mapped");
    const struct block *user = ref.block->state == BLOCK_OCCUPIED ? ref.block->user : ref.block;
    bool is_taken =
        ref.slab == NULL ? user->state != BLOCK_FREE : (ref.slab->free_bits >> ref.object & 1) == 0;
    if (!is_taken)
        return place_refuse(place, "not all of them are free and mapped");
    if (user == ref.block && !vmm__block_ref_is_live(&ref))
        return place_refuse(place, "other streams still use a freed block there");
    uint64_t address = user == ref.block ? vmm__block_ref_address(&ref) : user->address;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "vmm_pool_place: %llu bytes at 0x%llx: the block at 0x%llx is in the way",
                      (unsigned long long)place->bytes, (unsigned long long)place->address,
                      (unsigned long long)vmm__views_outer(place->heap, address));
}

/* The heap that owns the address must be the lane's, and for blocks of this size. */
static vmm_status heap_find(struct vmm_cache *cache, struct place *place)
{
    char stream[32];
    place->inner = vmm__sourced_inner(&cache->vm, place->address);
    place->heap = vmm__cache_heap_of(cache, place->inner);
    if (place->heap != NULL && place->heap->lane->owner.has_source &&
        place->inner == place->address)
        place->heap = NULL; /* it is no address of the program */
    if (place->heap == NULL || place->heap->is_reserved)
        return place_refuse(place, "the cache has no free memory there");
    const struct lane *lane = place->heap->lane;
    if (lane->owner.pool != place->lane->owner.pool)
        return place_refuse_other(place, "pool", lane->owner.pool->name);
    (void)snprintf(stream, sizeof stream, "%p", (void *)lane->owner.stream);
    if (lane != place->lane)
        return place_refuse_other(place, "stream", stream);
    bool is_small = place->bytes <= LANE_SMALL_LARGEST_BYTES && !cache->no_caching &&
                    !lane->owner.has_own_chunks;
    if (place->heap->is_small != is_small)
        return place_refuse(place, is_small ? "the memory there is for blocks above 1 MiB"
                                            : "the memory there is for blocks of up to 1 MiB");
    return VMM_OK;
}

/* Blocks with chunks of their own have whole granules. */
static uint64_t block_bytes_choose(const struct vmm_cache *cache, const struct place *place)
{
    uint64_t bytes = vmm__cache_block_bytes(cache, place->bytes);
    return place->lane->owner.has_own_chunks ? vmm__align_up(bytes, cache->vm.arena.granule_bytes)
                                             : bytes;
}

static vmm_status place_locked(struct vmm_cache *cache, struct place *place)
{
    struct lane *lane = place->lane;
    VMM_ASSERT_HELD(&cache->grow_lock);
    VMM_ASSERT_HELD(&lane->lock);
    vmm_status status = vmm__lane_asleep_check("vmm_pool_place", lane);
    if (status == VMM_OK)
        status = heap_find(cache, place);
    if (status != VMM_OK)
        return status;
    if (place->bytes > cache->vm.arena.limit_bytes) /* also where block_bytes would overflow */
        return place_refuse_taken(place);
    uint64_t block_bytes = block_bytes_choose(cache, place);
    status = vmm__lane_place_locked(lane, place->heap, place->inner, place->bytes, block_bytes);
    if (status == VMM__NO_FIT) {
        (void)vmm__lane_settle_locked(lane); /* what frees have left is not in the way */
        status = vmm__lane_place_locked(lane, place->heap, place->inner, place->bytes, block_bytes);
    }
    if (status == VMM__NOT_FOUND)
        return place_refuse(place, "no block of this size begins there");
    return status == VMM__NO_FIT ? place_refuse_taken(place) : status;
}

vmm_status vmm__place(struct pool *pool, uint64_t address, uint64_t bytes, vmm_stream stream)
{
    struct vmm_cache *cache = pool->cache;
    struct place place = { .address = address, .bytes = bytes };
    vmm_status status = vmm__pool_lane(pool, stream, &place.lane);
    if (status != VMM_OK)
        return status;
    vmm__cache_lane_activate(cache, place.lane);
    VMM_HOLD_FAIR(&cache->grow_lock);
    vmm__lane_lock(place.lane);
    status = place_locked(cache, &place);
    vmm__lane_unlock(place.lane);
    status = vmm__cache_checked(cache, CHECK_REFILL_EVERY, status);
    return status;
}
