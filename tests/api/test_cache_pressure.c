/* The program is asked for memory before a request fails: vmm_config.pressure. */
#include "support/cache_support.h"

#include <pthread.h>

#define LARGE (8 * MIB)
enum { PIECES = (int)(CACHE_LIMIT / LARGE) };

/* A program that keeps blocks which it can do without. What goes wrong is asserted afterwards: it is
 * called on other threads, too. */
struct program {
    vmm_reuse reuse;
    struct cache_test *test;
    pthread_mutex_t lock;
    void *spare[PIECES]; /* NULL: none */
    unsigned each;       /* blocks of spare[] that one call of the pressure callback frees */
    size_t wanted;       /* bytes that the callback allocates; 0: none */
    void *got;
    bool trims;
    bool works; /* stream 1 still uses what it frees */
    unsigned asked;
    size_t bytes;    /* as told last */
    unsigned broken; /* calls of its own that failed though they must not */
};

static unsigned spares_freed(struct program *program)
{
    unsigned freed = 0;
    for (int i = 0; i < PIECES && freed < program->each; i++) {
        if (program->spare[i] == NULL)
            continue;
        program->broken += vmm_free(program->test->cache, program->spare[i]) != VMM_OK;
        program->spare[i] = NULL;
        freed++;
    }
    return freed;
}

static int pressure_callback(void *context, vmm_pool *pool, size_t bytes)
{
    (void)pool;
    struct program *program = context;
    vmm_cache *cache = program->test->cache;
    (void)pthread_mutex_lock(&program->lock);
    program->asked++;
    program->bytes = bytes;
    if (program->works)
        program->broken +=
            vmm__driver_delay(program->test->driver, 5000000, program->test->streams[1]) != VMM_OK;
    unsigned freed = spares_freed(program);
    if (program->trims)
        program->broken += vmm_trim(cache, 0, NULL) != VMM_OK;
    if (program->wanted != 0 && program->got == NULL)
        (void)!vmm_alloc(cache, program->wanted, program->test->streams[3], &program->got);
    (void)pthread_mutex_unlock(&program->lock);
    return freed > 0;
}

/* Blocks that the callback may free fill the limit. */
static void program_begin(struct cache_test *test, struct program *program)
{
    program->test = test;
    assert_int_equal(pthread_mutex_init(&program->lock, NULL), 0);
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .pressure = pressure_callback,
                       .pressure_context = program, .reuse = program->reuse);
    for (int i = 0; i < PIECES; i++)
        program->spare[i] = block_alloc(test, LARGE, (unsigned)i % 2);
    assert_int_equal(program->asked, 0);
}

static void program_ends(struct cache_test *test, struct program *program)
{
    assert_int_equal(program->broken, 0);
    assert_int_equal(cache_stats(test).pressure_calls, program->asked);
    cache_verify(test);
    (void)pthread_mutex_destroy(&program->lock);
}

CACHE_TEST(a_callback_that_frees_blocks_lets_the_request_succeed)
{
    for (unsigned each = 1; each <= 5; each += 2) {
        struct program program = { .each = each, .trims = each == 3 };
        program_begin(test, &program);
        void *block = block_alloc(test, 5 * LARGE, 2);
        assert_int_equal(program.asked, (5 + each - 1) / each);
        assert_true(program.bytes > 0 && program.bytes <= 5 * LARGE);
        block_fill(test, block, 5 * LARGE, 1, 2);
        block_check(test, block, 5 * LARGE, 1, 2);
        assert_int_equal(cache_stats(test).ooms, 0);
        assert_true(cache_stats(test).reserved_bytes.peak <= CACHE_LIMIT);
        program_ends(test, &program);
    }
}

/* Work still runs on what it frees: the stream that gets it comes after that work. */
CACHE_TEST(freed_blocks_may_still_be_in_use)
{
    struct program program = { .each = 2, .reuse = VMM_REUSE_DECLARED };
    program_begin(test, &program);
    (void)flight_begin(test, program.spare[0], LARGE, 0);
    void *block = block_alloc(test, 2 * LARGE, 2);
    block_fill(test, block, 2 * LARGE, 1, 2);
    block_check(test, block, 2 * LARGE, 1, 2);
    flight_end(test);
    assert_int_equal(program.asked, 1);
    program_ends(test, &program);
}

