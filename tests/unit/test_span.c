/* Free addresses in a row of several heaps become one heap's. */
#include "support/policy_support.h"

#include "policy/span.h"

static vmm_status joined(struct scene *scene, uint64_t bytes, uint64_t most_bytes)
{
    vmm_status status =
        vmm__span_join(scene->cache, &scene->pool->large, bytes, most_bytes, IDLE_FINISHED);
    assert_ok(vmm__cache_check(scene->cache));
    return status;
}

static void neighbours_of_two_streams_join(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->other->large, 20, 4, 2);
    (void)territory(scene, &scene->pool->large, 24, 4, 2);
    (void)territory(scene, &scene->other->large, 28, 4, 2);
    uint64_t maps = vmm__driver_calls(scene->driver, DRIVER_CALL_map);
    assert_ok(joined(scene, 12 * GRANULE, 8 * GRANULE));
    assert_int_equal(scene->pool->large.free_bytes, 12 * GRANULE);
    assert_int_equal(vmm__size_index_largest(&scene->pool->large.index)->size, 12 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, 0);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_map), maps);
}

static void only_what_is_needed_joins(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->large, 24, 4, 2);
    (void)territory(scene, &scene->other->large, 28, 8, 2);
    assert_ok(joined(scene, 6 * GRANULE, 8 * GRANULE));
    assert_int_equal(scene->pool->large.free_bytes, 6 * GRANULE);
    assert_int_equal(scene->other->large.free_bytes, 6 * GRANULE);
}

static void a_span_that_lacks_too_much_is_left(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->large, 20, 4, 2);
    (void)territory(scene, &scene->other->large, 28, 4, 2);
    assert_status(joined(scene, 12 * GRANULE, 4 * GRANULE), VMM_NOT_READY);
    assert_ok(joined(scene, 12 * GRANULE, 4 * GRANULE + 1)); /* the void of four is all it lacks */
    assert_int_equal(scene->pool->large.free_bytes, 8 * GRANULE);
    (void)territory(scene, &scene->other->large, 40, 4, 2);
    (void)territory(scene, &scene->other->large, 46, 4, 2);
    (void)territory(scene, &scene->other->large, 52, 4, 2);
    assert_status(joined(scene, 17 * GRANULE, 3 * GRANULE), VMM_NOT_READY); /* two voids */
}

static void work_in_flight_ends_a_span(void **state)
{
    struct scene *scene = *state;
    struct heap *other = &scene->other->large;
    (void)territory(scene, &scene->pool->large, 20, 4, 2);
    struct block *block = block_lived(other, territory(scene, other, 24, 4, 2), 4 * GRANULE);
    (void)block_given_busy(scene, other, block);
    assert_status(joined(scene, 8 * GRANULE, 4 * GRANULE), VMM_NOT_READY);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(joined(scene, 8 * GRANULE, 4 * GRANULE));
    assert_int_equal(scene->driver->stalls, 0);
}

static void live_bytes_end_a_span(void **state)
{
    struct scene *scene = *state;
    struct heap *other = &scene->other->large;
    (void)territory(scene, &scene->pool->large, 20, 4, 2);
    (void)block_lived(other, territory(scene, other, 24, 4, 2), 512);
    assert_status(joined(scene, 8 * GRANULE, 4 * GRANULE), VMM_NOT_READY);
    assert_int_equal(other->free_bytes, 4 * GRANULE - 512);
}

static void the_arena_s_end_ends_a_span(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->other->large, 60, 4, 2);
    assert_status(joined(scene, 5 * GRANULE, 5 * GRANULE), VMM_NOT_READY);
    assert_ok(joined(scene, 4 * GRANULE, 4 * GRANULE));
}

static void small_heaps_have_no_part(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->large, 20, 4, 2);
    (void)territory(scene, &scene->other->small, 24, 4, 1);
    assert_status(
        vmm__span_join(scene->cache, &scene->pool->small, 8 * GRANULE, 8 * GRANULE, IDLE_FINISHED),
        VMM_NOT_READY);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(neighbours_of_two_streams_join),
        POLICY_TEST(only_what_is_needed_joins),
        POLICY_TEST(a_span_that_lacks_too_much_is_left),
        POLICY_TEST(work_in_flight_ends_a_span),
        POLICY_TEST(live_bytes_end_a_span),
        POLICY_TEST(the_arena_s_end_ends_a_span),
        POLICY_TEST(small_heaps_have_no_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
