/* From an address to its block, and from a request to its block's size: see vmm_find(). */
#include "base/arith.h"
#include "base/error.h"
#include "policy/cache.h"

#include <string.h>

/* The live object of a slab that an address lies in. */
static bool object_read(const struct slab *slab, uint64_t address, vmm_item *item)
{
    uint64_t object = (address - slab->address) / slab->object_bytes;
    if (object >= slab->objects || ((slab->free_bits | slab->waiting_bits) >> object & 1) != 0)
        return false;
    item->address = vmm__slab_address(slab, (uint32_t)object);
    item->bytes = slab->object_bytes;
    item->requested_bytes = slab->requested[object];
    return true;
}

static bool block_read(const struct heap *heap, uint64_t address, vmm_item *item)
{
    const struct block *block =
        vmm__heap_find(heap, address); /* a block's start is found at once */
    if (block == NULL)
        block = vmm__heap_cover(heap, address);
    if (block->state == BLOCK_SLAB)
        return object_read(block->slab, address, item);
    item->address = block->address;
    item->bytes = block->node.size;
    item->requested_bytes = block->requested_bytes;
    return block->state == BLOCK_LIVE;
}

/* Under the grow lock no address changes hands. */
static bool address_read_locked(struct vmm_cache *cache, uint64_t address, vmm_item *item)
{
    struct heap *heap = NULL;
    if (vmm__arena_contains(&cache->memory.arena, address))
        heap = vmm__directory_heap(&cache->directory, address);
    if (heap == NULL)
        return false;
    vmm__pool_lock(heap->pool);
    bool found = block_read(heap, address, item);
    vmm__pool_unlock(heap->pool);
    item->stream = heap->pool->stream;
    item->pool = heap->pool->id;
    item->is_small = heap->is_small;
    return found;
}

vmm_status vmm_find(vmm_cache *cache, const void *address, vmm_item *item)
{
    vmm_status status = vmm__cache_admit(cache, "vmm_find");
    if (status != VMM_OK)
        return status;
    if (item == NULL)
        return vmm__cache_missing("vmm_find", "item");
    size_t size = item->struct_size;
    if (size < offsetof(vmm_item, stream))
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_find: struct_size is %zu; set it to sizeof(vmm_item)", size);
    vmm_item found = { .kind = VMM_ITEM_BLOCK, .state = VMM_ITEM_LIVE };
    vmm__fair_take(&cache->grow_lock);
    bool is_live = address_read_locked(cache, (uint64_t)(uintptr_t)address, &found);
    vmm__fair_drop(&cache->grow_lock);
    if (!is_live)
        return vmm__error(VMM_ERR_UNKNOWN_POINTER, "vmm_find: %p is in no live block", address);
    memcpy(item, &found, vmm__min(size, sizeof found));
    item->struct_size = size;
    return VMM_OK;
}

uint64_t vmm_block_bytes(vmm_cache *cache, uint64_t bytes)
{
    if (cache == NULL || bytes > cache->memory.arena.bytes)
        return 0;
    uint64_t block_bytes = vmm__pool_place_bytes(bytes);
    return cache->no_caching ? vmm__align_up(block_bytes, cache->memory.arena.granule_bytes)
                             : block_bytes;
}
