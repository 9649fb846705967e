/* Devices that get access later: to whatever is mapped, and to what will be. */
#include "support/graph_support.h"
#include "support/tenant_support.h"

#include "cache/cache.h"
#include "driver/sim/sim.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define DEVICE(ordinal) (UINT64_C(1) << (ordinal))

/* Whether the driver has more than one device: the sim and host drivers have all, a machine may have one. */
static bool has_peers(const struct cache_test *test)
{
    return vmm__driver_peers_check(test->driver, DEVICE(1)) == VMM_OK;
}

static uint64_t peers_of(const struct cache_test *test)
{
    uint64_t devices = UINT64_MAX;
    assert_ok(vmm_peers_get(test->cache, &devices));
    return devices;
}

/* Fails if a device that should have access has none to a mapping. Only sim knows. */
static void all_have_access(struct cache_test *test)
{
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        assert_int_equal(vmm__sim_peerless(test->driver), 0);
    assert_ok(vmm__cache_check(test->cache));
}

/* The driver outlives the cache of a test. */
static void peers_forget(struct cache_test *test)
{
    vmm__driver_peers_set(test->driver, 0);
}

CACHE_TEST(a_cache_tells_which_devices_have_access)
{
    peers_forget(test);
    assert_int_equal(peers_of(test), 0);
    assert_ok(vmm_peers_add(test->cache, 0));
    assert_ok(vmm_peers_add(test->cache, DEVICE(0))); /* its own */
    assert_int_equal(peers_of(test), 0);
    if (!has_peers(test))
        return;
    assert_ok(vmm_peers_add(test->cache, DEVICE(0) | DEVICE(1)));
    assert_int_equal(peers_of(test), DEVICE(1));
    void *block = block_alloc(test, MIB, 1);
    uint64_t calls = cache_stats(test).access_calls;
    assert_ok(vmm_peers_add(test->cache, DEVICE(1))); /* it has access already */
    assert_int_equal(cache_stats(test).access_calls, calls);
    block_free(test, block);
    peers_forget(test);
}

CACHE_TEST(a_device_that_cannot_access_is_refused)
{
    if (driver_choice_kind() != VMM_DRIVER_CUDA)
        return;
    (void)block_alloc(test, MIB, 1);
    uint64_t calls = cache_stats(test).access_calls;
    assert_status(vmm_peers_add(test->cache, DEVICE(1) | DEVICE(63)), VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "device"));
    assert_int_equal(peers_of(test), 0);
    assert_int_equal(cache_stats(test).access_calls, calls);
}

/* ---- All places where memory is mapped ---------------------------------------------------------- */

struct scene {
    struct tenant awake; /* with a view, and a reserved block */
    struct tenant asleep;
    vmm_pool *graph;
    void *captured;
    void *shared;
    void *imported;
};

static void view_make(struct cache_test *test, struct tenant *tenant)
{
    for (unsigned i = 0; i < TENANT_BLOCKS; i += 2) {
        block_free(test, tenant->blocks[i]);
        tenant->blocks[i] = NULL;
        tenant_add(test, tenant, i, 4 * MIB);
    }
    for (unsigned i = 0; i < TENANT_BLOCKS; i += 4) {
        block_free(test, tenant->blocks[i]);
        tenant->blocks[i] = NULL;
    }
    tenant_add(test, tenant, 0, 12 * MIB);
    if (test->driver->has_aliases)
        assert_true(block_find(test, tenant->blocks[0]).is_view);
}

static void import_make(struct cache_test *test, struct scene *scene)
{
    vmm_share *share;
    scene->shared = block_alloc(test, 4 * MIB, 1);
    assert_ok(vmm_share_export(test->cache, scene->shared, &share));
    assert_ok(vmm_share_import(test->cache, share, test->streams[1], &scene->imported));
    assert_ok(vmm_share_close(share, 1));
}

static struct scene scene_make(struct cache_test *test)
{
    struct scene scene = { .captured = NULL };
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.kind = VMM_POOL_GRAPH;
    cache_restart_with(test, .shareable = test->driver->has_sharing ? VMM_ON : VMM_OFF);
    scene.awake = tenant_make(test, VMM_ON_SLEEP_KEEP);
    view_make(test, &scene.awake);
    scene.asleep = tenant_make(test, VMM_ON_SLEEP_KEEP);
    pool_sleep(scene.asleep.pool);
    assert_ok(vmm_pool_create(test->cache, &options, &scene.graph));
    assert_ok(vmm_alloc_from(scene.graph, 8 * MIB, test->streams[2], &scene.captured));
    if (test->driver->has_sharing)
        import_make(test, &scene);
    return scene;
}

