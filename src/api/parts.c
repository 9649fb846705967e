/* The physical parts of a block, and descriptors of them: see "Registration" in include/vmmcache/vmmcache.h. */
#include "api/internal.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "debug/debug_mode.h"
#include "lane/block_ref.h"

#include <unistd.h>

/* ---- The block ------------------------------------------------------------------------------- */

/* The program's block, at the inner address of its memory (vm/vm.h). */
struct found {
    uint64_t address;
    uint64_t bytes;
    const struct lane *lane;
    bool stays; /* under vmm_pin(), or exported */
};

/* Makes of the lane's block the one that debug mode has made of it; one without a record stays as it is. */
static void debug_show(const struct vmm_cache *cache, struct found *block)
{
    uint64_t outer = vmm__sourced_outer(&cache->vm, block->address);
    vmm_item item = { .state = VMM_ITEM_LIVE, .address = outer, .bytes = block->bytes };
    if (cache->debug == NULL)
        return;
    cache->debug_view->show(cache->debug, &item);
    block->address += item.address - outer;
    block->bytes = item.bytes;
}

/* Finds a block at its address as the lane knows it. While the grow lock is held, nothing gives it other memory. */
static vmm_status block_find_locked(struct vmm_cache *cache, const char *function, uint64_t address,
                                    struct found *out)
{
    struct block_ref ref;
    uint64_t inner = vmm__sourced_inner(&cache->vm, address);
    struct heap *heap = vmm__cache_heap_of(cache, inner);
    VMM_ASSERT_HELD(&cache->grow_lock);
    if (heap == NULL)
        return vmm__api_unknown_pointer(cache, function, (void *)(uintptr_t)address);
    vmm__lane_lock(heap->lane);
    bool is_live = vmm__lane_find_live_locked(heap->lane, heap, inner, &ref);
    if (is_live)
        *out = (struct found){ .address = inner,
                               .bytes = vmm__block_ref_bytes(&ref),
                               .lane = heap->lane,
                               .stays = vmm__block_ref_is_pinned(&ref) };
    vmm_status status = is_live ? VMM_OK : vmm__block_ref_unknown(function, heap, inner);
    vmm__lane_unlock(heap->lane);
    if (status == VMM_OK)
        debug_show(cache, out);
    return status;
}

/* Takes the grow lock if it finds the block and its pool is awake. */
static vmm_status block_lock(const struct api_call *call, const void *ptr, struct found *out)
{
    vmm_cache *cache = call->cache;
    void *inner = (void *)(uintptr_t)ptr;
    vmm_status status = vmm__debug_inner(call, &inner);
    if (status != VMM_OK)
        return status;
    vmm__fair_lock(&cache->grow_lock);
    status = block_find_locked(cache, call->function, (uint64_t)(uintptr_t)inner, out);
    if (status == VMM_OK)
        status = vmm__lane_asleep_check(call->function, out->lane);
    if (status != VMM_OK)
        vmm__fair_unlock(&cache->grow_lock);
    return status;
}

/* ---- Its parts ------------------------------------------------------------------------------- */

/* The chunk at an address of a block; NULL: there is no memory. */
static const struct chunk *chunk_at(const struct vm *vm, uint64_t address)
{
    const struct chunk *chunk = vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, address));
    return chunk != NULL && chunk->state == CHUNK_HELD ? chunk : NULL;
}

/* Takes the first part off a range of a block. False: it was a granule without memory. */
static bool part_take(const struct vmm_cache *cache, struct found *range, vmm_part *part)
{
    const struct vm *vm = &cache->vm;
    const struct chunk *chunk = chunk_at(vm, range->address);
    uint64_t first = vmm__arena_granule(&vm->arena, range->address);
    if (chunk != NULL)
        first = vmm__chunk_mapping(vm, chunk, first);
    *part = (vmm_part){ .struct_size = sizeof *part,
                        .address = vmm__sourced_outer(vm, range->address),
                        .handle_bytes =
                            chunk == NULL ? vm->arena.granule_bytes : vmm__chunk_bytes(vm, chunk),
                        .offset = range->address - vmm__arena_address(&vm->arena, first) };
    if (chunk != NULL && chunk->segment == NULL && !cache->driver->is_plain)
        part->handle = chunk->handle;
    part->bytes = vmm__min(range->bytes, part->handle_bytes - part->offset);
    range->address += part->bytes;
    range->bytes -= part->bytes;
    return chunk != NULL;
}

