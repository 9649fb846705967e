/* The footprint target: the new memory that it allows for a request, and the chunk size. Arithmetic only. */
#include "support/test_support.h"

#include "cache/grow/target.h"

#include <string.h>

enum { GRANULE_SHIFT = 21 };
static const uint64_t GRANULE = UINT64_C(1) << GRANULE_SHIFT;

/* Fills in the fields of a cache that the target reads. */
static struct vmm_cache *cache_of(uint64_t reserved_bytes, uint64_t active_bytes, uint64_t permille)
{
    static struct driver driver;
    static struct vmm_cache cache;
    memset(&cache, 0, sizeof cache);
    driver.total_bytes = UINT64_C(1) << 50;
    cache.driver = &driver;
    cache.vm.driver = &driver;
    cache.vm.arena.granule_shift = GRANULE_SHIFT;
    cache.vm.arena.granule_bytes = GRANULE;
    cache.footprint_permille = (uint32_t)permille;
    vmm__stat_add(&cache.vm.reserved_bytes, reserved_bytes);
    vmm__stat_add(&cache.totals.active_bytes, active_bytes);
    vmm__stat_add(&cache.totals.allocated_bytes, active_bytes);
    return &cache;
}

/* The same with a limit. */
static struct vmm_cache *cache_near(uint64_t limit_bytes, uint64_t active_bytes, uint64_t permille)
{
    struct vmm_cache *cache = cache_of(active_bytes, active_bytes, permille);
    cache->vm.limit_bytes = limit_bytes;
    return cache;
}

static const struct heap large;
static const struct heap small = { .is_small = true };

static uint64_t kept_bytes;

static uint64_t granules_of(const struct vmm_cache *cache, uint64_t bytes)
{
    return vmm__target_granules(
        cache, &(struct request){ .block_bytes = bytes, .kept_bytes = kept_bytes });
}

static uint64_t chunk_of(const struct vmm_cache *cache, uint64_t bytes)
{
    return vmm__target_chunk_granules(cache, &large, bytes);
}

/* ---- Stranded bytes ---------------------------------------------------------------------------- */

TEST(blocks_may_strand_a_share_of_the_room_below_the_limit)
{
    assert_int_equal(vmm__target_strand_bytes(cache_near(64 * GIB, 32 * GIB, 10)), GIB / 8);
    assert_int_equal(vmm__target_strand_bytes(cache_near(64 * GIB, 60 * GIB, 10)), 16 * MIB);
    assert_int_equal(vmm__target_strand_bytes(cache_near(64 * GIB, 63 * GIB, 10)), 4 * GRANULE);
    assert_int_equal(vmm__target_strand_bytes(cache_near(64 * GIB, 65 * GIB, 10)), 4 * GRANULE);
    struct vmm_cache *cache = cache_of(0, 60 * GIB, 10);
    cache->driver->total_bytes = 64 * GIB;
    assert_int_equal(vmm__target_strand_bytes(cache), 16 * MIB);
}

/* ---- New memory ------------------------------------------------------------------------------ */

TEST(target_is_the_peak_and_a_share_of_it)
{
    struct vmm_cache *cache = cache_of(100 * GIB, 99 * GIB, 10);
    assert_int_equal(granules_of(cache, GIB), 100 * GIB / 1000 * 10 / GRANULE);
    cache = cache_of(100 * GIB, 99 * GIB, 100);
    assert_int_equal(granules_of(cache, GIB), 100 * GIB / 1000 * 100 / GRANULE);
    cache = cache_of(102 * GIB, 99 * GIB, 10);
    assert_int_equal(granules_of(cache, GIB), 0);
}

/* 2 % of the peak, but at most 16 MiB: less by a rounding than 8 granules. */
TEST(small_programs_get_a_little_more)
{
    assert_int_equal(granules_of(cache_of(0, 0, 10), 100 * GRANULE), 100 + 1);
    assert_int_equal(granules_of(cache_of(0, 0, 10), 300 * GRANULE), 300 + 5);
    assert_int_equal(granules_of(cache_of(0, 0, 10), 500 * GRANULE), 500 + 7);
    assert_int_equal(granules_of(cache_of(0, 0, 5), 500 * GRANULE), 500 + 3);
    assert_int_equal(granules_of(cache_of(0, 0, 10), 900 * GRANULE), 900 + 8);
    assert_int_equal(granules_of(cache_of(0, 0, 1000), 0), 0);
    assert_int_equal(granules_of(cache_of(500 * GRANULE, 0, 10), 500 * GRANULE), 7);
    assert_int_equal(granules_of(cache_of(600 * GRANULE, 0, 10), 500 * GRANULE), 0);
}

TEST(recent_peak_and_kept_bytes_count)
{
    struct vmm_cache *cache = cache_of(0, 10 * GRANULE, 10);
    atomic_store(&cache->totals.lately_active_bytes, 500 * GRANULE);
    assert_int_equal(granules_of(cache, GRANULE), 500 + 7);
    kept_bytes = 30 * GRANULE;
    assert_int_equal(granules_of(cache, GRANULE), 530 + 7);
    assert_int_equal(granules_of(cache, 510 * GRANULE), 550 + 7);
    kept_bytes = 0;
}

