/* Faults at each driver call of blocks that grow: a call that fails changes nothing, and leaves nothing behind. */
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "base/hostmem.h"

enum { LAG = 3 }; /* pieces of work that are under way */

struct scene {
    struct driver *driver;
    vmm_cache *cache;
    void *reserved;
    void *block; /* live ones lie directly before and behind it */
};

static void scene_begin(struct scene *scene, struct driver *driver)
{
    vmm_config config = CONFIG(.arena_bytes = 4 * GIB, .zero = VMM_OFF);
    *scene = (struct scene){ .driver = driver };
    vmm__sim_lag_set(driver, LAG);
    assert_ok(vmm__cache_create_on(&config, driver, &scene->cache));
    vmm_pool *pool = vmm_cache_pool(scene->cache);
    void *other = block_in(scene->cache, 3 * MIB, STREAM(1));
    assert_ok(vmm_alloc(scene->cache, 20 * MIB, STREAM(1), &scene->block));
    assert_ok(vmm_alloc(scene->cache, 3 * MIB, STREAM(1), &other));
    assert_ok(vmm_reserve(pool, 16 * MIB, 0, STREAM(1), &scene->reserved));
    assert_ok(vmm_commit(scene->cache, scene->reserved, 0, 8 * MIB));
    for (int i = 0; i < 64; i++) /* so that the block above must move */
        assert_ok(vmm_reserve(pool, 2 * MIB, 0, STREAM(2), &other));
    memory_fill(driver, (uintptr_t)scene->block, 20 * MIB, 1, STREAM(1));
    memory_fill(driver, (uintptr_t)scene->reserved, 4 * MIB, 2, STREAM(1));
}

static vmm_status commit(struct scene *scene)
{
    return vmm_commit(scene->cache, scene->reserved, 6 * MIB, 6 * MIB);
}

static vmm_status decommit(struct scene *scene)
{
    vmm_status status = vmm_decommit(scene->cache, scene->reserved, 4 * MIB, 6 * MIB);
    (void)vmm_poll(scene->cache); /* releases what the call could not */
    return status;
}

static vmm_status resize(struct scene *scene)
{
    return vmm_resize(scene->cache, scene->block, 30 * MIB, &scene->block);
}

static vmm_status resize_reserved(struct scene *scene)
{
    vmm_status status = vmm_resize(scene->cache, scene->reserved, 512 * MIB, &scene->reserved);
    if (status == VMM_OK) /* the end is there */
        assert_ok(vmm_decommit(scene->cache, scene->reserved, 510 * MIB, 2 * MIB));
    return status;
}

static vmm_status reserve(struct scene *scene)
{
    void *more;
    return vmm_reserve(vmm_cache_pool(scene->cache), GIB, 0, STREAM(3), &more);
}

static vmm_status align(struct scene *scene)
{
    void *more;
    return vmm_alloc_aligned(vmm_cache_pool(scene->cache), 5 * MIB, 4 * MIB, STREAM(3), &more);
}

typedef vmm_status (*step)(struct scene *scene);

static const step steps[] = { commit, decommit, resize, resize_reserved, reserve, align };

/* The blocks and their contents are as before, whether the step failed or not. */
static void scene_verify(struct scene *scene)
{
    uint64_t places;
    assert_ok(vmm__cache_check(scene->cache));
    memory_check(scene->driver, (uintptr_t)scene->block, 20 * MIB, 1, STREAM(1));
    memory_check(scene->driver, (uintptr_t)scene->reserved, 4 * MIB, 2, STREAM(1));
    assert_ok(vmm__driver_mismatches(scene->driver, &places));
    if (places != 0)
        print_error("%s\n", vmm__sim_mismatch(scene->driver));
    assert_int_equal(places, 0);
}

