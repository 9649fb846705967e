/*
 * A device that is lost: after the first driver call that says so the cache makes none any more. What needs the
 * device fails at once with the first line, blocks can be freed, and the end of the cache leaves nothing behind
 * on the host.
 */
#define _GNU_SOURCE
#include "life/lost_support.h"
#include "support/cache_support.h"
#include "support/sim_support.h"

#include <pthread.h>
#include <string.h>

enum { BLOCKS = 24 };

struct scene {
    struct driver *driver;
    vmm_cache *cache;
    void *blocks[BLOCKS];
    char line[512]; /* of the first cause */
};

static struct scene the_scene;

static int scene_setup(void **state)
{
    struct scene *scene = &the_scene;
    *scene = (struct scene){ .driver = NULL };
    struct driver_options options = { .device_bytes = 256 * MIB };
    assert_ok(vmm__driver_sim_open(&options, &scene->driver));
    vmm__sim_lag_set(scene->driver, 1000); /* all work is under way for long */
    vmm_config config = VMM_CONFIG_INIT;
    config.compaction = VMM_COMPACTION_ON;
    assert_ok(vmm__cache_create_on(&config, scene->driver, &scene->cache));
    *state = scene;
    return 0;
}

static int scene_teardown(void **state)
{
    struct scene *scene = *state;
    vmm__driver_close(scene->driver);
    return vmm__host_outstanding() == 0 ? 0 : -1;
}

/* Blocks of three streams, some used by another; some freed while work is under way, one pool private. */
static void scene_filled(struct scene *scene)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = i % 2 == 0 ? 600 * (i + 1) : 2 * MIB;
        assert_ok(vmm_alloc(scene->cache, bytes, STREAM(i % 3), &scene->blocks[i]));
        assert_ok(
            vmm__driver_fill(scene->driver, (uintptr_t)scene->blocks[i], bytes, i, STREAM(i % 3)));
        assert_ok(vmm_use(scene->cache, scene->blocks[i], STREAM(i % 5)));
    }
    for (unsigned i = 0; i < BLOCKS; i += 4) {
        assert_ok(vmm_free(scene->cache, scene->blocks[i]));
        scene->blocks[i] = NULL;
    }
    assert_ok(vmm_pool_begin(scene->cache, (vmm_pool_id){ 1, 0 }, NULL, NULL));
}

static void device_lost(struct scene *scene)
{
    uint64_t bytes;
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_LOST, false);
    assert_status(vmm_device_memory(scene->cache, &bytes, &bytes), VMM_ERR_LOST);
    (void)snprintf(scene->line, sizeof scene->line, "%s", vmm_last_error());
    assert_non_null(strstr(scene->line, "made to fail"));
}

static void everything_refused(struct scene *scene)
{
    uint64_t calls = vmm__sim_calls(scene->driver);
    const char *trouble = refusal_trouble(scene->cache, scene->line);
    if (trouble != NULL)
        fail_msg("%s: %s", trouble, vmm_last_error());
    assert_int_equal(vmm__sim_calls(scene->driver), calls);
}

static void everything_freed(struct scene *scene)
{
    uint64_t calls = vmm__sim_calls(scene->driver);
    (void)vmm_free(scene->cache, scene);
    char line[512];
    (void)snprintf(line, sizeof line, "%s", vmm_last_error());
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_ok(vmm_free(scene->cache, scene->blocks[i]));
        if (scene->blocks[i] != NULL)
            assert_status(vmm_free(scene->cache, scene->blocks[i]), VMM_ERR_UNKNOWN_POINTER);
    }
    (void)vmm_free(scene->cache, scene);
    assert_string_equal(vmm_last_error(), line); /* frees that succeed leave the line alone */
    assert_int_equal(vmm__sim_calls(scene->driver), calls);
}

static void reports_work(struct scene *scene, bool is_empty)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_stats_get(scene->cache, &stats));
    assert_true(is_empty == (stats.requested_bytes.current == 0));
    assert_true(stats.reserved_bytes.current > 0);
    if (!is_empty) {
        assert_ok(vmm_find(scene->cache, scene->blocks[1], &item));
        assert_ok(vmm_pin(scene->cache, scene->blocks[1]));
        assert_ok(vmm_use(scene->cache, scene->blocks[1], STREAM(3)));
    }
    assert_ok(vmm__cache_check(scene->cache));
}