/* Lists the parts of a block. parts NULL: only counts them. */
static size_t parts_list(const struct vmm_cache *cache, struct found block, vmm_part *parts)
{
    size_t count = 0;
    vmm_part part;
    while (block.bytes > 0) {
        bool has_memory = part_take(cache, &block, &part);
        if (has_memory && parts != NULL)
            parts[count] = part;
        count += has_memory;
    }
    return count;
}

static vmm_status parts_read_locked(const struct vmm_cache *cache, struct found block,
                                    vmm_part **parts, size_t *count)
{
    *count = parts_list(cache, block, NULL);
    if (*count == 0)
        return VMM_OK;
    *parts = vmm__host_alloc(*count, sizeof **parts);
    if (*parts == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_parts_walk: no host memory to list %zu parts",
                          *count);
    (void)parts_list(cache, block, *parts);
    return VMM_OK;
}

vmm_status vmm_parts_walk(vmm_cache *cache, const void *ptr, vmm_part_visitor visit, void *context)
{
    struct found block;
    vmm_part *parts = NULL;
    size_t count = 0;
    struct api_call call = API_CALL(cache, "vmm_parts_walk");
    vmm_status status = vmm__api_admit(cache, call.function, visit, "visit");
    if (status == VMM_OK)
        status = block_lock(&call, ptr, &block);
    if (status != VMM_OK)
        return status;
    status = parts_read_locked(cache, block, &parts, &count);
    vmm__fair_unlock(&cache->grow_lock);
    if (status != VMM_OK)
        return status;
    for (size_t i = 0; i < count && visit(context, &parts[i]) == 0;)
        i++;
    vmm__host_free(parts, count * sizeof *parts);
    return VMM_OK;
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

/* Why no single descriptor can stand for the memory of a range; NULL: one can. Chunks that other processes can import
 * differ from others in their properties, and a pool that adopted some may have both under one block. */
static const char *memory_obstacle(const struct vmm_cache *cache, struct found range)
{
    vmm_part part;
    const struct chunk *first = chunk_at(&cache->vm, range.address);
    while (range.bytes > 0) {
        const struct chunk *chunk = chunk_at(&cache->vm, range.address);
        if (!part_take(cache, &range, &part))
            return "a part of it has no memory: see vmm_commit()";
        if (chunk->reach != first->reach)
            return "it has memory of two kinds: export each part of vmm_parts_walk()";
    }
    return NULL;
}

/* Why a range of a block cannot be exported; NULL: it can. */
static const char *range_obstacle(const struct vmm_cache *cache, struct found block, size_t offset,
                                  size_t bytes)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    if (block.lane->owner.is_imported)
        return "it is imported: the process that exported it can";
    if (block.lane->owner.has_source)
        return "it is memory of a source: ask who made that memory";
    if (!block.stays)
        return "it may get other memory: call vmm_pin() before";
    if (bytes == 0 || offset > block.bytes || bytes > block.bytes - offset)
        return "that is nothing, or beyond the block";
    block.address += offset;
    block.bytes = bytes;
    if (!vmm__is_aligned(block.address | bytes, page_bytes))
        return "that is not whole pages of the host";
    return memory_obstacle(cache, block);
}

vmm_status vmm_dmabuf_export(vmm_cache *cache, const void *ptr, size_t offset, size_t bytes,
                             int *fd)
{
    struct found block;
    struct api_call call = API_CALL(cache, "vmm_dmabuf_export");
    vmm_status status = vmm__api_admit_work(cache, call.function, fd, "fd");
    if (status == VMM_OK)
        status = block_lock(&call, ptr, &block);
    if (status != VMM_OK)
        return status;
    const char *obstacle = range_obstacle(cache, block, offset, bytes);
    vmm__fair_unlock(&cache->grow_lock);
    if (obstacle != NULL)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "vmm_dmabuf_export: %zu bytes at offset %zu of the block at %p: %s",
                          bytes, offset, ptr, obstacle);
    /* The block stays where it is, so this needs no lock. */
    return vmm__driver_dmabuf_export(cache->driver, (uint64_t)(uintptr_t)ptr + offset, bytes, fd);
}
