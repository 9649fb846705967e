/* Splitting: idle chunks that are too large go back when more memory is wanted. */
#include "support/policy_support.h"

/* What is idle in chunks that are too large goes back, and comes in small ones. */
static void large_idle_chunks_are_split(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    scene->cache->is_fine = true;
    scene->cache->footprint_permille = 1;
    (void)territory(scene, heap, 20, 8, 8);
    (void)territory(scene, heap, 48, 8, 8);
    uint64_t before = creates(scene);
    assert_ok(grown(scene, heap, 20 * GRANULE, GROW_TARGET));
    assert_int_equal(creates(scene), before + 12);
    assert_int_equal(scene_reserved(scene), 20 * GRANULE);
}

/* Each call of the driver fails in turn: what was split is in order, and all goes back. */
static void splitting_outlives_a_driver_that_fails(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    uint64_t fired = 1;
    uint64_t call = 0;
    for (scene->cache->footprint_permille = 1; fired > 0;) {
        scene->cache->is_fine = true;
        (void)territory(scene, heap, 20, 8, 8);
        (void)territory(scene, heap, 48, 8, 8);
        vmm__sim_fail_at(scene->driver, ++call, VMM_ERR_DRIVER, false);
        vmm_status status = grown(scene, heap, 20 * GRANULE, GROW_TARGET);
        fired = vmm__sim_faults_fired(scene->driver);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_true(status == VMM_OK || (status == VMM_ERR_DRIVER && fired == 1));
        assert_ok(vmm_trim(scene->cache, 0, NULL));
        assert_int_equal(scene_reserved(scene), 0);
    }
    assert_true(call > 12);
}

/* Its work goes on, and the driver must not have it yet: it moves as it is. */
static void large_chunks_at_work_are_not_split(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    scene->cache->is_fine = true;
    scene->cache->footprint_permille = 1;
    (void)block_given_busy(scene, heap,
                           block_lived(heap, territory(scene, heap, 20, 8, 8), 8 * GRANULE));
    (void)block_given_busy(scene, heap,
                           block_lived(heap, territory(scene, heap, 48, 8, 8), 8 * GRANULE));
    uint64_t before = creates(scene);
    assert_ok(grown(scene, heap, 20 * GRANULE, GROW_TARGET));
    assert_int_equal(creates(scene), before + 4);
    assert_int_equal(scene_reserved(scene), 20 * GRANULE);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLICY_TEST(large_idle_chunks_are_split),
        POLICY_TEST(splitting_outlives_a_driver_that_fails),
        POLICY_TEST(large_chunks_at_work_are_not_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
