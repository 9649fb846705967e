/* Growth releases idle chunks that are larger than the current chunk size. */
#include "support/policy_support.h"

/* Large idle chunks are released, and small chunks are created instead. */
POLICY_TEST(large_idle_chunks_are_replaced)
{
    struct heap *heap = &scene->pool->large;
    scene->cache->is_fine = true;
    scene->cache->footprint_permille = 1;
    (void)extent(scene, heap, 20, 8, 8);
    (void)extent(scene, heap, 48, 8, 8);
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 20 * GRANULE, GROW_TARGET));
    assert_int_equal(creates(scene), before + 12);
    assert_int_equal(scene_reserved_bytes(scene), 20 * GRANULE);
}

/* Each driver call fails once in turn: the cache stays consistent, and a trim releases everything. */
POLICY_TEST(driver_failures_leak_nothing)
{
    struct heap *heap = &scene->pool->large;
    uint64_t fired = 1;
    uint64_t call = 0;
    for (scene->cache->footprint_permille = 1; fired > 0;) {
        scene->cache->is_fine = true;
        (void)extent(scene, heap, 20, 8, 8);
        (void)extent(scene, heap, 48, 8, 8);
        vmm__sim_fail_at(scene->driver, ++call, VMM_ERR_DRIVER, false);
        vmm_status status = scene_grow(scene, heap, 20 * GRANULE, GROW_TARGET);
        fired = vmm__sim_faults_fired(scene->driver);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_true(status == VMM_OK || (status == VMM_ERR_DRIVER && fired == 1));
        assert_ok(vmm_trim(scene->cache, 0, NULL));
        assert_int_equal(scene_reserved_bytes(scene), 0);
    }
    assert_true(call > 12);
}

/* A chunk whose work is running cannot be released yet, so it moves unchanged. */
POLICY_TEST(large_chunks_in_use_move_unchanged)
{
    struct heap *heap = &scene->pool->large;
    scene->cache->is_fine = true;
    scene->cache->footprint_permille = 1;
    (void)block_free_busy(scene, heap,
                          block_make_live(heap, extent(scene, heap, 20, 8, 8), 8 * GRANULE));
    (void)block_free_busy(scene, heap,
                          block_make_live(heap, extent(scene, heap, 48, 8, 8), 8 * GRANULE));
    uint64_t before = creates(scene);
    assert_ok(scene_grow(scene, heap, 20 * GRANULE, GROW_TARGET));
    assert_int_equal(creates(scene), before + 4);
    assert_int_equal(scene_reserved_bytes(scene), 20 * GRANULE);
}
