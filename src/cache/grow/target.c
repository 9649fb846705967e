/* The footprint target: see target.h. */
#include "cache/grow/target.h"
#include "base/arith.h"

/*
 * A driver call costs the same for a small and a large chunk, so large chunks save time. A chunk that is partly
 * live wastes its free part, so small chunks save memory. The size of a new chunk is therefore a fixed share of
 * reserved memory, or of the requested block if that is larger:
 *  - coarse at first;
 *  - fine once reserved memory had to exceed the target because free memory was pinned; idle coarse chunks are
 *    then downsized (downsize.h);
 *  - smaller still near a limit, where wasted bytes make requests fail;
 *  - larger while reserved memory is far above the target anyway, because streams do not wait for each other, and
 *    while a program has hardly freed anything.
 * docs/internals.md has the measurements behind the shares.
 */
enum {
    COARSE_SHARE_OF_RESERVED = 3200, /* this and the shares below over footprint_permille */
    COARSE_SHARE_OF_BLOCK = 640,
    FINE_SHARE_OF_RESERVED = 16000,
    FINE_SHARE_OF_BLOCK = 3200,
    LOADING_SHARE_OF_RESERVED = 1800,
    LOADING_SHARE_FREED = 64, /* of active bytes */
    LOADING_MOST_GRANULES = 128,
    NEAR_LIMIT_DIVISOR = 4,
    SMALL_STEPS = 1024,
    APART_EXCESS = 20, /* a share of the target */
    APART_LEAST_GRANULES = 4
};

enum { SLACK_FLOOR_BYTES = 16 << 20 };

/* Below this the shares shrink with what is reserved: the blocks of small programs are small beside their
 * chunks, and pin many of them; and they have few chunks to pay for. */
#define SMALL_PROGRAM_BYTES (UINT64_C(80) << 30) /* over footprint_permille */

bool vmm__target_limit_is_near(const struct vmm_cache *cache, uint64_t bytes)
{
    uint64_t limit = cache->vm.limit_bytes;
    uint64_t reserved = vmm__stat_now(&cache->vm.reserved_bytes);
    return limit != 0 && reserved + bytes > limit / 2;
}

/* Without a target chunks are those of the loosest one. */
static uint64_t slack_permille(const struct vmm_cache *cache)
{
    return vmm__min(cache->footprint_permille, 1000);
}

/*
 * The peak of active bytes since the last trim, this request counted in, what is kept for captured graphs, and
 * the slack; small programs get a few chunks, so that a loop over fixed shapes settles.
 */
static uint64_t target_bytes(const struct vmm_cache *cache, uint64_t bytes)
{
    const struct totals *totals = &cache->totals;
    uint64_t active = vmm__stat_now(&totals->active_bytes) + bytes;
    uint64_t lately = atomic_load_explicit(&totals->lately_active_bytes, memory_order_relaxed);
    uint64_t peak = vmm__max(active, lately) + cache->retained_bytes;
    uint64_t permille = slack_permille(cache);
    uint64_t floor = SLACK_FLOOR_BYTES / 10 * vmm__min(permille, 10);
    return peak + vmm__max(floor, peak / 1000 * permille);
}

uint64_t vmm__target_granules(const struct vmm_cache *cache, uint64_t bytes)
{
    if (cache->footprint_permille == VMM_FOOTPRINT_ANY)
        return UINT64_MAX;
    uint64_t target = target_bytes(cache, bytes);
    uint64_t reserved = vmm__stat_now(&cache->vm.reserved_bytes);
    return target > reserved ? (target - reserved) >> cache->vm.arena.granule_shift : 0;
}

/*
 * Whether the program has hardly freed anything yet: it loads what will stay. That lies in larger
 * chunks, because what would pin them stays anyway, and a few of them map and go back much faster
 * than many. Under a limit closeness comes first.
 */
static bool is_loading(const struct vmm_cache *cache)
{
    vmm_stat active = vmm__stat_read(&cache->totals.active_bytes);
    return cache->vm.limit_bytes == 0 && active.freed <= active.current / LOADING_SHARE_FREED;
}

/* A share of what is reserved, and of that a share in small programs. */
static uint64_t large_share_bytes(const struct vmm_cache *cache, unsigned share)
{
    uint64_t reserved = vmm__stat_now(&cache->vm.reserved_bytes);
    uint64_t permille = slack_permille(cache);
    uint64_t small_bytes = SMALL_PROGRAM_BYTES / permille;
    uint64_t steps = vmm__min(reserved, small_bytes) / (small_bytes / SMALL_STEPS);
    return reserved * permille / share / SMALL_STEPS * steps;
}

static uint64_t loading_granules(const struct vmm_cache *cache)
{
    uint64_t share = large_share_bytes(cache, LOADING_SHARE_OF_RESERVED);
    uint64_t granules = share >> cache->vm.arena.granule_shift;
    return vmm__min(granules, LOADING_MOST_GRANULES);
}

/* What closeness allows. */
static uint64_t share_bytes(const struct vmm_cache *cache, uint64_t bytes, bool is_near)
{
    bool is_fine = cache->is_fine || is_near;
    uint64_t permille = slack_permille(cache);
    uint64_t of_reserved =
        vmm__stat_now(&cache->vm.reserved_bytes) * permille / FINE_SHARE_OF_RESERVED;
    if (!is_fine)
        of_reserved = vmm__max(of_reserved, large_share_bytes(cache, COARSE_SHARE_OF_RESERVED));
    uint64_t of_block = bytes * permille / (is_fine ? FINE_SHARE_OF_BLOCK : COARSE_SHARE_OF_BLOCK);
    return vmm__max(of_reserved, of_block) / (is_near ? NEAR_LIMIT_DIVISOR : 1);
}

/* Where closeness is lost anyway. */
static bool is_detached(const struct vmm_cache *cache, uint64_t bytes)
{
    uint64_t target = target_bytes(cache, bytes);
    return vmm__stat_now(&cache->vm.reserved_bytes) > target + target / APART_EXCESS;
}

uint32_t vmm__target_chunk_granules(const struct vmm_cache *cache, const struct heap *heap,
                                    uint64_t bytes)
{
    if (heap->is_small)
        return 1;
    bool is_near = vmm__target_limit_is_near(cache, bytes);
    uint64_t least = is_detached(cache, bytes) && !is_near ? APART_LEAST_GRANULES : 1;
    uint64_t share = share_bytes(cache, bytes, is_near) >> cache->vm.arena.granule_shift;
    uint64_t granules = vmm__max(least, vmm__min(share, cache->largest_chunk_granules));
    return (uint32_t)(is_loading(cache) ? vmm__max(granules, loading_granules(cache)) : granules);
}
