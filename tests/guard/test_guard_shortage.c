/* Threads that share the last memory: what is in quarantine is no reason to refuse a request, whoever takes it out. */
#include "guard_support.h"

#include <pthread.h>

enum { THREADS = 4, PAIRS = 1500, BLOCK = 500 << 10, BLOCKS_MOST = 1024 };

struct worker {
    struct cache_test *test;
    pthread_t thread;
    unsigned refused;
};

static void *pairs_do(void *context)
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

/* Takes all memory but for one block a thread. */
static void room_leave(struct cache_test *test)
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

static void threads_find_what_the_quarantine_of_others_held(void **state)
{
    struct cache_test *test = *state;
    struct worker crew[THREADS];
    guard_begun(test, VMM_GUARD_ON, 0);
    assert_ok(vmm_limit_set(test->cache, UINT64_C(32) << 20));
    room_leave(test);
    for (unsigned i = 0; i < THREADS; i++) {
        crew[i] = (struct worker){ .test = test };
        assert_int_equal(pthread_create(&crew[i].thread, NULL, pairs_do, &crew[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(crew[i].thread, NULL), 0);
        assert_int_equal(crew[i].refused, 0);
    }
    assert_ok(vmm__cache_check(test->cache));
}

/* ---- What is asked before a request fails ------------------------------------------------------ */

struct program {
    struct cache_test *test;
    void *block; /* that it can do without; NULL: none */
    unsigned asked;
};

static int block_spared(void *context, size_t bytes)
{
    struct program *program = context;
    (void)bytes;
    program->asked++;
    if (program->block == NULL)
        return 0;
    assert_ok(vmm_free(program->test->cache, program->block));
    program->block = NULL;
    return 1;
}

/* A cache whose memory is all taken, for a program that can be asked. Returns the block that was taken last. */
static void *cache_full(struct program *program)
{
    void *last = NULL;
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = UINT64_C(32) << 20;
    config.guard = VMM_GUARD_ON;
    config.pressure = block_spared;
    config.pressure_context = program;
    cache_restart(program->test, &config);
    unsigned count = 0;
    while (count < BLOCKS_MOST && vmm_alloc(program->test->cache, BLOCK, NULL, &last) == VMM_OK)
        count++;
    assert_int_equal(program->asked, 1);
    assert_int_equal(cache_stats(program->test).ooms, 1);
    return last;
}

static void the_quarantine_goes_before_the_program_is_asked(void **state)
{
    struct program program = { .test = *state };
    void *block = cache_full(&program);
    block_given(program.test, block);
    assert_ok(vmm_alloc(program.test->cache, BLOCK, NULL, &block));
    assert_int_equal(program.asked, 1);
    assert_int_equal(cache_stats(program.test).ooms, 1);
}

/* What it frees goes into quarantine first. */
static void the_program_is_asked_once_for_what_it_can_spare(void **state)
{
    struct program program = { .test = *state };
    program.block = cache_full(&program);
    void *block;
    assert_ok(vmm_alloc(program.test->cache, BLOCK, NULL, &block));
    assert_int_equal(program.asked, 2);
    assert_int_equal(cache_stats(program.test).ooms, 1);
    assert_ok(vmm__cache_check(program.test->cache));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(threads_find_what_the_quarantine_of_others_held),
        CACHE_TEST(the_quarantine_goes_before_the_program_is_asked),
        CACHE_TEST(the_program_is_asked_once_for_what_it_can_spare),
    };
    CACHE_MAIN(tests);
}
