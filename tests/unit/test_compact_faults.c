/* Compaction when driver calls or host allocations fail: no live byte is lost, and the next compaction releases all
 * that can be released. When the device is lost, all of its memory is still released. */
#include "support/live_support.h"

#include "cache/idle/trim.h"
#include "cache/reclaim/reclaim.h"

static vmm_status compact_run(struct vmm_cache *cache, uint64_t bytes)
{
    vmm__fair_lock(&cache->grow_lock);
    vmm_status status = vmm__compact(cache, NULL, NULL, bytes);
    vmm__fair_unlock(&cache->grow_lock);
    return status;
}

/* Lays out chunks of several heaps: with one run of live granules, with several, with a pinned block, under a block in
 * a view. */
static void mixture_lay_out(struct scene *scene)
{
    struct heap *heap = &scene->lane->large;
    struct heap *other = &scene->other->large;
    (void)extent(scene, heap, 10, 8, 8);
    (void)live_block_at(scene, heap, scene_address(scene, 12), GRANULE + MIB);
    (void)extent(scene, other, 20, 4, 4);
    (void)live_block_at(scene, other, scene_address(scene, 21) + 300 * PART_BYTES, 2 * GRANULE);
    (void)extent(scene, &scene->lane->small, 30, 5, 5);
    for (uint64_t i = 30; i < 35; i += 2)
        (void)live_block_at(scene, &scene->lane->small, scene_address(scene, i), 60 * PART_BYTES);
    (void)extent(scene, other, 40, 3, 3);
    live_block_pin(other, live_block_at(scene, other, scene_address(scene, 41), MIB));
    (void)extent(scene, other, 50, 4, 4);
    (void)live_block_at(scene, other, scene_address(scene, 50), 3 * MIB);
    (void)extent(scene, other, 56, 2, 2);
    assert_ok(scene_grow(scene, other, 8 * MIB, GROW_VIEW));
    (void)live_view_take(scene, other, 6 * MIB);
    live_block_free(scene, scene_address(scene, 50));
    live_blocks_check(scene);
}

static uint64_t mixture_least(struct scene *scene)
{
    mixture_lay_out(scene);
    assert_ok(scene_compact(scene, UINT64_MAX));
    uint64_t least = scene_reserved_bytes(scene);
    assert_int_equal(least, (2 + 3 + 3 + 3 + 4) * GRANULE);
    live_renew(scene);
    return least;
}

/* Whatever failed, the cache is consistent and the next compaction reaches the same result. */
static void compact_again(struct scene *scene, uint64_t least)
{
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    (void)vmm__host_fail_at(0);
    assert_ok(vmm__limbo_drain(&scene->cache->vm, NULL));
    live_blocks_check(scene);
    for (int i = 0; i < 2; i++) {
        vmm_status status = compact_run(scene->cache, UINT64_MAX);
        assert_true(status == VMM_OK || status == VMM__NOTHING);
        live_blocks_check(scene);
    }
    assert_int_equal(scene_reserved_bytes(scene), least);
    for (unsigned i = 0; i < live_count; i++) {
        if (lives[i].address != 0)
            live_block_free(scene, lives[i].address);
    }
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_int_equal(scene_reserved_bytes(scene), 0);
    assert_int_equal(scene->cache->vm.arena.free_granules, SCENE_GRANULES);
    live_renew(scene);
}

/* After the loss of a device whose memory outlives it, vmm_destroy() releases all memory, even if mapped in part. */
static void lost_scene_end(struct scene *scene)
{
    void *state = scene;
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_true(vmm__driver_is_lost(scene->driver));
    assert_ok(vmm__cache_check(scene->cache));
    assert_status(vmm_destroy(scene->cache), VMM_ERR_LOST);
    struct sim_census census = vmm__sim_census(scene->driver);
    assert_int_equal(census.reservations + census.mappings + census.handles, 0);
    assert_int_equal(census.physical_bytes, 0);
    vmm__driver_close(scene->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    assert_int_equal(live_setup(&state), 0);
}

LIVE_TEST(any_driver_call_may_lose_the_device)
{
    for (uint64_t call = 1;; call++) {
        mixture_lay_out(scene);
        atomic_store(&scene->driver->accepts_release, true);
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_LOST, false);
        (void)compact_run(scene->cache, UINT64_MAX);
        if (vmm__sim_faults_fired(scene->driver) == 0)
            return;
        lost_scene_end(scene);
    }
}

