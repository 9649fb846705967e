/* Correct programs of several threads in debug mode: nothing is reported. For one thread tests/stress shows that. */
#define _GNU_SOURCE
#include "debug_support.h"

#include <pthread.h>

enum { THREADS = 4, THREAD_OPERATIONS = 400 };

struct worker {
    struct cache_test *test;
    unsigned stream;
    bool failed;
};

static bool worker_step(struct worker *worker, uint64_t *seed)
{
    struct cache_test *test = worker->test;
    vmm_stream stream = test->streams[worker->stream];
    size_t bytes = random_bytes(seed, 3 * MIB);
    void *block;
    return vmm_alloc(test->cache, bytes, stream, &block) == VMM_OK &&
           vmm__driver_clear(test->driver, (uintptr_t)block, bytes, 3, stream) == VMM_OK &&
           vmm_free(test->cache, block) == VMM_OK &&
           (random_next(seed) % 64 != 0 || vmm_debug_check(test->cache) == VMM_OK);
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    uint64_t seed = worker->stream + 1;
    for (int i = 0; i < THREAD_OPERATIONS && !worker->failed; i++)
        worker->failed = !worker_step(worker, &seed);
    return worker->failed ? worker : NULL;
}

/* The workers check nothing on sim: a check might read the next block of another thread there. */
CACHE_TEST(correct_threads_are_not_reported)
{
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    debug_restart(test, VMM_DEBUG_ON, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .test = test, .stream = i % CACHE_STREAMS };
        assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_ok(vmm_debug_check(test->cache));
}

CACHE_MAIN()
