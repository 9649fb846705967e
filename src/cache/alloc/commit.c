/* Physical memory of reserved blocks: see commit.h. */
#include "cache/alloc/commit.h"
#include "base/error.h"
#include "cache/alloc/refill.h"
#include "cache/reserve/reserve.h"

/* The epoch of a chunk in use that the commit under way has created: no stamp is that late. */
#define EPOCH_NEW UINT64_MAX

/* A part of a reserved block, in granules. */
struct part {
    const char *function;
    uint64_t address; /* of the block */
    uint64_t offset;  /* in bytes */
    uint64_t bytes;
    const struct lane *lane; /* of the block; NULL: of any lane */
    struct reserved *block;  /* set by part_find_locked() */
    uint64_t first;
    uint64_t end;
};

/* ---- Arguments ----------------------------------------------------------------------------- */

static vmm_status part_refuse(const struct part *part, const char *what)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "%s: %llu bytes at offset %llu of the block at 0x%llx: %s", part->function,
                      (unsigned long long)part->bytes, (unsigned long long)part->offset,
                      (unsigned long long)part->address, what);
}

static vmm_status part_find_locked(struct vmm_cache *cache, struct part *part)
{
    const struct arena *arena = &cache->vm.arena;
    struct reserved *block = vmm__reserved_find_locked(cache, part->address);
    if (block == NULL || (part->lane != NULL && part->lane != block->lane))
        return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                          "%s: 0x%llx is not the start of a live block of vmm_reserve()",
                          part->function, (unsigned long long)part->address);
    uint64_t size = block->block.node.size;
    uint64_t unit = (uint64_t)block->unit_granules << arena->granule_shift;
    if (part->offset % unit != 0 || part->bytes % unit != 0)
        return part_refuse(part, "not whole units of the reservation");
    if (part->offset > size || part->bytes > size - part->offset)
        return part_refuse(part, "beyond the reservation");
    part->block = block;
    part->first = vmm__reserved_first(cache, block) + (part->offset >> arena->granule_shift);
    part->end = part->first + (part->bytes >> arena->granule_shift);
    return VMM_OK;
}

/* ---- Commit -------------------------------------------------------------------------------- */

/* Whether a commit gives a chunk to the block: it is new, or in limbo since a decommit. */
static bool is_gained(const struct chunk *chunk)
{
    return chunk != NULL && (chunk->state == CHUNK_LIMBO || chunk->epoch == EPOCH_NEW);
}

static void new_mark(struct vmm_cache *cache, uint64_t granule, uint64_t end)
{
    while (granule < end)
        vmm__reserved_chunk(cache, granule, end, &granule)->epoch = EPOCH_NEW;
}

/* Creates memory where there is none, and gives access to what a failed commit could not give back to the driver. */
static vmm_status units_create(struct vmm_cache *cache, const struct part *part)
{
    struct account *account = &part->block->lane->owner.pool->account;
    vmm_status status = VMM_OK;
    uint64_t end;
    for (uint64_t at = part->first; at < part->end && status == VMM_OK; at = end) {
        struct chunk *chunk = vmm__reserved_chunk(cache, at, part->end, &end);
        if (chunk != NULL) {
            status = vmm__range_access(&cache->vm, chunk);
            continue;
        }
        status = vmm__range_map(&cache->vm, account, at, end - at, part->block->unit_granules);
        if (status == VMM_OK)
            new_mark(cache, at, end);
    }
    return status;
}

/* The check for a block whose stream has ended. No stream can wait there, because the handle may name another one now:
 * the work on what a decommit took must have finished. */
static vmm_status units_have_passed(struct vmm_cache *cache, const struct part *part)
{
    vmm_status status = VMM_OK;
    for (uint64_t at = part->first; at < part->end && status == VMM_OK;) {
        const struct chunk *chunk = vmm__reserved_chunk(cache, at, part->end, &at);
        if (chunk != NULL && chunk->state == CHUNK_LIMBO && chunk->clock != NULL)
            status = vmm__clock_query(chunk->clock, chunk->epoch);
    }
    if (status != VMM__PENDING)
        return status;
    return part_refuse(part,
                       "its stream has ended, and work on memory that vmm_decommit() took has not");
}