/* If a copy fails for any reason but memory, compaction starts no other copy. */
LIVE_TEST(compaction_stops_at_a_failed_copy)
{
    uint64_t copy_failures = 0;
    for (uint64_t call = 1; copy_failures == 0; call++) {
        struct heap *heap = &scene->lane->large;
        for (uint64_t granule = 10; granule < 50; granule += 20) {
            (void)extent(scene, heap, granule, 8, 8);
            (void)live_block_at(scene, heap, scene_address(scene, granule + 3), MIB);
        }
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = scene_compact(scene, UINT64_MAX);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        copy_failures = scene->driver->tally[DRIVER_CALL_copy].failures;
        if (copy_failures > 0) {
            assert_int_equal(status, VMM_ERR_DRIVER);
            assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_copy), 1);
        }
        live_renew(scene);
        assert_true(call < 100);
    }
}

LIVE_TEST(every_allocation_may_fail)
{
    uint64_t least = mixture_least(scene);
    bool fired = true;
    for (uint64_t number = 1; fired; number++) {
        mixture_lay_out(scene);
        (void)vmm__host_fail_at(number);
        vmm_status status = compact_run(scene->cache, UINT64_MAX);
        fired = vmm__host_fail_at(0) >= number;
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM || status == VMM__NOTHING);
        assert_ok(vmm__cache_check(scene->cache));
        compact_again(scene, least);
        assert_true(number < 1000);
    }
}

/* vmm_compact() returns only documented statuses, and writes its results only on success. */
LIVE_TEST(vmm_compact_fails_as_documented)
{
    static const vmm_status statuses[] = { VMM_ERR_DRIVER, VMM_ERR_DEVICE_OOM };
    uint64_t least = mixture_least(scene);
    for (int i = 0; i < 4; i++) {
        bool fired = true;
        for (uint64_t call = 1; fired; call++) {
            uint64_t moved = UINT64_MAX;
            uint64_t released = UINT64_MAX;
            mixture_lay_out(scene);
            vmm__sim_fail_at(scene->driver, call, statuses[i / 2], i % 2 != 0);
            vmm_status status = vmm_compact(scene->cache, 0, &moved, &released);
            fired = vmm__sim_faults_fired(scene->driver) > 0;
            bool is_remap_pending = scene->cache->vm.remap_pending > 0;
            assert_true(status == VMM_OK || status == VMM_ERR_DRIVER ||
                        (status == VMM_ERR_DEVICE_OOM && is_remap_pending));
            assert_true((status == VMM_OK) == (moved != UINT64_MAX && released != UINT64_MAX));
            assert_ok(vmm__cache_check(scene->cache));
            compact_again(scene, least);
            assert_true(call < 1000);
        }
    }
}

/* Compaction copies nothing while a live chunk is not mapped. */
LIVE_TEST(nothing_moves_while_a_remap_is_pending)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 4, 4);
    (void)live_block_at(scene, heap, scene_address(scene, 11), GRANULE);
    for (uint64_t call = 1; scene->cache->vm.remap_pending == 0; call++) {
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, true);
        (void)compact_run(scene->cache, GRANULE);
        assert_true(call < 40);
    }
    for (uint64_t call = 1; call < 16; call++) { /* waiting for the device works, mapping fails */
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, true);
        (void)compact_run(scene->cache, GRANULE);
        assert_ok(vmm__cache_check(scene->cache));
        if (scene->cache->vm.remap_pending == 0)
            break;
    }
    sim_assert_clean(scene->driver);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(scene_compact(scene, GRANULE));
}

