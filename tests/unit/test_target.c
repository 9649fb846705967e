/* The footprint target: the new memory that it allows for a request, and the chunk size. Arithmetic only. */
#include "support/test_support.h"

#include "cache/grow/target.h"

#include <string.h>

enum { GRANULE_SHIFT = 21 };
static const uint64_t GRANULE = UINT64_C(1) << GRANULE_SHIFT;

/* Fills in the fields of a cache that the target reads. */
static struct vmm_cache *cache_of(uint64_t reserved_bytes, uint64_t active_bytes, uint64_t permille)
{
    static struct vmm_cache cache;
    memset(&cache, 0, sizeof cache);
    cache.vm.arena.granule_shift = GRANULE_SHIFT;
    cache.footprint_permille = (uint32_t)permille;
    cache.largest_chunk_granules = 64;
    vmm__stat_add(&cache.vm.reserved_bytes, reserved_bytes);
    vmm__stat_add(&cache.totals.active_bytes, active_bytes);
    return &cache;
}

/* Also counts the active bytes as freed and allocated again, so that the program is not loading. */
static struct vmm_cache *cache_in_use(uint64_t reserved_bytes, uint64_t active_bytes,
                                      uint64_t permille)
{
    struct vmm_cache *cache = cache_of(reserved_bytes, active_bytes, permille);
    vmm__stat_subtract(&cache->totals.active_bytes, active_bytes);
    vmm__stat_add(&cache->totals.active_bytes, active_bytes);
    return cache;
}

static const struct heap large;
static const struct heap small = { .is_small = true };

static uint64_t chunk_of(struct vmm_cache *cache, uint64_t bytes)
{
    return vmm__target_chunk_granules(cache, &large, bytes);
}

/* ---- New memory ------------------------------------------------------------------------------ */

TEST(target_is_the_peak_and_a_share_of_it)
{
    struct vmm_cache *cache = cache_of(100 * GIB, 99 * GIB, 10);
    assert_int_equal(vmm__target_granules(cache, GIB), 100 * GIB / 1000 * 10 / GRANULE);
    cache = cache_of(100 * GIB, 99 * GIB, 100);
    assert_int_equal(vmm__target_granules(cache, GIB), 100 * GIB / 1000 * 100 / GRANULE);
    cache = cache_of(102 * GIB, 99 * GIB, 10);
    assert_int_equal(vmm__target_granules(cache, GIB), 0);
}

TEST(small_programs_get_a_few_chunks)
{
    assert_int_equal(vmm__target_granules(cache_of(0, 0, 10), 100 * GRANULE), 100 + 7);
    assert_int_equal(vmm__target_granules(cache_of(0, 0, 5), 100 * GRANULE), 100 + 3);
    assert_int_equal(vmm__target_granules(cache_of(0, 0, 1000), 0), 7);
    assert_int_equal(vmm__target_granules(cache_of(100 * GRANULE, 0, 10), 100 * GRANULE), 7);
    assert_int_equal(vmm__target_granules(cache_of(200 * GRANULE, 0, 10), 100 * GRANULE), 0);
}

TEST(recent_peak_and_retained_bytes_count)
{
    struct vmm_cache *cache = cache_of(0, 10 * GRANULE, 10);
    atomic_store(&cache->totals.lately_active_bytes, 50 * GRANULE);
    assert_int_equal(vmm__target_granules(cache, GRANULE), 50 + 7);
    cache->retained_bytes = 30 * GRANULE;
    assert_int_equal(vmm__target_granules(cache, GRANULE), 80 + 7);
    assert_int_equal(vmm__target_granules(cache, 60 * GRANULE), 100 + 7);
}

TEST(footprint_any_allows_everything)
{
    assert_int_equal(vmm__target_granules(cache_of(100 * GIB, 0, VMM_FOOTPRINT_ANY), GRANULE),
                     UINT64_MAX);
}

/* ---- Near the limit ------------------------------------------------------------------------- */

TEST(limit_is_near_in_its_upper_half)
{
    struct vmm_cache *cache = cache_of(4 * GIB, 0, 10);
    assert_false(vmm__target_limit_is_near(cache, 100 * GIB));
    cache->vm.limit_bytes = 10 * GIB;
    assert_false(vmm__target_limit_is_near(cache, GIB));
    assert_true(vmm__target_limit_is_near(cache, GIB + 1));
}

/* ---- Chunk size ------------------------------------------------------------------------------ */

