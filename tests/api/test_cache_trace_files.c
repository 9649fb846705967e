/* vmm_trace_start(): wrong calls, failures of the file and the host, and the ends of processes. */
#define _GNU_SOURCE
#include "life/child.h"
#include "support/file_limit_support.h"
#include "support/recording_support.h"

#include "base/hostmem.h"
#include "trace/lines.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* ThreadSanitizer calls it. The children of fork() here start threads. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

/* ---- Wrong calls, full disks ---------------------------------------------------------------- */

static void expect_refused(vmm_status status, const char *why)
{
    assert_int_equal(status, VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), why));
}

CACHE_TEST(wrong_calls_are_refused)
{
    vmm_trace_options options = VMM_TRACE_OPTIONS_INIT;
    expect_refused(vmm_trace_stop(test->cache), "is not recorded");
    expect_refused(vmm_trace_start(test->cache, NULL, NULL), "path");
    expect_refused(vmm_trace_start(test->cache, "/nowhere/a.trace", NULL), "No such file");
    expect_refused(vmm_trace_start(test->cache, "/tmp", NULL), "directory");
    expect_refused(vmm_trace_start(test->cache, "/dev/null", NULL), "not a regular file");
    const char *path = trace_path();
    options.struct_size = 1;
    expect_refused(vmm_trace_start(test->cache, path, &options), "struct_size");
    assert_ok(vmm_trace_start(test->cache, path, NULL));
    expect_refused(vmm_trace_start(test->cache, path, NULL), "already");
    vmm_cache *other = cache_with(.driver = VMM_DRIVER_SIM);
    expect_refused(vmm_trace_start(other, path, NULL), "another recording");
    assert_ok(vmm_destroy(other));
    assert_ok(vmm_trace_stop(test->cache));
    expect_refused(vmm_trace_stop(test->cache), "is not recorded");
}

static bool file_ends_with(const char *path, const char *wanted)
{
    char text[256] = "";
    size_t length = strlen(wanted);
    FILE *file = trace_open(path);
    assert_non_null(file);
    assert_int_equal(fseek(file, -(long)length, SEEK_END), 0);
    assert_int_equal(fread(text, 1, length, file), length);
    (void)fclose(file);
    return strcmp(text, wanted) == 0;
}

/* Records to a file of at most 50000 bytes. */
static struct trace_sum disk_fill(struct cache_test *test, const char *path)
{
    assert_ok(vmm_trace_start(test->cache, path, NULL));
    file_limit_set(50000);
    for (int i = 0; i < 100000; i++)
        block_free(test, block_alloc(test, 1000, 0));
    vmm_status status = vmm_trace_stop(test->cache);
    file_limit_set(RLIM_INFINITY);
    expect_refused(status, "not complete");
    assert_true(file_ends_with(path, "#@ note the recording ends here: File too large\n"));
    return trace_sum_of(path);
}

CACHE_TEST(a_full_disk_fails_no_allocation)
{
    struct trace_sum sum = disk_fill(test, trace_path());
    assert_in_range(sum.allocations, 100, 2000);
    sum = disk_fill(test, trace_path_packed());
    assert_in_range(sum.allocations, 2000, 20000);
}

/* The thread of the program writes the end. */
CACHE_TEST(the_end_of_a_recording_beyond_the_limit_is_no_signal)
{
    assert_ok(vmm_trace_start(test->cache, trace_path(), NULL));
    block_free(test, block_alloc(test, 1000, 0));
    file_limit_set(1);
    vmm_status status = vmm_trace_stop(test->cache);
    file_limit_set(RLIM_INFINITY);
    expect_refused(status, "not complete");
}

static void start_fail(struct cache_test *test, const char *path)
{
    vmm_status status = VMM_ERR_HOST_OOM;
    uint64_t failures = 0;
    for (; status != VMM_OK; failures++) {
        (void)vmm__host_fail_at(failures + 1);
        status = vmm_trace_start(test->cache, path, NULL);
        (void)vmm__host_fail_at(0);
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
    }
    assert_in_range(failures, 3, 11);
    block_free(test, block_alloc(test, 1000, 0));
    assert_int_equal(recording_end(test, path).frees, 1);
}

CACHE_TEST(a_start_without_host_memory_leaves_nothing)
{
    start_fail(test, trace_path());
    start_fail(test, trace_path_packed());
}