/* ---- Callers ------------------------------------------------------------------------ */

/* Takes all addresses, so that none is left for a copy. */
static void addresses_take(struct scene *scene)
{
    struct arena *arena = &scene->cache->vm.arena;
    uint64_t granule;
    while (vmm__arena_find(arena, 1, &granule))
        vmm__arena_take(arena, granule, 1);
}

static void addresses_give(struct scene *scene, uint64_t first, uint64_t count)
{
    struct arena *arena = &scene->cache->vm.arena;
    for (uint64_t granule = 0; granule < SCENE_GRANULES; granule++) {
        if (granule < first || granule >= first + count)
            vmm__arena_give(arena, granule, 1);
    }
}

LIVE_TEST(reclaim_ends_without_room_for_copies)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 10, 8, 8);
    (void)live_block_at(scene, heap, scene_address(scene, 12), MIB);
    addresses_take(scene);
    assert_status(compact_run(scene->cache, GRANULE), VMM__NOTHING);
    struct request request = {
        .lane = scene->lane,
        .bytes = 7 * GRANULE,
        .heap = heap,
        .block_bytes = 7 * GRANULE,
    };
    vmm_status status = VMM_OK;
    vmm__fair_lock(&scene->cache->grow_lock);
    vmm__lane_lock(request.lane);
    for (int i = 0; i < 20 && status == VMM_OK; i++)
        status = vmm__reclaim_next(scene->cache, &request);
    vmm__lane_unlock(request.lane);
    vmm__fair_unlock(&scene->cache->grow_lock);
    assert_status(status, VMM__NOTHING);
    addresses_give(scene, 10, 8);
}

/* vmm_trim() does not fail because copies have no addresses or no memory. */
LIVE_TEST(a_trim_succeeds_without_room_for_copies)
{
    (void)extent(scene, &scene->lane->large, 10, 8, 8);
    (void)live_block_at(scene, &scene->lane->large, scene_address(scene, 12), MIB);
    size_t released = 1;
    scene->cache->vm.limit_bytes = 8 * GRANULE;
    assert_ok(vmm_trim(scene->cache, 0, &released));
    assert_int_equal(released, 0);
    scene->cache->vm.limit_bytes = 0;
    uint64_t done = 0;
    for (uint64_t call = 1; done == 0; call++) { /* the same if the driver refuses a mapping */
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DEVICE_OOM, false);
        vmm_status status = vmm_trim(scene->cache, 0, &released);
        assert_true(status == VMM_OK || status == VMM_ERR_DRIVER); /* of an event, or of the wait */
        assert_ok(vmm__cache_check(scene->cache));
        done = released;
        assert_true(call < 40);
    }
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_int_equal(done, 7 * GRANULE);
}

/* Copies that the driver does not take back are not released. Returns whether any were left. */
static bool trimmed_short(struct scene *scene, uint64_t call)
{
    size_t released = 0;
    (void)extent(scene, &scene->lane->large, 10, 8, 8);
    (void)live_block_at(scene, &scene->lane->large, scene_address(scene, 12), MIB);
    (void)extent(scene, &scene->other->large, 20, 4, 4); /* idle */
    uint64_t before = scene_reserved_bytes(scene);
    vmm__sim_fail_at(scene->driver, call, VMM_ERR_DEVICE_OOM, true);
    vmm_status status = vmm_trim(scene->cache, 0, &released);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    uint64_t after = scene_reserved_bytes(scene);
    if (status == VMM_OK)
        assert_int_equal(released, before - after);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    live_block_free(scene, lives[0].address);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    live_renew(scene);
    return status == VMM_OK && after > before - 4 * GRANULE;
}

LIVE_TEST(a_trim_says_by_how_much_reserved_memory_shrank)
{
    unsigned found = 0;
    for (uint64_t call = 1; call < 40; call++)
        found += trimmed_short(scene, call);
    assert_true(found > 0);
}
