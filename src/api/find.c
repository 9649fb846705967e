/* vmm_find(), vmm__find_owned() and vmm_block_bytes(): the block that contains an address, and the block size of a
 * request. See find.h. */
#include "api/find.h"
#include "api/internal.h"
#include "base/arith.h"
#include "base/error.h"
#include "cache/alloc/alloc.h"
#include "cache/reserve/reserve.h"
#include "lane/block_ref.h"

#include <string.h>

/* Finds the live block that contains an address of a heap, whose lane's lock the caller holds. A thread may free a
 * listed block without that lock, by a claim of its entry, so the live table says whether that one is live. */
static bool live_find(const struct heap *heap, uint64_t address, struct block_ref *ref)
{
    return vmm__block_ref_around(heap, address, ref) && vmm__block_ref_is_live(ref) &&
           (!vmm__block_ref_is_listed(ref) ||
            vmm__live_table_has(heap->directory->live, vmm__block_ref_address(ref)));
}

/* The start of a block as the program knows it: see vm/vm.h. */
static uint64_t address_of(const struct heap *heap, const struct block_ref *ref)
{
    uint64_t inner = vmm__block_ref_address(ref);
    const struct vmm_cache *cache = heap->lane->owner.pool->cache;
    return heap->lane->owner.has_source ? vmm__sourced_outer(&cache->vm, inner) : inner;
}

/* ---- All of a block -------------------------------------------------------------------------- */

static bool block_read(const struct heap *heap, uint64_t address, vmm_item *item)
{
    struct block_ref ref;
    if (!live_find(heap, address, &ref))
        return false;
    *item = vmm__block_item(heap, &ref);
    item->address = address_of(heap, &ref);
    return true;
}

/* Makes of the lane's block the one that debug mode has made of it. False: the address lies beside that one. */
static bool debug_read(const struct vmm_cache *cache, uint64_t address, vmm_item *item)
{
    cache->debug_view->show(cache->debug, item);
    return item->state == VMM_ITEM_LIVE && address - item->address < item->bytes;
}

static bool address_read(struct vmm_cache *cache, uint64_t address, vmm_item *item)
{
    uint64_t inner = address;
    const struct heap *heap = vmm__free_lane_lock(cache, &inner);
    if (heap == NULL)
        return false;
    struct lane *lane = heap->lane;
    bool found = block_read(heap, inner, item);
    vmm__biased_unlock(&lane->lock);
    if (!found || cache->debug == NULL || item->is_imported || item->is_reserved)
        return found;
    return debug_read(cache, address, item);
}

/* The error for an address at which no live block was found. */
static vmm_status none_report(struct vmm_cache *cache, uint64_t address)
{
    const struct heap *heap = vmm__free_lane_lock(cache, &address);
    vmm_status status = vmm__block_ref_none("vmm_find", heap, address);
    if (heap != NULL)
        vmm__biased_unlock(&heap->lane->lock);
    return status;
}

vmm_status vmm_find(vmm_cache *cache, const void *address, vmm_item *item)
{
    vmm_status status = vmm__api_admit(cache, "vmm_find", item, "item");
    if (status != VMM_OK)
        return status;
    size_t size = item->struct_size;
    if (size < offsetof(vmm_item, stream) || size > STRUCT_BYTES_MOST)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_find: struct_size is %zu; set it to sizeof(vmm_item)", size);
    vmm_item found;
    if (!address_read(cache, (uint64_t)(uintptr_t)address, &found))
        return none_report(cache, (uint64_t)(uintptr_t)address);
    memcpy(item, &found, vmm__min(size, sizeof found));
    item->struct_size = size;
    return VMM_OK;
}

/* ---- Whose it is ----------------------------------------------------------------------------- */

/* Finds a block by its entry in the live table, without a lock. False if no listed block starts at the address. */
static bool listed_read(const struct vmm_cache *cache, uint64_t address, struct owned_block *out)
{
    const struct heap *heap = vmm__cache_heap_of(cache, address);
    if (heap == NULL ||
        atomic_load_explicit(&heap->lane->magazines, memory_order_relaxed) == NULL ||
        !vmm__live_table_read(cache->directory.live, address, &out->requested_bytes))
        return false;
    out->address = address;
    out->is_imported = heap->lane->owner.is_imported;
    return true;
}

/* Finds a block as its lane knows it. */
static bool lane_read(struct vmm_cache *cache, uint64_t address, struct owned_block *out)
{
    struct block_ref ref;
    const struct heap *heap = vmm__free_lane_lock(cache, &address);
    if (heap == NULL)
        return false;
    bool found = !heap->is_reserved && live_find(heap, address, &ref);
    if (found) {
        out->address = address_of(heap, &ref);
        out->requested_bytes = vmm__block_ref_requested_bytes(&ref);
        out->is_imported = heap->lane->owner.is_imported;
    }
    vmm__biased_unlock(&heap->lane->lock);
    return found;
}

/* Finds a block of debug mode, whose records know more of it. */
static bool item_read(struct vmm_cache *cache, uint64_t address, struct owned_block *out)
{
    vmm_item item;
    if (!address_read(cache, address, &item))
        return false;
    out->address = item.address;
    out->requested_bytes = item.requested_bytes;
    out->is_imported = item.is_imported != 0;
    return true;
}

vmm_status vmm__find_owned(vmm_cache *cache, const void *ptr, struct owned_block *out)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    bool is_debug = cache->debug != NULL;
    if (!is_debug && listed_read(cache, address, out))
        return VMM_OK;
    vmm_status status = vmm__cache_admit(cache, "vmm_find");
    if (status != VMM_OK)
        return status;
    bool found = is_debug ? item_read(cache, address, out) : lane_read(cache, address, out);
    return found ? VMM_OK : VMM__NOT_FOUND;
}

uint64_t vmm_block_bytes(vmm_cache *cache, uint64_t bytes)
{
    if (cache == NULL || bytes > cache->vm.arena.limit_bytes)
        return 0;
    if (cache->debug != NULL)
        return cache->debug_view->block_bytes(cache->debug, bytes);
    return vmm__cache_block_bytes(cache, bytes);
}
