/* Reserved blocks from vmm_reserve() to vmm_free(): see reserve.h. */
#include "cache/reserve/reserve.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/cache.h"

/* ---- Find ---------------------------------------------------------------------------------- */

/* The number of blocks that begin at a granule or before it. */
static uint64_t position_of(const struct reserves *reserves, uint64_t granule)
{
    uint64_t low = 0;
    uint64_t high = reserves->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (reserves->sorted[middle]->first <= granule)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct reserved *vmm__reserved_around_locked(const struct vmm_cache *cache, uint64_t address)
{
    uint64_t granule = vmm__arena_granule(&cache->vm.arena, address);
    uint64_t position = position_of(&cache->reserves, granule);
    struct reserved *block = position == 0 ? NULL : cache->reserves.sorted[position - 1];
    return block != NULL && granule - block->first < block->granules ? block : NULL;
}

struct reserved *vmm__reserved_find_locked(const struct vmm_cache *cache, uint64_t address)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    struct reserved *block = vmm__reserved_around_locked(cache, address);
    return block != NULL && block->address == address && !block->is_freed ? block : NULL;
}

bool vmm__reserved_may_own(const struct vmm_cache *cache, uint64_t address)
{
    return atomic_load_explicit(&cache->reserves.has_been_used, memory_order_acquire) &&
           vmm__arena_contains(&cache->vm.arena, address) &&
           vmm__directory_heap(&cache->directory, address) == NULL;
}