/* New memory of each kind. */
static void scene_go_on(struct cache_test *test, struct scene *scene)
{
    void *more = block_alloc(test, 40 * MIB, 3);
    tenant_refill(test, &scene->awake);
    pool_wake(scene->asleep.pool);
    tenant_refill(test, &scene->asleep);
    assert_ok(vmm_commit(test->cache, scene->awake.reserved, 0, TENANT_UNITS * TENANT_UNIT));
    all_have_access(test);
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    all_have_access(test);
    block_free(test, more);
}

static void scene_end(struct cache_test *test, struct scene *scene)
{
    tenant_check(test, &scene->awake);
    tenant_check(test, &scene->asleep);
    if (scene->imported != NULL)
        block_free(test, scene->imported);
    if (scene->shared != NULL)
        block_free(test, scene->shared);
    block_free(test, scene->captured);
    assert_ok(vmm_pool_destroy(scene->graph, 0));
    tenant_free(test, &scene->awake);
    assert_ok(vmm_pool_destroy(scene->awake.pool, 0));
    tenant_end(test, &scene->asleep);
}

CACHE_TEST(all_memory_gets_access)
{
    peers_forget(test);
    struct scene scene = scene_make(test);
    if (has_peers(test)) {
        assert_ok(vmm_peers_add(test->cache, DEVICE(1)));
        all_have_access(test);
    }
    scene_go_on(test, &scene);
    scene_end(test, &scene);
    peers_forget(test);
}

CACHE_TEST(work_under_way_and_a_capture_go_on)
{
    peers_forget(test);
    void *block = block_alloc(test, 4 * MIB, 1);
    void *freed = block_alloc(test, 4 * MIB, 1);
    (void)flight_begin(test, block, 4 * MIB, 1);
    block_free(test, freed);
    capture_begin(test, 2);
    if (has_peers(test))
        assert_ok(vmm_peers_add(test->cache, DEVICE(1)));
    capture_end(test, 2);
    flight_end(test);
    all_have_access(test);
    block_free(test, block);
    peers_forget(test);
}

/* ---- The driver gets in the way ------------------------------------------------------------------ */

/* Whether a call of the driver failed; number 0: none does. */
static bool peers_add_fails(struct cache_test *test, unsigned device, uint64_t number,
                            vmm_status fault)
{
    uint64_t before = peers_of(test);
    vmm__sim_fail_at(test->driver, number, fault, false);
    vmm_status status = vmm_peers_add(test->cache, DEVICE(device));
    bool has_failed = vmm__sim_faults_fired(test->driver) > 0;
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    assert_status(status, has_failed ? fault : VMM_OK);
    assert_int_equal(peers_of(test), has_failed ? before : before | DEVICE(device));
    all_have_access(test);
    return has_failed;
}

CACHE_TEST(a_driver_error_at_any_call_adds_no_device)
{
    static const vmm_status faults[] = { VMM_ERR_DRIVER, VMM_ERR_DEVICE_OOM, VMM_ERR_HOST_OOM };
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    peers_forget(test);
    struct scene scene = scene_make(test);
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        uint64_t number = 1;
        /* peers_check asks for no memory */
        if (faults[i] == VMM_ERR_DEVICE_OOM)
            number++;
        while (peers_add_fails(test, i + 1, number, faults[i]))
            number++;
        assert_true(number > 40); /* a call for each mapping */
    }
    scene_go_on(test, &scene);
    scene_end(test, &scene);
    peers_forget(test);
}