TEST(footprint_any_allows_everything)
{
    assert_int_equal(granules_of(cache_of(100 * GIB, 0, VMM_FOOTPRINT_ANY), GRANULE), UINT64_MAX);
}

/* ---- Chunk size ------------------------------------------------------------------------------ */

TEST(small_heaps_have_single_granules)
{
    const struct vmm_cache *cache = cache_of(100 * GIB, 100 * GIB, 1000);
    assert_int_equal(vmm__target_chunk_granules(cache, &small, GIB), 1);
}

/* 16 GiB: the root of 16384 MiB is 128 MiB, 64 granules; p/25 of it is 25.6 at p = 10. */
TEST(chunks_grow_with_the_root_of_reserved_memory)
{
    assert_int_equal(chunk_of(cache_of(16 * GIB, 16 * GIB, 10), GRANULE), 25);
    assert_int_equal(chunk_of(cache_of(4 * GIB, 4 * GIB, 10), GRANULE), 12);
    assert_int_equal(chunk_of(cache_of(64 * GIB, 64 * GIB, 10), GRANULE), 51);
    assert_int_equal(chunk_of(cache_of(MIB * 256, MIB * 256, 10), GRANULE), 3);
    assert_int_equal(chunk_of(cache_of(0, 0, 10), GRANULE), 1);
}

TEST(chunks_grow_with_the_footprint)
{
    assert_int_equal(chunk_of(cache_of(16 * GIB, 16 * GIB, 1), GRANULE), 2);
    assert_int_equal(chunk_of(cache_of(16 * GIB, 16 * GIB, 25), GRANULE), 64);
    assert_int_equal(chunk_of(cache_of(16 * GIB, 16 * GIB, 50), GRANULE), 128);
    assert_int_equal(chunk_of(cache_of(16 * GIB, 16 * GIB, 100), GRANULE), 128);
    assert_int_equal(chunk_of(cache_of(16 * GIB, 16 * GIB, VMM_FOOTPRINT_ANY), GRANULE), 128);
}

/* Partly live chunks that pin as much as the slack are what the knob allows; four times as much halves a chunk. */
TEST(chunks_are_smaller_where_partly_live_ones_pin_much)
{
    const struct vmm_cache *cache = cache_of(100 * GIB, 100 * GIB, 10);
    struct heap heap = { .free_bytes = 100 * GIB };
    uint64_t granules = chunk_of(cache, MIB);
    heap.pinned_bytes = 100 * GIB / 1000 * 10;
    assert_int_equal(vmm__target_chunk_granules(cache, &heap, MIB), granules);
    heap.pinned_bytes *= 4;
    assert_int_equal(vmm__target_chunk_granules(cache, &heap, MIB), granules / 2);
    heap.free_bytes = GIB / 2; /* what was pinned is live again */
    assert_int_equal(vmm__target_chunk_granules(cache, &heap, MIB), granules);
}

TEST(chunks_are_a_share_of_the_block)
{
    assert_int_equal(chunk_of(cache_of(GRANULE, GRANULE, 10), 640 * GRANULE), 10);
    assert_int_equal(chunk_of(cache_of(16 * GIB, 16 * GIB, 10), 640 * GRANULE), 25);
    assert_int_equal(chunk_of(cache_of(16 * GIB, 16 * GIB, 10), 6400 * GRANULE), 100);
}

/* 1/32 of what is free below the limit. */
TEST(chunks_are_smaller_near_the_limit)
{
    assert_int_equal(chunk_of(cache_near(32 * GIB, 16 * GIB, 10), GRANULE), 25);
    assert_int_equal(chunk_of(cache_near(17 * GIB, 16 * GIB, 10), GRANULE), 16);
    assert_int_equal(chunk_of(cache_near(17 * GIB, 16 * GIB, 10), 6400 * GRANULE), 16);
    assert_int_equal(chunk_of(cache_near(16 * GIB, 16 * GIB, 10), GRANULE), 1);
    assert_int_equal(chunk_of(cache_near(15 * GIB, 16 * GIB, 10), 6400 * GRANULE), 1);
}

/* Below a limit of 8 GiB, in proportion: half the limit, half the share. */
TEST(chunks_are_smaller_below_a_small_limit)
{
    assert_int_equal(chunk_of(cache_near(8 * GIB, 7 * GIB, 50), GRANULE), 16);
    assert_int_equal(chunk_of(cache_near(4 * GIB, 3 * GIB, 50), GRANULE), 8);
    assert_int_equal(chunk_of(cache_near(GIB, GIB - GIB / 4, 50), GRANULE), 1);
}

TEST(the_device_is_a_limit)
{
    const struct vmm_cache *cache = cache_near(64 * GIB, 16 * GIB, 10);
    cache->driver->total_bytes = 17 * GIB;
    assert_int_equal(chunk_of(cache, GRANULE), 16);
}
