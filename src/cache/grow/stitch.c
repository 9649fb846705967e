/* Makes views: see stitch.h. */
#include "cache/grow/stitch.h"
#include "base/error.h"
#include "cache/grow/evict.h"
#include "cache/grow/fill.h"
#include "cache/grow/placement.h"

/* The state of one call. */
struct stitch {
    struct vmm_cache *cache;
    struct heap *heap;
    const struct plan *plan;
    uint64_t new_first; /* granule of the new memory's home */
    uint64_t new_count; /* granules */
    uint64_t view;
    uint64_t at;     /* the end of the row so far, on the side where it grows */
    uint64_t mapped; /* granules mapped so far */
};

static void home_note(const struct stitch *stitch, uint64_t bytes)
{
    const struct arena *arena = &stitch->cache->vm.arena;
    vmm__placement_note(stitch->heap, vmm__arena_address(arena, stitch->new_first),
                        vmm__arena_address(arena, stitch->new_first + stitch->new_count), bytes);
}

/* Creates the new memory of a plan. It gets a home of its own, at the end of the heap's. */
static vmm_status new_create(struct stitch *stitch, uint64_t bytes)
{
    struct vmm_cache *cache = stitch->cache;
    struct heap *heap = stitch->heap;
    if (stitch->new_count == 0)
        return VMM_OK;
    vmm_status status = vmm__placement_home(cache, heap, stitch->new_count, &stitch->new_first);
    if (status == VMM_OK)
        status = vmm__fill(cache, heap, bytes, stitch->new_first, stitch->new_count);
    if (status == VMM_OK)
        home_note(stitch, bytes);
    return status;
}

/* The granules that the plan adds to the row. */
static uint64_t added_granules(const struct stitch *stitch)
{
    uint64_t granules = stitch->new_count;
    for (uint32_t i = 0; i < stitch->plan->count; i++)
        granules += stitch->plan->chunks[i].chunk->granules;
    return granules;
}

/* Takes the addresses of the new places. */
static vmm_status addresses_take(struct stitch *stitch, uint64_t granules)
{
    struct arena *arena = &stitch->cache->vm.arena;
    const struct views *views = &stitch->cache->views;
    const struct plan *plan = stitch->plan;
    if (plan->end == NO_GRANULE) {
        vmm_status status = vmm__arena_find_row(arena, granules, &stitch->at);
        if (status != VMM_OK)
            return status;
        vmm__arena_take(arena, stitch->at, granules);
        return VMM_OK;
    }
    stitch->at = plan->end;
    if (!plan->is_left)
        stitch->at += views->vm->records[views->places[plan->end].chunk].granules;
    vmm__arena_take(arena, plan->is_left ? stitch->at - granules : stitch->at, granules);
    return VMM_OK;
}

/* Maps a chunk at the next addresses of the row. */
static vmm_status chunk_map(struct stitch *stitch, struct chunk *chunk)
{
    uint64_t granule = stitch->plan->is_left ? stitch->at - stitch->mapped - chunk->granules
                                             : stitch->at + stitch->mapped;
    vmm_status status = vmm__place_map(&stitch->cache->vm, chunk, granule);
    if (status == VMM_OK)
        stitch->mapped += chunk->granules;
    return status;
}

typedef vmm_status (*chunk_step)(struct stitch *stitch, struct chunk *chunk);

/* Calls for each chunk of the plan, from the row outward, until one call fails. */
static vmm_status chunks_each(struct stitch *stitch, chunk_step step)
{
    const struct plan *plan = stitch->plan;
    uint32_t begun = plan->has_begin ? 1 : 0;
    vmm_status status = begun != 0 ? step(stitch, plan->chunks[0].chunk) : VMM_OK;
    for (uint64_t done = 0; done < stitch->new_count && status == VMM_OK;) {
        struct chunk *chunk = vmm__vm_chunk(&stitch->cache->vm, stitch->new_first + done);
        status = step(stitch, chunk);
        done += chunk->granules;
    }
    for (uint32_t i = begun; i < plan->count && status == VMM_OK; i++)
        status = step(stitch, plan->chunks[i].chunk);
    return status;
}

/* Makes the newest place of a chunk, which is mapped and has access, part of the row. */
static vmm_status place_add(struct stitch *stitch, struct chunk *chunk)
{
    vmm__views_place_add(stitch->heap, chunk, chunk->place, stitch->view);
    return VMM_OK;
}