bool vmm__reserved_has(struct vmm_cache *cache, uint64_t address)
{
    if (!vmm__reserved_may_own(cache, address))
        return false;
    vmm__fair_lock(&cache->grow_lock);
    bool has = vmm__reserved_find_locked(cache, address) != NULL;
    vmm__fair_unlock(&cache->grow_lock);
    return has;
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

/* ---- The sorted array ---------------------------------------------------------------------- */

static void sorted_insert(struct reserves *reserves, struct reserved *block)
{
    uint64_t at = position_of(reserves, block->first);
    for (uint64_t i = reserves->count++; i > at; i--)
        reserves->sorted[i] = reserves->sorted[i - 1];
    reserves->sorted[at] = block;
}

static void sorted_remove(struct reserves *reserves, const struct reserved *block)
{
    for (uint64_t i = position_of(reserves, block->first); i < reserves->count; i++)
        reserves->sorted[i - 1] = reserves->sorted[i];
    reserves->count--;
}

static void range_set(struct vmm_cache *cache, struct reserved *block, uint64_t granule,
                      uint64_t count)
{
    block->first = granule;
    block->granules = count;
    block->address = vmm__arena_address(&cache->vm.arena, granule);
}

void vmm__reserved_range_set(struct vmm_cache *cache, struct reserved *block, uint64_t granule,
                             uint64_t count)
{
    sorted_remove(&cache->reserves, block);
    range_set(cache, block, granule, count);
    sorted_insert(&cache->reserves, block);
}

/* ---- Reserve ------------------------------------------------------------------------------- */

static vmm_status range_make(struct vmm_cache *cache, struct reserved *block)
{
    uint64_t granule;
    struct reserves *reserves = &cache->reserves;
    if (!vmm__host_array_grow((void **)&reserves->sorted, &reserves->capacity, reserves->count,
                              sizeof(struct reserved *)))
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_reserve: no host memory to list the block");
    (void)vmm__limbo_drain(&cache->vm, NULL); /* it may have addresses */
    vmm_status status = vmm__arena_find_row(&cache->vm.arena, block->granules, &granule);
    if (status != VMM_OK)
        return status;
    vmm__range_take(&cache->vm, granule, block->granules);
    range_set(cache, block, granule, block->granules);
    return VMM_OK;
}

/* Adds a block to the records, and counts it as an allocation without memory. */
static void block_add(struct vmm_cache *cache, struct reserved *block)
{
    struct lane *lane = block->lane;
    sorted_insert(&cache->reserves, block);
    atomic_store_explicit(&cache->reserves.has_been_used, true, memory_order_release);
    lane->reserved_blocks++;
    vmm__lanes_touch(&cache->lanes, lane);
    vmm__cache_lane_lock_slow(cache, lane);
    vmm__counters_alloc(&lane->counters, &lane->pool->totals, 0, 0);
    vmm__biased_unlock(&lane->lock);
}

vmm_status vmm__reserve(struct vmm_cache *cache, struct lane *lane, uint64_t bytes,
                        uint64_t unit_bytes, void **out)
{
    unsigned shift = cache->vm.arena.granule_shift;
    uint64_t rounded = bytes;
    (void)vmm__round_up_checked(bytes, unit_bytes, &rounded); /* the caller has checked it */
    struct reserved *block = vmm__host_alloc(1, sizeof *block);
    if (block == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vmm_reserve: no host memory for the block's record");
    *block = (struct reserved){ .lane = lane,
                                .bytes = bytes,
                                .granules = rounded >> shift,
                                .unit_granules = (uint32_t)(unit_bytes >> shift) };
    vmm__uses_init(&block->uses, &cache->clock);
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = vmm__lane_asleep_check("vmm_reserve", lane);
    if (status == VMM_OK)
        status = range_make(cache, block);
    if (status == VMM_OK) {
        block_add(cache, block);
        *out = (void *)(uintptr_t)block->address;
    }
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
                                 .stream = (uint64_t)(uintptr_t)block->lane->stream,
                                 .pool = (uint64_t)(uintptr_t)block->lane->pool->handle };
    if (recorder == NULL || block->is_freed)
        return;
    vmm__recorder_push(recorder, event);
    char name[VMM_NAME_BYTES] = "";
    if (kind == TRACE_ALLOC)
        vmm__names_read(&cache->directory.names, block->address, name);
    if (name[0] != '\0')
        unit_name_push(cache, recorder, chunk, name);
}

void vmm__reserved_tell(struct vmm_cache *cache, const struct reserved *block, vmm_change_kind kind,
                        const struct chunk *chunk)
{
    unit_record(cache, block, kind == VMM_CHANGE_MAP ? TRACE_ALLOC : TRACE_FREE, chunk);
    vmm__listener_call(&block->lane->large, kind, vmm__chunk_address(&cache->vm, chunk),
                       vmm__chunk_bytes(&cache->vm, chunk));
}

struct clock *vmm__reserved_clock(struct vmm_cache *cache, const struct reserved *block)
{
    return vmm__uses_count(&block->uses) == 0 ? block->lane->clock : &cache->clock;
}

void vmm__reserved_discard(struct vmm_cache *cache, struct reserved *block, uint64_t granule,
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
        vmm__limbo_put(&cache->vm, chunk, clock, vmm__clock_now(clock));
    }
}

/* ---- Free ---------------------------------------------------------------------------------- */

/* Frees the record of a block without memory in use. */
static void block_close(struct vmm_cache *cache, struct reserved *block)
{
    sorted_remove(&cache->reserves, block);
    vmm__range_end(&cache->vm, block->first, block->granules);
    block->lane->reserved_blocks--;
    vmm__heap_drained_push(&block->lane->large);
    vmm__uses_forget_all(&block->uses);
    vmm__host_free(block, sizeof *block);
}

static void memory_discard(struct vmm_cache *cache, struct reserved *block)
{
    vmm__biased_lock(&block->lane->lock);
    vmm__reserved_discard(cache, block, block->first, block->granules);
    vmm__biased_unlock(&block->lane->lock);
}

/* From now on the program does not have the block. */
static void block_uncount(struct vmm_cache *cache, struct reserved *block)
{
    struct lane *lane = block->lane;
    uint64_t bytes = block->committed_granules << cache->vm.arena.granule_shift;
    uint64_t limit = block->first + block->granules;
    for (uint64_t at = block->first; at < limit;) {
        const struct chunk *chunk = vmm__reserved_chunk(cache, at, limit, &at);
        if (chunk != NULL && chunk->state == CHUNK_HELD)
            unit_record(cache, block, TRACE_FREE, chunk);
    }
    vmm__names_drop(&cache->directory.names, block->address);
    block->is_freed = true;
    block->is_pinned = false;
    vmm__cache_lane_lock_slow(cache, lane);
    vmm__counters_free(&lane->counters, &lane->pool->totals, bytes, bytes);
    vmm__biased_unlock(&lane->lock);
}

