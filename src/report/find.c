/* From an address to its block, and from a request to its block's size: see vmm_find(). */
#include "base/arith.h"
#include "base/error.h"
#include "heap/place.h"
#include "policy/cache.h"

#include <string.h>

static bool place_read(const struct heap *heap, uint64_t address, vmm_item *item)
{
    struct place place;
    if (!vmm__place_around(heap, address, &place) || !vmm__place_is_live(&place))
        return false;
    item->address = vmm__place_address(&place);
    item->bytes = vmm__place_bytes(&place);
    item->requested_bytes = vmm__place_requested_bytes(&place);
    return true;
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
    bool found = place_read(heap, address, item);
    vmm__pool_unlock(heap->pool);
    if (found && cache->guard != NULL) {
        cache->guard_view->show(cache->guard, item);
        found = item->state == VMM_ITEM_LIVE && address - item->address < item->bytes;
    }
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
    if (size < offsetof(vmm_item, stream) || size > STRUCT_BYTES_MOST)
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
    if (cache->guard != NULL)
        return cache->guard_view->block_bytes(cache->guard, bytes);
    return vmm__cache_block_bytes(cache, bytes);
}