CACHE_TEST(an_event_without_host_memory_fails_no_call)
{
    vmm_trace_options options = VMM_TRACE_OPTIONS_INIT;
    const char *path = trace_path();
    options.stacks = 1;
    void *block = block_alloc(test, 1000, 0); /* so that the cache itself needs no host memory */
    assert_ok(vmm_trace_start(test->cache, path, &options));
    for (uint64_t number = 1; number < 20; number++) {
        (void)vmm__host_fail_at(number);
        block_free(test, block_alloc(test, 1000, 0));
        assert_ok(vmm_trace_note(test->cache, "note"));
        (void)vmm__host_fail_at(0);
    }
    block_free(test, block);
    (void)vmm_trace_stop(test->cache);
    assert_int_equal(trace_sum_of(path).live_bytes, 0);
}

CACHE_TEST(the_end_of_a_cache_ends_its_recording)
{
    const char *path = recording_begin(test);
    block_free(test, block_alloc(test, 1000, 0));
    cache_restart(test, NULL);
    assert_int_equal(trace_sum_of(path).frees, 1);
}

/* ---- Processes ------------------------------------------------------------------------------ */

static vmm_cache *sim_create(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *cache;
    config.driver = VMM_DRIVER_SIM;
    return vmm_create(&config, &cache) == VMM_OK ? cache : NULL;
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

enum { TENTHS = 200 };

/* Allocations that a child has made, by tenths of a second. */
struct progress {
    double begin_s;
    _Atomic uint64_t made[TENTHS];
};

static void child_allocate(const char *path, struct progress *progress)
{
    vmm_cache *cache = sim_create();
    void *block;
    uint64_t made = 0;
    if (cache == NULL || vmm_trace_start(cache, path, NULL) != VMM_OK)
        _exit(1);
    for (double now = progress->begin_s; now < progress->begin_s + 10; now = now_s()) {
        if (vmm_alloc(cache, 512, NULL, &block) != VMM_OK || vmm_free(cache, block) != VMM_OK)
            _exit(2);
        progress->made[(int)((now - progress->begin_s) * 10)] = ++made;
        (void)usleep(100);
    }
    _exit(3);
}

static void recorder_kill(const char *path)
{
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(progress, MAP_FAILED);
    progress->begin_s = now_s();
    pid_t child = fork();
    if (child == 0)
        child_allocate(path, progress);
    (void)usleep(2300000);
    int last = (int)((now_s() - progress->begin_s) * 10) - 11; /* a second and a tenth ago */
    child_kill(child);
    struct trace_sum sum = trace_sum_of(path);
    assert_true(last > 0 && progress->made[last] > 0);
    assert_true(sum.allocations >= progress->made[last]);
    assert_true(sum.last_us > 500000);
    (void)munmap(progress, sizeof *progress);
}

CACHE_TEST(a_program_that_is_killed_leaves_all_but_its_last_second)
{
    recorder_kill(trace_path());
    recorder_kill(trace_path_packed());
    (void)test;
}

/* A child that leaves caches alive ends after the library's destructors, which this one follows, and before a sanitizer
 * looks for leaks. */
static int child_status = -1;

static __attribute__((destructor(101))) void child_quit(void)
{
    if (child_status >= 0)
        _exit(child_status);
}

static void child_exit_live(const char *path)
{
    vmm_cache *cache = sim_create();
    void *block;
    bool is_made = cache != NULL && vmm_trace_start(cache, path, NULL) == VMM_OK;
    for (int i = 0; i < 3 && is_made; i++)
        is_made = vmm_alloc(cache, 1000, NULL, &block) == VMM_OK;
    child_status = is_made && vmm_trace_note(cache, "the last") == VMM_OK ? 0 : 1;
    exit(child_status);
}

/* Writing the free of a block needs no memory once its allocation is written. So the recorder's thread holds no lock of
 * malloc at a fork(): glibc would take it first, but AddressSanitizer's malloc leaves it locked in the child. */
static void recording_settle(const char *path)
{
    while (trace_sum_of(path).allocations == 0)
        (void)usleep(10000);
}

/* Its caches are alive, as those of most programs of Python are. */
CACHE_TEST(a_program_that_exits_leaves_a_whole_file)
{
    const char *own = recording_begin(test);
    void *block = block_alloc(test, 1000, 0);
    recording_settle(own);
    block_free(test, block); /* the child's exit must not write this */
    char path[256];
    (void)snprintf(path, sizeof path, "%s.child", own);
    pid_t child = fork();
    if (child == 0)
        child_exit_live(path);
    assert_true(child_ended(child, 0));
    struct trace_sum sum = trace_sum_of(path);
    assert_int_equal(sum.allocations, 3);
    assert_string_equal(sum.last_note, "the last");
    (void)unlink(path);
    sum = recording_end(test, own);
    assert_int_equal(sum.allocations, 1);
    assert_int_equal(sum.frees, 1);
}

static long file_bytes(const char *path)
{
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    return (long)about.st_size;
}

static void child_meddle(struct cache_test *test, const char *path)
{
    void *block;
    if (vmm_alloc(test->cache, 512, NULL, &block) != VMM_ERR_FORKED ||
        vmm_trace_stop(test->cache) != VMM_ERR_FORKED)
        exit(1);
    static struct lines lines; /* as a recorder of its own opens them */
    if (vmm__lines_open(&lines, path) != VMM__IN_USE)
        exit(2);
    _exit(0);
}

CACHE_TEST(a_child_of_fork_leaves_the_file_alone)
{
    const char *path = recording_begin(test);
    void *block = block_alloc(test, 1000, 0);
    (void)usleep(1200000); /* now it is in the file */
    long bytes = file_bytes(path);
    pid_t child = fork();
    if (child == 0)
        child_meddle(test, path);
    assert_true(child_ended(child, 0));
    assert_int_equal(file_bytes(path), bytes);
    block_free(test, block);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1);
    assert_int_equal(sum.frees, 1);
}

