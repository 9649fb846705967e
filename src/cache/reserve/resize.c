/* Reserved blocks of another size: see reserve.h. Their memory is never copied. */
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/cache.h"
#include "cache/reserve/reserve.h"

static vmm_status resize_refuse(const struct reserved *block, vmm_status status, const char *why)
{
    return vmm__error(status, "vmm_resize: the block at 0x%llx cannot %s",
                      (unsigned long long)block->block.address, why);
}

/* Gives up the bytes beyond `bytes`. */
static vmm_status block_shrink(struct vmm_cache *cache, struct reserved *block, uint64_t bytes)
{
    struct lane *lane = block->lane;
    uint64_t from = vmm__reserved_first(cache, block) + (bytes >> cache->vm.arena.granule_shift);
    uint64_t left = vmm__reserved_end(cache, block) - from;
    if (left == 0)
        return VMM_OK;
    if (block->block.pins != 0 || vmm__lane_is_retained(lane))
        return resize_refuse(block, VMM_ERR_INVALID_ARGUMENT,
                             "shrink: it is under vmm_pin(), or its pool is retained");
    vmm__reserved_decommit(cache, block, from, left);
    vmm__reserved_range_set(block, block->block.address, bytes);
    vmm__range_end(&cache->vm, from, left);
    return VMM_OK;
}

/* ---- Move ---------------------------------------------------------------------------------- */

/* The chunks in use of a block, and where they go. */
struct parts {
    struct memory_part *list;
    uint32_t count;
    uint64_t capacity;
};

