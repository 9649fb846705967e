/*
 * Faults in calls that do not fail for them: vmm_last_error() speaks of calls that failed, and the end of a
 * cache leaves nothing that the driver takes back at a second attempt. A creation that fails leaves nothing, either.
 */
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "support/pool_calls.h"

struct scene {
    struct driver *driver;
    vmm_cache *cache;
};

static void scene_begin_with(struct scene *scene, struct driver *driver, vmm_config config)
{
    config.arena_bytes = 256 * MIB;
    scene->driver = driver;
    vmm__sim_lag_set(driver, 1000);
    assert_ok(vmm__cache_create_on(&config, driver, &scene->cache));
}

static void scene_begin(struct scene *scene, struct driver *driver, bool no_caching)
{
    scene_begin_with(scene, driver, CONFIG(.no_caching = no_caching));
}

static void *block_alloc(const struct scene *scene, size_t bytes, unsigned stream)
{
    void *block = block_in(scene->cache, bytes, STREAM(stream));
    memory_fill(scene->driver, (uintptr_t)block, bytes, 7, STREAM(stream));
    return block;
}

/* Blocks that are live, free, and waiting for another stream. */
static void memory_used(const struct scene *scene)
{
    (void)block_alloc(scene, 3 * MIB, 1);
    void *waiting = block_alloc(scene, 5 * MIB, 1);
    void *freed = block_alloc(scene, 9 * MIB, 2);
    assert_ok(vmm_record_stream(scene->cache, waiting, STREAM(2)));
    assert_ok(vmm_free(scene->cache, waiting));
    assert_ok(vmm_free(scene->cache, freed));
    assert_ok(vmm_trim(scene->cache, 0, NULL));
}

SIM_TEST(a_look_that_fails_leaves_no_line)
{
    struct scene scene;
    scene_begin(&scene, driver, false);
    memory_used(&scene);
    (void)vmm__error(VMM_OK, "%s", "as before");
    vmm__sim_fail_at(scene.driver, 1, VMM_ERR_DRIVER, false);
    (void)block_in(scene.cache, 5000, STREAM(1));
    assert_true(vmm__sim_faults_fired(scene.driver) == 1);
    assert_string_equal(vmm_last_error(), "as before");
    assert_ok(vmm_destroy(scene.cache));
}

SIM_TEST(a_free_without_caching_leaves_no_line)
{
    struct scene scene;
    scene_begin(&scene, driver, true);
    void *block = block_alloc(&scene, 3 * MIB, 1);
    (void)vmm__error(VMM_OK, "%s", "as before");
    vmm__sim_fail_at(scene.driver, 1, VMM_ERR_DRIVER, false);
    assert_ok(vmm_free(scene.cache, block));
    assert_true(vmm__sim_faults_fired(scene.driver) == 1);
    assert_string_equal(vmm_last_error(), "as before");
    assert_ok(vmm_destroy(scene.cache));
}

SIM_TEST(a_pool_that_ends_without_caching_leaves_no_line)
{
    static const vmm_pool_id id = { 1, 2 };
    struct scene scene;
    scene_begin(&scene, driver, true);
    void *block = block_alloc(&scene, 3 * MIB, 1);
    vmm__sim_fail_at(scene.driver, 1, VMM_ERR_DRIVER, false);
    assert_ok(vmm_free(scene.cache, block)); /* it does not go back */
    assert_ok(graph_pool_begin(scene.cache, id, NULL, NULL));
    (void)vmm__error(VMM_OK, "%s", "as before");
    vmm__sim_fail_at(scene.driver, 1, VMM_ERR_DRIVER, true);
    assert_ok(graph_pool_end(scene.cache, id));
    assert_true(vmm__sim_faults_fired(scene.driver) > 0);
    assert_string_equal(vmm_last_error(), "as before");
    vmm__sim_fail_at(scene.driver, 0, VMM_OK, false);
    assert_ok(graph_pool_release(scene.cache, id));
    assert_ok(vmm_destroy(scene.cache));
}

