/* More physical memory for a heap: see grow.h. */
#include "policy/grow.h"
#include "base/arith.h"
#include "policy/steal.h"

/*
 * The bill is per mapping, so chunks are as large as closeness allows: a fixed share of what is
 * reserved, because a partly used chunk at each end of a run of live blocks then costs the same
 * share of it, or of the block that asks. Near a limit closeness decides who survives, and they are
 * smaller; where reserved memory is far above the target anyway, because streams do not wait for
 * each other, and while a program loads, they are larger. docs/design.md has the figures behind the
 * shares.
 */
enum {
    CHUNK_SHARE_OF_RESERVED = 12800,  /* over footprint_permille */
    CHUNK_SHARE_OF_BLOCK = 2560,      /* over footprint_permille */
    LOADING_SHARE_OF_RESERVED = 1200, /* over footprint_permille */
    LOADING_SHARE_FREED = 64,         /* of active bytes */
    LOADING_MOST_GRANULES = 128,
    NEAR_LIMIT_DIVISOR = 4,
    APART_EXCESS = 20, /* a share of the target */
    APART_LEAST_GRANULES = 4
};

/* Whether this request takes the cache into the upper half of what it may hold. */
static bool limit_is_near(const struct memory *memory, uint64_t bytes)
{
    uint64_t reserved = vmm__figure_now(&memory->reserved_bytes);
    return memory->limit_bytes != 0 && reserved + bytes > memory->limit_bytes / 2;
}

enum { SLACK_FLOOR_BYTES = 16 << 20 };

/* Without a target chunks are those of the loosest one. */
static uint64_t slack_permille(const struct vmm_cache *cache)
{
    return vmm__min(cache->footprint_permille, 1000);
}

/*
 * The footprint target: the peak of active bytes, this request counted in, what is kept for captured graphs,
 * and the slack; small programs get a few chunks, so that a loop over fixed shapes settles.
 */
static uint64_t target_bytes(const struct vmm_cache *cache, uint64_t bytes)
{
    uint64_t active = vmm__figure_now(&cache->ledger.active_bytes) + bytes;
    uint64_t peak = vmm__max(active, cache->ledger.active_bytes.peak);
    peak = vmm__max(peak, cache->active_peak_bytes) + cache->kept_bytes;
    uint64_t permille = slack_permille(cache);
    uint64_t floor = SLACK_FLOOR_BYTES / 10 * vmm__min(permille, 10);
    return peak + vmm__max(floor, peak / 1000 * permille);
}

/* How much new memory the footprint target leaves. */
static uint64_t target_granules(const struct vmm_cache *cache, uint64_t bytes)
{
    if (cache->footprint_permille == VMM_FOOTPRINT_ANY)
        return UINT64_MAX;
    uint64_t target = target_bytes(cache, bytes);
    uint64_t reserved = vmm__figure_now(&cache->memory.reserved_bytes);
    return target > reserved ? (target - reserved) >> cache->memory.arena.granule_shift : 0;
}

/*
 * Whether the program has hardly freed anything yet: it loads what will stay. That lies in larger
 * chunks, because what would pin them stays anyway, and a few of them map and go back much faster
 * than many. Under a limit closeness comes first.
 */
static bool is_loading(const struct vmm_cache *cache)
{
    vmm_figure active = vmm__figure_read(&cache->ledger.active_bytes);
    return cache->memory.limit_bytes == 0 && active.freed <= active.current / LOADING_SHARE_FREED;
}

static uint64_t loading_granules(const struct vmm_cache *cache)
{
    uint64_t reserved = vmm__figure_now(&cache->memory.reserved_bytes);
    uint64_t share = reserved * slack_permille(cache) / LOADING_SHARE_OF_RESERVED;
    uint64_t granules = share >> cache->memory.arena.granule_shift;
    return vmm__min(granules, LOADING_MOST_GRANULES);
}

static uint32_t chunk_granules(const struct vmm_cache *cache, const struct heap *heap,
                               uint64_t bytes)
{
    if (heap->is_small)
        return 1;
    uint64_t permille = slack_permille(cache);
    uint64_t reserved = vmm__figure_now(&cache->memory.reserved_bytes);
    uint64_t share = reserved * permille / CHUNK_SHARE_OF_RESERVED;
    share = vmm__max(share, bytes * permille / CHUNK_SHARE_OF_BLOCK);
    uint64_t target = target_bytes(cache, bytes);
    uint64_t least = reserved > target + target / APART_EXCESS ? APART_LEAST_GRANULES : 1;
    if (limit_is_near(&cache->memory, bytes)) {
        share /= NEAR_LIMIT_DIVISOR;
        least = 1;
    }
    uint64_t granules = share >> cache->memory.arena.granule_shift;
    granules = vmm__max(least, vmm__min(granules, cache->largest_chunk_granules));
    return (uint32_t)(is_loading(cache) ? vmm__max(granules, loading_granules(cache)) : granules);
}

/* Idle chunks for the low end of a site; returns the granules filled. */
static uint64_t site_steal(struct vmm_cache *cache, struct heap *heap, uint64_t bytes,
                           const struct site *site, enum grow_from from)
{
    uint64_t want = site->count;
    if (from == GROW_ALONE)
        return 0;
    if (from == GROW_TARGET)
        want -= vmm__min(want, target_granules(cache, bytes));
    if (want == 0)
        return 0;
    return vmm__steal(cache, heap, site, bytes, want,
                      from == GROW_FOLLOW ? IDLE_FOLLOW : vmm__idle_usual(cache, heap->pool));
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
                                 chunk_granules(cache, heap, bytes));
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
    if (limit_is_near(&cache->memory, bytes))
        return;
    uint64_t whole = vmm__min(chunk_granules(cache, heap, bytes), target_granules(cache, bytes));
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