/* Runs a step while call `number` fails. Returns how many calls it made. */
static uint64_t step_run(struct driver *driver, step run, uint64_t number, vmm_status fault)
{
    struct scene scene;
    scene_begin(&scene, driver);
    vmm_stats before = stats_of(scene.cache);
    vmm__sim_fail_at(driver, number, fault, false);
    vmm_status status = run(&scene);
    uint64_t calls = vmm__sim_calls(driver);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    if (status != VMM_OK) {
        vmm_stats after = stats_of(scene.cache);
        assert_int_equal(after.active_bytes.current, before.active_bytes.current);
        assert_int_equal(after.allocations.current, before.allocations.current);
        assert_int_equal(after.requested_bytes.current, before.requested_bytes.current);
    }
    scene_verify(&scene);
    assert_ok(run(&scene)); /* it can be tried again */
    scene_verify(&scene);
    assert_ok(vmm_destroy(scene.cache));
    sim_assert_clean(driver);
    if (!sim_census_is_zero(driver))
        fail_msg("call %llu failed once, and something is left", (unsigned long long)number);
    return calls;
}

static void steps_sweep(struct driver *driver, vmm_status fault)
{
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        uint64_t calls = step_run(driver, steps[i], 0, fault);
        assert_true(calls > 0 || steps[i] == reserve);
        for (uint64_t number = 1; number <= calls; number++)
            (void)step_run(driver, steps[i], number, fault);
    }
}

SIM_TEST(a_driver_error_at_any_call_changes_nothing)
{
    steps_sweep(driver, VMM_ERR_DRIVER);
}

SIM_TEST(device_memory_that_runs_out_at_any_call_changes_nothing)
{
    steps_sweep(driver, VMM_ERR_DEVICE_OOM);
}

/* Host memory that runs out: also in the uses of other streams, which each chunk waits for. */
SIM_TEST(host_memory_that_runs_out_changes_nothing)
{
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        bool has_failed = true;
        for (uint64_t number = 1; has_failed; number++) {
            struct scene scene;
            scene_begin(&scene, driver);
            assert_ok(vmm_record_stream(scene.cache, scene.reserved, STREAM(2)));
            (void)vmm__host_fail_at(number);
            vmm_status status = steps[i](&scene);
            has_failed = vmm__host_fail_at(0) >= number;
            if (status != VMM_OK)
                assert_status(status, VMM_ERR_HOST_OOM);
            scene_verify(&scene);
            assert_ok(steps[i](&scene));
            scene_verify(&scene);
            assert_ok(vmm_destroy(scene.cache));
            sim_assert_clean(driver);
            assert_true(sim_census_is_zero(driver));
        }
    }
}

SIM_TEST(a_commit_after_one_that_could_not_be_undone_gives_access)
{
    bool has_failed = true;
    for (uint64_t number = 1; has_failed; number++) {
        struct scene scene;
        scene_begin(&scene, driver);
        vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, true);
        has_failed = commit(&scene) != VMM_OK;
        vmm__sim_fail_at(driver, 0, VMM_OK, false);
        assert_ok(commit(&scene));
        memory_fill(driver, (uintptr_t)scene.reserved + 6 * MIB, 6 * MIB, 3, STREAM(1));
        scene_verify(&scene);
        assert_ok(vmm_destroy(scene.cache));
        sim_assert_clean(driver);
    }
}

SIM_TEST(a_lost_device_refuses_memory_and_takes_blocks_back)
{
    struct scene scene;
    scene_begin(&scene, driver);
    vmm__sim_fail_at(driver, 1, VMM_ERR_LOST, true);
    assert_status(commit(&scene), VMM_ERR_LOST);
    assert_status(commit(&scene), VMM_ERR_LOST);
    assert_status(resize(&scene), VMM_ERR_LOST);
    assert_status(resize_reserved(&scene), VMM_ERR_LOST);
    assert_status(reserve(&scene), VMM_ERR_LOST);
    assert_status(align(&scene), VMM_ERR_LOST);
    assert_ok(vmm_decommit(scene.cache, scene.reserved, 0, 2 * MIB));
    assert_ok(vmm_name(scene.cache, scene.reserved, "kv"));
    assert_ok(vmm_free(scene.cache, scene.reserved));
    assert_ok(vmm_free(scene.cache, scene.block));
    assert_ok(vmm__cache_check(scene.cache));
    assert_status(vmm_destroy(scene.cache), VMM_ERR_LOST);
}

