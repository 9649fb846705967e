/* Moves live granules to chunks of their own: see relocate.h. */
#include "cache/compact/relocate.h"
#include "base/error.h"
#include "base/hostmem.h"

/* The state of one relocation. */
struct relocation {
    struct vmm_cache *cache;
    const struct partly *partly;
    struct memory_part *parts; /* room for one per live granule */
    uint32_t count;
    uint64_t
        copied_epoch; /* of the timeline cache->copies: all copies have finished once it passes; 0: none began */
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
    status = vmm__vm_map(memory, scratch, granules, granules);
    if (status != VMM_OK)
        return status;
    relocation->parts[relocation->count++] =
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
        while (run_end < end && !vmm__granule_is_free(heap, run_end))
            run_end++;
        if (run_end > granule)
            status = part_make(relocation, granule, (uint32_t)(run_end - granule));
        granule = run_end + 1; /* the run ends at a free granule, or at the chunk's end */
    }
    return status;
}

/* Copies the live granules to the parts, and waits. Copies still run on return only if the driver failed to wait. */
static vmm_status parts_copy(struct relocation *relocation)
{
    const struct vm *memory = &relocation->cache->vm;
    vmm_status status = VMM_OK;
    for (uint32_t i = 0; i < relocation->count && status == VMM_OK; i++) {
        const struct memory_part *part = &relocation->parts[i];
        status = vmm__driver_copy(memory->driver, vmm__chunk_address(memory, part->chunk),
                                  vmm__arena_address(&memory->arena, part->granule),
                                  vmm__chunk_bytes(memory, part->chunk), NULL);
    }
    relocation->copied_epoch = vmm__timeline_now(&relocation->cache->copies);
    vmm_status waited = vmm__cache_copies_wait(relocation->cache);
    return status != VMM_OK ? status : waited;
}

static void parts_undo(struct relocation *relocation)
{
    struct vm *memory = &relocation->cache->vm;
    struct error_line line;
    vmm__error_save(&line);
    for (uint32_t i = 0; i < relocation->count; i++)
        vmm__limbo_put(memory, relocation->parts[i].chunk, &relocation->cache->copies,
                       relocation->copied_epoch);
    (void)vmm__limbo_drain(memory, NULL);
    vmm__error_restore(&line);
}

/* Removes the granules that were free in the chunk from their heap. Cannot fail: vmm__relocate() reserved the records. */
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

static vmm_status parts_swap(struct relocation *relocation)
{
    struct chunk *chunk = relocation->partly->chunk;
    uint64_t first = chunk->first;
    uint64_t end = first + chunk->granules;
    vmm_status status = parts_make(relocation);
    if (status == VMM_OK)
        status = parts_copy(relocation);
    if (status == VMM_OK)
        status = vmm__vm_swap(&relocation->cache->vm, chunk, relocation->parts, relocation->count);
    if (status != VMM_OK) {
        parts_undo(relocation);
        return status;
    }
    gaps_detach(relocation, first, end);
    (void)vmm__limbo_drain(&relocation->cache->vm, NULL); /* releases the old memory */
    return VMM_OK;
}

/* Unmaps the chunk's places in views. No block uses them, and no work is in flight. */
static vmm_status places_drop(struct vmm_cache *cache, const struct partly *partly)
{
    vmm_status status = VMM_OK;
    (void)cache;
    while (partly->chunk->places > 0 && status == VMM_OK)
        status = vmm__views_place_unmap(partly->heap, partly->chunk, partly->chunk->place);
    return status;
}

vmm_status vmm__relocate(struct vmm_cache *cache, const struct partly *partly)
{
    struct relocation relocation = { .cache = cache, .partly = partly };
    vmm_status status = vmm__heap_records_keep(partly->heap, 2 + partly->chunk->granules);
    if (status != VMM_OK)
        return status;
    relocation.parts = vmm__host_alloc(partly->live_granules, sizeof *relocation.parts);
    if (relocation.parts == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "compact: no host memory for %u parts",
                          partly->live_granules);
    status = places_drop(cache, partly);
    if (status == VMM_OK)
        status = parts_swap(&relocation);
    vmm__host_free(relocation.parts, partly->live_granules * sizeof *relocation.parts);
    return status;
}
