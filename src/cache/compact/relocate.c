/* Moves live granules to chunks of their own: see relocate.h. */
#include "cache/compact/relocate.h"
#include "base/error.h"
#include "base/hostmem.h"

/* The state of one relocation. */
struct relocation {
    struct vmm_cache *cache;
    const struct partly *partly;
    /* The homes, then the places; room for each live granule at home and at each place. */
    struct memory_part *parts;
    uint32_t capacity;
    uint32_t homes;
    uint32_t places;
    /* Of the cache's clock: all copies have finished once it passes; 0: none began. */
    uint64_t copied_epoch;
};

/* Maps new memory for some of the chunk's granules, at unused addresses. */
static vmm_status part_make(struct relocation *relocation, uint64_t granule, uint32_t granules)
{
    struct vm *memory = &relocation->cache->vm;
    struct arena *arena = &memory->arena;
    uint64_t scratch;
    vmm_status status = vmm__arena_find_or_extend(arena, granules, &scratch);
    if (status != VMM_OK)
        return status;
    vmm__arena_take(arena, scratch, granules);
    status = vmm__vm_map(memory, relocation->partly->chunk->account, scratch, granules, granules);
    if (status != VMM_OK)
        return status;
    relocation->parts[relocation->homes++] =
        (struct memory_part){ .chunk = vmm__vm_chunk(memory, scratch), .granule = granule };
    return vmm__vm_access(memory, scratch, granules);
}

/* Makes one part for each run of live granules. */
static vmm_status parts_make(struct relocation *relocation)
{
    const struct chunk *chunk = relocation->partly->chunk;
    const struct heap *heap = relocation->partly->heap;
    uint64_t end = chunk->first + chunk->granules;
    vmm_status status = VMM_OK;
    for (uint64_t granule = chunk->first; granule < end && status == VMM_OK;) {
        uint64_t run_end = granule;
        while (run_end < end && !vmm__occupancy_granule_is_free(heap, run_end))
            run_end++;
        if (run_end > granule)
            status = part_make(relocation, granule, (uint32_t)(run_end - granule));
        granule = run_end + 1; /* the run ends at a free granule, or at the chunk's end */
    }
    return status;
}

/* Adds the place of a part at a granule, unless it is there already. */
static void place_note(struct relocation *relocation, struct chunk *chunk, uint64_t granule)
{
    struct memory_part *places = relocation->parts + relocation->homes;
    for (uint32_t i = 0; i < relocation->places; i++) {
        if (places[i].granule == granule)
            return;
    }
    places[relocation->places++] = (struct memory_part){ .chunk = chunk, .granule = granule };
}

/* Lists the places that the parts need: one at each place of the chunk where a block lies over the part. The chunk's
 * other places go. */
static void places_list(struct relocation *relocation)
{
    const struct arena *arena = &relocation->cache->vm.arena;
    for (uint32_t i = 0; i < relocation->homes; i++) {
        const struct memory_part part = relocation->parts[i];
        uint64_t start = vmm__arena_address(arena, part.granule);
        uint64_t end = vmm__arena_address(arena, part.granule + part.chunk->granules);
        for (const struct block *block = vmm__heap_cover(relocation->partly->heap, start);
             block != NULL && block->address < end; block = block->next) {
            if (block->state != BLOCK_OCCUPIED)
                continue;
            uint64_t offset = vmm__arena_granule(arena, block->address) - part.granule;
            uint64_t granule = vmm__arena_granule(arena, vmm__views_piece_address(block));
            place_note(relocation, part.chunk, granule - offset);
        }
    }
}