/* The request has waited once, for holes that were too short. */
CACHE_TEST(a_freed_hole_may_still_be_in_use)
{
    static const size_t sizes[] = { 600 << 10, 500 << 10, 600 << 10, 500 << 10, 1200 << 10 };
    struct program program = { .test = test, .each = 1, .works = true };
    void *blocks[5];
    assert_int_equal(pthread_mutex_init(&program.lock, NULL), 0);
    cache_restart_with(test, .limit_bytes = 4 * MIB, .pressure = pressure_callback,
                       .pressure_context = &program);
    for (int i = 0; i < 5; i++)
        blocks[i] = block_alloc(test, sizes[i], 1);
    void *rest = NULL;
    while (vmm_alloc(test->cache, 64 << 10, test->streams[1], &rest) == VMM_OK) {
    }
    program.asked = 0;
    program.spare[0] = blocks[4];
    block_free(test, blocks[0]);
    block_free(test, blocks[2]);
    (void)block_alloc(test, MIB, 2);
    assert_int_equal(program.asked, 1);
    assert_int_equal(program.broken, 0);
    (void)pthread_mutex_destroy(&program.lock);
}

CACHE_TEST(a_callback_that_frees_nothing_is_called_once)
{
    struct program program = { .each = 0 };
    program_begin(test, &program);
    void *out = test;
    for (unsigned round = 1; round <= 3; round++) {
        assert_status(vmm_alloc(test->cache, LARGE, test->streams[2], &out), VMM_ERR_DEVICE_OOM);
        assert_ptr_equal(out, test);
        assert_int_equal(program.asked, round);
        assert_int_equal(program.bytes, LARGE);
    }
    program_ends(test, &program);
}

CACHE_TEST(the_callback_is_not_called_while_memory_is_free)
{
    struct program program = { .each = 1 };
    program_begin(test, &program);
    program.each = PIECES;
    (void)spares_freed(&program);
    block_free(test, block_alloc(test, CACHE_LIMIT, 2));
    block_free(test, block_alloc(test, LARGE, 3));
    assert_int_equal(program.asked, 0);
    program_ends(test, &program);
}

CACHE_TEST(a_callback_may_allocate_what_it_freed)
{
    struct program program = { .each = 3, .wanted = LARGE };
    program_begin(test, &program);
    void *block = block_alloc(test, 2 * LARGE, 2);
    assert_int_equal(program.asked, 1);
    assert_non_null(program.got);
    block_free(test, program.got);
    block_free(test, block);
    program_ends(test, &program);
}

/* It would be asked for ever. */
CACHE_TEST(a_request_from_the_callback_does_not_call_it)
{
    struct program program = { .each = 1, .wanted = CACHE_LIMIT };
    program_begin(test, &program);
    void *block = block_alloc(test, 2 * LARGE, 2);
    assert_int_equal(program.asked, 2);
    assert_null(program.got);
    assert_int_equal(cache_stats(test).ooms, 2);
    block_free(test, block);
    program_ends(test, &program);
}

struct worker {
    struct cache_test *test;
    unsigned stream;
    const char *trouble;
};

/* Allocates until every block that the callback may free has been freed. */
static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct cache_test *test = worker->test;
    for (int round = 0; round < PIECES / 2 && worker->trouble == NULL; round++) {
        void *block = NULL;
        if (vmm_alloc(test->cache, LARGE, test->streams[worker->stream], &block) != VMM_OK)
            worker->trouble = "an allocation failed although the callback could free more";
    }
    return NULL;
}

CACHE_TEST(threads_call_the_callback_concurrently)
{
    struct program program = { .each = 1 };
    program_begin(test, &program);
    struct worker workers[2] = { { .test = test, .stream = 2 }, { .test = test, .stream = 3 } };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        if (workers[i].trouble != NULL)
            fail_msg("%s", workers[i].trouble);
    }
    for (int i = 0; i < PIECES; i++)
        assert_null(program.spare[i]);
    assert_int_equal(cache_stats(test).requested_bytes.current, CACHE_LIMIT);
    program_ends(test, &program);
}

CACHE_MAIN()