/* A commit or a sleep fails for good at a call, a device is added, and a later call repairs what failed. */
static bool add_after_failure(struct cache_test *test, struct scene *scene, uint64_t number,
                              bool is_sleep)
{
    char *reserved = scene->awake.reserved;
    vmm__driver_peers_set(test->driver, 0);
    vmm__sim_fail_at(test->driver, number, VMM_ERR_DRIVER, true);
    vmm_status status = is_sleep ? vmm_pool_sleep(&scene->awake.pool, 1, NULL, NULL)
                                 : vmm_commit(test->cache, reserved, 0, TENANT_UNITS * TENANT_UNIT);
    bool has_failed = vmm__sim_faults_fired(test->driver) > 0;
    vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
    assert_true(has_failed || status == VMM_OK);
    assert_ok(vmm_peers_add(test->cache, DEVICE(1 + number % 60)));
    all_have_access(test);
    if (is_sleep) {
        pool_wake(scene->awake.pool);
    } else {
        assert_ok(vmm_commit(test->cache, reserved, 0, TENANT_UNITS * TENANT_UNIT));
        assert_ok(vmm_decommit(test->cache, reserved, 0, TENANT_UNIT));
        assert_ok(vmm_poll(test->cache));
    }
    all_have_access(test);
    return has_failed;
}

CACHE_TEST(what_failed_before_gets_access_when_it_is_repaired)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    struct scene scene = scene_make(test);
    for (int is_sleep = 0; is_sleep <= 1; is_sleep++) {
        uint64_t number = 1;
        while (add_after_failure(test, &scene, number, is_sleep != 0))
            number++;
        assert_true(number > 3);
    }
    pool_wake(scene.asleep.pool);
    scene_end(test, &scene);
    peers_forget(test);
}

/* ---- Threads ------------------------------------------------------------------------------------- */

enum { ADDED = 20, THREADS = 2 };

struct churn {
    struct cache_test *test;
    pthread_t thread;
    unsigned number;
    atomic_bool *stops;
    bool has_failed;
};

/* Maps and unmaps all the time. */
static void *blocks_churn(void *context)
{
    struct churn *churn = context;
    vmm_cache *cache = churn->test->cache;
    uint64_t seed = churn->number + 1;
    while (!atomic_load(churn->stops) && !churn->has_failed) {
        void *block = NULL;
        size_t bytes = random_bytes(&seed, 24 * MIB);
        vmm_stream stream = churn->test->streams[1 + churn->number];
        churn->has_failed = vmm_alloc(cache, bytes, stream, &block) != VMM_OK ||
                            vmm_free(cache, block) != VMM_OK || vmm_trim(cache, 0, NULL) != VMM_OK;
    }
    return NULL;
}

CACHE_TEST(others_map_memory_meanwhile)
{
    struct churn churns[THREADS];
    atomic_bool stops = false;
    peers_forget(test);
    bool has_devices = driver_choice_kind() != VMM_DRIVER_CUDA; /* a machine has fewer */
    for (unsigned i = 0; i < THREADS; i++) {
        churns[i] = (struct churn){ .test = test, .number = i, .stops = &stops };
        assert_int_equal(pthread_create(&churns[i].thread, NULL, blocks_churn, &churns[i]), 0);
    }
    for (unsigned i = 1; i <= ADDED && has_devices; i++) {
        assert_ok(vmm_peers_add(test->cache, DEVICE(i)));
        assert_int_equal(peers_of(test), (DEVICE(i) - 1) << 1);
        sched_yield();
    }
    atomic_store(&stops, true);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(churns[i].thread, NULL), 0);
        assert_false(churns[i].has_failed);
    }
    all_have_access(test);
    peers_forget(test);
}

/* Calls vmm_peers_get() until it names a device, which is a failure. */
static void *peers_watch(void *context)
{
    struct churn *churn = context;
    while (!atomic_load(churn->stops) && !churn->has_failed) {
        uint64_t devices = UINT64_MAX;
        churn->has_failed = vmm_peers_get(churn->test->cache, &devices) != VMM_OK || devices != 0;
    }
    return NULL;
}

CACHE_TEST(an_add_that_fails_is_seen_by_no_thread)
{
    enum { BLOCKS = 4 };
    atomic_bool stops = false;
    struct churn watch = { .test = test, .stops = &stops };
    if (driver_choice_kind() != VMM_DRIVER_SIM)
        return;
    peers_forget(test);
    for (unsigned i = 0; i < BLOCKS; i++)
        (void)block_alloc(test, 24 * MIB, 1);
    assert_int_equal(pthread_create(&watch.thread, NULL, peers_watch, &watch), 0);
    for (unsigned i = 0; i < 3000; i++)
        assert_true(peers_add_fails(test, 1, BLOCKS, VMM_ERR_DRIVER));
    atomic_store(&stops, true);
    assert_int_equal(pthread_join(watch.thread, NULL), 0);
    assert_false(watch.has_failed);
}

CACHE_MAIN()
