/* Live granules get chunks of their own: see reback.h. */
#include "policy/reback.h"
#include "base/error.h"

enum { PARTS_MOST = 64 };

/* A re-backing under way. */
struct reback {
    struct vmm_cache *cache;
    const struct partly *partly;
    struct memory_part parts[PARTS_MOST];
    uint32_t count;
    uint64_t
        copied_epoch; /* of the cache's copies: they have ended once it has passed; 0: none began */
};

/* New memory for some of the chunk's granules, at fresh addresses. */
static vmm_status part_make(struct reback *reback, uint64_t granule, uint32_t granules)
{
    struct memory *memory = &reback->cache->memory;
    struct arena *arena = &memory->arena;
    uint64_t scratch;
    if (reback->count == PARTS_MOST)
        return vmm__error(VMM_ERR_UNSUPPORTED, "re-back: more than %d parts", PARTS_MOST);
    if (!vmm__arena_find(arena, granules, &scratch))
        return vmm__error(VMM_ERR_ADDRESS_SPACE, "re-back: no addresses for a copy");
    vmm__arena_take(arena, scratch, granules);
    vmm_status status = vmm__memory_map(memory, scratch, granules, granules);
    if (status != VMM_OK)
        return status;
    reback->parts[reback->count++] =
        (struct memory_part){ .chunk = vmm__memory_chunk(memory, scratch), .granule = granule };
    return vmm__memory_access(memory, scratch, granules);
}

/* Makes the parts; runs of full granules stay together. */
static vmm_status parts_make(struct reback *reback)
{
    const struct chunk *chunk = reback->partly->chunk;
    uint64_t end = chunk->first + chunk->granules;
    vmm_status status = VMM_OK;
    for (uint64_t granule = chunk->first; granule < end && status == VMM_OK;) {
        enum granule_use use = vmm__granule_use(reback->partly->heap, granule);
        uint32_t granules = 1;
        while (use == GRANULE_FULL && granule + granules < end &&
               vmm__granule_use(reback->partly->heap, granule + granules) == GRANULE_FULL)
            granules++;
        if (use != GRANULE_FREE)
            status = part_make(reback, granule, granules);
        granule += granules;
    }
    return status;
}

/* Copies the live granules to the parts; none of the copies is under way on return, unless the driver refused
 * to wait. */
static vmm_status parts_copy(struct reback *reback)
{
    const struct memory *memory = &reback->cache->memory;
    vmm_status status = VMM_OK;
    for (uint32_t i = 0; i < reback->count && status == VMM_OK; i++) {
        const struct memory_part *part = &reback->parts[i];
        status = vmm__driver_copy(memory->driver, vmm__chunk_address(memory, part->chunk),
                                  vmm__arena_address(&memory->arena, part->granule),
                                  vmm__chunk_bytes(memory, part->chunk), NULL);
    }
    reback->copied_epoch = vmm__timeline_now(&reback->cache->copies);
    vmm_status waited = vmm__cache_copies_wait(reback->cache);
    return status != VMM_OK ? status : waited;
}

static void parts_undo(struct reback *reback)
{
    struct memory *memory = &reback->cache->memory;
    struct error_line line;
    vmm__error_save(&line);
    for (uint32_t i = 0; i < reback->count; i++)
        vmm__limbo_put(memory, reback->parts[i].chunk, &reback->cache->copies,
                       reback->copied_epoch);
    (void)vmm__limbo_drain(memory, NULL);
    vmm__error_restore(&line);
}

/* What is free in the chunk's place belongs to no heap any more. Records were kept for it. */
static void voids_detach(struct reback *reback, uint64_t first, uint64_t end)
{
    struct heap *heap = reback->partly->heap;
    const struct arena *arena = &reback->cache->memory.arena;
    for (uint64_t granule = first; granule < end; granule++) {
        if (vmm__memory_chunk(&reback->cache->memory, granule) != NULL)
            continue;
        uint64_t address = vmm__arena_address(arena, granule);
        (void)vmm__heap_detach(heap, vmm__heap_cover(heap, address), address, arena->granule_bytes);
    }
}

vmm_status vmm__reback(struct vmm_cache *cache, const struct partly *partly)
{
    struct reback reback = { .cache = cache, .partly = partly };
    struct memory *memory = &cache->memory;
    uint64_t first = partly->chunk->first;
    uint64_t end = first + partly->chunk->granules;
    vmm_status status = vmm__heap_records_keep(partly->heap, 2 + partly->chunk->granules);
    if (status != VMM_OK)
        return status;
    status = parts_make(&reback);
    if (status == VMM_OK)
        status = parts_copy(&reback);
    if (status == VMM_OK)
        status = vmm__memory_swap(memory, partly->chunk, reback.parts, reback.count);
    if (status != VMM_OK) {
        parts_undo(&reback);
        return status;
    }
    voids_detach(&reback, first, end);
    (void)vmm__limbo_drain(memory, NULL); /* the old memory goes back */
    return VMM_OK;
}
