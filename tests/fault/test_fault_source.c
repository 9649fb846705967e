/* Pools with a source, when the host, the driver or the device fails, and in a child of fork(). */
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "base/hostmem.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAG = 3 /* pieces of work that are under way */, CALLS_MOST = 300 };

/* Host memory: the sim driver does not touch it. */
struct source {
    unsigned allocs;
    unsigned frees;
    size_t live_bytes;
};

static void *source_alloc(void *context, size_t bytes, vmm_stream stream)
{
    struct source *source = context;
    void *segment = aligned_alloc(512, bytes);
    (void)stream;
    assert_non_null(segment);
    source->allocs++;
    source->live_bytes += bytes;
    return segment;
}

static void source_free(void *context, void *segment, size_t bytes)
{
    struct source *source = context;
    free(segment);
    source->frees++;
    source->live_bytes -= bytes;
}

struct scene {
    struct source source;
    vmm_cache *cache;
    vmm_pool *pool;
    void *live[2];
};

static void scene_begin(struct scene *scene, struct driver *driver, vmm_pool_kind kind)
{
    vmm_config config = CONFIG(.arena_bytes = 4 * GIB);
    vmm_pool_options options = { .struct_size = sizeof options,
                                 .kind = kind,
                                 .source = { source_alloc, source_free, &scene->source, 0 } };
    *scene = (struct scene){ .cache = NULL };
    vmm__sim_lag_set(driver, LAG);
    assert_ok(vmm__cache_create_on(&config, driver, &scene->cache));
    assert_ok(vmm_pool_create(scene->cache, &options, &scene->pool));
    assert_ok(vmm_alloc_from(scene->pool, 3 * MIB, STREAM(1), &scene->live[0]));
    assert_ok(vmm_alloc_from(scene->pool, 100, STREAM(1), &scene->live[1]));
}

static uint64_t reserved_bytes(const struct scene *scene)
{
    vmm_stats stats = pool_stats(scene->pool);
    return stats.reserved_bytes.current;
}

/* New segments for two streams, and all that is idle back. Blocks that were made are freed. */
static vmm_status blocks_step(struct scene *scene)
{
    void *blocks[3] = { NULL, NULL, NULL };
    vmm_status status = vmm_alloc_from(scene->pool, 9 * MIB, STREAM(2), &blocks[0]);
    if (status == VMM_OK)
        status = vmm_alloc_from(scene->pool, 1000, STREAM(3), &blocks[1]);
    if (status == VMM_OK)
        status = vmm_resize(scene->cache, blocks[0], 30 * MIB, &blocks[0]);
    if (status == VMM_OK)
        status = vmm_record_stream(scene->cache, blocks[0], STREAM(1));
    for (int i = 0; i < 3; i++) {
        vmm_status freed = vmm_free(scene->cache, blocks[i]);
        if (freed != VMM_OK) /* no event could be recorded */
            assert_ok(vmm_free(scene->cache, blocks[i]));
    }
    vmm_status trimmed = vmm_pool_trim(scene->pool, 0, NULL);
    return status == VMM_OK ? trimmed : status;
}

static vmm_status destroy_step(struct scene *scene)
{
    vmm_status status = vmm_pool_destroy(scene->pool, 0);
    if (status == VMM_OK)
        scene->pool = NULL;
    return status;
}

static void scene_end(struct scene *scene)
{
    assert_ok(vmm__cache_check(scene->cache));
    if (scene->pool != NULL) {
        assert_int_equal(scene->source.live_bytes, reserved_bytes(scene));
        (void)vmm_free(scene->cache, scene->live[0]);
        (void)vmm_free(scene->cache, scene->live[1]);
        assert_ok(vmm_pool_destroy(scene->pool, 0));
    }
    assert_int_equal(scene->source.live_bytes, 0);
    assert_ok(vmm_destroy(scene->cache));
    assert_int_equal(scene->source.frees, scene->source.allocs);
}

/* Runs the step with one failing call after the other. Returns how often it failed. */
static unsigned faults_run(struct driver *driver, vmm_pool_kind kind, bool is_host, bool ends)
{
    unsigned failed = 0;
    bool has_fired = true;
    for (uint64_t call = 1; has_fired; call++) {
        struct scene scene;
        assert_true(call < CALLS_MOST);
        scene_begin(&scene, driver, kind);
        if (ends) {
            assert_ok(vmm_free(scene.cache, scene.live[0]));
            assert_ok(vmm_free(scene.cache, scene.live[1]));
        }
        uint64_t fired = vmm__sim_faults_fired(driver);
        if (is_host)
            (void)vmm__host_fail_at(call);
        else
            vmm__sim_fail_at(driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = ends ? destroy_step(&scene) : blocks_step(&scene);
        has_fired = is_host ? vmm__host_fail_at(0) >= call : vmm__sim_faults_fired(driver) > fired;
        vmm__sim_fail_at(driver, 0, VMM_OK, false);
        failed += status != VMM_OK;
        scene_end(&scene);
    }
    return failed;
}

SIM_TEST(a_driver_that_fails_leaves_no_segment_behind)
{
    sim_violations_allow();
    assert_true(faults_run(driver, VMM_POOL_GENERAL, false, false) > 0);
    assert_true(faults_run(driver, VMM_POOL_GENERAL, false, true) > 0);
    assert_true(faults_run(driver, VMM_POOL_GRAPH, false, true) > 0);
}

SIM_TEST(a_host_without_memory_leaves_no_segment_behind)
{
    sim_violations_allow();
    assert_true(faults_run(driver, VMM_POOL_GENERAL, true, false) > 3);
    (void)faults_run(driver, VMM_POOL_GRAPH, true, true);
}

SIM_TEST(a_lost_device_leaves_segments_to_the_end_of_the_cache)
{
    struct scene scene;
    void *more = NULL;
    scene_begin(&scene, driver, VMM_POOL_GENERAL);
    vmm__sim_fail_at(driver, 1, VMM_ERR_LOST, true);
    (void)vmm_wait(scene.cache);
    assert_status(vmm_alloc_from(scene.pool, 8 * MIB, STREAM(1), &more), VMM_ERR_LOST);
    assert_int_equal(scene.source.allocs, 2);
    assert_ok(vmm_free(scene.cache, scene.live[0]));
    assert_ok(vmm_free(scene.cache, scene.live[1]));
    assert_status(vmm_pool_destroy(scene.pool, 0), VMM_ERR_LOST);
    assert_status(vmm_pool_trim(scene.pool, 0, NULL), VMM_ERR_LOST);
    assert_int_equal(scene.source.frees, 0);
    assert_status(vmm_destroy(scene.cache), VMM_ERR_LOST);
    assert_int_equal(scene.source.frees, 2);
}

SIM_TEST(a_child_of_fork_calls_no_source)
{
    struct scene scene;
    void *more = NULL;
    int status = 1;
    scene_begin(&scene, driver, VMM_POOL_GENERAL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool is_refused = vmm_alloc_from(scene.pool, 8 * MIB, STREAM(1), &more) == VMM_ERR_FORKED &&
                          vmm_free(scene.cache, scene.live[0]) == VMM_ERR_FORKED &&
                          vmm_pool_destroy(scene.pool, 0) == VMM_ERR_FORKED &&
                          vmm_destroy(scene.cache) == VMM_ERR_FORKED;
        _exit(is_refused && scene.source.allocs == 2 && scene.source.frees == 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    scene_end(&scene);
}
