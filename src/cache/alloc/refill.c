/* Serves a request that missed: see refill.h. */
#include "cache/alloc/refill.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/size.h"
#include "cache/claim.h"
#include "cache/grow/grow.h"
#include "cache/grow/placement.h"
#include "cache/grow/source.h"
#include "cache/grow/split.h"
#include "cache/grow/target.h"
#include "cache/idle/gather.h"
#include "cache/idle/transfer.h"
#include "cache/idle/trim.h"
#include "cache/pool/pools.h"
#include "cache/reclaim/reclaim.h"

#include <stdio.h>

/* ---- The steps of a miss --------------------------------------------------------------------- */

/* A step returns VMM_OK if the lane may now have what the request needs, VMM__NO_FIT if it has nothing to give. An
 * error ends the attempt. */
typedef vmm_status (*refill_step)(struct vmm_cache *cache, const struct request *request);

/* Gathers all idle memory of streams whose work has finished, but for their room. Gives nothing to a lane that hoards:
 * that one takes only what it needs, by step_transfer(). */
static vmm_status step_gather(struct vmm_cache *cache, const struct request *request)
{
    if (vmm__lane_hoards(request->lane) ||
        !vmm__gather(cache, request, vmm__target_gather_bytes(cache, request->heap)))
        return VMM__NO_FIT;
    vmm__lane_takes_count(request->lane, request->has_queued);
    return VMM_OK;
}

/* Frees blocks of the lane that no longer wait; while streams take turns, also gathers. */
static vmm_status step_own(struct vmm_cache *cache, const struct request *request)
{
    (void)vmm__lane_poll_locked(request->lane, UINT32_MAX);
    if (vmm__lane_should_gather_locked(request->lane, request->heap, request->block_bytes))
        (void)step_gather(cache, request);
    return VMM_OK;
}

/* Near a limit: splits the chunk that the block would enter. */
static vmm_status step_split(struct vmm_cache *cache, const struct request *request)
{
    return vmm__split(cache, request->heap, request->block_bytes) ? VMM_OK : VMM__NO_FIT;
}

/* New memory within the footprint target. */
static vmm_status step_within(struct vmm_cache *cache, const struct request *request)
{
    if (request->from != GROW_TARGET)
        return VMM__NO_FIT;
    return vmm__grow_new(cache, request, true);
}

/* Whether the pool has enough free bytes for such a block in each of the cache's lanes with memory: no lane then needs
 * another one's. */
static bool has_one_each(const struct vmm_cache *cache, const struct request *request)
{
    const struct pool *pool = request->lane->owner.pool;
    uint64_t reserved_bytes = vmm__stat_now(&pool->account.reserved_bytes);
    uint64_t allocated_bytes = vmm__stat_now(&pool->totals.allocated_bytes);
    uint64_t free_bytes = reserved_bytes - vmm__min(reserved_bytes, allocated_bytes);
    return free_bytes / request->block_bytes >= cache->lanes.stocked.count;
}

/* New memory beyond the target, for a lane that has taken from others again and again. If there is none, the lane goes
 * on taking. */
static vmm_status step_new(struct vmm_cache *cache, const struct request *request)
{
    struct error_line line;
    if (request->from != GROW_TARGET || !vmm__lane_rather_grows(request->lane) ||
        has_one_each(cache, request))
        return VMM__NO_FIT;
    vmm__error_save(&line);
    vmm__lane_takes_lower(request->lane);
    vmm_status status = vmm__grow_new(cache, request, false);
    return vmm__error_end(&line, vmm__is_oom(status) ? VMM__NO_FIT : status);
}

/* Takes neighbouring idle memory of other streams, in place, as much as the request needs. A take for which the stream
 * waits on the device is not counted (struct takes): the wait is what sharing costs there. */
static vmm_status step_transfer(struct vmm_cache *cache, const struct request *request)
{
    enum idle_when when = vmm__idle_usual(cache, request->lane);
    vmm_status status = vmm__transfer(cache, request, when);
    if (status == VMM_OK && when == IDLE_FINISHED)
        vmm__lane_takes_count(request->lane, request->has_queued);
    return status;
}