/* Ends a cache while call `number` fails; returns how many calls that made. */
static uint64_t cache_ended(struct driver *driver, vmm_debug_mode debug, uint64_t number)
{
    struct scene scene;
    scene_begin_with(&scene, driver, CONFIG(.debug = debug));
    memory_used(&scene);
    (void)vmm__error(VMM_OK, "%s", "as before");
    vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, false);
    assert_ok(vmm_destroy(scene.cache));
    assert_string_equal(vmm_last_error(), "as before");
    uint64_t calls = vmm__sim_calls(driver);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    sim_assert_clean(driver);
    if (!sim_census_is_zero(driver) || driver->streams != 0)
        fail_msg("call %llu failed once, and something is left", (unsigned long long)number);
    return calls;
}

/* Debug mode also has a stream. */
SIM_TEST(what_the_driver_refuses_once_does_not_stay)
{
    static const vmm_debug_mode modes[] = { VMM_DEBUG_OFF, VMM_DEBUG_ON };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        uint64_t calls = cache_ended(driver, modes[i], 0);
        assert_true(calls > 8);
        for (uint64_t number = 1; number <= calls; number++)
            (void)cache_ended(driver, modes[i], number);
    }
}

/* Ends a cache while each call from one on fails, for each of them in turn. */
static void cache_fails_to_end(vmm_debug_mode debug)
{
    struct driver_options options = { 0 };
    struct driver *driver;
    struct scene scene;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    uint64_t calls = cache_ended(driver, debug, 0);
    vmm__driver_close(driver);
    for (uint64_t number = 1; number <= calls; number++) {
        assert_ok(vmm__driver_sim_open(&options, &driver));
        scene_begin_with(&scene, driver, CONFIG(.debug = debug));
        memory_used(&scene);
        vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, true);
        assert_status(vmm_destroy(scene.cache), VMM_ERR_DRIVER);
        vmm__driver_close(driver);
        assert_int_equal(vmm__host_outstanding(), 0);
    }
}

/* vmm_destroy() reports a call that fails every time. */
TEST(permanent_failures_are_reported)
{
    cache_fails_to_end(VMM_DEBUG_OFF);
    cache_fails_to_end(VMM_DEBUG_ON);
}

/* ---- Creation ------------------------------------------------------------------------------ */

/* Creates a cache while allocation `number` of host memory, or that call of the driver, fails. */
static vmm_status creation_fail(const vmm_config *config, bool is_of_driver, uint64_t number)
{
    struct driver_options options = { 0 };
    struct driver *driver;
    vmm_cache *cache = NULL;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    if (is_of_driver)
        vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, false);
    else
        (void)vmm__host_fail_at(number);
    vmm_status status = vmm__cache_create_on(config, driver, &cache);
    (void)vmm__host_fail_at(0);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    assert_true((status == VMM_OK) == (cache != NULL));
    assert_ok(vmm_destroy(cache));
    assert_true(sim_census_is_zero(driver));
    vmm__driver_close(driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    return status;
}

/* Returns how many of the calls fail the creation. */
static uint64_t creations_fail(const vmm_config *config, bool is_of_driver)
{
    uint64_t failed = 0;
    while (creation_fail(config, is_of_driver, failed + 1) != VMM_OK)
        failed++;
    return failed;
}

TEST(a_creation_that_fails_leaves_nothing)
{
    vmm_config plain = CONFIG(.arena_bytes = 256 * MIB);
    vmm_config debug = CONFIG(.arena_bytes = 256 * MIB, .debug = VMM_DEBUG_ON);
    assert_true(creations_fail(&plain, true) > 0);
    assert_true(creations_fail(&plain, false) > 8);
    assert_true(creations_fail(&debug, true) > 1);
    assert_true(creations_fail(&debug, false) > 8);
}
