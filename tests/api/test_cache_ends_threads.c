/* Threads whose streams come and go on one cache: handles pass from one thread to another. */
#include "support/cache_support.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    WORKERS = 4,
    ROUNDS = IS_SLOW_BUILD ? 400 : 1000,
    BLOCKS = 4,
    SHELVES = 3,
    WARMED = 192,
    IN_FLIGHT = 8
};

struct worker {
    struct cache_test *test;
    pthread_t thread;
    unsigned number;
    const char *trouble; /* assertions belong to the main thread */
};

/* Blocks that outlive their streams; any thread that finds one frees it. */
static _Atomic(void *) shelves[SHELVES];

static bool block_works(struct cache_test *test, void *block, size_t bytes, uint32_t word,
                        vmm_stream stream)
{
    return vmm__driver_fill(test->driver, (uintptr_t)block, bytes, word, stream) == VMM_OK &&
           vmm__driver_check(test->driver, (uintptr_t)block, bytes, word, stream) == VMM_OK;
}

/* Memory may run out: others hold it. */
static bool block_turned(struct worker *worker, vmm_stream stream, uint64_t *seed, uint32_t word)
{
    struct cache_test *test = worker->test;
    size_t bytes = random_bytes(seed, 6 * MIB);
    void *block;
    vmm_status status = vmm_alloc(test->cache, bytes, stream, &block);
    if (status == VMM_ERR_DEVICE_OOM)
        return true;
    if (status != VMM_OK || !block_works(test, block, bytes, word, stream))
        return false;
    if (random_next(seed) % 4 == 0)
        block = atomic_exchange(&shelves[random_next(seed) % SHELVES], block);
    return vmm_free(test->cache, block) == VMM_OK;
}

/* One stream, from its beginning to its end. The host does not wait for its work. */
static const char *stream_lived(struct worker *worker, uint64_t *seed, uint32_t word)
{
    struct cache_test *test = worker->test;
    vmm_stream stream;
    if (vmm__driver_stream_create(test->driver, &stream) != VMM_OK)
        return "a stream was not created";
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (!block_turned(worker, stream, seed, word * BLOCKS + i))
            return "a block was not taken, used or given back";
    }
    if (vmm_stream_end(test->cache, stream) != VMM_OK)
        return "a stream did not end";
    if (vmm__driver_stream_destroy(test->driver, stream) != VMM_OK)
        return "a stream was not destroyed";
    return NULL;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    uint64_t seed = worker->number;
    for (uint32_t round = 0; round < ROUNDS && worker->trouble == NULL; round++) {
        worker->trouble = stream_lived(worker, &seed, round * WORKERS + worker->number);
        /* a busy machine lets the work fall behind: then more and more streams have memory */
        if (round % IN_FLIGHT == 0 && vmm_wait(worker->test->cache) != VMM_OK)
            worker->trouble = "a wait failed";
        if (random_next(&seed) % 16 == 0 && vmm_trim(worker->test->cache, 0, NULL) != VMM_OK)
            worker->trouble = "a trim failed";
    }
    return NULL;
}

CACHE_TEST(streams_of_threads_come_and_go)
{
    struct worker workers[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){ .test = test, .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        if (workers[i].trouble != NULL)
            fail_msg("worker %u: %s", i, workers[i].trouble);
    }
    for (unsigned i = 0; i < SHELVES; i++)
        block_free(test, atomic_exchange(&shelves[i], NULL));
    work_verify(test);
    cache_verify(test);
    assert_true(cache_stats(test).streams <= 16 * WORKERS);
}

/* CUDA keeps memory for as many streams as there were at once, which is not the cache's. */
static int many_streams_warmed(void **state)
{
    vmm_stream streams[WARMED];
    if (cache_group_setup(state) != 0)
        return -1;
    struct driver *driver = ((struct cache_test *)*state)->driver;
    for (unsigned i = 0; i < WARMED; i++) {
        assert_ok(vmm__driver_stream_create(driver, &streams[i]));
        assert_ok(vmm__driver_delay(driver, 1000, streams[i]));
    }
    assert_ok(vmm__driver_device_wait(driver));
    for (unsigned i = 0; i < WARMED; i++)
        assert_ok(vmm__driver_stream_destroy(driver, streams[i]));
    return 0;
}

DRIVER_MAIN(many_streams_warmed, cache_group_teardown)