static vmm_status parts_list(struct vmm_cache *cache, const struct reserved *block, uint64_t to,
                             struct parts *parts)
{
    uint64_t first = vmm__reserved_first(cache, block);
    uint64_t limit = vmm__reserved_end(cache, block);
    *parts = (struct parts){ .capacity = block->committed_granules / block->unit_granules + 1 };
    parts->list = vmm__host_alloc(parts->capacity, sizeof *parts->list);
    if (parts->list == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_resize: no host memory to list the chunks");
    for (uint64_t at = first; at < limit;) {
        struct chunk *chunk = vmm__reserved_chunk(cache, at, limit, &at);
        if (chunk != NULL && chunk->state == CHUNK_HELD)
            parts->list[parts->count++] =
                (struct memory_part){ .chunk = chunk, .granule = chunk->first - first + to };
    }
    return VMM_OK;
}

static void parts_free(struct parts *parts)
{
    vmm__host_free(parts->list, parts->capacity * sizeof *parts->list);
}

static void parts_tell(struct vmm_cache *cache, const struct reserved *block,
                       const struct parts *parts, vmm_change_kind kind)
{
    for (uint32_t i = 0; i < parts->count; i++)
        vmm__reserved_tell(cache, block, kind, parts->list[i].chunk);
}

/* Makes `to` the range of the block. Cannot fail. */
static void move_settle(struct vmm_cache *cache, struct reserved *block, const struct parts *parts,
                        uint32_t aliases, uint64_t to, uint64_t bytes)
{
    struct clock *clock = vmm__reserved_clock(cache, block);
    uint64_t before = block->block.address;
    uint64_t first = vmm__reserved_first(cache, block);
    uint64_t count = vmm__reserved_end(cache, block) - first;
    parts_tell(cache, block, parts, VMM_CHANGE_UNMAP);
    vmm__move_settle(&cache->vm, parts->list, parts->count, aliases, clock, vmm__clock_now(clock));
    parts_tell(cache, block, parts, VMM_CHANGE_MAP);
    vmm__reserved_range_set(block, vmm__arena_address(&cache->vm.arena, to), bytes);
    vmm__range_end(&cache->vm, first, count);
    vmm__uses_move(&block->lane->uses, before, block->block.address);
    if (block->block.is_named)
        vmm__names_move(&cache->directory.names, before, block->block.address);
}

static vmm_status parts_move(struct vmm_cache *cache, struct reserved *block,
                             const struct parts *parts, uint64_t to, uint64_t bytes)
{
    uint32_t aliases;
    uint64_t count = bytes >> cache->vm.arena.granule_shift;
    vmm__range_take(&cache->vm, to, count);
    vmm_status status = vmm__move_begin(&cache->vm, parts->list, parts->count, &aliases);
    if (status == VMM_OK) {
        move_settle(cache, block, parts, aliases, to, bytes);
        return VMM_OK;
    }
    vmm__range_end(&cache->vm, to, count);
    return status;
}

/* Maps the chunks of a block at a larger range. */
static vmm_status block_move(struct vmm_cache *cache, struct reserved *block, uint64_t bytes)
{
    uint64_t to;
    struct parts parts;
    if (block->block.pins != 0 || vmm__lane_is_retained(block->lane))
        return resize_refuse(block, VMM_ERR_INVALID_ARGUMENT,
                             "move: it is under vmm_pin(), or its pool is retained");
    if (!cache->driver->has_aliases)
        return resize_refuse(block, VMM_ERR_UNSUPPORTED,
                             "move: the driver maps memory at one address only");
    vmm_status status =
        vmm__arena_find_row(&cache->vm.arena, bytes >> cache->vm.arena.granule_shift, &to);
    if (status == VMM_OK)
        status = parts_list(cache, block, to, &parts);
    if (status != VMM_OK)
        return status;
    status = parts_move(cache, block, &parts, to, bytes);
    parts_free(&parts);
    return status;
}

/* Makes the block begin with its `rounded` first bytes of addresses. */
static vmm_status addresses_change(struct vmm_cache *cache, struct reserved *block,
                                   uint64_t rounded)
{
    const struct arena *arena = &cache->vm.arena;
    uint64_t end = vmm__reserved_end(cache, block);
    uint64_t before = block->block.node.size;
    if (rounded <= before)
        return block_shrink(cache, block, rounded);
    uint64_t more = (rounded - before) >> arena->granule_shift;
    if (vmm__arena_room_after(arena, end) < more)
        return block_move(cache, block, rounded);
    vmm__range_take(&cache->vm, end, more);
    vmm__reserved_range_set(block, block->block.address, rounded);
    return VMM_OK;
}

static vmm_status resize_locked(struct vmm_cache *cache, struct reserved *block, uint64_t bytes)
{
    const struct arena *arena = &cache->vm.arena;
    uint64_t unit_bytes = (uint64_t)block->unit_granules << arena->granule_shift;
    uint64_t rounded;
    if (!vmm__round_up_checked(bytes, unit_bytes, &rounded) || rounded > arena->limit_bytes)
        return vmm__error(VMM_ERR_ADDRESS_SPACE,
                          "vmm_resize: %llu bytes are more than the arena has: see arena_bytes",
                          (unsigned long long)bytes);
    vmm_status status = vmm__lane_asleep_check("vmm_resize", block->lane);
    if (status != VMM_OK)
        return status;
    (void)vmm__limbo_drain(&cache->vm, NULL); /* old mappings may have the addresses */
    vmm__cache_lane_lock_slow(cache, block->lane);
    status = addresses_change(cache, block, rounded);
    if (status == VMM_OK)
        block->block.requested_bytes = bytes;
    vmm__biased_unlock(&block->lane->lock);
    return status;
}

vmm_status vmm__reserved_resize(struct vmm_cache *cache, uint64_t address, uint64_t bytes,
                                void **out)
{
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    struct reserved *block = vmm__reserved_find_locked(cache, address);
    vmm_status status = block == NULL ? VMM__NOT_FOUND : resize_locked(cache, block, bytes);
    if (status == VMM_OK) {
        vmm__error_restore(&line);
        *out = (void *)(uintptr_t)block->block.address;
    }
    if (status != VMM__NOT_FOUND)
        status = vmm__cache_checked(cache, CHECK_REFILL_EVERY, status);
    vmm__fair_unlock(&cache->grow_lock);
    return status;
}