static void freed_end(struct vmm_cache *cache, struct reserved *block)
{
    memory_discard(cache, block);
    block_close(cache, block);
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
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = free_locked(cache, address);
    vmm__fair_unlock(&cache->grow_lock);
    return status;
}

void vmm__reserves_end_locked(struct vmm_cache *cache, const struct pool *pool)
{
    const struct reserves *reserves = &cache->reserves;
    VMM_ASSERT_HELD(&cache->grow_lock);
    for (uint64_t i = reserves->count; i-- > 0;) {
        struct reserved *block = reserves->sorted[i];
        const struct lane *lane = block->lane;
        if (block->is_freed && (pool == NULL ? !vmm__lane_is_retained(lane) : lane->pool == pool))
            freed_end(cache, block);
    }
}

void vmm__reserves_fini(struct reserves *reserves)
{
    while (reserves->count > 0) {
        struct reserved *block = reserves->sorted[--reserves->count];
        vmm__uses_fini(&block->uses);
        vmm__host_free(block, sizeof *block);
    }
    vmm__host_free(reserves->sorted, reserves->capacity * sizeof(struct reserved *));
}

/* ---- Names, pins and uses ------------------------------------------------------------------ */

/* Names the units of a block that have memory in the recording. */
static void units_name(struct vmm_cache *cache, const struct reserved *block)
{
    struct recorder *recorder =
        atomic_load_explicit(&cache->directory.recorder, memory_order_acquire);
    uint64_t limit = block->first + block->granules;
    char name[VMM_NAME_BYTES];
    vmm__names_read(&cache->directory.names, block->address, name);
    for (uint64_t at = block->first; recorder != NULL && at < limit;) {
        const struct chunk *chunk = vmm__reserved_chunk(cache, at, limit, &at);
        if (chunk != NULL && chunk->state == CHUNK_HELD)
            unit_name_push(cache, recorder, chunk, name);
    }
}

vmm_status vmm__reserved_name(struct vmm_cache *cache, uint64_t address, const char *text)
{
    struct block_names *names = &cache->directory.names;
    vmm_status status = VMM_OK;
    vmm__fair_lock(&cache->grow_lock);
    const struct reserved *block = vmm__reserved_find_locked(cache, address);
    if (block == NULL)
        status = VMM__NOT_FOUND;
    else if (text != NULL)
        status = vmm__names_set(names, address, text);
    else
        vmm__names_drop(names, address);
    if (status == VMM_OK)
        units_name(cache, block);
    vmm__fair_unlock(&cache->grow_lock);
    return status;
}

vmm_status vmm__reserved_pin(struct vmm_cache *cache, uint64_t address, bool is_pinned)
{
    vmm__fair_lock(&cache->grow_lock);
    struct reserved *block = vmm__reserved_find_locked(cache, address);
    if (block != NULL)
        block->is_pinned = is_pinned;
    vmm__fair_unlock(&cache->grow_lock);
    return block == NULL ? VMM__NOT_FOUND : VMM_OK;
}

vmm_status vmm__reserved_use(struct vmm_cache *cache, uint64_t address, const struct lane *user)
{
    vmm_status status = VMM_OK;
    vmm__fair_lock(&cache->grow_lock);
    struct reserved *block = vmm__reserved_find_locked(cache, address);
    if (block == NULL)
        status = VMM__NOT_FOUND;
    else if (user != NULL && !vmm__lane_is_of(block->lane, user))
        status = vmm__uses_add(&block->uses, USES_KEY, vmm__lane_user(user));
    vmm__fair_unlock(&cache->grow_lock);
    return status;
}
