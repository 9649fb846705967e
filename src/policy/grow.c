/* More physical memory for a heap: see grow.h. */
#include "policy/grow.h"
#include "base/arith.h"
#include "policy/fence.h"
#include "policy/split.h"
#include "policy/steal.h"
#include "policy/target.h"

/* What goes beyond the target because nothing more could be moved is pinned by live bytes, or still in use:
 * from now on chunks are small. */
static void excess_note(struct vmm_cache *cache, enum grow_from from, uint64_t missing)
{
    if (from == GROW_TARGET && missing > 0)
        cache->is_fine = true;
}

/*
 * Idle chunks for the low end of a site; returns the granules filled. Where chunks are to be small, larger
 * ones go back instead of moving, and the driver makes smaller ones of that memory.
 */
static uint64_t site_steal(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                           const struct site *site, enum grow_from from)
{
    uint64_t want = site->count;
    if (from == GROW_ALONE)
        return 0;
    if (from == GROW_TARGET)
        want -= vmm__min(want, vmm__target_granules(cache, bytes));
    if (from == GROW_TARGET && want > 0 && cache->is_fine) {
        uint32_t most = vmm__target_chunk_granules(cache, heap, bytes);
        want -= vmm__min(want, vmm__split(cache, heap->pool, site, want, most));
    }
    if (want == 0)
        return 0;
    uint64_t stolen =
        vmm__steal(cache, heap, site, bytes, want,
                   from == GROW_FOLLOW ? IDLE_FOLLOW : vmm__idle_usual(cache, heap->pool));
    excess_note(cache, from, want - vmm__min(want, stolen));
    return stolen;
}

/* Fills a site, all of which is taken, from idle chunks and the driver. Whatever was filled is
 * counted in *filled, also on failure; the rest goes back to the arena. */
static vmm_status site_fill(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                            const struct site *site, enum grow_from from, uint64_t *filled)
{
    uint64_t stolen = site_steal(cache, heap, bytes, site, from);
    uint64_t rest = site->count > stolen ? site->count - stolen : 0;
    uint64_t end = vmm__max(stolen, site->count);
    if (end < site->room)
        vmm__arena_give(&cache->memory.arena, site->granule + end, site->room - end);
    vmm_status status = VMM_OK;
    if (rest > 0)
        status = vmm__memory_map(&cache->memory, site->granule + stolen, rest,
                                 vmm__target_chunk_granules(cache, heap, bytes));
    *filled = status == VMM_OK ? end : stolen;
    return status;
}

static bool site_extends_home(const struct arena *arena, const struct heap *heap,
                              const struct site *site)
{
    return heap->home_end == 0 || site->beside == NULL ||
           vmm__arena_address(arena, site->granule) == heap->home_end;
}

/* Gives filled granules of a site to the heap. */
static vmm_status site_attach(struct vmm_cache *cache, struct heap *heap, const struct site *site,
                              uint64_t filled, struct block **out)
{
    const struct arena *arena = &cache->memory.arena;
    uint64_t address = vmm__arena_address(arena, site->granule);
    uint64_t epoch = vmm__timeline_now(&heap->pool->timeline);
    vmm_status status = vmm__memory_access(&cache->memory, site->granule, filled);
    if (status == VMM_OK)
        status = vmm__heap_attach(heap, address, filled << arena->granule_shift, epoch, out);
    if (status != VMM_OK)
        vmm__memory_discard(&cache->memory, site->granule, filled, NULL, 0);
    return status;
}

/* A request that needs less than a chunk gets a whole one if the site and the target have room for
 * it: those that follow find the rest. */
static void site_widen(const struct vmm_cache *cache, const struct heap *heap, uint64_t bytes,
                       struct site *site)
{
    if (vmm__target_limit_is_near(cache, bytes))
        return;
    uint64_t whole = vmm__min(vmm__target_chunk_granules(cache, heap, bytes),
                              vmm__target_granules(cache, bytes));
    site->count = vmm__max(site->count, vmm__min(whole, site->room));
}

vmm_status vmm__grow(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                     enum grow_from from, struct block **out)
{
    struct arena *arena = &cache->memory.arena;
    struct site site;
    (void)vmm__limbo_drain(&cache->memory, NULL); /* what has passed meanwhile goes back */
    vmm_status status = from == GROW_ALONE ? vmm__site_alone(cache, bytes, &site)
                                           : vmm__site_find(cache, heap, bytes, &site);
    if (status != VMM_OK)
        return status;
    if (from == GROW_TARGET)
        site_widen(cache, heap, bytes, &site);
    site.room = vmm__min(site.room, site.count + cache->largest_chunk_granules - 1);
    bool at_home = from != GROW_ALONE && site_extends_home(arena, heap, &site);
    vmm__arena_take(arena, site.granule, site.room);
    uint64_t filled;
    status = site_fill(cache, heap, bytes, &site, from, &filled);
    vmm_status attached = VMM_OK;
    if (filled > 0)
        attached = site_attach(cache, heap, &site, filled, out);
    if (status == VMM_OK)
        status = attached;
    else
        (void)vmm__limbo_drain(&cache->memory, NULL); /* what was mapped in vain */
    if (filled > 0 && attached == VMM_OK && at_home)
        heap->home_end = vmm__arena_address(arena, site.granule + filled);
    if (status == VMM_OK && from == GROW_ALONE && cache->has_fences)
        vmm__fence_put(cache, site.granule + filled);
    if (filled > 0)
        vmm__cache_log(cache, "grow: stream %p: %llu granules at 0x%llx, reserved %llu MiB",
                       heap->pool->stream, (unsigned long long)filled,
                       (unsigned long long)vmm__arena_address(arena, site.granule),
                       (unsigned long long)vmm__figure_now(&cache->memory.reserved_bytes) >> 20);
    return status;
}

uint64_t vmm__grow_bytes(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                         const struct block **beside)
{
    struct site site = { .count = 0 };
    vmm_status status = vmm__site_find(cache, heap, bytes, &site);
    *beside = site.beside;
    return status == VMM_OK ? site.count << cache->memory.arena.granule_shift : bytes;
}
