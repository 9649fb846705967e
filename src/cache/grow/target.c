/* The footprint target and the size of chunks: see target.h. */
#include "cache/grow/target.h"
#include "base/arith.h"

/*
 * The knob footprint_permille, p, sets the slack above the peak, and with it the largest chunk, p/25 * sqrt(reserved)
 * with both in MiB. The square root balances two costs: mappings fall with the size of chunks, and what partly live
 * chunks waste rises with it (docs/internals.md). Where they waste n times the slack, the balance is at 1/sqrt(n).
 * docs/results/footprint.md has the measurements of the knob. A share of the block is allowed, too: far from a limit, a
 * large block then costs about 64 mappings at most, 3 ms of driver time.
 */
enum {
    CHUNK_DIVISOR = 25,
    CHUNK_PERMILLE_MOST = 50, /* larger chunks save no more driver time */
    CHUNK_SHARE_OF_BLOCK = 64,
    LIMIT_SHARE_OF_ROOM = 32, /* of what is free below the limit: partly live chunks waste it */
    STRAND_SHARE_OF_ROOM = 256,
    STRAND_GRANULES_LEAST = 4, /* fewer do not pay for the driver calls of a split */
    SHRINK_STEPS = 1024        /* of a chunk: the precision of its root */
};

/* Small programs get a little more slack, so that a loop over fixed shapes settles: by default 1/50 of the peak instead
 * of 1/100, up to a peak of 800 MiB; from 1600 MiB on, 1/100 is more. */
enum { FLOOR_BYTES = 16 << 20, FLOOR_SHARE = 50 };

/* Below this limit the largest chunk shrinks in proportion. With this, LIMIT_SHARE_OF_ROOM and splits, the five traces
 * run in 1.005 to 1.010 of their peak of live memory. */
#define LIMIT_FULL_BYTES (UINT64_C(8) << 30)

/* By Newton's method, from above. */
static uint64_t square_root(uint64_t value)
{
    uint64_t root = UINT64_C(1) << (vmm__log2(value | 1) / 2 + 1);
    uint64_t next = root;
    do {
        root = next;
        next = (root + value / vmm__max(root, 1)) / 2;
    } while (next < root);
    return root;
}

/* The peak of active bytes since the last trim, a block of `bytes` counted in. */
static uint64_t peak_bytes(const struct vmm_cache *cache, uint64_t bytes)
{
    const struct totals *totals = &cache->totals;
    uint64_t active = vmm__stat_now(&totals->active_bytes) + bytes;
    return vmm__max(active,
                    atomic_load_explicit(&totals->lately_active_bytes, memory_order_relaxed));
}

static uint64_t slack_bytes(const struct vmm_cache *cache, uint64_t peak)
{
    uint64_t permille = vmm__min(cache->footprint_permille, 1000);
    uint64_t floor = vmm__min(FLOOR_BYTES, peak / FLOOR_SHARE) / 10 * vmm__min(permille, 10);
    return vmm__max(floor, peak / 1000 * permille);
}

/* The peak, what pools keep for themselves, and the slack. */
static uint64_t target_bytes(const struct vmm_cache *cache, const struct request *request)
{
    uint64_t peak = peak_bytes(cache, request->block_bytes) + request->kept_bytes;
    return peak + slack_bytes(cache, peak);
}

uint64_t vmm__target_granules(const struct vmm_cache *cache, const struct request *request)
{
    if (cache->footprint_permille == VMM_FOOTPRINT_ANY)
        return UINT64_MAX;
    uint64_t target = target_bytes(cache, request);
    /* what sleeps counts, as its blocks do */
    uint64_t reserved = vmm__stat_now(&cache->vm.reserved_bytes) + cache->vm.counts.asleep_bytes;
    return target > reserved ? (target - reserved) >> cache->vm.arena.granule_shift : 0;
}

/* What the limit, or the device, has above live memory. */
static uint64_t room_bytes(const struct vmm_cache *cache)
{
    uint64_t limit = vmm__vm_limit_bytes(&cache->vm);
    uint64_t live = vmm__stat_now(&cache->totals.allocated_bytes);
    live -= vmm__min(live, cache->vm.counts.asleep_bytes);
    return limit - vmm__min(limit, live);
}

/* The largest chunk that the limit, or the device, allows. */
static uint64_t limit_share_bytes(const struct vmm_cache *cache)
{
    uint64_t mib = vmm__min(vmm__vm_limit_bytes(&cache->vm), LIMIT_FULL_BYTES) >> 20;
    return room_bytes(cache) / LIMIT_SHARE_OF_ROOM / (LIMIT_FULL_BYTES >> 20) * mib;
}

uint64_t vmm__target_strand_bytes(const struct vmm_cache *cache)
{
    uint64_t least = STRAND_GRANULES_LEAST * cache->vm.arena.granule_bytes;
    return vmm__max(room_bytes(cache) / STRAND_SHARE_OF_ROOM, least);
}

/* Shrinks a chunk if what partly live chunks of the heap pin, as far as it is known, is more than the slack. */
static uint64_t pinned_shrink(const struct vmm_cache *cache, const struct heap *heap,
                              uint64_t block_bytes, uint64_t bytes)
{
    uint64_t pinned = vmm__min(heap->pinned_bytes, heap->free_bytes);
    uint64_t slack = slack_bytes(cache, peak_bytes(cache, block_bytes));
    if (pinned <= slack)
        return bytes;
    return bytes / SHRINK_STEPS * square_root(SHRINK_STEPS * SHRINK_STEPS * slack / pinned);
}

static uint64_t share_bytes(const struct vmm_cache *cache, const struct heap *heap,
                            uint64_t block_bytes)
{
    uint64_t permille = vmm__min(cache->footprint_permille, CHUNK_PERMILLE_MOST);
    uint64_t reserved = vmm__stat_now(&cache->vm.reserved_bytes);
    uint64_t bytes = square_root(reserved << 20) * permille / CHUNK_DIVISOR;
    return pinned_shrink(cache, heap, block_bytes, bytes);
}

static uint32_t granules_of(const struct vmm_cache *cache, uint64_t bytes)
{
    return (uint32_t)vmm__max(1, bytes >> cache->vm.arena.granule_shift);
}

uint32_t vmm__target_chunk_granules(const struct vmm_cache *cache, const struct heap *heap,
                                    uint64_t bytes)
{
    uint64_t share = vmm__max(share_bytes(cache, heap, bytes), bytes / CHUNK_SHARE_OF_BLOCK);
    return heap->is_small ? 1 : granules_of(cache, vmm__min(share, limit_share_bytes(cache)));
}

uint64_t vmm__target_gather_bytes(const struct vmm_cache *cache, const struct heap *heap)
{
    return (uint64_t)granules_of(cache, share_bytes(cache, heap, 0))
           << cache->vm.arena.granule_shift;
}