/* Such as a worker of a loader of data, which lives on. */
CACHE_TEST(a_child_of_fork_keeps_no_recording_from_its_file)
{
    const char *path = recording_begin(test);
    pid_t child = fork();
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    (void)recording_end(test, path);
    vmm_status status = vmm_trace_start(test->cache, path, NULL);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    assert_ok(status);
    assert_ok(vmm_trace_stop(test->cache));
}

CACHE_TEST(the_environment_records_each_cache)
{
    char first[128];
    char second[140];
    (void)snprintf(first, sizeof first, "%s", trace_path());
    (void)snprintf(second, sizeof second, "%s.2", first);
    assert_int_equal(setenv("VMM_TRACE", first, 1), 0);
    vmm_cache *one = sim_create();
    vmm_cache *two = sim_create();
    assert_int_equal(unsetenv("VMM_TRACE"), 0);
    assert_true(one != NULL && two != NULL);
    (void)block_in(one, 4096, NULL);
    assert_ok(vmm_destroy(one));
    assert_ok(vmm_destroy(two));
    assert_int_equal(trace_sum_of(first).live_bytes, 4096);
    assert_int_equal(trace_sum_of(second).allocations, 0);
    assert_int_equal(unlink(second), 0);
    char own[160];
    (void)snprintf(own, sizeof own, "%s.%%p.end", first);
    assert_int_equal(setenv("VMM_TRACE", own, 1), 0);
    assert_ok(vmm_destroy(sim_create()));
    (void)snprintf(own, sizeof own, "%s.%ld.end.3", first, (long)getpid());
    assert_int_equal(unlink(own), 0);
    (void)snprintf(own, sizeof own, "%s.%%p.gz", first);
    assert_int_equal(setenv("VMM_TRACE", own, 1), 0);
    assert_ok(vmm_destroy(sim_create()));
    assert_int_equal(unsetenv("VMM_TRACE"), 0);
    (void)snprintf(own, sizeof own, "%s.%ld.4.gz", first, (long)getpid());
    assert_int_equal(unlink(own), 0);
    (void)test;
}

CACHE_TEST(a_wrong_environment_makes_no_cache)
{
    char path[5000] = "";
    assert_int_equal(setenv("VMM_TRACE", "/nowhere/a.trace", 1), 0);
    assert_null(sim_create());
    const char *line = vmm_last_error();
    assert_ptr_equal(strstr(line, "VMM_TRACE: trace: cannot write /nowhere/a.trace"), line);
    assert_int_equal(setenv("VMM_TRACE_STACKS", "yes", 1), 0);
    assert_null(sim_create());
    assert_string_equal(vmm_last_error(), "VMM_TRACE_STACKS=yes: not one of: on, off");
    assert_int_equal(setenv("VMM_TRACE_STACKS", "0", 1), 0);
    memset(path, 'x', sizeof path - 1);
    assert_int_equal(setenv("VMM_TRACE", path, 1), 0);
    assert_null(sim_create());
    assert_int_equal(setenv("VMM_TRACE", trace_path(), 1), 0);
    vmm_cache *cache = sim_create();
    assert_non_null(cache);
    assert_ok(vmm_destroy(cache));
    assert_int_equal(unsetenv("VMM_TRACE") | unsetenv("VMM_TRACE_STACKS"), 0);
    (void)test;
}

CACHE_MAIN()
