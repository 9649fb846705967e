/* New physical memory for a heap: see grow.h. */
#include "policy/grow.h"

static uint32_t chunk_granules(const struct vmm_cache *cache, const struct heap *heap)
{
    return heap->is_small ? cache->small_chunk_granules : cache->large_chunk_granules;
}

/* Puts chunks that were mapped for nothing on their way back. */
static void site_undo(struct vmm_cache *cache, const struct site *site)
{
    for (uint64_t at = 0; at < site->count;) {
        struct chunk *chunk = vmm__memory_chunk(&cache->memory, site->granule + at);
        at += chunk->granules;
        vmm__limbo_put(&cache->memory, chunk, NULL, 0);
    }
    (void)vmm__limbo_drain(&cache->memory, NULL);
}

static bool site_extends_home(const struct arena *arena, const struct heap *heap,
                              const struct site *site)
{
    return heap->home_end == 0 || site->beside == NULL ||
           vmm__arena_address(arena, site->granule) == heap->home_end;
}

vmm_status vmm__grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes, bool alone,
                     struct block **out)
{
    const struct arena *arena = &cache->memory.arena;
    (void)vmm__limbo_drain(&cache->memory, NULL); /* what has passed meanwhile goes back */
    struct site site;
    vmm_status status =
        alone ? vmm__site_alone(cache, bytes, &site) : vmm__site_find(cache, heap, bytes, &site);
    if (status != VMM_OK)
        return status;
    status = vmm__memory_map(&cache->memory, site.granule, site.count, chunk_granules(cache, heap));
    if (status != VMM_OK)
        return status;
    uint64_t address = vmm__arena_address(arena, site.granule);
    uint64_t site_bytes = site.count << arena->granule_shift;
    bool at_home = !alone && site_extends_home(arena, heap, &site);
    status = vmm__heap_attach(heap, address, site_bytes, 0, out);
    if (status != VMM_OK) {
        site_undo(cache, &site);
        return status;
    }
    if (at_home)
        heap->home_end = address + site_bytes;
    vmm__cache_log(cache, "grow: stream %p: %llu MiB at 0x%llx, reserved %llu MiB",
                   heap->pool->stream, (unsigned long long)site_bytes >> 20,
                   (unsigned long long)address,
                   (unsigned long long)vmm__figure_now(&cache->memory.reserved_bytes) >> 20);
    return VMM_OK;
}

uint64_t vmm__grow_bytes(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         const struct block **beside)
{
    struct site site = { .count = 0 };
    vmm_status status = vmm__site_find(cache, heap, bytes, &site);
    *beside = site.beside;
    return status == VMM_OK ? site.count << cache->memory.arena.granule_shift : bytes;
}
