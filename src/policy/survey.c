/* What pins memory: see survey.h. */
#include "policy/survey.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <stdlib.h>

/* ---- Granules ----------------------------------------------------------------------------- */

uint64_t vmm__occupancy_part_bytes(const struct arena *arena)
{
    return vmm__max(arena->granule_bytes / OCCUPANCY_PARTS, SMALL_SLOT_BYTES);
}

static void parts_set(struct occupancy *occupancy, uint64_t first, uint64_t end)
{
    for (uint64_t part = first; part < end; part++)
        occupancy->words[part / 64] |= UINT64_C(1) << part % 64;
}

/* Sets the parts of a granule that hold bytes of blocks which are neither free nor in state `not`. */
static void parts_read(const struct heap *heap, uint64_t granule, enum block_state not,
                       struct occupancy *out)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t start = vmm__arena_address(arena, granule);
    uint64_t end = start + arena->granule_bytes;
    uint64_t part_bytes = vmm__occupancy_part_bytes(arena);
    *out = (struct occupancy){ .words = { 0 } };
    for (const struct block *block = vmm__heap_cover(heap, start);
         block != NULL && block->address < end; block = block->next) {
        if (block->state == BLOCK_FREE || block->state == not )
            continue;
        uint64_t low = vmm__max(block->address, start) - start;
        uint64_t high = vmm__min(vmm__block_end(block), end) - start;
        parts_set(out, low / part_bytes, (high + part_bytes - 1) / part_bytes);
    }
}

void vmm__occupancy_read(const struct heap *heap, uint64_t granule, struct occupancy *out)
{
    parts_read(heap, granule, BLOCK_LENT, out);
}

void vmm__occupancy_taken(const struct heap *heap, uint64_t granule, struct occupancy *out)
{
    parts_read(heap, granule, BLOCK_FREE, out);
}

unsigned vmm__occupancy_count(const struct occupancy *occupancy)
{
    unsigned count = 0;
    for (int i = 0; i < OCCUPANCY_WORDS; i++)
        count += (unsigned)__builtin_popcountll(occupancy->words[i]);
    return count;
}

bool vmm__occupancy_meets(const struct occupancy *a, const struct occupancy *b)
{
    uint64_t both = 0;
    for (int i = 0; i < OCCUPANCY_WORDS; i++)
        both |= a->words[i] & b->words[i];
    return both != 0;
}

void vmm__occupancy_add(struct occupancy *to, const struct occupancy *from)
{
    for (int i = 0; i < OCCUPANCY_WORDS; i++)
        to->words[i] |= from->words[i];
}

static bool part_is(const struct occupancy *occupancy, unsigned part, bool set)
{
    return ((occupancy->words[part / 64] >> part % 64 & 1) != 0) == set;
}

bool vmm__occupancy_run(const struct occupancy *occupancy, bool set, unsigned *first,
                        unsigned *count)
{
    unsigned part = *first;
    while (part < OCCUPANCY_PARTS && !part_is(occupancy, part, set))
        part++;
    *first = part;
    while (part < OCCUPANCY_PARTS && part_is(occupancy, part, set))
        part++;
    *count = part - *first;
    return *count > 0;
}

enum granule_use vmm__granule_use(const struct heap *heap, uint64_t granule)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t start = vmm__arena_address(arena, granule);
    uint64_t end = start + arena->granule_bytes;
    const struct block *block = vmm__heap_cover(heap, start);
    if (block->state == BLOCK_FREE && vmm__block_end(block) >= end)
        return GRANULE_FREE;
    for (; block != NULL && block->address < end; block = block->next) {
        if (block->state == BLOCK_FREE)
            return GRANULE_PARTLY;
    }
    return GRANULE_FULL;
}

/* ---- Chunks ------------------------------------------------------------------------------- */

static bool block_is_pinned(const struct block *block)
{
    return block->state == BLOCK_SLAB ? block->slab->pinned_bits != 0 : block->is_pinned;
}