/* Orders the block's stream after the other streams that may still use what a decommit took. */
static vmm_status units_follow(struct vmm_cache *cache, const struct part *part)
{
    struct lane *lane = part->block->lane;
    if (vmm__lane_has_ended(lane))
        return units_have_passed(cache, part);
    for (uint64_t at = part->first; at < part->end;) {
        const struct chunk *chunk = vmm__reserved_chunk(cache, at, part->end, &at);
        if (chunk != NULL && chunk->state == CHUNK_LIMBO)
            return vmm__notes_follow(&lane->notes, part->address, lane->owner.stream);
    }
    return VMM_OK;
}

static vmm_status unit_clear(struct vmm_cache *cache, const struct part *part,
                             const struct chunk *chunk)
{
    const struct lane *lane = part->block->lane;
    if (vmm__lane_has_ended(lane)) /* the handle may be another stream's */
        return part_refuse(part, "its stream has ended, so nothing can clear new memory");
    return vmm__driver_clear(cache->driver, vmm__chunk_address(&cache->vm, chunk),
                             vmm__chunk_bytes(&cache->vm, chunk), 0, lane->owner.stream);
}

/* For vmm_config.zero. */
static vmm_status units_clear(struct vmm_cache *cache, const struct part *part)
{
    vmm_status status = VMM_OK;
    for (uint64_t at = part->first; at < part->end && status == VMM_OK;) {
        const struct chunk *chunk = vmm__reserved_chunk(cache, at, part->end, &at);
        if (is_gained(chunk))
            status = unit_clear(cache, part, chunk);
    }
    return status;
}

/* Undoes a failed commit. With vmm_config.zero, the block's stream may still be clearing chunks, new ones and those
 * from limbo, so both wait for all work. */
static void units_undo(struct vmm_cache *cache, const struct part *part)
{
    struct clock *clock = cache->zeroes ? &cache->clock : NULL;
    uint64_t now = cache->zeroes ? vmm__clock_now(clock) : 0;
    VMM_QUIET();
    for (uint64_t at = part->first; at < part->end;) {
        struct chunk *chunk = vmm__reserved_chunk(cache, at, part->end, &at);
        if (chunk != NULL && chunk->state == CHUNK_HELD && chunk->epoch == EPOCH_NEW)
            vmm__limbo_put(&cache->vm, chunk, clock, now);
        else if (chunk != NULL && chunk->state == CHUNK_LIMBO && clock != NULL) {
            chunk->clock = clock;
            chunk->epoch = now;
        }
    }
    (void)vmm__limbo_drain(&cache->vm, NULL);
}

/* Makes the new chunks, and those in limbo, chunks in use. Cannot fail. */
static void units_settle(struct vmm_cache *cache, const struct part *part)
{
    struct lane *lane = part->block->lane;
    uint64_t granules = 0;
    for (uint64_t at = part->first; at < part->end;) {
        struct chunk *chunk = vmm__reserved_chunk(cache, at, part->end, &at);
        if (!is_gained(chunk))
            continue;
        if (chunk->state == CHUNK_LIMBO)
            vmm__limbo_cancel(&cache->vm, chunk);
        chunk->epoch = 0;
        granules += chunk->granules;
        vmm__reserved_tell(cache, part->block, VMM_CHANGE_MAP, chunk);
    }
    uint64_t bytes = granules << cache->vm.arena.granule_shift;
    part->block->committed_granules += granules;
    lane->reserved_granules += granules;
    vmm__counters_grow(&lane->counters, &lane->owner.pool->totals, bytes, bytes);
}

