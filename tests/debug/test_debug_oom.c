/* Threads that share the last memory: no request may fail while the quarantine holds enough, even if another thread
 * empties it. */
#include "debug_support.h"
#include "support/made_support.h"

#include <pthread.h>

enum { THREADS = 4, PAIRS = IS_SLOW_BUILD ? 300 : 1500, BLOCK = 500 << 10, BLOCKS_MOST = 1024 };

struct worker {
    struct cache_test *test;
    pthread_t thread;
    unsigned refused;
};

static void *pairs_run(void *context)
{
    struct worker *worker = context;
    vmm_cache *cache = worker->test->cache;
    for (unsigned i = 0; i < PAIRS; i++) {
        void *block;
        if (vmm_alloc(cache, BLOCK, NULL, &block) == VMM_OK)
            (void)vmm_free(cache, block);
        else
            worker->refused++;
    }
    return NULL;
}

/* Allocates all memory except one block per thread. */
static void memory_fill(struct cache_test *test)
{
    static void *blocks[BLOCKS_MOST];
    unsigned count = 0;
    while (count < BLOCKS_MOST && vmm_alloc(test->cache, BLOCK, NULL, &blocks[count]) == VMM_OK)
        count++;
    assert_in_range(count, THREADS, BLOCKS_MOST - 1);
    for (unsigned i = 0; i < THREADS; i++)
        assert_ok(vmm_free(test->cache, blocks[--count]));
    assert_ok(vmm_trim(test->cache, 0, NULL));
}

CACHE_TEST(requests_succeed_while_others_empty_the_quarantine)
{
    struct worker workers[THREADS];
    debug_restart(test, VMM_DEBUG_ON, 0);
    assert_ok(vmm_limit_set(test->cache, UINT64_C(32) << 20));
    memory_fill(test);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .test = test };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, pairs_run, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].refused, 0);
    }
    assert_ok(vmm__cache_check(test->cache));
}

/* ---- Calls of the pressure function -------------------------------------------------------------- */

struct program {
    struct cache_test *test;
    void *block; /* the pressure function frees it; NULL: it has nothing to free */
    unsigned calls;
};

static int pressure_handle(void *context, vmm_pool *pool, size_t bytes)
{
    (void)pool;
    struct program *program = context;
    (void)bytes;
    program->calls++;
    if (program->block == NULL)
        return 0;
    assert_ok(vmm_free(program->test->cache, program->block));
    program->block = NULL;
    return 1;
}

/* Fills a cache that has a pressure function; returns the last block. */
static void *cache_fill(struct program *program)
{
    void *last = NULL;
    cache_restart_with(program->test, .limit_bytes = 32 * MIB, .debug = VMM_DEBUG_ON,
                       .pressure = pressure_handle, .pressure_context = program);
    unsigned count = 0;
    while (count < BLOCKS_MOST && vmm_alloc(program->test->cache, BLOCK, NULL, &last) == VMM_OK)
        count++;
    assert_int_equal(program->calls, 1);
    assert_int_equal(cache_stats(program->test).ooms, 1);
    return last;
}

CACHE_TEST(quarantine_is_emptied_before_the_pressure_function_runs)
{
    struct program program = { .test = test };
    void *block = cache_fill(&program);
    block_free(program.test, block);
    assert_ok(vmm_alloc(program.test->cache, BLOCK, NULL, &block));
    assert_int_equal(program.calls, 1);
    assert_int_equal(cache_stats(program.test).ooms, 1);
}

/* The block that it frees enters the quarantine first. */
CACHE_TEST(pressure_function_runs_once_per_failure)
{
    struct program program = { .test = test };
    program.block = cache_fill(&program);
    (void)block_in(program.test->cache, BLOCK, NULL);
    assert_int_equal(program.calls, 2);
    assert_int_equal(cache_stats(program.test).ooms, 1);
    assert_ok(vmm__cache_check(program.test->cache));
}

CACHE_MAIN()
