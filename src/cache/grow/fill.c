/* Creates new memory: see fill.h. */
#include "cache/grow/fill.h"
#include "base/error.h"
#include "cache/grow/target.h"

static vmm_status chunks_create(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                                uint64_t granule, uint64_t count)
{
    struct vm *vm = &cache->vm;
    const struct lane *lane = heap->lane;
    uint32_t chunk_granules = lane->owner.has_own_chunks
                                  ? (uint32_t)count
                                  : vmm__target_chunk_granules(cache, heap, bytes);
    vmm__arena_take(&vm->arena, granule, count);
    vmm_status status = vmm__vm_map(vm, &lane->owner.pool->account, granule, count, chunk_granules);
    if (status != VMM_OK)
        return status;
    status = vmm__vm_access(vm, granule, count);
    if (status == VMM_OK)
        status = vmm__heap_attach(heap, vmm__arena_address(&vm->arena, granule),
                                  count << vm->arena.granule_shift, vmm__clock_now(heap->clock));
    if (status != VMM_OK)
        vmm__vm_discard(vm, granule, count, NULL, 0);
    return status;
}

vmm_status vmm__fill(struct vmm_cache *cache, struct heap *heap, uint64_t bytes, uint64_t granule,
                     uint64_t count)
{
    vmm_status status = chunks_create(cache, heap, bytes, granule, count);
    if (status == VMM_OK)
        return VMM_OK;
    vmm__limbo_drain_quietly(&cache->vm); /* releases what was created before the failure */
    return status;
}
