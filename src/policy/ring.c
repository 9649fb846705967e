/* Places that share one chunk: see ring.h. */
#include "policy/ring.h"
#include "base/error.h"

/* ---- Looking ------------------------------------------------------------------------------ */

void vmm__ring_occupancy(const struct vmm_cache *cache, const struct chunk *chunk,
                         struct occupancy *out)
{
    *out = (struct occupancy){ .words = { 0 } };
    for (const struct chunk *place = chunk; place != NULL;
         place = vmm__ring_next(&cache->memory, chunk, place)) {
        struct occupancy live;
        vmm__occupancy_read(vmm__ring_heap(cache, place), place->first, &live);
        vmm__occupancy_add(out, &live);
    }
}

bool vmm__ring_is_pinned(const struct vmm_cache *cache, const struct chunk *chunk)
{
    for (const struct chunk *place = chunk; place != NULL;
         place = vmm__ring_next(&cache->memory, chunk, place)) {
        if (vmm__place_is_pinned(cache, vmm__ring_heap(cache, place), place))
            return true;
    }
    return false;
}

/* ---- Settling ----------------------------------------------------------------------------- */

static unsigned runs(const struct occupancy *occupancy, bool set)
{
    unsigned total = 0;
    unsigned first = 0;
    unsigned count;
    for (; vmm__occupancy_run(occupancy, set, &first, &count); first += count)
        total++;
    return total;
}

/* Each lending cuts a free block, which takes two records at most. */
static uint64_t records_needed(const struct vmm_cache *cache, const struct chunk *first,
                               const struct heap *heap, const struct occupancy *all)
{
    uint64_t count = 0;
    for (const struct chunk *place = first; place != NULL;
         place = vmm__ring_next(&cache->memory, first, place)) {
        struct occupancy live;
        if (vmm__ring_heap(cache, place) != heap)
            continue;
        vmm__occupancy_read(heap, place->first, &live);
        count += 2 * (uint64_t)(runs(all, true) + runs(&live, false)) + 2;
    }
    return count;
}

static vmm_status places_keep(struct vmm_cache *cache, const struct chunk *first,
                              const struct chunk *host, const struct chunk *guest,
                              const struct occupancy *all)
{
    for (const struct chunk *place = first; place != NULL;
         place = vmm__ring_next(&cache->memory, first, place)) {
        struct heap *heap = vmm__ring_heap(cache, place);
        uint64_t count = records_needed(cache, host, heap, all);
        if (guest != NULL)
            count += records_needed(cache, guest, heap, all);
        vmm_status status = vmm__heap_records_keep(heap, count);
        if (status != VMM_OK)
            return status;
    }
    return VMM_OK;
}

vmm_status vmm__ring_records_keep(struct vmm_cache *cache, const struct chunk *host,
                                  const struct chunk *guest)
{
    struct occupancy all;
    vmm__ring_occupancy(cache, host, &all);
    if (guest != NULL) {
        struct occupancy more;
        vmm__ring_occupancy(cache, guest, &more);
        vmm__occupancy_add(&all, &more);
    }
    vmm_status status = places_keep(cache, host, host, guest, &all);
    if (status == VMM_OK && guest != NULL)
        status = places_keep(cache, guest, host, guest, &all);
    return status;
}

/* Lends the parts of a place whose bits are `set`; all of them are free there. */
static void parts_lend(struct vmm_cache *cache, const struct chunk *place,
                       const struct occupancy *occupancy, bool set)
{
    uint64_t part_bytes = vmm__occupancy_part_bytes(&cache->memory.arena);
    uint64_t start = vmm__chunk_address(&cache->memory, place);
    struct heap *heap = vmm__ring_heap(cache, place);
    unsigned first = 0;
    unsigned count;
    for (; vmm__occupancy_run(occupancy, set, &first, &count); first += count)
        (void)vmm__heap_lend(heap, start + first * part_bytes, count * part_bytes);
}

void vmm__ring_settle(struct vmm_cache *cache, struct chunk *owner)
{
    const struct memory *memory = &cache->memory;
    struct occupancy others = { .words = { 0 } };
    for (struct chunk *place = owner; place != NULL; place = vmm__ring_next(memory, owner, place)) {
        struct heap *heap = vmm__ring_heap(cache, place);
        struct occupancy live;
        vmm__heap_unlend(heap, place->first, vmm__timeline_now(&heap->pool->timeline));
        if (place == owner)
            continue;
        vmm__occupancy_read(heap, place->first, &live);
        vmm__occupancy_add(&others, &live);
        parts_lend(cache, place, &live, false);
    }
    parts_lend(cache, owner, &others, true);
}