/* The last memory is another stream's: a copy that were taken from there could not be given back if events fail. */
SIM_TEST(a_copy_that_fails_leaves_no_block)
{
    enum { BLOCKS = 4, BYTES = 512 << 10, CALLS = 20 };
    for (uint64_t number = 1; number <= CALLS; number++) {
        struct scene scene = { .driver = driver };
        void *blocks[2][BLOCKS];
        vmm_config config = CONFIG(.limit_bytes = 4 * MIB, .reuse = VMM_REUSE_STREAM_WAIT);
        assert_ok(vmm__cache_create_on(&config, driver, &scene.cache));
        for (int i = 0; i < 2 * BLOCKS; i++)
            assert_ok(vmm_alloc(scene.cache, BYTES, STREAM(i % 2), &blocks[i % 2][i / 2]));
        assert_ok(vmm_free(scene.cache, blocks[0][0]));
        vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, true);
        vmm_status status = vmm_resize(scene.cache, blocks[1][0], BYTES - 4096, &blocks[1][0]);
        vmm__sim_fail_at(driver, 0, VMM_OK, false);
        vmm_stats stats = stats_of(scene.cache);
        assert_int_equal(stats.allocations.current, 2 * BLOCKS - 1);
        assert_true(status != VMM_OK || stats.resize_copied_bytes != 0);
        assert_ok(vmm_destroy(scene.cache));
    }
}

/* The copy, or what comes after it, fails: the block stays as it was, and the new one goes. */
static bool named_copy_run(struct driver *driver, const vmm_config *config, uint64_t number,
                           bool for_ever)
{
    struct scene scene = { .driver = driver };
    void *out = &scene;
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm__cache_create_on(config, driver, &scene.cache));
    void *block = block_in(scene.cache, 4096, STREAM(1));
    assert_ok(vmm_name(scene.cache, block, "k"));
    vmm_stats before = stats_of(scene.cache);
    vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, for_ever);
    vmm_status status = vmm_resize(scene.cache, block, 8192, &out);
    bool has_failed = vmm__sim_faults_fired(driver) > 0;
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    vmm_stats after = stats_of(scene.cache);
    assert_int_equal(after.allocations.current, 1);
    if (config->debug != VMM_DEBUG_ON) /* which can do without some calls */
        assert_int_equal(status != VMM_OK, has_failed);
    if (status != VMM_OK) {
        assert_ptr_equal(out, &scene);
        assert_true(strstr(vmm_last_error(), "capturing") != NULL ||
                    strstr(vmm_last_error(), "clear") != NULL || /* of debug mode */
                    strstr(vmm_last_error(), "copy") != NULL);
        assert_int_equal(after.requested_bytes.current, before.requested_bytes.current);
        assert_int_equal(after.resize_copied_bytes, 0);
        out = block;
    }
    assert_ok(vmm_find(scene.cache, out, &item));
    assert_string_equal(item.name, "k");
    assert_ok(vmm_free(scene.cache, out));
    assert_ok(vmm_destroy(scene.cache));
    return has_failed;
}

SIM_TEST(a_copy_that_fails_is_undone)
{
    const vmm_config configs[] = { CONFIG(.zero = VMM_OFF), CONFIG(.debug = VMM_DEBUG_ON),
                                   CONFIG(.nvtx = VMM_ON) };
    for (size_t i = 0; i < 3; i++)
        for (int for_ever = 0; for_ever < 2; for_ever++)
            for (uint64_t number = 1; named_copy_run(driver, &configs[i], number, for_ever != 0);
                 number++)
                continue;
}

/* There are two gaps to fill: the second fails after the first has been filled. */
SIM_TEST(a_commit_that_fails_keeps_no_memory)
{
    bool has_failed = true;
    for (uint64_t number = 1; has_failed; number++) {
        struct scene scene;
        scene_begin(&scene, driver);
        vmm__sim_lag_set(driver, 0);
        assert_ok(vmm_commit(scene.cache, scene.reserved, 10 * MIB, 2 * MIB));
        uint64_t before = stats_of(scene.cache).reserved_bytes.current;
        vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, false);
        has_failed = vmm_commit(scene.cache, scene.reserved, 6 * MIB, 8 * MIB) != VMM_OK;
        vmm__sim_fail_at(driver, 0, VMM_OK, false);
        assert_ok(vmm_poll(scene.cache));
        if (has_failed)
            assert_int_equal(stats_of(scene.cache).reserved_bytes.current, before);
        assert_ok(vmm_destroy(scene.cache));
    }
}
