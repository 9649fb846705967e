/* Compaction when calls or host memory fail: no live byte is lost, and the next one does it all. Or the device is lost,
 * and all of its memory comes back. */
#include "support/live_support.h"

#include "policy/ladder.h"
#include "policy/trim.h"

/* All that compaction does: large chunks, pairs, a ring that moves, a ring that is joined. */
static void mixture_laid_out(struct scene *scene)
{
    struct heap *heap = &scene->pool->large;
    (void)place_lived(scene, heap, 2, 0, 60);
    (void)place_lived(scene, &scene->other->large, 4, 60, 60);
    (void)place_lived(scene, &scene->other->small, 6, 120, 60);
    scene_meshed(scene);
    assert_int_equal(scene->cache->memory.twins, 2);
    live_pinned(&scene->other->large, place_lived(scene, &scene->other->large, 8, 200, 300));
    (void)place_lived(scene, heap, 10, 0, 200);
    (void)place_lived(scene, &scene->pool->small, 12, 250, 50);
    (void)territory(scene, heap, 30, 8, 8);
    (void)lived_at(scene, heap, scene_address(scene, 32), GRANULE + MIB);
    (void)territory(scene, &scene->other->large, 40, 4, 4);
    (void)lived_at(scene, &scene->other->large, scene_address(scene, 41) + 300 * PART_BYTES,
                   2 * GRANULE);
    lives_checked(scene);
}

static uint64_t mixture_least(void **state)
{
    struct scene *scene = *state;
    mixture_laid_out(scene);
    assert_ok(compacted(scene, UINT64_MAX));
    uint64_t least = scene_reserved(scene);
    assert_true(scene->cache->memory.twins >= 4);
    assert_int_equal(live_teardown(state), 0);
    assert_int_equal(live_setup(state), 0);
    return least;
}

/* Whatever failed: all is consistent, and the next compaction reaches the same. */
static void compacted_again(void **state, uint64_t least, bool failed)
{
    struct scene *scene = *state;
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    (void)vmm__host_fail_at(0);
    assert_ok(vmm__limbo_drain(&scene->cache->memory, NULL));
    lives_checked(scene);
    for (int i = 0; i < 2; i++) {
        vmm_status status = vmm__compact(scene->cache, NULL, UINT64_MAX);
        assert_true(status == VMM_OK || status == VMM_NOT_READY);
        lives_checked(scene);
    }
    if (failed)
        assert_true(scene_reserved(scene) <= least + 2 * GRANULE);
    else
        assert_int_equal(scene_reserved(scene), least);
    for (unsigned i = 0; i < live_count; i++)
        live_given(scene, lives[i].address);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_int_equal(scene_reserved(scene), 0);
    assert_int_equal(scene->cache->memory.twins, 0);
    assert_int_equal(scene->cache->memory.arena.free_granules, SCENE_GRANULES);
    assert_int_equal(live_teardown(state), 0);
    assert_int_equal(live_setup(state), 0);
}

/* Whatever was mapped halfway: a device whose memory outlives its loss has all of it back. */
static void lost_scene_ended(void **state)
{
    struct scene *scene = *state;
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_true(vmm__driver_is_lost(scene->driver));
    assert_ok(vmm__cache_check(scene->cache));
    assert_status(vmm_destroy(scene->cache), VMM_ERR_LOST);
    struct sim_census census = vmm__sim_census(scene->driver);
    assert_int_equal(census.reservations + census.mappings + census.handles, 0);
    assert_int_equal(census.physical_bytes, 0);
    vmm__driver_close(scene->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    assert_int_equal(live_setup(state), 0);
}

static void any_driver_call_may_lose_the_device(void **state)
{
    for (uint64_t call = 1;; call++) {
        struct scene *scene = *state;
        mixture_laid_out(scene);
        atomic_store(&scene->driver->takes_back, true);
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_LOST, false);
        (void)vmm__compact(scene->cache, NULL, UINT64_MAX);
        if (vmm__sim_faults_fired(scene->driver) == 0)
            return;
        lost_scene_ended(state);
    }
}

static void every_driver_call_may_fail(void **state)
{
    static const vmm_status statuses[] = { VMM_ERR_DRIVER, VMM_ERR_DEVICE_OOM };
    uint64_t least = mixture_least(state);
    for (int i = 0; i < 4; i++) {
        bool fired = true;
        for (uint64_t call = 1; fired; call++) {
            struct scene *scene = *state;
            mixture_laid_out(scene);
            vmm__sim_fail_at(scene->driver, call, statuses[i / 2], i % 2 != 0);
            vmm_status status = vmm__compact(scene->cache, NULL, UINT64_MAX);
            fired = vmm__sim_faults_fired(scene->driver) > 0;
            assert_true(status == VMM_OK || status == VMM_NOT_READY || status == VMM_ERR_DRIVER);
            assert_ok(vmm__cache_check(scene->cache));
            compacted_again(state, least, fired);
            assert_true(call < 1000);
        }
    }
}