TEST(small_heaps_have_single_granules)
{
    assert_int_equal(vmm__target_chunk_granules(cache_of(100 * GIB, 100 * GIB, 1000), &small, GIB),
                     1);
}

TEST(chunks_are_a_share_of_reserved_memory)
{
    const uint64_t reserved = 6400 * GRANULE;
    assert_int_equal(chunk_of(cache_in_use(reserved, reserved, 10), GRANULE), 20);
    assert_int_equal(chunk_of(cache_in_use(reserved, reserved, 20), GRANULE), 40);
    assert_int_equal(chunk_of(cache_in_use(reserved, reserved, 100), GRANULE), 64);
    assert_int_equal(chunk_of(cache_in_use(reserved / 64, reserved / 64, 10), GRANULE), 1);
    struct vmm_cache *cache = cache_in_use(reserved, reserved, 10);
    cache->is_fine = true;
    assert_int_equal(chunk_of(cache, GRANULE), 4);
}

/* Below 8 GiB with the default target, 4 GiB with twice the slack: half the memory, half the share. */
TEST(chunks_shrink_in_small_programs)
{
    const uint64_t reserved = 4 * GIB; /* 1/320 of it is 6.4 granules */
    assert_int_equal(chunk_of(cache_in_use(reserved, reserved, 10), GRANULE), 3);
    assert_int_equal(chunk_of(cache_in_use(reserved, reserved, 20), GRANULE), 12);
    assert_int_equal(chunk_of(cache_in_use(reserved / 2, reserved / 2, 20), GRANULE), 3);
    struct vmm_cache *cache = cache_in_use(reserved, reserved, 10);
    cache->is_fine = true;
    assert_int_equal(chunk_of(cache, GRANULE), 1);
    assert_int_equal(chunk_of(cache_of(reserved, reserved, 10), GRANULE),
                     5); /* loading: 1/180, halved */
}

TEST(chunks_are_a_share_of_the_block)
{
    assert_int_equal(chunk_of(cache_in_use(GRANULE, GRANULE, 10), 640 * GRANULE), 10);
    struct vmm_cache *cache = cache_in_use(GRANULE, GRANULE, 10);
    cache->is_fine = true;
    assert_int_equal(chunk_of(cache, 640 * GRANULE), 2);
}

TEST(chunks_are_smaller_near_the_limit)
{
    const uint64_t reserved = 16000 * GRANULE;
    struct vmm_cache *cache = cache_in_use(reserved, reserved, 20);
    cache->vm.limit_bytes = 4 * reserved;
    assert_int_equal(chunk_of(cache, GRANULE), 64);
    cache->vm.limit_bytes = 2 * reserved;
    assert_int_equal(chunk_of(cache, GRANULE), 20 / 4);
}

TEST(chunks_are_larger_far_above_the_target)
{
    const uint64_t active = 1000 * GRANULE;
    const uint64_t target = active + GRANULE + (active + GRANULE) / 1000;
    assert_int_equal(chunk_of(cache_in_use(target + target / 20 - GRANULE, active, 1), GRANULE), 1);
    assert_int_equal(chunk_of(cache_in_use(target + target / 20 + GRANULE, active, 1), GRANULE), 4);
    struct vmm_cache *cache = cache_in_use(2 * target, active, 1);
    cache->vm.limit_bytes = 3 * target;
    assert_int_equal(chunk_of(cache, GRANULE), 1);
}

TEST(chunks_are_larger_while_a_program_loads)
{
    const uint64_t reserved = 1800 * GRANULE;
    assert_int_equal(chunk_of(cache_of(10 * reserved, 10 * reserved, 10), GRANULE), 100);
    assert_int_equal(chunk_of(cache_of(100 * reserved, 100 * reserved, 10), GRANULE), 128);
    struct vmm_cache *cache = cache_of(10 * reserved, 10 * reserved, 10);
    cache->vm.limit_bytes = UINT64_C(1) << 60;
    assert_int_equal(chunk_of(cache, GRANULE), 56);
    cache = cache_of(10 * reserved, 10 * reserved, 10);
    vmm__stat_add(&cache->totals.active_bytes, 10 * reserved / 64);
    vmm__stat_subtract(&cache->totals.active_bytes, 10 * reserved / 64);
    assert_int_equal(chunk_of(cache, GRANULE), 100); /* exactly the threshold was freed */
    vmm__stat_add(&cache->totals.active_bytes, 512);
    vmm__stat_subtract(&cache->totals.active_bytes, 512);
    assert_int_equal(chunk_of(cache, GRANULE), 56);
}
