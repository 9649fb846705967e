/* Pointers that name no live block: the status, the error line and the report. */
#define _GNU_SOURCE
#include "debug_support.h"
#include "life/child.h"
#include "support/share_support.h"

#include "base/hostmem.h"
#include "base/stack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const vmm_debug_mode modes[] = { VMM_DEBUG_RECORD, VMM_DEBUG_ON };
enum { LIVE_MANY = 64 };
static const size_t sizes[] = { 1000, 70000, (5 << 20) - 1000 };

/* Calls a function of (test, block) for each mode and size. */
#define FOR_ALL(test, function)                                                                    \
    for (int mode = 0; mode < 2; mode++) {                                                         \
        for (int size = 0; size < 3; size++) {                                                     \
            debug_restart(test, modes[mode], 0);                                                   \
            function(test, sizes[size]);                                                           \
            assert_ok(vmm__cache_check((test)->cache));                                            \
        }                                                                                          \
    }

static void check_double_free(struct cache_test *test, size_t bytes)
{
    void *block = block_allocate_here(test, bytes, 1);
    void *other = block_alloc(test, 512, 1);
    assert_ok(block_free_here(test, block));
    block_free(test, other);
    assert_status(block_misuse_here(test, block), VMM_ERR_UNKNOWN_POINTER);
    assert_says("vmm_free: 0x");
    assert_says("was freed before by thread");
    assert_says("2 operations ago, in block_free_here+0x");
    const char *report = report_read(test);
    assert_text_has(report, "misuse: vmm_free: ");
    assert_text_has(report, "#0 block_misuse_here");
    assert_text_has(report, "#0 block_allocate_here");
    assert_text_has(report, "#0 block_free_here");
}

CACHE_TEST(double_free_names_both_stacks)
{
    FOR_ALL(test, check_double_free);
}

static void check_pointer_inside(struct cache_test *test, size_t bytes)
{
    char *block = block_allocate_here(test, bytes, 1);
    assert_status(block_misuse_here(test, block + 512), VMM_ERR_UNKNOWN_POINTER);
    assert_says("lies 512 bytes inside the block of");
    assert_says("that was allocated by thread");
    assert_says("block_allocate_here");
    assert_ok(vmm_free(test->cache, block));
    assert_status(block_misuse_here(test, block + 512), VMM_ERR_UNKNOWN_POINTER);
    assert_says("that was freed by thread");
}

CACHE_TEST(pointer_inside_a_block_names_the_block)
{
    FOR_ALL(test, check_pointer_inside);
}

/* One past a block may be the start of the next, or in no block; under VMM_DEBUG_ON a canary lies there. */
CACHE_TEST(pointer_beside_a_block_names_the_block)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    char *block = block_allocate_here(test, 1000, 1);
    assert_status(block_misuse_here(test, block + 1000), VMM_ERR_UNKNOWN_POINTER);
    assert_says("lies 0 bytes beyond the end of the block of 1000 bytes");
    assert_status(block_misuse_here(test, block - 512), VMM_ERR_UNKNOWN_POINTER);
    assert_says("lies 512 bytes before the block of 1000 bytes");
    block_free(test, block);
}

