/* Pointers that name no live block: who is told what about whose block. */
#include "guard_support.h"

#include "base/hostmem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static const vmm_guard modes[] = { VMM_GUARD_RECORD, VMM_GUARD_ON };
enum { LIVE_MANY = 64 };
static const size_t sizes[] = { 1000, 70000, (5 << 20) - 1000 };

/* Calls a function of (test, block) for each mode and size. */
#define FOR_ALL(test, function)                                                                    \
    for (int mode = 0; mode < 2; mode++) {                                                         \
        for (int size = 0; size < 3; size++) {                                                     \
            guard_begun(test, modes[mode], 0);                                                     \
            function(test, sizes[size]);                                                           \
            assert_ok(vmm__cache_check((test)->cache));                                            \
        }                                                                                          \
    }

static void double_free(struct cache_test *test, size_t bytes)
{
    void *block = block_allocated_here(test, bytes, 1);
    void *other = block_taken(test, 512, 1);
    assert_ok(block_freed_here(test, block));
    block_given(test, other);
    assert_status(block_misused_here(test, block), VMM_ERR_UNKNOWN_POINTER);
    assert_says("vmm_free: 0x");
    assert_says("was freed before by thread");
    assert_says("2 operations ago, in block_freed_here+0x");
    const char *story = story_read(test);
    assert_text_has(story, "misuse: vmm_free: ");
    assert_text_has(story, "#0 block_misused_here");
    assert_text_has(story, "#0 block_allocated_here");
    assert_text_has(story, "#0 block_freed_here");
}

static void a_double_free_names_both_stacks(void **state)
{
    struct cache_test *test = *state;
    FOR_ALL(test, double_free);
}

static void pointer_inside(struct cache_test *test, size_t bytes)
{
    char *block = block_allocated_here(test, bytes, 1);
    assert_status(block_misused_here(test, block + 512), VMM_ERR_UNKNOWN_POINTER);
    assert_says("lies 512 bytes inside the block of");
    assert_says("that was allocated by thread");
    assert_says("block_allocated_here");
    assert_ok(vmm_free(test->cache, block));
    assert_status(block_misused_here(test, block + 512), VMM_ERR_UNKNOWN_POINTER);
    assert_says("that was freed by thread");
}

static void a_pointer_inside_a_block_is_told_whose(void **state)
{
    struct cache_test *test = *state;
    FOR_ALL(test, pointer_inside);
}

/* One past a block may be the next one's start, or in nothing; canaries lie there with VMM_GUARD_ON. */
static void one_past_a_block_is_told_whose(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    char *block = block_allocated_here(test, 1000, 1);
    assert_status(block_misused_here(test, block + 1000), VMM_ERR_UNKNOWN_POINTER);
    assert_says("lies 0 bytes beyond the end of the block of 1000 bytes");
    assert_status(block_misused_here(test, block - 512), VMM_ERR_UNKNOWN_POINTER);
    assert_says("lies 512 bytes before the block of 1000 bytes");
    block_given(test, block);
}