/* The caller holds the grow lock and the lock of the block's lane. */
static vmm_status commit_locked(struct vmm_cache *cache, const struct part *part)
{
    vmm_status status = units_create(cache, part);
    if (status == VMM_OK)
        status = units_follow(cache, part);
    if (status == VMM_OK && cache->zeroes)
        status = units_clear(cache, part);
    if (status == VMM_OK)
        units_settle(cache, part);
    else
        units_undo(cache, part);
    return status;
}

/* For a refill, which may have dropped the locks: the block may be gone, and one of another lane have its address. */
static vmm_status commit_serve(struct vmm_cache *cache, void *context, void **out)
{
    struct part *part = context;
    (void)out;
    vmm_status status = part_find_locked(cache, part);
    return status == VMM_OK ? commit_locked(cache, part) : status;
}

/* The bytes that a commit still has to create. */
static uint64_t missing_bytes(struct vmm_cache *cache, const struct part *part)
{
    uint64_t granules = 0;
    uint64_t end;
    for (uint64_t at = part->first; at < part->end; at = end)
        granules += vmm__reserved_chunk(cache, at, part->end, &end) == NULL ? end - at : 0;
    return granules << cache->vm.arena.granule_shift;
}

static vmm_status commit_first(struct vmm_cache *cache, struct part *part)
{
    vmm_status status = part_find_locked(cache, part);
    if (status != VMM_OK)
        return status;
    struct lane *lane = part->block->lane;
    status = vmm__lane_asleep_check(part->function, lane);
    if (status != VMM_OK)
        return status;
    vmm__cache_lane_lock_slow(cache, lane);
    status = commit_locked(cache, part);
    vmm__biased_unlock(&lane->lock);
    return vmm__cache_checked(cache, CHECK_REFILL_EVERY, status);
}

vmm_status vmm__commit(struct vmm_cache *cache, uint64_t address, uint64_t offset, uint64_t bytes)
{
    struct part part = {
        .function = "vmm_commit", .address = address, .offset = offset, .bytes = bytes
    };
    struct request request = { .serve = commit_serve, .context = &part };
    struct error_line line;
    vmm__error_save(&line);
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = commit_first(cache, &part);
    request.lane = vmm__is_oom(status) ? part.block->lane : NULL;
    if (request.lane != NULL)
        request.bytes = missing_bytes(cache, &part);
    part.lane = request.lane;
    vmm__fair_unlock(&cache->grow_lock);
    if (request.lane != NULL)
        status = vmm__refill_request(cache, &request, NULL);
    return vmm__error_end(&line, status);
}

/* ---- Decommit ------------------------------------------------------------------------------ */

/* The caller holds the lane's lock, too. */
static vmm_status units_give(struct vmm_cache *cache, const struct part *part)
{
    struct lane *lane = part->block->lane;
    if (vmm__lane_is_retained(lane))
        return part_refuse(part, "its pool is retained");
    if (part->block->block.pins != 0)
        return part_refuse(part, "it is under vmm_pin()");
    vmm__notes_record(&lane->notes, part->address);
    vmm__reserved_decommit(cache, part->block, part->first, part->end - part->first);
    return VMM_OK;
}

static vmm_status decommit_locked(struct vmm_cache *cache, struct part *part)
{
    vmm_status status = part_find_locked(cache, part);
    if (status == VMM_OK)
        status = vmm__lane_asleep_check(part->function, part->block->lane);
    if (status != VMM_OK)
        return status;
    vmm__cache_lane_lock_slow(cache, part->block->lane);
    status = units_give(cache, part);
    vmm__biased_unlock(&part->block->lane->lock);
    if (status != VMM_OK)
        return status;
    vmm__limbo_drain_quietly(&cache->vm); /* chunks that work may still use stay there */
    return vmm__cache_checked(cache, CHECK_REFILL_EVERY, VMM_OK);
}

vmm_status vmm__decommit(struct vmm_cache *cache, uint64_t address, uint64_t offset, uint64_t bytes)
{
    struct part part = {
        .function = "vmm_decommit", .address = address, .offset = offset, .bytes = bytes
    };
    VMM_HOLD_FAIR(&cache->grow_lock);
    return decommit_locked(cache, &part);
}