static void check_use_after_free(struct cache_test *test, size_t bytes)
{
    void *block = block_allocate_here(test, bytes, 1);
    block_use(test, block, bytes == sizes[0] ? 1 : 2); /* 1: the block's own stream */
    assert_ok(vmm_pin(test->cache, block));
    assert_ok(vmm_unpin(test->cache, block));
    assert_ok(block_free_here(test, block));
    assert_status(vmm_record_stream(test->cache, block, test->streams[2]), VMM_ERR_UNKNOWN_POINTER);
    assert_says("vmm_record_stream: 0x");
    assert_says("block_free_here");
    assert_status(vmm_pin(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_says("vmm_pin: 0x");
    assert_status(vmm_unpin(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_says("vmm_unpin: 0x");
}

CACHE_TEST(other_calls_report_freed_blocks)
{
    FOR_ALL(test, check_use_after_free);
}

/* Imported blocks have no record, but wrong pointers into them are misuse. */
CACHE_TEST(pointer_inside_an_imported_block_is_reported)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.shareable = 1;
    for (int mode = 0; mode < 2; mode++) {
        debug_restart(test, modes[mode], 0);
        vmm_cache *exporter = cache_second(test);
        vmm_pool *pool = pool_in_with(exporter, &options);
        void *block = block_in_pool(pool, 3 * MIB, test->streams[0]);
        vmm_share *share = export_of(exporter, block);
        char *imported = import_of(test->cache, share, test->streams[0]);
        assert_status(vmm_free(test->cache, imported + 512), VMM_ERR_UNKNOWN_POINTER);
        assert_text_has(report_read(test), "misuse: vmm_free: ");
        assert_status(vmm_pin(test->cache, imported + 512), VMM_ERR_UNKNOWN_POINTER);
        assert_text_has(report_read(test), "misuse: vmm_pin: ");
        assert_ok(vmm_free(test->cache, imported));
        imports_vanish(test->cache);
        assert_ok(vmm_share_close(share, 0));
        assert_ok(vmm_free(exporter, block));
        assert_ok(vmm_destroy(exporter));
    }
}

CACHE_TEST(foreign_pointers_are_refused)
{
    for (int mode = 0; mode < 2; mode++) {
        debug_restart(test, modes[mode], 0);
        assert_text_has(report_read(test), "no misuse was found");
        assert_status(vmm_free(test->cache, &mode), VMM_ERR_UNKNOWN_POINTER);
        assert_says("is not an address of this cache's blocks");
        assert_status(vmm_record_stream(test->cache, NULL, NULL), VMM_ERR_UNKNOWN_POINTER);
        assert_ok(vmm_free(test->cache, NULL));
    }
}

struct observer {
    struct cache_test *test;
    unsigned times;
    char line[512];
};

/* The misuse function may call the cache. */
static void misuse_handle(void *context, const char *line)
{
    struct observer *observer = context;
    observer->times++;
    (void)snprintf(observer->line, sizeof observer->line, "%s", line);
    assert_text_has(report_read(observer->test), line);
    assert_ok(vmm_debug_check(observer->test->cache));
}

/* Creates a cache with `handle` as its misuse function; returns a block of it that is freed. */
static void *observer_start(struct observer *observer, vmm_debug_mode mode, vmm_misuse_fn handle)
{
    cache_restart_with(observer->test, .debug = mode, .misuse = handle, .misuse_context = observer);
    void *block = block_alloc(observer->test, 1000, 1);
    block_free(observer->test, block);
    return block;
}

CACHE_TEST(misuse_function_is_called_once)
{
    for (int mode = 0; mode < 2; mode++) {
        struct observer observer = { .test = test };
        void *block = observer_start(&observer, modes[mode], misuse_handle);
        assert_int_equal(observer.times, 0);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(observer.times, 1);
        assert_string_equal(observer.line, vmm_last_error());
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(observer.times, 1);
    }
}

/* The misuse function cannot destroy the cache, which the call that reports still uses. */
static void misuse_handle_and_destroy(void *context, const char *line)
{
    struct observer *observer = context;
    observer->times++;
    (void)line;
    assert_status(vmm_destroy(observer->test->cache), VMM_ERR_INVALID_ARGUMENT);
}

CACHE_TEST(misuse_function_cannot_destroy_the_cache)
{
    for (int mode = 0; mode < 2; mode++) {
        struct observer observer = { .test = test };
        void *block = observer_start(&observer, modes[mode], misuse_handle_and_destroy);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(observer.times, 1);
        assert_ok(vmm__cache_check(test->cache));
    }
}

/* A log function that frees a live block, and an invalid pointer, at each line of a report. */
struct freeing_log {
    struct cache_test *test;
    char *live;
    unsigned times;
};

static void line_free_blocks(void *context, const char *line)
{
    struct freeing_log *log = context;
    if (log->live == NULL || strncmp(line, "misuse", strlen("misuse")) != 0)
        return;
    log->times++;
    assert_status(vmm_free(log->test->cache, log->live), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_free(log->test->cache, log->live + 8), VMM_ERR_INVALID_ARGUMENT);
}

CACHE_TEST(log_function_cannot_free)
{
    for (int mode = 0; mode < 2; mode++) {
        struct freeing_log log = { .test = test };
        cache_restart_with(test, .debug = modes[mode], .log = line_free_blocks,
                           .log_context = &log);
        void *block = block_alloc(test, 1000, 1);
        log.live = block_alloc(test, 1000, 1);
        assert_status(vmm_free(test->cache, log.live + 8), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(log.times, 1);
        bool is_seen = modes[mode] == VMM_DEBUG_ON;
        if (is_seen)
            bytes_write(test, block, 1000, 1, 1);
        assert_status(vmm_free(test->cache, block), is_seen ? VMM_ERR_CORRUPTED : VMM_OK);
        assert_int_equal(log.times, is_seen ? 2 : 1);
        void *live = log.live;
        log.live = NULL;
        block_free(test, live);
    }
}

struct checker {
    struct cache_test *test;
    _Atomic bool stops;
};

static void *check_in_a_loop(void *context)
{
    struct checker *checker = context;
    while (!atomic_load(&checker->stops))
        (void)vmm_debug_check(checker->test->cache);
    return NULL;
}

/* Also an invalid pointer, and also if another thread of the parent held the locks of debug mode. */
CACHE_TEST(forked_child_frees_nothing)
{
    for (int mode = 0; mode < 2; mode++) {
        debug_restart(test, modes[mode], 0);
        struct checker checker = { .test = test };
        void *block = block_alloc(test, 1000, 1);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, check_in_a_loop, &checker), 0);
        for (int i = 0; i < 10; i++) {
            pid_t child = fork();
            if (child == 0) {
                (void)alarm(20);
                void *out;
                bool is_refused = vmm_free(test->cache, block) == VMM_ERR_FORKED &&
                                  vmm_free(test->cache, &checker) == VMM_ERR_FORKED &&
                                  vmm_alloc(test->cache, 1000, NULL, &out) == VMM_ERR_FORKED;
                _exit(is_refused ? 0 : 1);
            }
            assert_true(child_ended(child, 0));
        }
        atomic_store(&checker.stops, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        block_free(test, block);
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

CACHE_TEST(report_is_written_to_the_log)
{
    static struct log log;
    log.bytes = 0;
    cache_restart_with(test, .debug = VMM_DEBUG_ON, .log = log_line, .log_context = &log);
    void *block = block_allocate_here(test, 1000, 1);
    bytes_write(test, block, 1000, 1, 1);
    log.bytes = 0;
    assert_status(block_free_here(test, block), VMM_ERR_CORRUPTED);
    assert_text_has(log.text, "misuse: vmm_free: ");
    assert_text_has(log.text, "#0 block_allocate_here");
    assert_text_has(log.text, "#0 block_free_here");
}

/* With VMM_LOG, without a function. */
CACHE_TEST(report_is_written_to_the_log_file)
{
    char path[] = "/tmp/vmm-misuse-XXXXXX";
    char text[16384] = "";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(setenv("VMM_LOG", path, 1), 0);
    vmm_cache *cache = cache_with(.driver = driver_choice_kind(), .debug = VMM_DEBUG_RECORD,
                                  .limit_bytes = CACHE_LIMIT);
    assert_int_equal(unsetenv("VMM_LOG"), 0);
    void *block = block_in(cache, 1000, NULL);
    assert_ok(vmm_free(cache, block));
    assert_status(vmm_free(cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_destroy(cache));
    assert_true(read(file, text, sizeof text - 1) > 0);
    assert_text_has(text, "vmmcache: misuse: vmm_free: ");
    assert_text_has(text, "  freed by thread");
    assert_int_equal(close(file), 0);
    assert_int_equal(unlink(path), 0);
}

CACHE_TEST(frames_of_no_library_are_addresses)
{
    char name[64], wanted[64];
    const void *const frames[] = { NULL, name };
    for (int i = 0; i < 2; i++) {
        vmm__stack_name(frames[i], name, sizeof name);
        (void)snprintf(wanted, sizeof wanted, "%p", frames[i]);
        assert_string_equal(name, wanted);
    }
}

/* The records of the last 65536 freed blocks are kept; older ones are discarded. */
CACHE_TEST(records_are_bounded)
{
    void *live[LIVE_MANY];
    debug_restart(test, VMM_DEBUG_RECORD, 0);
    uint64_t before = vmm__host_outstanding();
    uint64_t after = 0;
    for (int i = 0; i < LIVE_MANY; i++)
        live[i] = block_alloc(test, 512, 0);
    for (int i = 0; i < 70000; i++) {
        block_free(test, block_alloc(test, 512, 0));
        if (i == 66000)
            after = vmm__host_outstanding();
    }
    assert_true(after > before);
    assert_int_equal(vmm__host_outstanding(), after);
    for (int i = 0; i < LIVE_MANY; i++) /* each free exceeds the bound by one record */
        block_free(test, live[i]);
    assert_true(vmm__host_outstanding() < after);
    assert_status(block_misuse_here(test, live[0]), VMM_ERR_UNKNOWN_POINTER);
    assert_says("was freed before by thread");
}

/* If host memory for the record runs out, the allocation fails and changes nothing. */
CACHE_TEST(allocation_without_a_record_fails)
{
    for (int mode = 0; mode < 2; mode++) {
        for (int size = 0; size < 3; size++) {
            debug_restart(test, modes[mode], 0);
            bool has_failed = true;
            for (uint64_t number = 1; has_failed; number++) {
                void *block = test;
                (void)vmm__host_fail_at(number);
                vmm_status status = vmm_alloc(test->cache, sizes[size], test->streams[1], &block);
                has_failed = vmm__host_fail_at(0) >= number; /* not every one is missed */
                assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
                assert_true(status == VMM_OK || block == (void *)test);
                assert_ok(vmm__cache_check(test->cache));
                assert_true(number < 200);
                if (status == VMM_OK)
                    block_free(test, block);
            }
        }
    }
}

CACHE_TEST(null_arguments_are_refused)
{
    assert_status(vmm_debug_check(NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_debug_report(NULL, stderr), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_debug_report(test->cache, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_debug_check(test->cache));
    assert_text_has(report_read(test), "no misuse was found");
}

CACHE_MAIN()