/* A driver that fails a copy, and not for want of memory, is not asked for another one. */
static void a_copy_that_fails_is_the_last(void **state)
{
    uint64_t copy_failures = 0;
    for (uint64_t call = 1; copy_failures == 0; call++) {
        struct scene *scene = *state;
        struct heap *heap = &scene->pool->large;
        for (uint64_t granule = 10; granule < 50; granule += 20) {
            (void)territory(scene, heap, granule, 8, 8);
            (void)lived_at(scene, heap, scene_address(scene, granule + 3), MIB);
        }
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = compacted(scene, UINT64_MAX);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        copy_failures = scene->driver->tally[DRIVER_CALL_copy].failures;
        if (copy_failures > 0) {
            assert_int_equal(status, VMM_ERR_DRIVER);
            assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_copy), 1);
        }
        assert_int_equal(live_teardown(state), 0);
        assert_int_equal(live_setup(state), 0);
        assert_true(call < 100);
    }
}

static void every_allocation_may_fail(void **state)
{
    uint64_t least = mixture_least(state);
    bool fired = true;
    for (uint64_t number = 1; fired; number++) {
        struct scene *scene = *state;
        mixture_laid_out(scene);
        (void)vmm__host_fail_at(number);
        vmm_status status = vmm__compact(scene->cache, NULL, UINT64_MAX);
        fired = vmm__host_fail_at(0) >= number;
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM || status == VMM_NOT_READY);
        assert_ok(vmm__cache_check(scene->cache));
        compacted_again(state, least, fired);
        assert_true(number < 1000);
    }
}

/* A ring that needs more records than it has when a guest is to join it: it must stay as it is. */
static void a_ring_without_records_stays_as_it_is(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    live_pinned(heap, place_lived(scene, heap, 10, 0, 100));
    (void)place_lived(scene, heap, 20, 100, 10);
    (void)lived_at(scene, heap, scene_address(scene, 20) + 110 * PART_BYTES, 10 * PART_BYTES);
    (void)lived_at(scene, heap, scene_address(scene, 20) + 120 * PART_BYTES, 30 * PART_BYTES);
    assert_ok(compacted(scene, GRANULE));
    live_given(scene, scene_address(scene, 20) + 110 * PART_BYTES);
    (void)place_lived(scene, &scene->other->large, 30, 200, 8);
    (void)territory(scene, heap, 40, 1, 1);
    for (uint64_t at = 0; heap->store.spare_count > 1; at++)
        (void)lived_at(scene, heap, scene_address(scene, 40) + at * PART_BYTES, PART_BYTES);
    vmm_status status = VMM_ERR_HOST_OOM;
    for (uint64_t number = 1; status == VMM_ERR_HOST_OOM; number++) {
        struct survey survey;
        assert_ok(vmm__driver_device_wait(scene->driver));
        assert_ok(vmm__survey_take(scene->cache, &survey));
        (void)vmm__host_fail_at(number);
        status = vmm__mesh(scene->cache, &survey, GRANULE);
        (void)vmm__host_fail_at(0);
        vmm__survey_end(&survey);
        assert_ok(vmm__limbo_drain(&scene->cache->memory, NULL));
        lives_checked(scene);
    }
    assert_ok(status);
    assert_int_equal(scene->cache->memory.twins, 2);
}

/* The first of a ring has moved, the second cannot: the one that stays alone lends to nobody. */
static void a_ring_that_moved_in_part_lends_nothing_in_vain(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)place_lived(scene, heap, 10, 0, 100);
    (void)place_lived(scene, heap, 20, 100, 100);
    scene_meshed(scene);
    live_pinned(heap, place_lived(scene, heap, 30, 200, 300));
    struct survey survey;
    assert_ok(vmm__driver_device_wait(scene->driver));
    assert_ok(vmm__survey_take(scene->cache, &survey));
    uint64_t maps = vmm__driver_calls(scene->driver, DRIVER_CALL_unmap);
    bool reached = false;
    for (uint64_t call = 1; !reached; call++) {
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        assert_status(vmm__mesh(scene->cache, &survey, GRANULE), VMM_ERR_DRIVER);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_ok(vmm__cache_check(scene->cache));
        reached = vmm__driver_calls(scene->driver, DRIVER_CALL_unmap) >= maps + 2 &&
                  (scene_chunk(scene, 10)->twin == 0 || scene_chunk(scene, 20)->twin == 0);
        assert_true(call < 40);
    }
    vmm__survey_end(&survey);
    lives_checked(scene);
    uint64_t alone = scene_chunk(scene, 10)->twin == 0 ? 10 : 20;
    struct occupancy taken;
    vmm__occupancy_taken(heap, alone, &taken);
    assert_int_equal(vmm__occupancy_count(&taken), 100);
}

