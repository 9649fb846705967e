/* Reserved blocks from vmm_reserve() to vmm_free(): see reserve.h. */
#include "cache/reserve/reserve.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/cache.h"

/* ---- Find ---------------------------------------------------------------------------------- */

struct reserved *vmm__reserved_around_locked(const struct vmm_cache *cache, uint64_t address)
{
    if (!vmm__reserved_owns(cache, address))
        return NULL;
    return vmm__reserved_of(vmm__directory_entry(&cache->directory, address)->first);
}

struct reserved *vmm__reserved_find_locked(const struct vmm_cache *cache, uint64_t address)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    struct reserved *block = vmm__reserved_around_locked(cache, address);
    bool is_it = block != NULL && block->block.address == address && !vmm__reserved_is_freed(block);
    return is_it ? block : NULL;
}

bool vmm__reserved_has(struct vmm_cache *cache, uint64_t address)
{
    if (!vmm__reserved_owns(cache, address))
        return false;
    VMM_HOLD_FAIR(&cache->grow_lock);
    return vmm__reserved_find_locked(cache, address) != NULL;
}

uint64_t vmm__reserved_first(const struct vmm_cache *cache, const struct reserved *block)
{
    return vmm__arena_granule(&cache->vm.arena, block->block.address);
}

uint64_t vmm__reserved_end(const struct vmm_cache *cache, const struct reserved *block)
{
    return vmm__arena_granule(&cache->vm.arena, vmm__block_end(&block->block) - 1) + 1;
}

struct chunk *vmm__reserved_chunk(const struct vmm_cache *cache, uint64_t granule, uint64_t limit,
                                  uint64_t *end)
{
    struct chunk *chunk = vmm__vm_chunk(&cache->vm, granule);
    *end = granule + (chunk == NULL ? 1 : chunk->granules);
    while (chunk == NULL && *end < limit && vmm__vm_chunk(&cache->vm, *end) == NULL)
        (*end)++;
    return chunk;
}

/* ---- Reserve ------------------------------------------------------------------------------- */

void vmm__reserved_range_set(struct reserved *block, uint64_t address, uint64_t bytes)
{
    struct heap *heap = block->lane->reserved;
    struct block *at = &block->block;
    uint64_t before = address == at->address ? at->node.size : 0; /* bytes that it keeps */
    VMM_ASSERT_HELD(&block->lane->lock);
    if (bytes > before)
        vmm__heap_reserve(heap, at, address + before, bytes - before);
    if (before == 0 && at->node.size > 0)
        vmm__heap_unreserve(heap, at->address, at->node.size);
    else if (bytes < before)
        vmm__heap_unreserve(heap, address + bytes, before - bytes);
    at->address = address;
    at->node.size = bytes;
}

static vmm_status range_make(struct vmm_cache *cache, uint64_t granules, uint64_t *granule)
{
    (void)vmm__limbo_drain(&cache->vm, NULL); /* it may have addresses */
    vmm_status status = vmm__arena_find_row(&cache->vm.arena, granules, granule);
    if (status == VMM_OK)
        vmm__range_take(&cache->vm, *granule, granules);
    return status;
}

static void list_add(struct vmm_cache *cache, struct reserved *block)
{
    block->next = cache->reserves;
    block->link = &cache->reserves;
    if (block->next != NULL)
        block->next->link = &block->next;
    cache->reserves = block;
}

static void list_remove(const struct reserved *block)
{
    *block->link = block->next;
    if (block->next != NULL)
        block->next->link = block->link;
}

/* Adds a block, and counts it as an allocation without memory. */
static void block_add(struct vmm_cache *cache, struct reserved *block, uint64_t address,
                      uint64_t bytes)
{
    struct lane *lane = block->lane;
    list_add(cache, block);
    vmm__lanes_touch(&cache->lanes, lane);
    vmm__cache_lane_lock_slow(cache, lane);
    vmm__reserved_range_set(block, address, bytes);
    vmm__counters_alloc(&lane->counters, &lane->owner.pool->totals, 0, 0);
    vmm__biased_unlock(&lane->lock);
}

static vmm_status reserve_locked(struct vmm_cache *cache, struct reserved *block, uint64_t bytes)
{
    uint64_t granule = 0;
    vmm_status status = vmm__lane_asleep_check("vmm_reserve", block->lane);
    if (status == VMM_OK)
        status = vmm__lane_reserved_keep(block->lane);
    if (status == VMM_OK)
        status = range_make(cache, bytes >> cache->vm.arena.granule_shift, &granule);
    if (status == VMM_OK)
        block_add(cache, block, vmm__arena_address(&cache->vm.arena, granule), bytes);
    return status;
}

