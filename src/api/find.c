/* vmm_find() and vmm_block_bytes(): the block that contains an address, and the block size of a request. */
#include "api/internal.h"
#include "base/arith.h"
#include "base/error.h"
#include "cache/alloc/alloc.h"
#include "lane/block_ref.h"

#include <string.h>

static bool block_read(const struct heap *heap, uint64_t address, vmm_item *item)
{
    struct block_ref ref;
    if (!vmm__block_ref_around(heap, address, &ref) || !vmm__block_ref_is_live(&ref))
        return false;
    item->address = vmm__block_ref_address(&ref);
    item->bytes = vmm__block_ref_bytes(&ref);
    item->requested_bytes = vmm__block_ref_requested_bytes(&ref);
    item->is_view = ref.block->is_in_view;
    if (vmm__block_ref_is_named(&ref))
        vmm__names_read(&heap->directory->names, item->address, item->name);
    return true;
}

static bool reserved_read_locked(struct vmm_cache *cache, uint64_t address, vmm_item *item)
{
    const struct reserved *block = vmm__reserved_around_locked(cache, address);
    if (block == NULL || block->is_freed)
        return false;
    *item = vmm__reserved_item(cache, block);
    return true;
}

/* The caller holds the grow lock, under which no address changes its heap. */
static vmm_status address_read_locked(struct vmm_cache *cache, uint64_t address, vmm_item *item)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    uint64_t inner = address;
    struct heap *heap = vmm__alloc_owner(cache, &inner);
    if (heap == NULL && reserved_read_locked(cache, address, item))
        return VMM_OK;
    if (heap == NULL)
        return vmm__block_ref_none("vmm_find", NULL, address);
    vmm__lane_lock(heap->lane);
    bool found = block_read(heap, inner, item);
    vmm_status status = found ? VMM_OK : vmm__block_ref_none("vmm_find", heap, inner);
    if (heap->lane->has_source)
        item->address = vmm__sourced_outer(&cache->vm, item->address);
    vmm__lane_unlock(heap->lane);
    if (found && cache->debug != NULL && !heap->lane->is_imported) {
        cache->debug_view->show(cache->debug, item);
        if (item->state != VMM_ITEM_LIVE || address - item->address >= item->bytes)
            status = vmm__block_ref_none("vmm_find", NULL, address);
    }
    item->stream = heap->lane->stream;
    item->pool = heap->lane->pool->handle;
    item->pool_id = heap->lane->pool->id;
    item->is_small = heap->is_small;
    item->is_imported = heap->lane->is_imported;
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
    vmm_item found = { .kind = VMM_ITEM_BLOCK, .state = VMM_ITEM_LIVE };
    vmm__fair_lock(&cache->grow_lock);
    status = address_read_locked(cache, (uint64_t)(uintptr_t)address, &found);
    vmm__fair_unlock(&cache->grow_lock);
    if (status != VMM_OK)
        return status;
    memcpy(item, &found, vmm__min(size, sizeof found));
    item->struct_size = size;
    return VMM_OK;
}

uint64_t vmm_block_bytes(vmm_cache *cache, uint64_t bytes)
{
    if (cache == NULL || bytes > cache->vm.arena.limit_bytes)
        return 0;
    if (cache->debug != NULL)
        return cache->debug_view->block_bytes(cache->debug, bytes);
    return vmm__cache_block_bytes(cache, bytes);
}
