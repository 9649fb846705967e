/* NVTX annotations of blocks, received by a tool of the tests (listener.h), on drivers that need no GPU. */
#define _GNU_SOURCE
#include "listener.h"
#include "support/cache_support.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64, ROUNDS = 3000, THREADS = 4 };

static listener_heard_fn *heard;
static listener_region_fn *region;
static listener_name_fn *name_of;

static uint64_t region_of(const void *block)
{
    return region((uint64_t)(uintptr_t)block);
}

static void cache_annotate(struct cache_test *test)
{
    cache_restart_with(test, .nvtx = 1, .limit_bytes = CACHE_LIMIT);
}

static void check_nothing_refused(void)
{
    assert_int_equal(heard().refused, 0);
}

/* ---- One block ------------------------------------------------------------------------------- */

CACHE_TEST(arena_is_a_heap_and_blocks_are_regions)
{
    static const size_t sizes[] = { 1, 512, 1000, 8193, 100000, (3 << 20) + 1000 };
    cache_annotate(test);
    assert_int_equal(heard().heaps, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = block_alloc(test, sizes[i], (unsigned)i % CACHE_STREAMS);
        uint64_t address = (uint64_t)(uintptr_t)block;
        assert_true(address >= heard().heap_address);
        assert_true(address + sizes[i] <= heard().heap_address + heard().heap_bytes);
        assert_int_equal(region_of(block), sizes[i]);
        block_free(test, block);
        assert_int_equal(region_of(block), 0);
    }
    assert_int_equal(heard().regions, 0);
    check_nothing_refused();
}

static void check_name(const void *block, const char *expected)
{
    char name[128];
    (void)name_of((uint64_t)(uintptr_t)block, name, sizeof name);
    assert_string_equal(name, expected);
}

CACHE_TEST(regions_have_the_names_of_pools_and_streams_or_their_own)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    void *pooled;
    char expected[128];
    unsigned long long stream;
    options.name = "weights";
    cache_annotate(test);
    stream = (unsigned long long)(uintptr_t)test->streams[1];
    assert_ok(vmm_pool_create(test->cache, &options, &pool));
    assert_ok(vmm_alloc_from(pool, 1000, test->streams[1], &pooled));
    (void)snprintf(expected, sizeof expected, "pool weights, stream 0x%llx", stream);
    check_name(pooled, expected);
    assert_ok(vmm_name(test->cache, pooled, "layer 3"));
    check_name(pooled, "layer 3");
    assert_ok(vmm_name(test->cache, pooled, NULL));
    check_name(pooled, expected);
    void *plain = block_alloc(test, 3 << 20, 1);
    (void)snprintf(expected, sizeof expected, "pool default, stream 0x%llx", stream);
    check_name(plain, expected);
    void *empty = block_alloc(test, 0, 1);
    assert_ok(vmm_name(test->cache, empty, "it has no region"));
    block_free(test, empty);
    block_free(test, plain);
    block_free(test, pooled);
    check_name(pooled, "");
    check_nothing_refused();
}

CACHE_TEST(block_of_zero_bytes_has_no_region)
{
    cache_annotate(test);
    void *block = block_alloc(test, 0, 0);
    assert_int_equal(heard().regions, 0);
    block_free(test, block);
    check_nothing_refused();
}