vmm_status vmm__reserve(struct vmm_cache *cache, struct lane *lane, uint64_t bytes,
                        uint64_t unit_bytes, void **out)
{
    uint64_t rounded = bytes;
    (void)vmm__round_up_checked(bytes, unit_bytes, &rounded); /* the caller has checked it */
    struct reserved *block = vmm__host_alloc(1, sizeof *block);
    if (block == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_reserve: no host memory for the block's record");
    *block = (struct reserved){ .block = { .requested_bytes = bytes, .state = BLOCK_RESERVED },
                                .lane = lane,
                                .unit_granules =
                                    (uint32_t)(unit_bytes >> cache->vm.arena.granule_shift) };
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = reserve_locked(cache, block, rounded);
    if (status == VMM_OK)
        *out = (void *)(uintptr_t)block->block.address;
    vmm__fair_unlock(&cache->grow_lock);
    if (status != VMM_OK)
        vmm__host_free(block, sizeof *block);
    return vmm__error_end(&line, status);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void unit_name_push(const struct vmm_cache *cache, struct recorder *recorder,
                           const struct chunk *chunk, const char *text)
{
    struct trace_event event = { .kind = TRACE_NAME,
                                 .address = vmm__chunk_address(&cache->vm, chunk) };
    vmm__recorder_push_text(recorder, event, text);
}

/* A unit with memory is a block of a trace, and has the name of its block. */
static void unit_record(struct vmm_cache *cache, const struct reserved *block, enum trace_kind kind,
                        const struct chunk *chunk)
{
    struct recorder *recorder =
        atomic_load_explicit(&cache->directory.recorder, memory_order_acquire);
    struct trace_event event = { .kind = kind,
                                 .address = vmm__chunk_address(&cache->vm, chunk),
                                 .bytes = vmm__chunk_bytes(&cache->vm, chunk),
                                 .stream = (uint64_t)(uintptr_t)block->lane->owner.stream,
                                 .pool = (uint64_t)(uintptr_t)block->lane->owner.pool->handle };
    if (recorder == NULL || vmm__reserved_is_freed(block))
        return;
    vmm__recorder_push(recorder, event);
    char name[VMM_NAME_BYTES] = "";
    if (kind == TRACE_ALLOC)
        vmm__notes_name_read(&block->lane->notes, block->block.address, name);
    if (name[0] != '\0')
        unit_name_push(cache, recorder, chunk, name);
}

void vmm__reserved_tell(struct vmm_cache *cache, const struct reserved *block, vmm_change_kind kind,
                        const struct chunk *chunk)
{
    unit_record(cache, block, kind == VMM_CHANGE_MAP ? TRACE_ALLOC : TRACE_FREE, chunk);
    vmm__listener_call(block->lane->reserved, kind, vmm__chunk_address(&cache->vm, chunk),
                       vmm__chunk_bytes(&cache->vm, chunk));
}

struct clock *vmm__reserved_clock(struct vmm_cache *cache, const struct reserved *block)
{
    VMM_ASSERT_HELD(&block->lane->lock);
    bool is_used = vmm__notes_has_uses(&block->lane->notes, block->block.address);
    return is_used ? &cache->clock : block->lane->clock;
}

/* Puts the chunks in use of `count` granules into limbo. */
static void units_discard(struct vmm_cache *cache, struct reserved *block, uint64_t granule,
                          uint64_t count)
{
    struct clock *clock = vmm__reserved_clock(cache, block);
    uint64_t limit = granule + count;
    for (uint64_t at = granule; at < limit;) {
        struct chunk *chunk = vmm__reserved_chunk(cache, at, limit, &at);
        if (chunk == NULL || chunk->state != CHUNK_HELD)
            continue;
        vmm__reserved_tell(cache, block, VMM_CHANGE_UNMAP, chunk);
        block->committed_granules -= chunk->granules;
        block->lane->reserved_granules -= chunk->granules;
        vmm__limbo_put(&cache->vm, chunk, clock, vmm__clock_now(clock));
    }
}

void vmm__reserved_decommit(struct vmm_cache *cache, struct reserved *block, uint64_t granule,
                            uint64_t count)
{
    struct lane *lane = block->lane;
    uint64_t before = block->committed_granules;
    units_discard(cache, block, granule, count);
    uint64_t bytes = (before - block->committed_granules) << cache->vm.arena.granule_shift;
    vmm__counters_shrink(&lane->counters, &lane->owner.pool->totals, bytes, bytes);
}

/* ---- Free ---------------------------------------------------------------------------------- */

/* From now on the program does not have the block. */
static void block_uncount(struct vmm_cache *cache, struct reserved *block)
{
    struct lane *lane = block->lane;
    uint64_t bytes = block->committed_granules << cache->vm.arena.granule_shift;
    uint64_t limit = vmm__reserved_end(cache, block);
    for (uint64_t at = vmm__reserved_first(cache, block); at < limit;) {
        const struct chunk *chunk = vmm__reserved_chunk(cache, at, limit, &at);
        if (chunk != NULL && chunk->state == CHUNK_HELD)
            unit_record(cache, block, TRACE_FREE, chunk);
    }
    vmm__cache_lane_lock_slow(cache, lane);
    (void)vmm__notes_name(&lane->notes, block->block.address, NULL); /* the uses stay */
    block->block.is_noted = vmm__notes_has(&lane->notes, block->block.address);
    block->block.pins = 0;
    block->block.state = BLOCK_RETAINED;
    vmm__counters_free(&lane->counters, &lane->owner.pool->totals, bytes, bytes);
    vmm__biased_unlock(&lane->lock);
}

/* Ends a freed block: its memory goes into limbo. */
static void freed_end(struct vmm_cache *cache, struct reserved *block)
{
    struct lane *lane = block->lane;
    uint64_t first = vmm__reserved_first(cache, block);
    uint64_t count = vmm__reserved_end(cache, block) - first;
    vmm__biased_lock(&lane->lock);
    units_discard(cache, block, first, count);
    vmm__notes_drop(&lane->notes, block->block.address);
    vmm__reserved_range_set(block, block->block.address, 0);
    vmm__biased_unlock(&lane->lock);
    vmm__range_end(&cache->vm, first, count);
    list_remove(block);
    vmm__host_free(block, sizeof *block);
}

static vmm_status free_locked(struct vmm_cache *cache, uint64_t address)
{
    struct reserved *block = vmm__reserved_find_locked(cache, address);
    if (block == NULL)
        return VMM__NOT_FOUND;
    bool stays = vmm__lane_is_retained(block->lane);
    block_uncount(cache, block);
    if (stays)
        return VMM_OK;
    freed_end(cache, block);
    vmm__limbo_drain_quietly(&cache->vm); /* what work uses stays there */
    vmm__cache_lanes_vacate(cache);
    return VMM_OK;
}

vmm_status vmm__reserved_free(struct vmm_cache *cache, uint64_t address)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    return free_locked(cache, address);
}

void vmm__reserves_end_locked(struct vmm_cache *cache, const struct pool *pool)
{
    struct reserved *next;
    VMM_ASSERT_HELD(&cache->grow_lock);
    for (struct reserved *block = cache->reserves; block != NULL; block = next) {
        const struct lane *lane = block->lane;
        next = block->next;
        if (vmm__reserved_is_freed(block) &&
            (pool == NULL ? !vmm__lane_is_retained(lane) : lane->owner.pool == pool))
            freed_end(cache, block);
    }
}

void vmm__reserves_fini(struct reserved *block)
{
    while (block != NULL) {
        struct reserved *next = block->next;
        vmm__host_free(block, sizeof *block);
        block = next;
    }
}

/* ---- Names --------------------------------------------------------------------------------- */

/* Names the units of a block that have memory in the recording. */
static void units_name(struct vmm_cache *cache, struct recorder *recorder,
                       const struct reserved *block)
{
    uint64_t limit = vmm__reserved_end(cache, block);
    char name[VMM_NAME_BYTES];
    vmm__biased_lock(&block->lane->lock);
    vmm__notes_name_read(&block->lane->notes, block->block.address, name);
    vmm__biased_unlock(&block->lane->lock);
    for (uint64_t at = vmm__reserved_first(cache, block); at < limit;) {
        const struct chunk *chunk = vmm__reserved_chunk(cache, at, limit, &at);
        if (chunk != NULL && chunk->state == CHUNK_HELD)
            unit_name_push(cache, recorder, chunk, name);
    }
}

void vmm__reserved_record_name(struct vmm_cache *cache, struct recorder *recorder, uint64_t address)
{
    VMM_HOLD_FAIR(&cache->grow_lock);
    const struct reserved *block = vmm__reserved_find_locked(cache, address);
    if (block != NULL)
        units_name(cache, recorder, block);
}
