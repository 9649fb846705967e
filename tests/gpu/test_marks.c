/* Marks: what a tool is told of blocks, by a tool of our own (listener.h), on drivers that need no GPU. */
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

static uint64_t region_of(const void *block)
{
    return region((uint64_t)(uintptr_t)block);
}

static void cache_marked(struct cache_test *test)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.marks = 1;
    config.limit_bytes = CACHE_LIMIT;
    cache_restart(test, &config);
}

static void nothing_was_refused(void)
{
    assert_int_equal(heard().refused, 0);
}

/* ---- One block ------------------------------------------------------------------------------- */

static void the_arena_is_a_heap_and_blocks_are_regions_of_what_was_asked_for(void **state)
{
    struct cache_test *test = *state;
    static const size_t sizes[] = { 1, 512, 1000, 8193, 100000, (3 << 20) + 1000 };
    cache_marked(test);
    assert_int_equal(heard().heaps, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = block_taken(test, sizes[i], (unsigned)i % CACHE_STREAMS);
        uint64_t address = (uint64_t)(uintptr_t)block;
        assert_true(address >= heard().heap_address);
        assert_true(address + sizes[i] <= heard().heap_address + heard().heap_bytes);
        assert_int_equal(region_of(block), sizes[i]);
        block_given(test, block);
        assert_int_equal(region_of(block), 0);
    }
    assert_int_equal(heard().regions, 0);
    nothing_was_refused();
}

static void a_block_of_no_bytes_has_no_region(void **state)
{
    struct cache_test *test = *state;
    cache_marked(test);
    void *block = block_taken(test, 0, 0);
    assert_int_equal(heard().regions, 0);
    block_given(test, block);
    nothing_was_refused();
}

static void a_free_that_fails_leaves_the_region(void **state)
{
    struct cache_test *test = *state;
    cache_marked(test);
    char *block = block_taken(test, 1000, 0);
    assert_int_equal(vmm_free(test->cache, block + 512), VMM_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(vmm_last_error(), "vmm_free"));
    assert_int_equal(vmm_free(test->cache, &test), VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(region_of(block), 1000);
    block_given(test, block);
    assert_int_equal(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    nothing_was_refused();
}

static void the_end_of_a_cache_ends_its_heap(void **state)
{
    struct cache_test *test = *state;
    cache_marked(test);
    (void)block_taken(test, 1000, 0);
    cache_restart(test, NULL);
    assert_int_equal(heard().heaps, 0);
    uint64_t registered = heard().registered;
    block_given(test, block_taken(test, 1000, 0));
    assert_int_equal(heard().registered, registered); /* without marks nothing is told */
    nothing_was_refused();
}

/* Else the tool would blame work that was submitted in time. */
static void a_free_waits_for_work_that_may_use_the_block(void **state)
{
    struct cache_test *test = *state;
    if (driver_choice_kind() != VMM_DRIVER_HOST)
        return; /* sim has no time that passes */
    cache_marked(test);
    void *block = block_taken(test, 1000, 1);
    void *event;
    assert_ok(vmm__driver_event_create(test->driver, &event));
    assert_ok(vmm__driver_delay(test->driver, 50000000, test->streams[1]));
    assert_ok(vmm__driver_event_record(test->driver, event, test->streams[1]));
    block_given(test, block);
    assert_int_equal(vmm__driver_event_query(test->driver, event), VMM_OK);
    assert_ok(vmm__driver_event_destroy(test->driver, event));
}

/* ---- Many ------------------------------------------------------------------------------------ */

struct worker {
    struct cache_test *test;
    pthread_t thread;
    unsigned number;
    const char *trouble;
};

static const char *block_turned(struct worker *worker, void **block, size_t *bytes, uint64_t *seed)
{
    struct cache_test *test = worker->test;
    if (*block != NULL) {
        if (region_of(*block) != *bytes)
            return "a live block has another region than was asked for";
        bool was_given = vmm_free(test->cache, *block) == VMM_OK;
        *block = NULL;
        return was_given ? NULL : "a block could not be freed";
    }
    *bytes = 1 + random_next(seed) % ((random_next(seed) % 8 == 0) ? 3 * MIB : 20000);
    vmm_status status =
        vmm_alloc(test->cache, *bytes, test->streams[random_next(seed) % CACHE_STREAMS], block);
    if (status != VMM_OK)
        *block = NULL;
    return status == VMM_OK || status == VMM_ERR_DEVICE_OOM ? NULL : "a block could not be had";
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    void *blocks[BLOCKS] = { NULL };
    size_t sizes[BLOCKS];
    uint64_t seed = worker->number;
    for (unsigned i = 0; i < ROUNDS && worker->trouble == NULL; i++) {
        uint64_t which = random_next(&seed) % BLOCKS;
        worker->trouble = block_turned(worker, &blocks[which], &sizes[which], &seed);
        if (i % 256 == 0)
            (void)vmm_trim(worker->test->cache, 0, NULL);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i] != NULL && worker->trouble == NULL)
            worker->trouble = block_turned(worker, &blocks[i], &sizes[i], &seed);
    }
    return NULL;
}

static void threads_keep_regions_and_live_blocks_the_same(void **state)
{
    struct cache_test *test = *state;
    struct worker workers[THREADS];
    cache_marked(test);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .test = test, .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (workers[i].trouble != NULL)
            fail_msg("%s", workers[i].trouble);
    }
    assert_int_equal(heard().regions, 0);
    assert_true(heard().registered > ROUNDS);
    nothing_was_refused();
}

/* ---- Settings -------------------------------------------------------------------------------- */

static vmm_config config_of_chosen(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = driver_choice_kind();
    config.device_bytes = CACHE_DEVICE;
    return config;
}

static void the_environment_asks_for_marks(void **state)
{
    (void)state;
    vmm_config config = config_of_chosen();
    vmm_cache *cache;
    (void)setenv("VMM_MARKS", "1", 1);
    uint64_t heaps = heard().heaps;
    assert_ok(vmm_create(&config, &cache));
    assert_int_equal(heard().heaps, heaps + 1);
    assert_ok(vmm_destroy(cache));
    (void)setenv("VMM_MARKS", "yes", 1);
    assert_status(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "VMM_MARKS=yes"));
    (void)unsetenv("VMM_MARKS");
    nothing_was_refused();
}

static void marks_do_not_go_with_compaction(void **state)
{
    (void)state;
    vmm_config config = config_of_chosen();
    vmm_cache *cache = NULL;
    config.marks = 2;
    assert_status(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    config.marks = 1;
    config.compaction = VMM_COMPACTION_AUTO;
    assert_status(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "marks"));
    assert_null(cache);
}

/* ---- How the tool comes in ------------------------------------------------------------------- */

static void listener_opened(void)
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
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(the_arena_is_a_heap_and_blocks_are_regions_of_what_was_asked_for),
        CACHE_TEST(a_block_of_no_bytes_has_no_region),
        CACHE_TEST(a_free_that_fails_leaves_the_region),
        CACHE_TEST(the_end_of_a_cache_ends_its_heap),
        CACHE_TEST(a_free_waits_for_work_that_may_use_the_block),
        CACHE_TEST(threads_keep_regions_and_live_blocks_the_same),
        cmocka_unit_test(the_environment_asks_for_marks),
        cmocka_unit_test(marks_do_not_go_with_compaction),
    };
    listener_opened();
    CACHE_MAIN(tests);
}