static uint64_t mapped_first(const struct stitch *stitch)
{
    return stitch->plan->is_left ? stitch->at - stitch->mapped : stitch->at;
}

/* Unmaps what was mapped, the newest first: CUDA requires this of mappings without access. What the driver refuses to
 * unmap stays, in no row. */
static void mapped_undo(struct stitch *stitch, uint64_t granules)
{
    struct vm *vm = &stitch->cache->vm;
    uint64_t first = mapped_first(stitch);
    uint64_t free_first =
        stitch->plan->is_left ? stitch->at - granules : stitch->at + stitch->mapped;
    VMM_QUIET();
    if (stitch->mapped < granules)
        vmm__arena_give(&vm->arena, free_first, granules - stitch->mapped);
    while (stitch->mapped > 0) {
        uint64_t granule = stitch->plan->is_left ? first : first + stitch->mapped - 1;
        struct chunk *chunk = vmm__vm_chunk(vm, granule);
        stitch->mapped -= chunk->granules;
        first = mapped_first(stitch);
        vmm__views_place_strand(stitch->heap, chunk, chunk->place);
        (void)vmm__views_place_unmap(stitch->heap, chunk, chunk->place);
    }
}

/* Unmaps a place of each chunk that is to give one up, unless the row of another one took it along. VMM__NO_FIT if the
 * driver refuses. */
static vmm_status places_evict(const struct stitch *stitch)
{
    for (uint32_t i = 0; i < stitch->plan->count; i++) {
        const struct candidate *item = &stitch->plan->chunks[i];
        bool was_transferred = item->heap != stitch->heap; /* only when its work had finished */
        if (item->gives_place && item->chunk->places >= PLACES_USUAL &&
            !vmm__evict(stitch->cache, stitch->heap, item->chunk, was_transferred))
            return VMM__NO_FIT;
    }
    return VMM_OK;
}

/* Maps all chunks and gives them access. Takes the addresses first: the new memory's home may not lie there. */
static vmm_status chunks_map(struct stitch *stitch, uint64_t bytes)
{
    uint64_t granules = added_granules(stitch);
    stitch->view = stitch->plan->view != 0 ? stitch->plan->view : ++stitch->cache->views.last_view;
    vmm_status status = vmm__views_open(stitch->heap);
    if (status == VMM_OK)
        status = addresses_take(stitch, granules);
    if (status != VMM_OK)
        return status;
    status = new_create(stitch, bytes);
    if (status == VMM_OK)
        status = chunks_each(stitch, chunk_map);
    if (status == VMM_OK)
        status = vmm__vm_access(&stitch->cache->vm, mapped_first(stitch), granules);
    if (status != VMM_OK)
        mapped_undo(stitch, granules);
    return status;
}

vmm_status vmm__stitch_transfer(struct vmm_cache *cache, struct heap *heap, enum idle_when when,
                                const struct plan *plan)
{
    vmm_status status = VMM_OK;
    for (uint32_t i = 0; i < plan->count && status == VMM_OK; i++) {
        const struct candidate *item = &plan->chunks[i];
        if (item->heap == heap)
            continue;
        struct idle_run run = { .heap = item->heap,
                                .address = vmm__chunk_address(&cache->vm, item->chunk),
                                .bytes = vmm__chunk_bytes(&cache->vm, item->chunk) };
        status = vmm__idle_take(cache, &run, heap, when);
    }
    return status == VMM__PENDING ? VMM__NO_FIT : status;
}

vmm_status vmm__stitch(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                       const struct plan *plan)
{
    struct stitch stitch = { .cache = cache,
                             .heap = heap,
                             .plan = plan,
                             .new_count = plan->new_bytes >> cache->vm.arena.granule_shift };
    if (added_granules(&stitch) == 0) /* transfers have made a run that is long enough */
        return VMM_OK;
    vmm_status status = places_evict(&stitch);
    if (status == VMM_OK)
        status = chunks_map(&stitch, bytes);
    if (status != VMM_OK)
        return status;
    (void)chunks_each(&stitch, place_add);
    vmm__count(&cache->counts.stitches, 1);
    vmm__cache_log(cache, "view: stream %p: %llu granules at 0x%llx, %llu of them new",
                   heap->lane->owner.stream, (unsigned long long)stitch.mapped,
                   (unsigned long long)vmm__arena_address(&cache->vm.arena, mapped_first(&stitch)),
                   (unsigned long long)stitch.new_count);
    return VMM_OK;
}