/* A view, or new memory beyond the target. */
static vmm_status step_beyond(struct vmm_cache *cache, const struct request *request)
{
    return vmm__grow(cache, request);
}

/* Frees blocks that no longer wait. The search that follows is whole, because a lane has few segments. */
static vmm_status step_segments(struct vmm_cache *cache, const struct request *request)
{
    (void)cache;
    (void)vmm__lane_poll_locked(request->lane, UINT32_MAX);
    return VMM_OK;
}

static vmm_status step_source(struct vmm_cache *cache, const struct request *request)
{
    struct block *block;
    return vmm__source_grow(cache, request->heap, request->block_bytes, &block);
}

/* The steps in order; after each one that gives, the lane is searched. While memory has not run out, the search after
 * step_own is quick, as the fast path's is: it takes no block for which step_split should split a chunk. */
static const refill_step cached_steps[] = { step_own,    step_split,    step_within, step_new,
                                            step_gather, step_transfer, step_beyond, NULL };
static const refill_step sourced_steps[] = { step_segments, step_transfer, step_source, NULL };

static vmm_status refill_stepwise(struct vmm_cache *cache, const struct request *request,
                                  const refill_step *step, void **out)
{
    bool is_quick = step == cached_steps && request->refused == VMM_OK;
    vmm_status status = VMM__NO_FIT;
    for (; *step != NULL && status == VMM__NO_FIT; step++) {
        status = (*step)(cache, request);
        if (status == VMM_OK && is_quick)
            status = vmm__lane_take_locked(request->lane, request->bytes, out);
        else if (status == VMM_OK)
            status = vmm__lane_take_whole_locked(request->lane, request->bytes, out);
        is_quick = false;
    }
    return status;
}

/* ---- Blocks that no step serves -------------------------------------------------------------- */

/* Finds the free block for a request in a pool whose blocks have chunks of their own: there a free block only serves a
 * request of exactly its size. NULL: there is none. */
static struct block *idle_find(const struct vmm_cache *cache, const struct request *request)
{
    const struct size_index *index = &request->heap->index;
    uint64_t bytes = vmm__align_up(request->block_bytes, cache->vm.arena.granule_bytes);
    if (cache->no_caching || !request->lane->owner.has_own_chunks)
        return NULL;
    struct size_node *node = vmm__size_index_find(index, bytes, SEARCH_WHOLE);
    return node != NULL && node->size == bytes ? (struct block *)node : NULL;
}

/* A block with granules of its own. */
static vmm_status refill_alone(struct vmm_cache *cache, const struct request *request, void **out)
{
    struct heap *heap = request->heap;
    (void)vmm__lane_poll_locked(request->lane, UINT32_MAX);
    struct block *block = idle_find(cache, request);
    vmm_status status = VMM_OK;
    if (block == NULL && request->lane->owner.has_source)
        status = vmm__source_grow(cache, heap, request->block_bytes, &block);
    else if (block == NULL)
        status = vmm__grow_alone(cache, request, request->block_bytes, &block);
    if (status != VMM_OK)
        return status;
    return vmm__lane_take_block_locked(request->lane, block, 0, request->bytes, out);
}

/* A block at an alignment: free memory of the heap, or new memory for it. */
static vmm_status refill_aligned(struct vmm_cache *cache, const struct request *request, void **out)
{
    const struct arena *arena = &cache->vm.arena;
    uint64_t alignment = request->alignment;
    uint64_t padding = vmm__max(alignment, arena->granule_bytes) - arena->granule_bytes;
    vmm_status status = VMM_OK;
    (void)vmm__lane_poll_locked(request->lane, UINT32_MAX);
    struct block *block = vmm__heap_find_aligned(request->heap, request->block_bytes, alignment);
    if (block == NULL)
        status = vmm__grow_alone(cache, request, request->block_bytes + padding, &block);
    if (status != VMM_OK)
        return status;
    return vmm__lane_take_aligned_locked(request->lane, request->heap, block, request->bytes,
                                         request->block_bytes, alignment, out);
}