/* A ring whose last live blocks are gone, and the events that would tell do not work. */
static void a_ring_without_live_bytes_is_not_idle_memory(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    for (uint64_t call = 1; call < 12; call++) {
        (void)place_lived(scene, heap, 10, 0, 100);
        (void)place_lived(scene, heap, 20, 100, 100);
        assert_ok(compacted(scene, GRANULE));
        live_given(scene, scene_address(scene, 10));
        live_given(scene, scene_address(scene, 20) + 100 * PART_BYTES);
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, true);
        (void)vmm__compact(scene->cache, NULL, UINT64_MAX);
        (void)vmm_trim(scene->cache, 0, NULL);
        assert_ok(vmm__cache_check(scene->cache));
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_ok(vmm_trim(scene->cache, 0, NULL));
        assert_int_equal(scene_reserved(scene), 0);
        assert_int_equal(scene->cache->memory.arena.free_granules, SCENE_GRANULES);
        live_count = 0;
    }
}

/* Nothing is copied from memory that is not mapped. */
static void nothing_moves_while_something_is_astray(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)place_lived(scene, heap, 10, 0, 100);
    (void)place_lived(scene, heap, 20, 100, 100);
    struct chunk *chunk = scene_chunk(scene, 10);
    assert_ok(vmm__driver_device_wait(scene->driver));
    vmm__sim_fail_at(scene->driver, 2, VMM_ERR_DRIVER, true);
    assert_status(vmm__memory_mesh(&scene->cache->memory, scene_chunk(scene, 20), chunk),
                  VMM_ERR_DRIVER);
    assert_int_equal(scene->cache->memory.astray, 1);
    for (uint64_t call = 1; call < 16; call++) { /* the device can be waited for, mapping fails */
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, true);
        (void)vmm__compact(scene->cache, NULL, GRANULE);
        assert_ok(vmm__cache_check(scene->cache));
        if (scene->cache->memory.astray == 0)
            break;
    }
    sim_assert_clean(scene->driver);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(compacted(scene, GRANULE));
}

/* ---- For those who ask ------------------------------------------------------------------------ */

/* No addresses are left for a copy. */
static void addresses_taken(struct scene *scene)
{
    struct arena *arena = &scene->cache->memory.arena;
    uint64_t granule;
    while (vmm__arena_find(arena, 1, &granule))
        vmm__arena_take(arena, granule, 1);
}

static void addresses_given(struct scene *scene, uint64_t first, uint64_t count)
{
    struct arena *arena = &scene->cache->memory.arena;
    for (uint64_t granule = 0; granule < SCENE_GRANULES; granule++) {
        if (granule < first || granule >= first + count)
            vmm__arena_give(arena, granule, 1);
    }
}

static void a_request_ends_when_there_is_no_room_for_copies(void **state)
{
    struct scene *scene = *state;
    struct heap *heap = &scene->pool->large;
    (void)territory(scene, heap, 10, 8, 8);
    (void)lived_at(scene, heap, scene_address(scene, 12), MIB);
    addresses_taken(scene);
    assert_status(vmm__compact(scene->cache, NULL, GRANULE), VMM_NOT_READY);
    struct request request = {
        .pool = scene->pool, .heap = heap, .bytes = 7 * GRANULE, .block_bytes = 7 * GRANULE
    };
    struct ladder ladder = { .step = 0 };
    vmm_status status = VMM_OK;
    vmm__pool_lock(request.pool);
    for (int i = 0; i < 20 && status == VMM_OK; i++)
        status = vmm__ladder_climb(scene->cache, &request, &ladder);
    vmm__pool_unlock(request.pool);
    assert_status(status, VMM_NOT_READY);
    addresses_given(scene, 10, 8);
}

/* vmm_trim() has nothing to say about addresses, or memory that copies would need. */
static void a_trim_succeeds_without_room_for_copies(void **state)
{
    struct scene *scene = *state;
    (void)territory(scene, &scene->pool->large, 10, 8, 8);
    (void)lived_at(scene, &scene->pool->large, scene_address(scene, 12), MIB);
    size_t released = 1;
    scene->cache->memory.limit_bytes = 8 * GRANULE;
    assert_ok(vmm_trim(scene->cache, 0, &released));
    assert_int_equal(released, 0);
    scene->cache->memory.limit_bytes = 0;
    uint64_t done = 0;
    for (uint64_t call = 1; done == 0; call++) { /* also when the driver refuses a mapping */
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DEVICE_OOM, false);
        vmm_status status = vmm_trim(scene->cache, 0, &released);
        assert_true(status == VMM_OK || status == VMM_ERR_DRIVER); /* an event, or a wait */
        assert_ok(vmm__cache_check(scene->cache));
        done = released;
        assert_true(call < 40);
    }
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_int_equal(done, 7 * GRANULE);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LIVE_TEST(every_driver_call_may_fail),
        LIVE_TEST(any_driver_call_may_lose_the_device),
        LIVE_TEST(a_copy_that_fails_is_the_last),
        LIVE_TEST(every_allocation_may_fail),
        LIVE_TEST(a_ring_without_records_stays_as_it_is),
        LIVE_TEST(a_ring_that_moved_in_part_lends_nothing_in_vain),
        LIVE_TEST(a_ring_without_live_bytes_is_not_idle_memory),
        LIVE_TEST(nothing_moves_while_something_is_astray),
        LIVE_TEST(a_request_ends_when_there_is_no_room_for_copies),
        LIVE_TEST(a_trim_succeeds_without_room_for_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