static void cache_ended(struct scene *scene)
{
    uint64_t calls = vmm__sim_calls(scene->driver);
    uint64_t begin = thread_ns();
    assert_status(vmm_destroy(scene->cache), VMM_ERR_LOST);
    assert_string_equal(vmm_last_error(), scene->line);
    assert_true(thread_ns() - begin < 1000000000);
    assert_int_equal(vmm__sim_calls(scene->driver), calls);
}

static void a_lost_device_is_asked_no_more(void **state)
{
    struct scene *scene = *state;
    scene_filled(scene);
    device_lost(scene);
    everything_refused(scene);
    reports_work(scene, false);
    everything_freed(scene);
    reports_work(scene, true);
    assert_ok(vmm_pool_end(scene->cache, (vmm_pool_id){ 1, 0 }));
    assert_ok(vmm_pool_release(scene->cache, (vmm_pool_id){ 1, 0 }));
    everything_refused(scene); /* the end of a capture opens no fast way */
    cache_ended(scene);
}

static void live_blocks_end_with_the_cache(void **state)
{
    struct scene *scene = *state;
    scene_filled(scene);
    device_lost(scene);
    cache_ended(scene);
}

/* The call of a free that finds the device lost is the first: it succeeds all the same. */
static void a_free_may_find_it_lost(void **state)
{
    struct scene *scene = *state;
    scene_filled(scene);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_LOST, false);
    assert_ok(
        vmm_free(scene->cache, scene->blocks[3])); /* used by another stream: needs an event */
    assert_int_equal(vmm__sim_calls(scene->driver), 1);
    scene->blocks[3] = NULL;
    void *out;
    assert_status(vmm_alloc(scene->cache, 600, STREAM(0), &out), VMM_ERR_LOST);
    (void)snprintf(scene->line, sizeof scene->line, "%s", vmm_last_error());
    everything_refused(scene);
    everything_freed(scene);
    cache_ended(scene);
}

/* Whoever allocates the fast way is refused as well, on whatever thread, and so are two caches of a device. */
static void *allocations_end(void *context)
{
    struct scene *scene = context;
    vmm_status status = VMM_OK;
    while (status == VMM_OK) {
        void *out;
        status = vmm_alloc(scene->cache, 700, STREAM(6), &out);
        if (status == VMM_OK && vmm_free(scene->cache, out) != VMM_OK)
            return scene;
    }
    return status == VMM_ERR_LOST ? NULL : scene;
}

static void every_thread_and_cache_is_told(void **state)
{
    struct scene *scene = *state;
    pthread_t thread;
    vmm_cache *second;
    void *out;
    assert_ok(vmm__cache_create_on(NULL, scene->driver, &second));
    assert_ok(vmm_alloc(second, 700, NULL, &out));
    scene_filled(scene);
    assert_ok(vmm_pool_end(scene->cache, (vmm_pool_id){ 1, 0 }));
    assert_int_equal(pthread_create(&thread, NULL, allocations_end, scene), 0);
    device_lost(scene);
    void *failed;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_ok(vmm_free(second, out));
    assert_status(vmm_alloc(second, 700, NULL, &out), VMM_ERR_LOST);
    assert_status(vmm_destroy(second), VMM_ERR_LOST);
    everything_freed(scene);
    cache_ended(scene);
}

/* A cache on a device that is lost is not made, and leaves nothing. */
static void nothing_begins_on_a_lost_device(void **state)
{
    struct scene *scene = *state;
    scene_filled(scene);
    device_lost(scene);
    uint64_t host_bytes = vmm__host_outstanding();
    vmm_cache *out = NULL;
    assert_status(vmm__cache_create_on(NULL, scene->driver, &out), VMM_ERR_LOST);
    assert_null(out);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
    cache_ended(scene);
}

#define LOST_TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LOST_TEST(a_lost_device_is_asked_no_more),  LOST_TEST(live_blocks_end_with_the_cache),
        LOST_TEST(a_free_may_find_it_lost),         LOST_TEST(every_thread_and_cache_is_told),
        LOST_TEST(nothing_begins_on_a_lost_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