/* Copies the live granules to the parts, and waits. Copies still run on return only if the driver failed to wait. */
static vmm_status parts_copy(struct relocation *relocation)
{
    const struct vm *memory = &relocation->cache->vm;
    vmm_status status = VMM_OK;
    for (uint32_t i = 0; i < relocation->homes && status == VMM_OK; i++) {
        const struct memory_part *part = &relocation->parts[i];
        status = vmm__driver_copy(memory->driver, vmm__chunk_address(memory, part->chunk),
                                  vmm__arena_address(&memory->arena, part->granule),
                                  vmm__chunk_bytes(memory, part->chunk), NULL);
    }
    relocation->copied_epoch = vmm__clock_now(&relocation->cache->clock);
    vmm_status waited = vmm__cache_copies_wait(relocation->cache);
    return status != VMM_OK ? status : waited;
}

static void parts_undo(struct relocation *relocation)
{
    struct vm *memory = &relocation->cache->vm;
    for (uint32_t i = 0; i < relocation->homes; i++)
        vmm__limbo_put(memory, relocation->parts[i].chunk, &relocation->cache->clock,
                       relocation->copied_epoch);
    vmm__limbo_drain_quietly(memory);
}

/* Removes the granules that were free in the chunk from their heap. Cannot fail: vmm__relocate() reserved the
 * records. */
static void gaps_detach(struct relocation *relocation, uint64_t first, uint64_t end)
{
    struct heap *heap = relocation->partly->heap;
    const struct arena *arena = &relocation->cache->vm.arena;
    for (uint64_t granule = first; granule < end; granule++) {
        if (vmm__vm_chunk(&relocation->cache->vm, granule) != NULL)
            continue;
        uint64_t address = vmm__arena_address(arena, granule);
        (void)vmm__heap_detach(heap, vmm__heap_cover(heap, address), address, arena->granule_bytes);
    }
}

/* Maps the parts in place of the chunk, at its home and in its rows. */
static vmm_status parts_map(struct relocation *relocation)
{
    struct vmm_cache *cache = relocation->cache;
    struct chunk *chunk = relocation->partly->chunk;
    struct heap *heap = relocation->partly->heap;
    const struct memory_part *places = relocation->parts + relocation->homes;
    uint64_t first = chunk->first;
    vmm__views_chunk_lift(heap, chunk);
    vmm_status status =
        vmm__vm_swap(&cache->vm, chunk, relocation->parts, relocation->homes, relocation->places);
    if (status != VMM_OK) {
        vmm__views_chunk_settle(heap, chunk);
        return status;
    }
    for (uint32_t i = 0; i < relocation->places; i++)
        vmm__views_place_inherit(&cache->views, places[i].granule,
                                 places[i].granule - (places[i].chunk->first - first));
    for (uint32_t i = 0; i < relocation->homes; i++)
        vmm__views_chunk_settle(heap, relocation->parts[i].chunk);
    return VMM_OK;
}

static vmm_status parts_swap(struct relocation *relocation)
{
    const struct chunk *chunk = relocation->partly->chunk;
    uint64_t first = chunk->first;
    uint64_t end = first + chunk->granules;
    vmm_status status = parts_make(relocation);
    if (status == VMM_OK)
        status = parts_copy(relocation);
    if (status == VMM_OK) {
        places_list(relocation);
        status = parts_map(relocation);
    }
    if (status != VMM_OK) {
        parts_undo(relocation);
        return status;
    }
    gaps_detach(relocation, first, end);
    (void)vmm__limbo_drain(&relocation->cache->vm, NULL); /* releases the old memory */
    return VMM_OK;
}

vmm_status vmm__relocate(struct vmm_cache *cache, const struct partly *partly)
{
    struct relocation relocation = { .cache = cache, .partly = partly };
    vmm_status status = vmm__heap_records_keep(partly->heap, 2 + partly->chunk->granules);
    if (status != VMM_OK)
        return status;
    relocation.capacity = partly->live_granules * (1 + partly->chunk->places);
    relocation.parts = vmm__host_alloc(relocation.capacity, sizeof *relocation.parts);
    if (relocation.parts == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "compact: no host memory for %u parts",
                          relocation.capacity);
    status = parts_swap(&relocation);
    vmm__host_free(relocation.parts, relocation.capacity * sizeof *relocation.parts);
    return status;
}