CACHE_TEST(failed_free_keeps_the_region)
{
    cache_annotate(test);
    char *block = block_alloc(test, 1000, 0);
    assert_int_equal(vmm_free(test->cache, block + 512), VMM_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(vmm_last_error(), "vmm_free"));
    assert_int_equal(vmm_free(test->cache, &test), VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(region_of(block), 1000);
    block_free(test, block);
    assert_int_equal(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    check_nothing_refused();
}

CACHE_TEST(destroy_unregisters_the_heap)
{
    cache_annotate(test);
    (void)block_alloc(test, 1000, 0);
    cache_restart(test, NULL);
    assert_int_equal(heard().heaps, 0);
    uint64_t registered = heard().registered;
    block_free(test, block_alloc(test, 1000, 0));
    assert_int_equal(heard().registered, registered); /* this cache has no annotations */
    check_nothing_refused();
}

/* Otherwise the tool would report work that was submitted before the free. */
CACHE_TEST(free_waits_for_work_on_the_block)
{
    if (driver_choice_kind() != VMM_DRIVER_HOST)
        return; /* on sim no time passes */
    cache_annotate(test);
    void *block = block_alloc(test, 1000, 1);
    void *event;
    assert_ok(vmm__driver_event_create(test->driver, &event));
    assert_ok(vmm__driver_delay(test->driver, 50000000, test->streams[1]));
    assert_ok(vmm__driver_event_record(test->driver, event, test->streams[1]));
    block_free(test, block);
    assert_int_equal(vmm__driver_event_query(test->driver, event), VMM_OK);
    assert_ok(vmm__driver_event_destroy(test->driver, event));
}

/* ---- Many ------------------------------------------------------------------------------------ */

struct worker {
    struct cache_test *test;
    pthread_t thread;
    unsigned number;
    const char *fault;
};

static const char *block_toggle(struct worker *worker, void **block, size_t *bytes, uint64_t *seed)
{
    struct cache_test *test = worker->test;
    if (*block != NULL) {
        if (region_of(*block) != *bytes)
            return "the region of a live block has another size";
        bool is_freed = vmm_free(test->cache, *block) == VMM_OK;
        *block = NULL;
        return is_freed ? NULL : "a block could not be freed";
    }
    *bytes = 1 + random_next(seed) % ((random_next(seed) % 8 == 0) ? 3 * MIB : 20000);
    vmm_status status =
        vmm_alloc(test->cache, *bytes, test->streams[random_next(seed) % CACHE_STREAMS], block);
    if (status != VMM_OK)
        *block = NULL;
    return status == VMM_OK || status == VMM_ERR_DEVICE_OOM ? NULL : "an allocation failed";
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    void *blocks[BLOCKS] = { NULL };
    size_t sizes[BLOCKS];
    uint64_t seed = worker->number;
    for (unsigned i = 0; i < ROUNDS && worker->fault == NULL; i++) {
        uint64_t which = random_next(&seed) % BLOCKS;
        worker->fault = block_toggle(worker, &blocks[which], &sizes[which], &seed);
        if (i % 256 == 0)
            (void)vmm_trim(worker->test->cache, 0, NULL);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i] != NULL && worker->fault == NULL)
            worker->fault = block_toggle(worker, &blocks[i], &sizes[i], &seed);
    }
    return NULL;
}

CACHE_TEST(threads_keep_regions_equal_to_live_blocks)
{
    struct worker workers[THREADS];
    cache_annotate(test);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .test = test, .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (workers[i].fault != NULL)
            fail_msg("%s", workers[i].fault);
    }
    assert_int_equal(heard().regions, 0);
    assert_true(heard().registered > ROUNDS);
    check_nothing_refused();
}

/* ---- Settings -------------------------------------------------------------------------------- */

static vmm_config config_create(void)
{
    vmm_config config = CONFIG(.driver = driver_choice_kind(), .device_bytes = CACHE_DEVICE);
    return config;
}

/* Compaction would move bytes, and the annotations of blocks do not move with them. */
CACHE_TEST(annotated_cache_does_not_compact)
{
    cache_annotate(test);
    assert_status(vmm_compact(test->cache, 0, NULL, NULL), VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "nvtx"));
}

/* Without debug mode, and without a name of its own, a block has that of its pool. */
static void pool_name_check(vmm_cache *cache)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    void *block;
    options.name = "weights";
    assert_ok(vmm_pool_create(cache, &options, &pool));
    assert_ok(vmm_alloc_from(pool, 1000, NULL, &block));
    check_name(block, "pool weights, stream 0x0");
    assert_ok(vmm_free(cache, block));
}

TEST(environment_enables_annotations)
{
    vmm_config config = config_create();
    vmm_cache *cache;
    (void)setenv("VMM_NVTX", "1", 1);
    uint64_t heaps = heard().heaps;
    assert_ok(vmm_create(&config, &cache));
    assert_int_equal(heard().heaps, heaps + 1);
    pool_name_check(cache);
    assert_ok(vmm_destroy(cache));
    (void)setenv("VMM_NVTX", "yes", 1);
    assert_status(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "VMM_NVTX=yes"));
    (void)unsetenv("VMM_NVTX");
    check_nothing_refused();
}

TEST(annotations_exclude_compaction)
{
    vmm_config config = config_create();
    vmm_cache *cache = NULL;
    config.nvtx = (vmm_switch)3;
    assert_status(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    config.nvtx = 1;
    config.compaction = VMM_ON;
    assert_status(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "nvtx"));
    assert_null(cache);
}

/* ---- The listener ---------------------------------------------------------------------------- */

static void listener_open(void)
{
    (void)setenv("NVTX_INJECTION64_PATH", VMM_LISTENER, 1);
    void *library = dlopen(VMM_LISTENER, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void *found = dlsym(library, LISTENER_HEARD);
    memcpy(&heard, &found, sizeof heard);
    found = dlsym(library, LISTENER_REGION);
    memcpy(&region, &found, sizeof region);
    found = dlsym(library, LISTENER_NAME);
    memcpy(&name_of, &found, sizeof name_of);
}

int main(int argc, char **argv)
{
    listener_open();
    driver_choice_read(argc, argv);
    return tests_run(cache_group_setup, cache_group_teardown);
}
