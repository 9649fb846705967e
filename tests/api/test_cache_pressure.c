/* The program is asked for memory before a request fails: vmm_config.pressure. */
#include "support/cache_support.h"

#include <pthread.h>
#include <string.h>

#define LARGE (8 * MIB)
enum { PIECES = (int)(CACHE_LIMIT / LARGE) };

/* A program that keeps blocks which it can do without. What goes wrong is asserted afterwards: it is
 * called on other threads, too. */
struct program {
    struct cache_test *test;
    pthread_mutex_t lock;
    void *spare[PIECES]; /* NULL: none */
    unsigned each;       /* spares freed when it is asked */
    size_t wanted;       /* allocated when it is asked; 0: nothing */
    void *got;
    bool trims;
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

static int program_asked(void *context, size_t bytes)
{
    struct program *program = context;
    vmm_cache *cache = program->test->cache;
    (void)pthread_mutex_lock(&program->lock);
    program->asked++;
    program->bytes = bytes;
    unsigned freed = spares_freed(program);
    if (program->trims)
        program->broken += vmm_trim(cache, 0, NULL) != VMM_OK;
    if (program->wanted != 0 && program->got == NULL)
        (void)!vmm_alloc(cache, program->wanted, program->test->streams[3], &program->got);
    (void)pthread_mutex_unlock(&program->lock);
    return freed > 0;
}

/* All of the limit lies under spare blocks. */
static void program_begins(struct cache_test *test, struct program *program)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = CACHE_LIMIT;
    config.pressure = program_asked;
    config.pressure_context = program;
    program->test = test;
    assert_int_equal(pthread_mutex_init(&program->lock, NULL), 0);
    cache_restart(test, &config);
    for (int i = 0; i < PIECES; i++)
        program->spare[i] = block_taken(test, LARGE, (unsigned)i % 2);
    assert_int_equal(program->asked, 0);
}

static void program_ends(struct cache_test *test, struct program *program)
{
    assert_int_equal(program->broken, 0);
    assert_int_equal(cache_stats(test).pressure_calls, program->asked);
    cache_verified(test);
    (void)pthread_mutex_destroy(&program->lock);
}

static void a_program_that_frees_blocks_is_served(void **state)
{
    struct cache_test *test = *state;
    for (unsigned each = 1; each <= 5; each += 2) {
        struct program program = { .each = each, .trims = each == 3 };
        program_begins(test, &program);
        void *block = block_taken(test, 5 * LARGE, 2);
        assert_int_equal(program.asked, (5 + each - 1) / each);
        assert_true(program.bytes > 0 && program.bytes <= 5 * LARGE);
        block_filled(test, block, 5 * LARGE, 1, 2);
        block_checked(test, block, 5 * LARGE, 1, 2);
        assert_int_equal(cache_stats(test).ooms, 0);
        assert_true(cache_stats(test).reserved_bytes.peak <= CACHE_LIMIT);
        program_ends(test, &program);
    }
}

/* Work still runs on what it frees: the stream that gets it comes after that work. */
static void freed_blocks_may_still_be_in_use(void **state)
{
    struct cache_test *test = *state;
    struct program program = { .each = 2 };
    program_begins(test, &program);
    (void)flight_begin(test, program.spare[0], LARGE, 0);
    void *block = block_taken(test, 2 * LARGE, 2);
    block_filled(test, block, 2 * LARGE, 1, 2);
    block_checked(test, block, 2 * LARGE, 1, 2);
    flight_end(test);
    assert_int_equal(program.asked, 1);
    program_ends(test, &program);
}

static void a_program_that_frees_nothing_is_asked_once(void **state)
{
    struct cache_test *test = *state;
    struct program program = { .each = 0 };
    program_begins(test, &program);
    void *out = test;
    for (unsigned round = 1; round <= 3; round++) {
        assert_status(vmm_alloc(test->cache, LARGE, test->streams[2], &out), VMM_ERR_DEVICE_OOM);
        assert_ptr_equal(out, test);
        assert_int_equal(program.asked, round);
        assert_int_equal(program.bytes, LARGE);
    }
    program_ends(test, &program);
}

static void nobody_is_asked_while_there_is_memory(void **state)
{
    struct cache_test *test = *state;
    struct program program = { .each = 1 };
    program_begins(test, &program);
    program.each = PIECES;
    (void)spares_freed(&program);
    block_given(test, block_taken(test, CACHE_LIMIT, 2));
    block_given(test, block_taken(test, LARGE, 3));
    assert_int_equal(program.asked, 0);
    program_ends(test, &program);
}

static void a_program_may_allocate_what_it_freed(void **state)
{
    struct cache_test *test = *state;
    struct program program = { .each = 3, .wanted = LARGE };
    program_begins(test, &program);
    void *block = block_taken(test, 2 * LARGE, 2);
    assert_int_equal(program.asked, 1);
    assert_non_null(program.got);
    block_given(test, program.got);
    block_given(test, block);
    program_ends(test, &program);
}

/* It would be asked for ever. */
static void a_program_s_own_request_does_not_ask_it(void **state)
{
    struct cache_test *test = *state;
    struct program program = { .each = 1, .wanted = CACHE_LIMIT };
    program_begins(test, &program);
    void *block = block_taken(test, 2 * LARGE, 2);
    assert_int_equal(program.asked, 2);
    assert_null(program.got);
    assert_int_equal(cache_stats(test).ooms, 2);
    block_given(test, block);
    program_ends(test, &program);
}

struct worker {
    struct cache_test *test;
    unsigned stream;
    const char *trouble;
};

/* Takes as much as may be had, by and by; nobody gives anything back but the program. */
static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct cache_test *test = worker->test;
    for (int round = 0; round < PIECES / 2 && worker->trouble == NULL; round++) {
        void *block = NULL;
        if (vmm_alloc(test->cache, LARGE, test->streams[worker->stream], &block) != VMM_OK)
            worker->trouble = "an allocation failed though there were spares";
    }
    return NULL;
}

static void threads_ask_beside_each_other(void **state)
{
    struct cache_test *test = *state;
    struct program program = { .each = 1 };
    program_begins(test, &program);
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

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(a_program_that_frees_blocks_is_served),
        CACHE_TEST(freed_blocks_may_still_be_in_use),
        CACHE_TEST(a_program_that_frees_nothing_is_asked_once),
        CACHE_TEST(nobody_is_asked_while_there_is_memory),
        CACHE_TEST(a_program_may_allocate_what_it_freed),
        CACHE_TEST(a_program_s_own_request_does_not_ask_it),
        CACHE_TEST(threads_ask_beside_each_other),
    };
    CACHE_MAIN(tests);
}
