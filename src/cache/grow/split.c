/* Splits idle chunks: see split.h. */
#include "cache/grow/split.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "cache/idle/idle_scan.h"

/* A place of the chunk, which its parts get again. */
struct old_place {
    uint64_t granule;
    uint64_t view; /* 0: in no row */
};

/* The state of one split. */
struct split {
    struct vmm_cache *cache;
    struct heap *heap;
    uint64_t first;    /* granule of the chunk's home */
    uint32_t granules; /* of the chunk */
    uint32_t part;     /* of the first part */
    uint32_t count;    /* of places */
    struct old_place *places;
};

static void places_save(struct split *split, const struct chunk *chunk)
{
    const struct views *views = &split->cache->views;
    uint32_t count = 0;
    for (uint64_t at = chunk->place; at != NO_GRANULE; at = views->vm->next_places[at])
        split->places[count++] =
            (struct old_place){ .granule = at, .view = views->places[at].view };
}

/* Releases the chunk. False if the driver refuses, or without host memory. */
static bool chunk_release(const struct split *split)
{
    struct vmm_cache *cache = split->cache;
    uint64_t address = vmm__arena_address(&cache->vm.arena, split->first);
    struct idle_run run = { .heap = split->heap,
                            .block = vmm__heap_cover(split->heap, address),
                            .address = address,
                            .bytes = (uint64_t)split->granules << cache->vm.arena.granule_shift };
    if (vmm__idle_discard(cache, &run) != VMM_OK)
        return false;
    (void)vmm__limbo_drain(&cache->vm, NULL);
    return vmm__vm_chunk(&cache->vm, split->first) == NULL; /* its places are unmapped before */
}

/* Maps two new chunks at the home. On failure the granules return to the arena. */
static vmm_status parts_map(const struct split *split)
{
    struct vm *vm = &split->cache->vm;
    uint64_t second = split->first + split->part;
    uint32_t rest = split->granules - split->part;
    vmm_status status = vmm__vm_map(vm, &split->heap->lane->owner.pool->account, split->first,
                                    split->part, split->part);
    if (status != VMM_OK) {
        vmm__arena_give(&vm->arena, second, rest);
        return status;
    }
    status = vmm__vm_map(vm, &split->heap->lane->owner.pool->account, second, rest, rest);
    if (status != VMM_OK)
        vmm__vm_discard(vm, split->first, split->part, NULL, 0);
    return status;
}

static vmm_status parts_create(const struct split *split)
{
    struct vm *vm = &split->cache->vm;
    vmm__arena_take(&vm->arena, split->first, split->granules);
    vmm_status status = parts_map(split);
    if (status != VMM_OK)
        return status;
    status = vmm__vm_access(vm, split->first, split->granules);
    if (status == VMM_OK)
        status = vmm__heap_attach(split->heap, vmm__arena_address(&vm->arena, split->first),
                                  (uint64_t)split->granules << vm->arena.granule_shift,
                                  vmm__clock_now(split->heap->clock));
    if (status != VMM_OK)
        vmm__vm_discard(vm, split->first, split->granules, NULL, 0);
    return status;
}

/* Unmaps the newest places of the parts that were mapped, the newest first. */
static void place_undo(const struct split *split, struct chunk *const parts[2], uint32_t mapped)
{
    while (mapped-- > 0) {
        vmm__views_place_strand(split->heap, parts[mapped], parts[mapped]->place);
        (void)vmm__views_place_unmap(split->heap, parts[mapped], parts[mapped]->place);
    }
}

/* Maps the parts at a place of the chunk. */
static void place_map(const struct split *split, const struct old_place *place)
{
    struct vm *vm = &split->cache->vm;
    uint64_t granules[2] = { place->granule, place->granule + split->part };
    struct chunk *parts[2];
    uint32_t mapped = 0;
    vmm_status status = VMM_OK;
    vmm__arena_take(&vm->arena, place->granule, split->granules);
    while (mapped < 2 && status == VMM_OK) {
        parts[mapped] = vmm__vm_chunk(vm, mapped == 0 ? split->first : split->first + split->part);
        status = vmm__place_map(vm, parts[mapped], granules[mapped]);
        mapped += status == VMM_OK ? 1 : 0;
    }
    if (status == VMM_OK)
        status = vmm__vm_access(vm, place->granule, split->granules);
    if (status != VMM_OK) {
        if (mapped < 2)
            vmm__arena_give(&vm->arena, granules[mapped],
                            place->granule + split->granules - granules[mapped]);
        place_undo(split, parts, mapped);
        return;
    }
    for (uint32_t i = 0; i < 2; i++)
        vmm__views_place_add(split->heap, parts[i], granules[i], place->view);
}

static void chunk_split(struct split *split, const struct chunk *chunk)
{
    split->places = vmm__host_alloc(split->count + 1, sizeof *split->places);
    if (split->places == NULL)
        return;
    places_save(split, chunk);
    if (chunk_release(split) && parts_create(split) == VMM_OK) {
        for (uint32_t i = 0; i < split->count; i++) {
            if (split->places[i].view != 0)
                place_map(split, &split->places[i]);
        }
    }
    (void)vmm__limbo_drain(&split->cache->vm, NULL); /* what a failure has discarded */
    vmm__host_free(split->places, (split->count + 1) * sizeof *split->places);
}

/* Whether a chunk may be released: its work has finished, and no graph relies on its addresses. */
static bool chunk_may(const struct vmm_cache *cache, struct lane *lane, const struct chunk *chunk)
{
    uint64_t epoch = vmm__directory_epoch(&cache->directory, chunk->first, chunk->granules);
    return !vmm__lane_is_retained(lane) && chunk->is_mapped &&
           vmm__clock_query(lane->clock, epoch) == VMM_OK;
}

bool vmm__split(struct vmm_cache *cache, struct heap *heap, uint64_t bytes)
{
    const struct block *fit =
        (const struct block *)vmm__size_index_find(&heap->index, bytes, SEARCH_QUICK);
    uint64_t cut;
    const struct chunk *chunk = fit == NULL ? vmm__views_strand_run(heap, bytes, &cut)
                                            : vmm__views_strand(heap, fit, bytes, &cut);
    if (chunk == NULL)
        return false;
    struct split split = { .cache = cache,
                           .heap = heap,
                           .first = chunk->first,
                           .granules = chunk->granules,
                           .part = (uint32_t)(cut - chunk->first),
                           .count = chunk->places };
    VMM_QUIET();
    if (chunk_may(cache, heap->lane, chunk))
        chunk_split(&split, chunk);
    return true;
}
