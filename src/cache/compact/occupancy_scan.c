/* Finds the chunks that live blocks pin: see occupancy_scan.h. */
#include "cache/compact/occupancy_scan.h"
#include "base/arith.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <stdlib.h>

bool vmm__occupancy_granule_is_free(const struct heap *heap, uint64_t granule)
{
    const struct arena *arena = heap->directory->arena;
    uint64_t start = vmm__arena_address(arena, granule);
    const struct block *block = vmm__heap_cover(heap, start);
    return block->state == BLOCK_FREE && vmm__block_end(block) >= start + arena->granule_bytes;
}

static bool block_is_pinned(const struct block *block)
{
    if (block->state == BLOCK_OCCUPIED)
        return block->user->pins != 0;
    return block->state == BLOCK_SLAB ? block->slab->pinned_bits != 0 : block->pins != 0;
}

bool vmm__chunk_has_pinned(const struct vmm_cache *cache, const struct heap *heap,
                           const struct chunk *chunk)
{
    uint64_t start = vmm__chunk_address(&cache->vm, chunk);
    uint64_t end = start + vmm__chunk_bytes(&cache->vm, chunk);
    for (const struct block *block = vmm__heap_cover(heap, start);
         block != NULL && block->address < end; block = block->next) {
        if (block_is_pinned(block))
            return true;
    }
    return false;
}

static struct partly chunk_scan(const struct vmm_cache *cache, struct heap *heap,
                                struct chunk *chunk)
{
    struct partly partly = { .chunk = chunk, .heap = heap };
    for (uint64_t g = chunk->first; g < chunk->first + chunk->granules; g++)
        partly.live_granules += vmm__occupancy_granule_is_free(heap, g) ? 0 : 1;
    partly.is_pinned = vmm__chunk_has_pinned(cache, heap, chunk);
    return partly;
}

static void chunk_add(struct occupancy_scan *occupancy_scan, struct heap *heap, struct chunk *chunk)
{
    VMM_ASSERT(occupancy_scan->count < occupancy_scan->capacity);
    occupancy_scan->chunks[occupancy_scan->count++] =
        (struct partly){ .chunk = chunk, .heap = heap };
}

/* A chunk that is free in part lies under an end of some free block. */
static void heap_add(const struct vmm_cache *cache, struct heap *heap,
                     struct occupancy_scan *occupancy_scan)
{
    const struct arena *arena = &cache->vm.arena;
    for (const struct size_node *node = vmm__size_index_largest(&heap->index); node != NULL;
         node = vmm__size_index_smaller(&heap->index, node)) {
        const struct block *block = (const struct block *)node;
        uint64_t first = vmm__arena_granule(arena, block->address);
        uint64_t last = vmm__arena_granule(arena, vmm__block_end(block) - 1);
        chunk_add(occupancy_scan, heap, vmm__vm_chunk(&cache->vm, first));
        chunk_add(occupancy_scan, heap, vmm__vm_chunk(&cache->vm, last));
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

/* Scans each added chunk once, and drops those without live bytes. */
static void chunks_settle(const struct vmm_cache *cache, struct occupancy_scan *occupancy_scan)
{
    uint64_t kept = 0;
    const struct chunk *last = NULL;
    qsort(occupancy_scan->chunks, occupancy_scan->count, sizeof *occupancy_scan->chunks, by_chunk);
    for (uint64_t i = 0; i < occupancy_scan->count; i++) {
        struct partly *entry = &occupancy_scan->chunks[i];
        if (entry->chunk == last)
            continue;
        last = entry->chunk;
        struct partly partly = chunk_scan(cache, entry->heap, entry->chunk);
        if (partly.live_granules > 0)
            occupancy_scan->chunks[kept++] = partly;
    }
    occupancy_scan->count = kept;
}

vmm_status vmm__occupancy_scan_begin(struct vmm_cache *cache, struct occupancy_scan *out)
{
    struct occupancy_scan occupancy_scan = { .count = 0 };
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next)
        occupancy_scan.capacity += 2 * (free_blocks(&lane->large) + free_blocks(&lane->small));
    if (occupancy_scan.capacity > 0) {
        occupancy_scan.chunks =
            vmm__host_alloc(occupancy_scan.capacity, sizeof *occupancy_scan.chunks);
        if (occupancy_scan.chunks == NULL)
            return vmm__error(VMM_ERR_HOST_OOM, "compact: no host memory to scan %llu chunks",
                              (unsigned long long)occupancy_scan.capacity);
    }
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        if (vmm__lane_is_retained(lane) || lane->owner.has_source)
            continue;
        heap_add(cache, &lane->large, &occupancy_scan);
        heap_add(cache, &lane->small, &occupancy_scan);
    }
    if (occupancy_scan.count > 0)
        chunks_settle(cache, &occupancy_scan);
    *out = occupancy_scan;
    return VMM_OK;
}

void vmm__occupancy_scan_end(struct occupancy_scan *occupancy_scan)
{
    vmm__host_free(occupancy_scan->chunks,
                   occupancy_scan->capacity * sizeof *occupancy_scan->chunks);
    *occupancy_scan = (struct occupancy_scan){ .count = 0 };
}