/* ---- Attempts -------------------------------------------------------------------------------- */

/* While a step of the reclaim held no lock, the pool may have gone to sleep, or was destroyed. */
static vmm_status refill_once(struct vmm_cache *cache, const struct request *request, void **out)
{
    vmm_status status = vmm__lane_check_of(request->lane, request->handle);
    if (status == VMM_OK)
        status = vmm__lane_asleep_check("alloc", request->lane);
    if (status != VMM_OK)
        return status;
    vmm__lanes_touch(&cache->lanes, request->lane);
    vmm__lane_counters_flush(request->lane);
    if (request->serve != NULL)
        return request->serve(cache, request->context, out);
    if (request->alignment > 0)
        return refill_aligned(cache, request, out);
    if (request->is_alone)
        return refill_alone(cache, request, out);
    return refill_stepwise(cache, request,
                           request->lane->owner.has_source ? sourced_steps : cached_steps, out);
}

/* Tries again while a failed attempt leaves less reserved than before: the attempt has drained limbo, and there is room
 * now, which no step of reclaim would notice. Only a holder of the grow lock changes the reserved bytes; that may be
 * another thread while the program's source runs. */
static vmm_status refill_attempt(struct vmm_cache *cache, const struct request *request, void **out)
{
    uint64_t reserved_bytes;
    vmm_status status;
    do {
        reserved_bytes = vmm__stat_now(&cache->vm.reserved_bytes);
        status = refill_once(cache, request, out);
    } while (vmm__is_oom(status) && vmm__stat_now(&cache->vm.reserved_bytes) < reserved_bytes);
    VMM_ASSERT(status != VMM__NO_FIT); /* the last step gives what is missing, or fails */
    return status;
}

/* Reclaim also helps when addresses run out, because idle memory and its places in views occupy them. */
static vmm_status refill_locked(struct vmm_cache *cache, struct request *request, void **out)
{
    VMM_ASSERT_HELD(&cache->grow_lock);
    VMM_ASSERT_HELD(&request->lane->lock);
    vmm_status status = refill_attempt(cache, request, out);
    if (!vmm__is_oom(status))
        return status;
    vmm__count(&cache->counts.retries, 1);
    request->owner = request->lane->owner.pool->handle;
    while (vmm__is_oom(status)) {
        request->refused = status;
        vmm_status step_status = vmm__reclaim_next(cache, request);
        if (step_status == VMM__NOTHING)
            break;
        if (step_status != VMM_OK && !vmm__is_oom(step_status))
            return step_status;
        if (request->found != NULL) {
            *out = request->found;
            return VMM_OK;
        }
        status = refill_attempt(cache, request, out);
    }
    if (!vmm__is_oom(status))
        return status;
    vmm__count(&cache->counts.ooms, 1);
    return vmm__reclaim_report(cache, request, status);
}

/* Fails at once: no reclaim could help. */
static vmm_status arena_exceeded(struct vmm_cache *cache, const struct request *request)
{
    char aligned[48] = "";
    char arena[32];
    vmm__count(&cache->counts.ooms, 1);
    if (request->alignment > 0)
        (void)snprintf(aligned, sizeof aligned, " at a multiple of %llu",
                       (unsigned long long)request->alignment);
    vmm_status status =
        vmm__error(VMM_ERR_ADDRESS_SPACE,
                   "alloc: %llu bytes%s are more than the arena of %s has: see arena_bytes",
                   (unsigned long long)request->bytes, aligned,
                   vmm__size_write(arena, sizeof arena, cache->vm.arena.limit_bytes));
    vmm__cache_log(cache, "%s", vmm_last_error());
    return status;
}

/* Finds the heap that must serve a request, and the bytes of its block there. False: the arena is too small. Objects of
 * slabs have no alignment of their own. */