static void use_after_free(struct cache_test *test, size_t bytes)
{
    void *block = block_allocated_here(test, bytes, 1);
    block_used(test, block, bytes == sizes[0] ? 1 : 2); /* its own stream is no other */
    assert_ok(vmm_pin(test->cache, block));
    assert_ok(vmm_unpin(test->cache, block));
    assert_ok(block_freed_here(test, block));
    assert_status(vmm_use(test->cache, block, test->streams[2]), VMM_ERR_UNKNOWN_POINTER);
    assert_says("vmm_use: 0x");
    assert_says("block_freed_here");
    assert_status(vmm_pin(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_says("vmm_pin: 0x");
    assert_status(vmm_unpin(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_says("vmm_unpin: 0x");
}

static void other_calls_know_freed_blocks_too(void **state)
{
    struct cache_test *test = *state;
    FOR_ALL(test, use_after_free);
}

static void foreign_pointers_are_nobody_s(void **state)
{
    struct cache_test *test = *state;
    for (int mode = 0; mode < 2; mode++) {
        guard_begun(test, modes[mode], 0);
        assert_text_has(story_read(test), "no misuse was found");
        assert_status(vmm_free(test->cache, &mode), VMM_ERR_UNKNOWN_POINTER);
        assert_says("is not an address of this cache's blocks");
        assert_status(vmm_use(test->cache, NULL, NULL), VMM_ERR_UNKNOWN_POINTER);
        assert_ok(vmm_free(test->cache, NULL));
    }
}

struct told {
    struct cache_test *test;
    unsigned times;
    char line[512];
};

/* It may call the cache. */
static void told_of_misuse(void *context, const char *line)
{
    struct told *told = context;
    told->times++;
    (void)snprintf(told->line, sizeof told->line, "%s", line);
    assert_text_has(story_read(told->test), line);
    assert_ok(vmm_guard_check(told->test->cache));
}

/* A cache whose misuse `tell` is told of, and a block of it that was freed. */
static void *told_begun(struct told *told, vmm_guard mode, vmm_misuse_fn tell)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.guard = mode;
    config.misuse = tell;
    config.misuse_context = told;
    cache_restart(told->test, &config);
    void *block = block_taken(told->test, 1000, 1);
    block_given(told->test, block);
    return block;
}

static void the_program_is_told_of_the_first_misuse(void **state)
{
    struct cache_test *test = *state;
    for (int mode = 0; mode < 2; mode++) {
        struct told told = { .test = test };
        void *block = told_begun(&told, modes[mode], told_of_misuse);
        assert_int_equal(told.times, 0);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(told.times, 1);
        assert_string_equal(told.line, vmm_last_error());
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(told.times, 1);
    }
}

/* It may not end the cache, with which the call that tells goes on. */
static void told_and_ends(void *context, const char *line)
{
    struct told *told = context;
    told->times++;
    (void)line;
    assert_status(vmm_destroy(told->test->cache), VMM_ERR_INVALID_ARGUMENT);
}

static void who_is_told_cannot_end_the_cache(void **state)
{
    struct cache_test *test = *state;
    for (int mode = 0; mode < 2; mode++) {
        struct told told = { .test = test };
        void *block = told_begun(&told, modes[mode], told_and_ends);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(told.times, 1);
        assert_ok(vmm__cache_check(test->cache));
    }
}

/* Frees a live block, and a pointer that is none, out of each line of a story. */
struct freeing_log {
    struct cache_test *test;
    char *live;
    unsigned times;
};

static void line_frees(void *context, const char *line)
{
    struct freeing_log *log = context;
    if (log->live == NULL || strncmp(line, "misuse", strlen("misuse")) != 0)
        return;
    log->times++;
    assert_status(vmm_free(log->test->cache, log->live), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_free(log->test->cache, log->live + 8), VMM_ERR_INVALID_ARGUMENT);
}

static void a_log_that_frees_is_refused(void **state)
{
    struct cache_test *test = *state;
    for (int mode = 0; mode < 2; mode++) {
        struct freeing_log log = { .test = test };
        vmm_config config = VMM_CONFIG_INIT;
        config.guard = modes[mode];
        config.log = line_frees;
        config.log_context = &log;
        cache_restart(test, &config);
        void *block = block_taken(test, 1000, 1);
        log.live = block_taken(test, 1000, 1);
        assert_status(vmm_free(test->cache, log.live + 8), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(log.times, 1);
        bool is_seen = modes[mode] == VMM_GUARD_ON;
        if (is_seen)
            bytes_written(test, block, 1000, 1, 1);
        assert_status(vmm_free(test->cache, block), is_seen ? VMM_ERR_CORRUPTED : VMM_OK);
        assert_int_equal(log.times, is_seen ? 2 : 1);
        void *live = log.live;
        log.live = NULL;
        block_given(test, live);
    }
}

struct checker {
    struct cache_test *test;
    _Atomic bool stops;
};

static void *guard_checked_for_ever(void *context)
{
    struct checker *checker = context;
    while (!atomic_load(&checker->stops))
        (void)vmm_guard_check(checker->test->cache);
    return NULL;
}

/* Also of a pointer that names no block, and while another thread held the guard's locks. */
static void a_child_frees_nothing(void **state)
{
    struct cache_test *test = *state;
    for (int mode = 0; mode < 2; mode++) {
        guard_begun(test, modes[mode], 0);
        struct checker checker = { .test = test };
        void *block = block_taken(test, 1000, 1);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, guard_checked_for_ever, &checker), 0);
        for (int i = 0; i < 10; i++) {
            int status;
            pid_t child = fork();
            if (child == 0) {
                (void)alarm(20);
                void *out;
                bool is_refused = vmm_free(test->cache, block) == VMM_ERR_FORKED &&
                                  vmm_free(test->cache, &checker) == VMM_ERR_FORKED &&
                                  vmm_alloc(test->cache, 1000, NULL, &out) == VMM_ERR_FORKED;
                _exit(is_refused ? 0 : 1);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_int_equal(status, 0);
        }
        atomic_store(&checker.stops, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        block_given(test, block);
    }
}

struct log {
    char text[16384];
    size_t bytes;
};

static void log_line(void *context, const char *line)
{
    struct log *log = context;
    log->bytes +=
        (size_t)snprintf(log->text + log->bytes, sizeof log->text - log->bytes, "%s\n", line);
}

static void the_story_goes_to_the_log(void **state)
{
    struct cache_test *test = *state;
    static struct log log;
    log.bytes = 0;
    vmm_config config = VMM_CONFIG_INIT;
    config.guard = VMM_GUARD_ON;
    config.log = log_line;
    config.log_context = &log;
    cache_restart(test, &config);
    void *block = block_allocated_here(test, 1000, 1);
    bytes_written(test, block, 1000, 1, 1);
    log.bytes = 0;
    assert_status(block_freed_here(test, block), VMM_ERR_CORRUPTED);
    assert_text_has(log.text, "misuse: vmm_free: ");
    assert_text_has(log.text, "#0 block_allocated_here");
    assert_text_has(log.text, "#0 block_freed_here");
}

/* Of the records of freed blocks the last 65536 stay: older ones are forgotten, not kept. */
static void records_are_bounded(void **state)
{
    struct cache_test *test = *state;
    void *live[LIVE_MANY];
    guard_begun(test, VMM_GUARD_RECORD, 0);
    uint64_t before = vmm__host_outstanding();
    uint64_t after = 0;
    for (int i = 0; i < LIVE_MANY; i++)
        live[i] = block_taken(test, 512, 0);
    for (int i = 0; i < 70000; i++) {
        block_given(test, block_taken(test, 512, 0));
        if (i == 66000)
            after = vmm__host_outstanding();
    }
    assert_true(after > before);
    assert_int_equal(vmm__host_outstanding(), after);
    for (int i = 0; i < LIVE_MANY; i++) /* one record more than may be kept, each time */
        block_given(test, live[i]);
    assert_true(vmm__host_outstanding() < after);
    assert_status(block_misused_here(test, live[0]), VMM_ERR_UNKNOWN_POINTER);
    assert_says("was freed before by thread");
}

/* Without host memory for a record there is no block, and nothing has changed. */
static void without_a_record_there_is_no_block(void **state)
{
    struct cache_test *test = *state;
    for (int mode = 0; mode < 2; mode++) {
        for (int size = 0; size < 3; size++) {
            guard_begun(test, modes[mode], 0);
            vmm_status status = VMM_ERR_HOST_OOM;
            void *block = test;
            for (uint64_t number = 1; status != VMM_OK; number++) {
                (void)vmm__host_fail_at(number);
                status = vmm_alloc(test->cache, sizes[size], test->streams[1], &block);
                (void)vmm__host_fail_at(0);
                assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
                assert_true(status == VMM_OK || block == (void *)test);
                assert_ok(vmm__cache_check(test->cache));
                assert_true(number < 200);
            }
            block_given(test, block);
        }
    }
}

static void null_arguments_are_refused(void **state)
{
    struct cache_test *test = *state;
    assert_status(vmm_guard_check(NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_misuse_write(NULL, stderr), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_misuse_write(test->cache, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_guard_check(test->cache));
    assert_text_has(story_read(test), "no misuse was found");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(a_double_free_names_both_stacks),
        CACHE_TEST(a_pointer_inside_a_block_is_told_whose),
        CACHE_TEST(one_past_a_block_is_told_whose),
        CACHE_TEST(other_calls_know_freed_blocks_too),
        CACHE_TEST(foreign_pointers_are_nobody_s),
        CACHE_TEST(the_program_is_told_of_the_first_misuse),
        CACHE_TEST(who_is_told_cannot_end_the_cache),
        CACHE_TEST(a_log_that_frees_is_refused),
        CACHE_TEST(a_child_frees_nothing),
        CACHE_TEST(the_story_goes_to_the_log),
        CACHE_TEST(records_are_bounded),
        CACHE_TEST(without_a_record_there_is_no_block),
        CACHE_TEST(null_arguments_are_refused),
    };
    CACHE_MAIN(tests);
}