bool vmm__place_is_pinned(const struct vmm_cache *cache, const struct heap *heap,
                          const struct chunk *chunk)
{
    uint64_t start = vmm__chunk_address(&cache->memory, chunk);
    uint64_t end = start + vmm__chunk_bytes(&cache->memory, chunk);
    for (const struct block *block = vmm__heap_cover(heap, start);
         block != NULL && block->address < end; block = block->next) {
        if (block_is_pinned(block))
            return true;
    }
    return false;
}

static struct partly chunk_look(const struct vmm_cache *cache, struct heap *heap,
                                struct chunk *chunk)
{
    struct partly partly = { .chunk = chunk, .heap = heap };
    for (uint64_t g = chunk->first; g < chunk->first + chunk->granules; g++)
        partly.live_granules += vmm__granule_use(heap, g) != GRANULE_FREE ? 1 : 0;
    partly.is_pinned = vmm__place_is_pinned(cache, heap, chunk);
    return partly;
}

static void chunk_add(struct survey *survey, struct heap *heap, struct chunk *chunk)
{
    if (survey->count < survey->capacity)
        survey->chunks[survey->count++] = (struct partly){ .chunk = chunk, .heap = heap };
}

/* A chunk that is pinned in part lies under an end of some free block. */
static void heap_add(const struct vmm_cache *cache, struct heap *heap, struct survey *survey)
{
    const struct arena *arena = &cache->memory.arena;
    for (const struct size_node *node = vmm__size_index_largest(&heap->index); node != NULL;
         node = vmm__size_index_smaller(&heap->index, node)) {
        const struct block *block = (const struct block *)node;
        uint64_t first = vmm__arena_granule(arena, block->address);
        uint64_t last = vmm__arena_granule(arena, vmm__block_end(block) - 1);
        chunk_add(survey, heap, vmm__memory_chunk(&cache->memory, first));
        chunk_add(survey, heap, vmm__memory_chunk(&cache->memory, last));
    }
}

static uint64_t free_blocks(const struct heap *heap)
{
    uint64_t count = 0;
    for (const struct size_node *node = vmm__size_index_largest(&heap->index); node != NULL;
         node = vmm__size_index_smaller(&heap->index, node))
        count++;
    return count;
}

static int by_chunk(const void *a, const void *b)
{
    const struct partly *left = a;
    const struct partly *right = b;
    return left->chunk < right->chunk ? -1 : left->chunk > right->chunk;
}

/* Looks at each chunk that was added, once; drops those that turn out to be idle. */
static void chunks_settle(const struct vmm_cache *cache, struct survey *survey)
{
    uint64_t kept = 0;
    const struct chunk *last = NULL;
    qsort(survey->chunks, survey->count, sizeof *survey->chunks, by_chunk);
    for (uint64_t i = 0; i < survey->count; i++) {
        struct partly *entry = &survey->chunks[i];
        if (entry->chunk == last)
            continue;
        last = entry->chunk;
        struct partly partly = chunk_look(cache, entry->heap, entry->chunk);
        if (partly.live_granules > 0)
            survey->chunks[kept++] = partly;
    }
    survey->count = kept;
}

vmm_status vmm__survey_take(struct vmm_cache *cache, struct survey *out)
{
    struct survey survey = { .count = 0 };
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next)
        survey.capacity += 2 * (free_blocks(&pool->large) + free_blocks(&pool->small));
    if (survey.capacity > 0) {
        survey.chunks = vmm__host_alloc(survey.capacity, sizeof *survey.chunks);
        if (survey.chunks == NULL)
            return vmm__error(VMM_ERR_HOST_OOM, "no host memory for a survey of %llu chunks",
                              (unsigned long long)survey.capacity);
    }
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        if (pool->is_held)
            continue;
        heap_add(cache, &pool->large, &survey);
        heap_add(cache, &pool->small, &survey);
    }
    if (survey.count > 0)
        chunks_settle(cache, &survey);
    *out = survey;
    return VMM_OK;
}

void vmm__survey_end(struct survey *survey)
{
    vmm__host_free(survey->chunks, survey->capacity * sizeof *survey->chunks);
    *survey = (struct survey){ .count = 0 };
}