static bool need_find(const struct vmm_cache *cache, struct request *request)
{
    struct lane *lane = request->lane;
    bool is_aligned = request->alignment > 0;
    uint64_t bytes = is_aligned ? vmm__max(request->bytes, SLAB_LARGEST_BYTES + 1) : request->bytes;
    request->is_alone |= cache->no_caching || lane->owner.has_own_chunks;
    if (!vmm__lane_need(lane, bytes, &request->heap, &request->block_bytes))
        return false;
    if (request->is_alone || request->serve != NULL)
        request->heap = &lane->large;
    request->new_bytes = request->serve != NULL ? bytes : 0;
    if (is_aligned) {
        request->block_bytes = vmm__cache_block_bytes(cache, bytes);
        if (!vmm__add_checked(request->block_bytes, request->alignment, &request->new_bytes))
            return false;
    }
    return vmm__max(request->block_bytes, request->new_bytes) <= cache->vm.arena.limit_bytes;
}

/* Takes the lane's lock for the attempts. The caller holds the grow lock. */
static vmm_status refill_in_lane(struct vmm_cache *cache, struct request *request, void **out)
{
    struct lane *lane = request->lane;
    vmm__lane_lock(lane);
    if (vmm__request_is_plain(request) && !request->is_alone)
        vmm__placement_keep_room(request->heap, request->block_bytes);
    vmm_status status = refill_locked(cache, request, out);
    if (status != VMM_OK && vmm__lane_check_of(lane, request->handle) != VMM_OK)
        status = VMM__NOT_FOUND;
    lane->refills--;
    if (!lane->owner.has_source) /* a segment cannot be split */
        lane->large.strand_bytes = vmm__target_strand_bytes(cache);
    vmm__lane_unlock(lane);
    return status;
}

/* What a refill does once, before its first attempt and after its last. The caller holds the grow lock. */
static vmm_status refill_in_cache(struct vmm_cache *cache, struct request *request, void **out)
{
    struct lane *lane = request->lane;
    VMM_ASSERT_HELD(&cache->grow_lock);
    vmm__lanes_note(&cache->lanes, lane);
    lane->refills++;
    if (vmm__trim_may_have_expired(cache))
        (void)vmm__trim_expired_locked(cache); /* a later call retries */
    cache->refills++;
    request->kept_bytes = vmm__pools_kept_bytes(cache, lane);
    vmm_status status = refill_in_lane(cache, request, out);
    if (!vmm__lane_has_memory(lane)) /* the request has failed, or another lane serves it */
        vmm__heap_drained_push(&lane->large);
    vmm__cache_lanes_vacate(cache);
    vmm__cache_lanes_rotate(cache);
    if (status == VMM_OK && request->serve == NULL) /* another pool, with a source, may lend it */
        *out = vmm__source_outer(cache, *out);
    return vmm__cache_checked(cache, CHECK_REFILL_EVERY, status);
}

vmm_status vmm__refill_request(struct vmm_cache *cache, struct request *request, void **out)
{
    if (!need_find(cache, request))
        return arena_exceeded(cache, request);
    vmm__request_begin(request);
    struct error_line line;
    vmm__error_save(&line);
    vmm__cache_lane_activate(cache, request->lane);
    request->has_queued = !vmm__fair_try_lock(&cache->grow_lock);
    if (request->has_queued)
        vmm__fair_lock(&cache->grow_lock);
    uint64_t reserved_bytes = vmm__stat_now(&cache->vm.reserved_bytes);
    vmm_status status = refill_in_cache(cache, request, out);
    bool has_grown = vmm__stat_now(&cache->vm.reserved_bytes) > reserved_bytes;
    vmm__fair_unlock(&cache->grow_lock);
    (void)vmm__source_return(cache, NULL);
    if (has_grown)
        vmm__headroom_look(cache);
    if (status == VMM__NOT_FOUND)
        vmm__error_restore(&line);
    else if (status != VMM_OK)
        vmm__cache_log(cache, "alloc: %s", vmm_last_error());
    return vmm__error_end(&line, status);
}

vmm_status vmm__refill(struct vmm_cache *cache, struct lane *lane, const vmm_pool *handle,
                       uint64_t bytes, void **out)
{
    struct request request = { .lane = lane, .bytes = bytes, .handle = handle };
    return vmm__refill_request(cache, &request, out);
}
