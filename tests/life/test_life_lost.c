/*
 * A lost device: after the first driver call that reports the loss, the cache makes no driver calls. Calls that need
 * the device fail at once with the first error, blocks can be freed, and vmm_destroy() leaves nothing on the host.
 */
#define _GNU_SOURCE
#include "life/lost_support.h"
#include "support/cache_support.h"
#include "support/pool_calls.h"
#include "support/sim_support.h"

#include <pthread.h>
#include <string.h>

enum { BLOCKS = 24 };

struct scene {
    struct driver *driver;
    vmm_cache *cache;
    void *blocks[BLOCKS];
    char line[512]; /* the error of the call that detected the loss */
};

static struct scene the_scene;

static int scene_setup(void **state)
{
    struct scene *scene = &the_scene;
    *scene = (struct scene){ .driver = NULL };
    struct driver_options options = { .device_bytes = 256 * MIB };
    assert_ok(vmm__driver_sim_open(&options, &scene->driver));
    vmm__sim_lag_set(scene->driver, 1000); /* work stays under way for long */
    vmm_config config = VMM_CONFIG_INIT;
    config.compaction = VMM_ON;
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

#define LOST_TEST(name) TEST_WITH(name, scene_setup, scene_teardown, struct scene *scene)

/* Allocates blocks on three streams, some used by other streams; frees some while work is under way; begins a graph
 * pool. */
static void scene_fill(struct scene *scene)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = i % 2 == 0 ? 600 * (i + 1) : 2 * MIB;
        assert_ok(vmm_alloc(scene->cache, bytes, STREAM(i % 3), &scene->blocks[i]));
        assert_ok(
            vmm__driver_fill(scene->driver, (uintptr_t)scene->blocks[i], bytes, i, STREAM(i % 3)));
        assert_ok(vmm_record_stream(scene->cache, scene->blocks[i], STREAM(i % 5)));
    }
    for (unsigned i = 0; i < BLOCKS; i += 4) {
        assert_ok(vmm_free(scene->cache, scene->blocks[i]));
        scene->blocks[i] = NULL;
    }
    assert_ok(graph_pool_begin(scene->cache, (vmm_pool_id){ 1, 0 }, NULL, NULL));
}

static void device_lose(struct scene *scene)
{
    uint64_t bytes;
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_LOST, false);
    assert_status(vmm_device_memory(scene->cache, &bytes, &bytes), VMM_ERR_LOST);
    (void)snprintf(scene->line, sizeof scene->line, "%s", vmm_last_error());
    assert_non_null(strstr(scene->line, "made to fail"));
}

static void calls_check_refused(struct scene *scene)
{
    uint64_t calls = vmm__sim_calls(scene->driver);
    const char *fault = refused_calls_check(scene->cache, scene->line);
    if (fault != NULL)
        fail_msg("%s: %s", fault, vmm_last_error());
    assert_int_equal(vmm__sim_calls(scene->driver), calls);
}

static void blocks_free(struct scene *scene)
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
    assert_string_equal(vmm_last_error(), line); /* successful frees keep the last error */
    assert_int_equal(vmm__sim_calls(scene->driver), calls);
}

static void reports_check(struct scene *scene, bool is_empty)
{
    vmm_item item = VMM_ITEM_INIT;
    vmm_stats stats = stats_of(scene->cache);
    assert_true(is_empty == (stats.requested_bytes.current == 0));
    assert_true(stats.reserved_bytes.current > 0);
    if (!is_empty) {
        assert_ok(vmm_find(scene->cache, scene->blocks[1], &item));
        assert_ok(vmm_pin(scene->cache, scene->blocks[1]));
        assert_ok(vmm_record_stream(scene->cache, scene->blocks[1], STREAM(3)));
    }
    assert_ok(vmm__cache_check(scene->cache));
}

static void cache_destroy(struct scene *scene)
{
    uint64_t calls = vmm__sim_calls(scene->driver);
    uint64_t begin = thread_ns();
    assert_status(vmm_destroy(scene->cache), VMM_ERR_LOST);
    assert_string_equal(vmm_last_error(), scene->line);
    assert_true(thread_ns() - begin < 1000000000);
    assert_int_equal(vmm__sim_calls(scene->driver), calls);
}

