/* Random programs without a bug under all modes at once: nothing is found, nothing is lost. */
#define _GNU_SOURCE
#include "guard_support.h"

#include "base/clock.h"

#include <pthread.h>

enum { LIVE = 64, OPERATIONS = 10000, THREADS = 4, THREAD_OPERATIONS = 400 };

struct live {
    char *block;
    size_t bytes;
    uint32_t word;
    unsigned stream;
};

struct program {
    struct cache_test *test;
    struct live lives[LIVE];
    uint64_t seed;
    uint32_t word;
    bool in_pool;
};

static const vmm_pool_id pool_id = { 3, 4 };

/* A size whose fill, of whole words on a GPU, ends with its last byte. */
static size_t size_drawn(struct program *program)
{
    return random_bytes(&program->seed, random_next(&program->seed) % 16 == 0 ? 6 * MIB : 64 << 10);
}

static void live_begin(struct program *program, struct live *live)
{
    *live = (struct live){ .bytes = size_drawn(program),
                           .word = ++program->word,
                           .stream = (unsigned)(random_next(&program->seed) % CACHE_STREAMS) };
    live->block = block_taken(program->test, live->bytes, live->stream);
    block_filled(program->test, live->block, live->bytes, live->word, live->stream);
}

/* Now and then another stream reads the block last. */
static void live_end(struct program *program, struct live *live)
{
    struct cache_test *test = program->test;
    unsigned reader = (unsigned)(random_next(&program->seed) % (4 * CACHE_STREAMS));
    if (reader < CACHE_STREAMS && reader != live->stream) {
        stream_follows(test, reader, live->stream);
        block_used(test, live->block, reader);
        block_checked(test, live->block, live->bytes, live->word, reader);
    } else {
        block_checked(test, live->block, live->bytes, live->word, live->stream);
    }
    block_given(test, live->block);
    live->block = NULL;
}

static void pool_turn(struct program *program)
{
    vmm_cache *cache = program->test->cache;
    if (program->in_pool) {
        assert_ok(vmm_pool_end(cache, pool_id));
        assert_ok(vmm_pool_release(cache, pool_id));
    } else {
        assert_ok(vmm_pool_begin(cache, pool_id, NULL, NULL));
    }
    program->in_pool = !program->in_pool;
}

static void program_step(struct program *program)
{
    struct cache_test *test = program->test;
    struct live *live = &program->lives[random_next(&program->seed) % LIVE];
    if (live->block == NULL)
        live_begin(program, live);
    else
        live_end(program, live);
    uint64_t dice = random_next(&program->seed) % 2000;
    if (dice < 2)
        (void)cache_trimmed(test, 0);
    else if (dice < 4)
        assert_ok(vmm_guard_check(test->cache));
    else if (dice < 8)
        pool_turn(program);
}

static uint64_t program_run(struct cache_test *test, unsigned operations)
{
    struct program program = { .test = test, .seed = 7 };
    uint64_t start = vmm__clock_ns();
    for (unsigned i = 0; i < operations; i++)
        program_step(&program);
    if (program.in_pool)
        pool_turn(&program);
    for (int i = 0; i < LIVE; i++) {
        if (program.lives[i].block != NULL)
            live_end(&program, &program.lives[i]);
    }
    work_verified(test);
    uint64_t ns = vmm__clock_ns() - start;
    assert_ok(vmm_guard_check(test->cache));
    assert_text_has(story_read(test), "no misuse was found");
    (void)cache_trimmed(test, 0);
    assert_ok(vmm_wait(test->cache));
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).allocations.current, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    cache_verified(test);
    return ns;
}

static void nothing_is_found_where_nothing_is_wrong(void **state)
{
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT;
    cache_restart(test, &config);
    uint64_t plain_ns = program_run(test, OPERATIONS);
    for (int guard = VMM_GUARD_RECORD; guard <= VMM_GUARD_ON; guard++) {
        config.guard = (vmm_guard)guard;
        config.zero = guard == VMM_GUARD_ON;
        cache_restart(test, &config);
        uint64_t ns = program_run(test, OPERATIONS);
        print_message("%s: %u operations took %.2f s, %.1f times as long as without a guard\n",
                      guard == VMM_GUARD_ON ? "on, zero" : "record", OPERATIONS, (double)ns / 1e9,
                      (double)ns / (double)plain_ns);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

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
           (random_next(seed) % 64 != 0 || vmm_guard_check(test->cache) == VMM_OK);
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    uint64_t seed = worker->stream + 1;
    for (int i = 0; i < THREAD_OPERATIONS && !worker->failed; i++)
        worker->failed = !worker_step(worker, &seed);
    return worker->failed ? worker : NULL;
}

/* On sim, work that a check reads may belong to another thread's next block: only real memory can tell. */
static void threads_do_not_disturb_each_other(void **state)
{
    struct cache_test *test = *state;
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    guard_begun(test, VMM_GUARD_ON, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .test = test, .stream = i % CACHE_STREAMS };
        assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_ok(vmm_guard_check(test->cache));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(nothing_is_found_where_nothing_is_wrong),
        CACHE_TEST(threads_do_not_disturb_each_other),
    };
    CACHE_MAIN(tests);
}