vmm_status vmm__rings_settle(struct vmm_cache *cache)
{
    struct memory *memory = &cache->memory;
    for (uint32_t id = 1; id < memory->record_high && memory->twins > 0; id++) {
        struct chunk *chunk = &memory->records[id];
        if (chunk->state != CHUNK_HELD || chunk->twin == 0 || chunk->is_alias)
            continue;
        vmm_status status = vmm__ring_records_keep(cache, chunk, NULL);
        if (status != VMM_OK)
            return status;
        vmm__ring_settle(cache, chunk);
    }
    return VMM_OK;
}

/* ---- Parting ------------------------------------------------------------------------------ */

/* Whether a place holds nothing but free and lent bytes, and its last work has finished. */
static bool place_is_empty(const struct vmm_cache *cache, const struct heap *heap,
                           const struct chunk *chunk)
{
    struct occupancy live;
    vmm__occupancy_read(heap, chunk->first, &live);
    if (vmm__occupancy_count(&live) > 0 || !chunk->is_mapped)
        return false;
    uint64_t epoch = vmm__directory_epoch(&cache->directory, chunk->first, chunk->granules);
    return vmm__timeline_query(&heap->pool->timeline, epoch) == VMM_OK;
}

/* Takes a place from its ring. A place that stays alone gets back all that it lent. */
static void place_part(struct vmm_cache *cache, struct heap *heap, struct chunk *chunk)
{
    struct memory *memory = &cache->memory;
    uint64_t address = vmm__chunk_address(memory, chunk);
    const struct chunk *other = &memory->records[chunk->twin];
    if (vmm__heap_records_keep(heap, 2) != VMM_OK)
        return;
    uint64_t epoch = vmm__directory_epoch(&cache->directory, chunk->first, chunk->granules);
    vmm__heap_unlend(heap, chunk->first, epoch);
    (void)vmm__heap_detach(heap, vmm__heap_cover(heap, address), address,
                           vmm__chunk_bytes(memory, chunk));
    vmm__memory_unmesh(memory, chunk, NULL, 0);
    if (other->twin != 0)
        return;
    heap = vmm__ring_heap(cache, other);
    vmm__heap_unlend(heap, other->first, vmm__timeline_now(&heap->pool->timeline));
}

void vmm__rings_part_locked(struct vmm_cache *cache)
{
    struct memory *memory = &cache->memory;
    for (uint32_t id = 1; id < memory->record_high && memory->twins > 0; id++) {
        struct chunk *chunk = &memory->records[id];
        if (chunk->state != CHUNK_HELD || chunk->twin == 0)
            continue;
        struct heap *heap = vmm__ring_heap(cache, chunk);
        if (place_is_empty(cache, heap, chunk))
            place_part(cache, heap, chunk);
    }
}

void vmm__rings_part(struct vmm_cache *cache, const struct pool *held)
{
    if (cache->memory.twins == 0)
        return;
    vmm__cache_pools_lock(cache, held);
    vmm__rings_part_locked(cache);
    vmm__cache_pools_unlock(cache, held);
}

/* ---- Checking ----------------------------------------------------------------------------- */

/* What is free in a place. */
static void free_read(const struct heap *heap, uint64_t granule, struct occupancy *out)
{
    struct occupancy taken;
    vmm__occupancy_taken(heap, granule, &taken);
    for (int i = 0; i < OCCUPANCY_WORDS; i++)
        out->words[i] = ~taken.words[i];
}

static vmm_status ring_check(const struct vmm_cache *cache, const struct chunk *owner)
{
    struct occupancy lives = { .words = { 0 } };
    struct occupancy frees = { .words = { 0 } };
    for (const struct chunk *place = owner; place != NULL;
         place = vmm__ring_next(&cache->memory, owner, place)) {
        struct occupancy live;
        struct occupancy space;
        const struct heap *heap = vmm__ring_heap(cache, place);
        vmm__occupancy_read(heap, place->first, &live);
        free_read(heap, place->first, &space);
        bool meets = vmm__occupancy_meets(&live, &lives) || vmm__occupancy_meets(&live, &frees) ||
                     vmm__occupancy_meets(&space, &lives) || vmm__occupancy_meets(&space, &frees);
        if (meets)
            return vmm__error(VMM_ERR_INTERNAL,
                              "ring: invariants 1 to 3: the place at 0x%llx disposes of bytes that "
                              "another one has",
                              (unsigned long long)vmm__chunk_address(&cache->memory, place));
        vmm__occupancy_add(&lives, &live);
        vmm__occupancy_add(&frees, &space);
    }
    return VMM_OK;
}

vmm_status vmm__rings_check(const struct vmm_cache *cache)
{
    const struct memory *memory = &cache->memory;
    vmm_status status = VMM_OK;
    for (uint32_t id = 1; id < memory->record_high && memory->twins > 0 && status == VMM_OK; id++) {
        const struct chunk *chunk = &memory->records[id];
        if (chunk->state == CHUNK_HELD && chunk->twin != 0 && !chunk->is_alias)
            status = ring_check(cache, chunk);
    }
    return status;
}
