/* Spans: adjacent free addresses of several heaps join in one heap. */
#include "support/policy_support.h"

#include "cache/reuse/span.h"

static vmm_status join(struct scene *scene, uint64_t bytes, uint64_t most_bytes)
{
    vmm_status status =
        vmm__span_join(scene->cache, &scene->pool->large, bytes, most_bytes, IDLE_FINISHED);
    assert_ok(vmm__cache_check(scene->cache));
    return status;
}

POLICY_TEST(neighbours_of_two_streams_join)
{
    (void)extent(scene, &scene->other->large, 20, 4, 2);
    (void)extent(scene, &scene->pool->large, 24, 4, 2);
    (void)extent(scene, &scene->other->large, 28, 4, 2);
    uint64_t maps = vmm__driver_calls(scene->driver, DRIVER_CALL_map);
    assert_ok(join(scene, 12 * GRANULE, 8 * GRANULE));
    assert_int_equal(scene->pool->large.free_bytes, 12 * GRANULE);
    assert_int_equal(vmm__size_index_largest(&scene->pool->large.index)->size, 12 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, 0);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_map), maps);
}

POLICY_TEST(only_needed_chunks_join)
{
    (void)extent(scene, &scene->pool->large, 24, 4, 2);
    (void)extent(scene, &scene->other->large, 28, 8, 2);
    assert_ok(join(scene, 6 * GRANULE, 8 * GRANULE));
    assert_int_equal(scene->pool->large.free_bytes, 6 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, 6 * GRANULE);
}

POLICY_TEST(spans_with_large_gaps_are_left)
{
    (void)extent(scene, &scene->pool->large, 20, 4, 2);
    (void)extent(scene, &scene->other->large, 28, 4, 2);
    assert_status(join(scene, 12 * GRANULE, 4 * GRANULE), VMM__NO_FIT);
    assert_ok(join(scene, 12 * GRANULE, 4 * GRANULE + 1)); /* the gap is four granules */
    assert_int_equal(scene->pool->large.free_bytes, 8 * GRANULE);
    (void)extent(scene, &scene->other->large, 40, 4, 2);
    (void)extent(scene, &scene->other->large, 46, 4, 2);
    (void)extent(scene, &scene->other->large, 52, 4, 2);
    assert_status(join(scene, 17 * GRANULE, 3 * GRANULE), VMM__NO_FIT); /* two gaps */
}

POLICY_TEST(work_in_flight_ends_a_span)
{
    struct heap *other = &scene->other->large;
    (void)extent(scene, &scene->pool->large, 20, 4, 2);
    struct block *block = block_make_live(other, extent(scene, other, 24, 4, 2), 4 * GRANULE);
    (void)block_free_busy(scene, other, block);
    assert_status(join(scene, 8 * GRANULE, 4 * GRANULE), VMM__NO_FIT);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(join(scene, 8 * GRANULE, 4 * GRANULE));
    assert_int_equal(scene->driver->stalls, 0);
}

POLICY_TEST(live_bytes_end_a_span)
{
    struct heap *other = &scene->other->large;
    (void)extent(scene, &scene->pool->large, 20, 4, 2);
    (void)block_make_live(other, extent(scene, other, 24, 4, 2), 512);
    assert_status(join(scene, 8 * GRANULE, 4 * GRANULE), VMM__NO_FIT);
    assert_int_equal(other->free_bytes, 4 * GRANULE - 512);
}

POLICY_TEST(arena_end_ends_a_span)
{
    (void)extent(scene, &scene->other->large, 60, 4, 2);
    assert_status(join(scene, 5 * GRANULE, 5 * GRANULE), VMM__NO_FIT);
    assert_ok(join(scene, 4 * GRANULE, 4 * GRANULE));
}

/* One granule of each stream in turn. */
POLICY_TEST(a_span_has_at_most_sixteen_pieces)
{
    for (uint64_t i = 0; i < 17; i++)
        (void)extent(scene, i % 2 == 0 ? &scene->other->large : &scene->pool->large, 20 + i, 1, 1);
    assert_status(join(scene, 17 * GRANULE, GRANULE), VMM__NO_FIT);
    assert_ok(join(scene, 16 * GRANULE, GRANULE));
    assert_int_equal(scene->pool->large.free_bytes, 16 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, GRANULE);
}

POLICY_TEST(small_heaps_do_not_join)
{
    (void)extent(scene, &scene->pool->large, 20, 4, 2);
    (void)extent(scene, &scene->other->small, 24, 4, 1);
    assert_status(
        vmm__span_join(scene->cache, &scene->pool->small, 8 * GRANULE, 8 * GRANULE, IDLE_FINISHED),
        VMM__NO_FIT);
}