LOST_TEST(lost_device_gets_no_calls)
{
    scene_fill(scene);
    device_lose(scene);
    calls_check_refused(scene);
    reports_check(scene, false);
    blocks_free(scene);
    reports_check(scene, true);
    assert_ok(graph_pool_end(scene->cache, (vmm_pool_id){ 1, 0 }));
    assert_ok(graph_pool_release(scene->cache, (vmm_pool_id){ 1, 0 }));
    calls_check_refused(scene); /* the end of a capture must not open the fast path */
    cache_destroy(scene);
}

/* Records of pools can still change; what needs the device is refused. */
LOST_TEST(pools_of_a_lost_device_can_be_left)
{
    vmm_pool *pools[3];
    void *block;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    scene_fill(scene);
    for (int i = 0; i < 3; i++) {
        options.kind = i == 2 ? VMM_POOL_GRAPH : VMM_POOL_GENERAL;
        assert_ok(vmm_pool_create(scene->cache, &options, &pools[i]));
        assert_ok(vmm_alloc_from(pools[i], 3 * MIB, STREAM(1), &block));
        assert_ok(vmm_pool_push(pools[i]));
    }
    assert_ok(vmm_pool_retain(pools[1]));
    device_lose(scene);
    uint64_t calls = vmm__sim_calls(scene->driver);
    assert_status(vmm_alloc_from(pools[0], 1, STREAM(1), &block), VMM_ERR_LOST);
    assert_string_equal(vmm_last_error(), scene->line);
    assert_status(vmm_pool_trim(pools[0], 0, NULL), VMM_ERR_LOST);
    assert_ok(vmm_free(scene->cache, block));
    for (int i = 3; i-- > 0;)
        assert_ok(vmm_pool_pop(pools[i]));
    calls_check_refused(scene);
    (void)vmm_pool_drop(pools[1]);
    for (int i = 0; i < 3; i++)
        (void)vmm_pool_destroy(pools[i], 1);
    for (int i = 0; i < 3; i++)
        assert_status(vmm_pool_push(pools[i]), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm__cache_check(scene->cache));
    assert_int_equal(vmm__sim_calls(scene->driver), calls);
    cache_destroy(scene);
}

LOST_TEST(destroy_releases_live_blocks)
{
    scene_fill(scene);
    device_lose(scene);
    cache_destroy(scene);
}

/* The driver call of a free is the first to detect the loss; the free succeeds nevertheless. */
LOST_TEST(free_may_detect_the_loss)
{
    scene_fill(scene);
    assert_ok(graph_pool_end(scene->cache, (vmm_pool_id){ 1, 0 })); /* no capture is announced */
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_LOST, false);
    /* Another stream uses the block, so the free records an event. */
    assert_ok(vmm_free(scene->cache, scene->blocks[3]));
    assert_int_equal(vmm__sim_calls(scene->driver), 1);
    scene->blocks[3] = NULL;
    void *out;
    assert_status(vmm_alloc(scene->cache, 600, STREAM(0), &out), VMM_ERR_LOST);
    (void)snprintf(scene->line, sizeof scene->line, "%s", vmm_last_error());
    calls_check_refused(scene);
    blocks_free(scene);
    cache_destroy(scene);
}

/* A thread on the fast path gets the error too, and so does a second cache of the device. */
static void *allocate_until_refused(void *context)
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

LOST_TEST(every_thread_and_cache_is_refused)
{
    pthread_t thread;
    vmm_cache *second = cache_on_with(scene->driver, NULL);
    void *out = block_in(second, 700, NULL);
    scene_fill(scene);
    assert_ok(graph_pool_end(scene->cache, (vmm_pool_id){ 1, 0 }));
    assert_int_equal(pthread_create(&thread, NULL, allocate_until_refused, scene), 0);
    device_lose(scene);
    void *failed;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_ok(vmm_free(second, out));
    assert_status(vmm_alloc(second, 700, NULL, &out), VMM_ERR_LOST);
    assert_status(vmm_destroy(second), VMM_ERR_LOST);
    blocks_free(scene);
    cache_destroy(scene);
}

/* A cache cannot be created on a lost device, and the attempt leaves nothing. */
LOST_TEST(no_cache_starts_on_a_lost_device)
{
    scene_fill(scene);
    device_lose(scene);
    uint64_t host_bytes = vmm__host_outstanding();
    vmm_cache *out = NULL;
    assert_status(vmm__cache_create_on(NULL, scene->driver, &out), VMM_ERR_LOST);
    assert_null(out);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
    cache_destroy(scene);
}
