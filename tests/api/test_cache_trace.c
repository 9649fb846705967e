/* vmm_trace_start(): what is recorded is what was done, also after failures. */
#define _GNU_SOURCE
#include "life/child.h"
#include "support/cache_support.h"
#include "support/trace_support.h"

#include "base/hostmem.h"
#include "trace/lines.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ThreadSanitizer calls it. The children of fork() here start threads. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

static const char *recording_begin(struct cache_test *test)
{
    const char *path = trace_path();
    assert_ok(vmm_trace_start(test->cache, path, NULL));
    return path;
}

static struct trace_sum recording_end(struct cache_test *test, const char *path)
{
    assert_ok(vmm_trace_stop(test->cache));
    return trace_sum_of(path);
}

/* ---- What is recorded ----------------------------------------------------------------------- */

CACHE_TEST(allocations_and_frees_are_recorded)
{
    const char *path = recording_begin(test);
    void *first = block_alloc(test, 1000, 0);
    void *second = block_alloc(test, 3 * MIB, 1);
    block_free(test, first);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 2);
    assert_int_equal(sum.frees, 1);
    assert_int_equal(sum.live_bytes, 3 * MIB);
    assert_int_equal(sum.peak_bytes, 3 * MIB + 1000);
    assert_int_equal(sum.last_address, (uintptr_t)second);
    assert_int_equal(sum.last_bytes, 3 * MIB);
    assert_int_equal(sum.mapped_bytes, cache_stats(test).reserved_bytes.current);
    block_free(test, second);
}

CACHE_TEST(a_name_that_ends_with_gz_packs_the_file)
{
    const char *path = trace_path_packed();
    assert_ok(vmm_trace_start(test->cache, path, NULL));
    for (int i = 0; i < 1000; i++)
        block_free(test, block_alloc(test, 1000, 0));
    (void)usleep(1200000); /* now it is in the file */
    assert_int_equal(trace_sum_of(path).frees, 1000);
    void *block = block_alloc(test, 3 * MIB, 1);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1001);
    assert_int_equal(sum.live_bytes, 3 * MIB);
    assert_int_equal(sum.mapped_bytes, cache_stats(test).reserved_bytes.current);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fgetc(file), 0x1F);
    assert_int_equal(fgetc(file), 0x8B);
    (void)fclose(file);
    block_free(test, block);
}

CACHE_TEST(blocks_that_were_there_are_recorded)
{
    void *small = block_alloc(test, 100, 0);
    void *large = block_alloc(test, 5 * MIB, 1);
    const char *path = recording_begin(test);
    block_free(test, small);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 2);
    assert_int_equal(sum.frees, 1);
    assert_int_equal(sum.live_bytes, 5 * MIB);
    assert_int_equal(sum.mapped_bytes, cache_stats(test).reserved_bytes.current);
    block_free(test, large);
}

CACHE_TEST(what_is_done_outside_of_a_recording_is_not_recorded)
{
    const char *path = recording_begin(test);
    void *block = block_alloc(test, MIB, 0);
    assert_ok(vmm_trace_stop(test->cache));
    block_free(test, block);
    struct trace_sum sum = trace_sum_of(path);
    assert_int_equal(sum.allocations, 1);
    assert_int_equal(sum.frees, 0);
    path = recording_begin(test);
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 0);
}

CACHE_TEST(random_operations_are_recorded)
{
    enum { SLOTS = 200, ROUNDS = 20000 };
    void *slots[SLOTS] = { NULL };
    uint64_t seed = 7;
    uint64_t made = 0;
    uint64_t freed = 0;
    const char *path = recording_begin(test);
    for (unsigned round = 0; round < ROUNDS; round++) {
        void **slot = &slots[random_next(&seed) % SLOTS];
        if (*slot != NULL) {
            block_free(test, *slot);
            *slot = NULL;
            freed++;
        } else if (vmm_alloc(test->cache, random_bytes(&seed, 4 * MIB),
                             test->streams[random_next(&seed) % CACHE_STREAMS], slot) == VMM_OK) {
            made++;
        }
        if (round % 1000 == 0)
            (void)cache_trim(test, 0);
    }
    vmm_stats stats = cache_stats(test);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, made);
    assert_int_equal(sum.frees, freed);
    assert_int_equal(sum.live_bytes, stats.requested_bytes.current);
    assert_int_equal(sum.peak_bytes, stats.requested_bytes.peak);
    assert_int_equal(sum.mapped_bytes, stats.reserved_bytes.current);
    for (unsigned i = 0; i < SLOTS; i++)
        assert_ok(vmm_free(test->cache, slots[i]));
}

CACHE_TEST(a_block_that_another_stream_uses_is_busy_until_its_work_ends)
{
    const char *path = recording_begin(test);
    void *block = block_alloc(test, 4 * MIB, 0);
    block_use(test, block, 1);
    bool is_certain = flight_begin(test, block, 4 * MIB, 1);
    block_free(test, block);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.uses, 1);
    if (is_certain) {
        assert_int_equal(sum.waits, 1);
        assert_int_equal(sum.frees, 0);
    }
    path = recording_begin(test);
    flight_end(test);
    assert_ok(vmm_wait(test->cache));
    (void)cache_trim(test, 0);
    sum = recording_end(test, path);
    if (is_certain)
        assert_int_equal(sum.waits, 1);
    assert_int_equal(sum.live_bytes, 0);
    assert_int_equal(sum.frees, sum.allocations);
}

CACHE_TEST(pools_have_names)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *before;
    vmm_pool *later;
    void *block;
    options.name = "weights";
    assert_ok(vmm_pool_create(test->cache, &options, &before));
    const char *path = recording_begin(test);
    options.name = "activations";
    assert_ok(vmm_pool_create(test->cache, &options, &later));
    assert_ok(vmm_alloc_from(later, MIB, test->streams[0], &block));
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.pools, 2);
    assert_int_equal(sum.last_pool, 2);
    block_free(test, block);
    assert_ok(vmm_pool_destroy(before, 0));
    assert_ok(vmm_pool_destroy(later, 0));
}

CACHE_TEST(failures_and_trims_are_notes)
{
    void *block;
    const char *path = recording_begin(test);
    assert_int_equal(vmm_alloc(test->cache, 2 * CACHE_LIMIT, NULL, &block), VMM_ERR_DEVICE_OOM);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.notes, 1);
    assert_non_null(strstr(sum.last_note, "alloc"));
    path = recording_begin(test);
    assert_int_equal(vmm_free(test->cache, &block), VMM_ERR_UNKNOWN_POINTER);
    (void)cache_trim(test, 0);
    sum = recording_end(test, path);
    assert_int_equal(sum.notes, 2);
    assert_non_null(strstr(sum.last_note, "vmm_trim"));
}

CACHE_TEST(names_and_notes_are_recorded)
{
    char *block = block_alloc(test, MIB, 0);
    const char *path = recording_begin(test);
    assert_ok(vmm_name(test->cache, block, "weights\nof layer 1"));
    assert_ok(vmm_trace_note(test->cache, "step 1"));
    assert_int_equal(vmm_name(test->cache, block + 1, "x"), VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(vmm_trace_note(test->cache, NULL), VMM_ERR_INVALID_ARGUMENT);
    struct trace_sum sum = recording_end(test, path);
    assert_string_equal(sum.last_name, "1 weights?of layer 1");
    assert_string_equal(sum.last_note, "step 1");
    path = recording_begin(test); /* a name from before */
    sum = recording_end(test, path);
    assert_string_equal(sum.last_name, "1 weights?of layer 1");
    path = recording_begin(test);
    assert_ok(vmm_name(test->cache, block, NULL));
    sum = recording_end(test, path);
    assert_string_equal(sum.last_name, "1 ");
    block_free(test, block);
}

/* ---- Blocks that grow ----------------------------------------------------------------------- */

enum { UNITS = 8 };
#define UNIT (2 * MIB)

static void *block_reserve(struct cache_test *test, unsigned stream)
{
    void *block = NULL;
    assert_ok(vmm_reserve(vmm_cache_pool(test->cache), UNITS * UNIT, UNIT, test->streams[stream],
                          &block));
    return block;
}

/* What is live in the trace is live in the cache, so far. */
static void recording_compare(struct cache_test *test, const char *path)
{
    vmm_stats stats = cache_stats(test);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.live_bytes, stats.requested_bytes.current);
    assert_int_equal(sum.mapped_bytes, stats.reserved_bytes.current - stats.limbo_bytes);
}

CACHE_TEST(units_of_reserved_blocks_are_recorded)
{
    const char *path = recording_begin(test);
    char *block = block_reserve(test, 1);
    assert_ok(vmm_commit(test->cache, block, 0, 4 * UNIT));
    assert_ok(vmm_decommit(test->cache, block, UNIT, UNIT));
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 4);
    assert_int_equal(sum.frees, 1);
    assert_int_equal(sum.live_bytes, 3 * UNIT);
    assert_int_equal(sum.last_bytes, UNIT);
    assert_int_equal(sum.last_address, (uintptr_t)block + 3 * UNIT);
    path = recording_begin(test); /* units that were there */
    assert_ok(vmm_commit(test->cache, block, 0, 2 * UNIT));
    recording_compare(test, path);
    path = recording_begin(test);
    block_free(test, block);
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 4);
    assert_int_equal(sum.frees, 4);
    assert_int_equal(sum.live_bytes, 0);
}

CACHE_TEST(units_of_a_freed_block_are_freed_although_their_pool_is_retained)
{
    vmm_pool *pool = vmm_cache_pool(test->cache);
    void *block = block_reserve(test, 0);
    assert_ok(vmm_commit(test->cache, block, 0, 3 * UNIT));
    assert_ok(vmm_pool_retain(pool));
    const char *path = recording_begin(test);
    block_free(test, block);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.frees, 3);
    path = recording_begin(test); /* its memory is still there */
    assert_ok(vmm_pool_drop(pool));
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 0);
    assert_int_equal(sum.mapped_bytes, 0);
}

/* A pool that sleeps with three units of a reserved block and a block of 3 MiB. */
static vmm_pool *sleeper_make(struct cache_test *test, void **reserved, void **block)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool = NULL;
    assert_ok(vmm_pool_create(test->cache, &options, &pool));
    assert_ok(vmm_reserve(pool, UNITS * UNIT, UNIT, test->streams[0], reserved));
    assert_ok(vmm_commit(test->cache, *reserved, UNIT, 3 * UNIT));
    assert_ok(vmm_alloc_from(pool, 3 * MIB, test->streams[1], block));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    return pool;
}

CACHE_TEST(what_sleeps_when_a_recording_begins_is_recorded)
{
    void *reserved;
    void *block;
    vmm_pool *pool = sleeper_make(test, &reserved, &block);
    const char *path = recording_begin(test);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 4);
    assert_int_equal(sum.live_bytes, 3 * UNIT + 3 * MIB);
    assert_int_equal(sum.mapped_bytes, cache_stats(test).reserved_bytes.current);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    path = recording_begin(test);
    block_free(test, reserved);
    block_free(test, block);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_ok(vmm_pool_destroy(pool, 0));
    assert_ok(vmm_wait(test->cache));
    (void)cache_trim(test, 0);
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 4);
    assert_int_equal(sum.frees, 4);
    assert_int_equal(sum.mapped_bytes, 0);
}

CACHE_TEST(a_freed_reserved_block_that_sleeps_has_no_units)
{
    void *reserved;
    void *block;
    vmm_pool *pool = sleeper_make(test, &reserved, &block);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_ok(vmm_pool_retain(pool));
    block_free(test, reserved);
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    const char *path = recording_begin(test);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    block_free(test, block);
    assert_ok(vmm_pool_drop(pool));
}

CACHE_TEST(a_reserved_block_that_moves_is_recorded)
{
    void *block = block_reserve(test, 0);
    void *other = block_reserve(test, 1); /* behind it */
    assert_ok(vmm_commit(test->cache, block, 0, 3 * UNIT));
    const char *path = recording_begin(test);
    vmm_status status = vmm_resize(test->cache, block, 40 * UNIT, &block);
    assert_true(status == VMM_OK || status == VMM_ERR_UNSUPPORTED);
    assert_ok(vmm_resize(test->cache, block, 2 * UNIT, &block));
    recording_compare(test, path);
    block_free(test, other);
    block_free(test, block);
}

CACHE_TEST(a_block_of_another_size_is_recorded)
{
    void *block = block_alloc(test, 8 * MIB, 0);
    assert_ok(vmm_name(test->cache, block, "KV"));
    const char *path = recording_begin(test);
    assert_ok(vmm_resize(test->cache, block, 5 * MIB, &block));
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.live_bytes, 5 * MIB);
    assert_int_equal(sum.peak_bytes, 8 * MIB);
    assert_int_equal(sum.last_address, (uintptr_t)block);
    assert_string_equal(sum.last_name, "2 KV");
    path = recording_begin(test);
    assert_ok(vmm_resize(test->cache, block, 5 * MIB, &block)); /* nothing changes */
    sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1);
    assert_int_equal(sum.frees, 0);
    block_free(test, block);
}

CACHE_TEST(random_sizes_are_recorded)
{
    enum { SLOTS = 8, ROUNDS = 400 };
    void *slots[SLOTS];
    bool is_reserved[SLOTS];
    uint64_t seed = 11;
    for (unsigned i = 0; i < SLOTS; i++) {
        is_reserved[i] = i % 2 == 0;
        slots[i] = is_reserved[i] ? block_reserve(test, i % CACHE_STREAMS)
                                  : block_alloc(test, 3 * MIB, i % CACHE_STREAMS);
    }
    const char *path = recording_begin(test);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned i = (unsigned)(random_next(&seed) % SLOTS);
        size_t unit = random_next(&seed) % UNITS;
        size_t bytes = (unit + 1) * UNIT - (is_reserved[i] ? 0 : round);
        vmm_status status;
        if (!is_reserved[i] || round % 16 == 0)
            status = vmm_resize(test->cache, slots[i], bytes, &slots[i]);
        else if (random_next(&seed) % 2 == 0)
            status = vmm_commit(test->cache, slots[i], unit * UNIT, UNIT);
        else
            status = vmm_decommit(test->cache, slots[i], unit * UNIT, UNIT);
        assert_true(status == VMM_OK || status == VMM_ERR_DEVICE_OOM ||
                    status == VMM_ERR_INVALID_ARGUMENT || status == VMM_ERR_UNSUPPORTED);
    }
    recording_compare(test, path);
    for (unsigned i = 0; i < SLOTS; i++)
        block_free(test, slots[i]);
}

CACHE_TEST(aligned_blocks_are_recorded)
{
    void *block;
    const char *path = recording_begin(test);
    assert_ok(vmm_alloc_aligned(vmm_cache_pool(test->cache), 3 * MIB, MIB, NULL, &block));
    block_free(test, block);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1);
    assert_int_equal(sum.frees, 1);
    assert_int_equal(sum.last_address, (uintptr_t)block);
}

CACHE_TEST(imported_memory_is_not_recorded)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    vmm_share *share;
    void *block;
    void *imports[2];
    options.shareable = 1;
    assert_ok(vmm_pool_create(test->cache, &options, &pool));
    assert_ok(vmm_alloc_from(pool, 3 * MIB, test->streams[0], &block));
    assert_ok(vmm_share_export(test->cache, block, &share));
    assert_ok(vmm_share_import(test->cache, share, test->streams[0], &imports[0]));
    const char *path = recording_begin(test);
    assert_ok(vmm_share_import(test->cache, share, test->streams[0], &imports[1]));
    for (int i = 0; i < 2; i++) {
        assert_ok(vmm_record_stream(test->cache, imports[i], test->streams[1]));
        block_free(test, imports[i]);
    }
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1); /* the block that was there */
    assert_int_equal(sum.frees, 0);
    assert_int_equal(sum.mapped_bytes, 4 * MIB);
    assert_ok(vmm_share_close(share, 0));
    block_free(test, block);
}

CACHE_TEST(stacks_are_recorded_once_each)
{
    vmm_trace_options options = VMM_TRACE_OPTIONS_INIT;
    const char *path = trace_path();
    options.stacks = 1;
    assert_ok(vmm_trace_start(test->cache, path, &options));
    for (int i = 0; i < 100; i++)
        block_free(test, block_alloc(test, 1000, 0));
    struct trace_sum sum = recording_end(test, path);
    assert_in_range(sum.frames, 1, 32);
    assert_in_range(sum.last_frame, 1, sum.frames);
}

CACHE_TEST(debug_mode_is_recorded)
{
    for (vmm_debug_mode mode = VMM_DEBUG_RECORD; mode <= VMM_DEBUG_ON; mode++) {
        cache_restart_with(test, .debug = mode, .limit_bytes = CACHE_LIMIT);
        const char *path = recording_begin(test);
        void *small = block_alloc(test, 1000, 0);
        void *large = block_alloc(test, 3 * MIB, 0);
        block_free(test, large);
        struct trace_sum sum = recording_end(test, path);
        assert_int_equal(sum.allocations, 2);
        assert_int_equal(sum.frees, 1);
        assert_int_equal(sum.live_bytes, 1000);
        assert_int_equal(sum.last_address, (uintptr_t)large);
        block_free(test, small);
    }
}

/* ---- Threads -------------------------------------------------------------------------------- */

enum { THREADS = 4, THREAD_ROUNDS = 20000, SHARED = 64 };

struct crowd {
    struct cache_test *test;
    _Atomic(void *) shared[SHARED]; /* blocks that any thread may free */
    _Atomic uint64_t made;
    _Atomic uint64_t freed;
};

static void *crowd_work(void *context)
{
    struct crowd *crowd = context;
    uint64_t seed = (uint64_t)(uintptr_t)&seed;
    for (int i = 0; i < THREAD_ROUNDS; i++) {
        void *block;
        size_t bytes = (size_t)512 << random_next(&seed) % 3;
        if (vmm_alloc(crowd->test->cache, bytes, crowd->test->streams[0], &block) != VMM_OK)
            break;
        crowd->made++;
        block = atomic_exchange(&crowd->shared[random_next(&seed) % SHARED], block);
        if (block != NULL && vmm_free(crowd->test->cache, block) == VMM_OK)
            crowd->freed++;
    }
    return NULL;
}

CACHE_TEST(threads_are_recorded_in_order)
{
    struct crowd crowd = { .test = test };
    pthread_t threads[THREADS];
    const char *path = recording_begin(test);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_work, &crowd), 0);
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    uint64_t live_bytes = cache_stats(test).requested_bytes.current;
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(crowd.made, THREADS * THREAD_ROUNDS);
    assert_int_equal(sum.allocations, crowd.made);
    assert_int_equal(sum.frees, crowd.freed);
    assert_int_equal(sum.live_bytes, live_bytes);
    for (int i = 0; i < SHARED; i++)
        assert_ok(vmm_free(test->cache, crowd.shared[i]));
}

static atomic_uint routed_left;

static void *routed_work(void *context)
{
    struct cache_test *test = context;
    for (unsigned round = 0; round < THREAD_ROUNDS; round++) {
        void *block = block_alloc(test, 1000, 1);
        block_free(test, block);
    }
    atomic_fetch_sub(&routed_left, 1);
    return NULL;
}

/* A route to the pool of a block may end, and the pool be destroyed, before the allocation is recorded. */
CACHE_TEST(pools_end_while_allocations_are_recorded)
{
    pthread_t threads[THREADS];
    const char *path = recording_begin(test);
    atomic_store(&routed_left, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, routed_work, test), 0);
    while (atomic_load(&routed_left) > 0) {
        vmm_pool *pool;
        assert_ok(vmm_pool_create(test->cache, NULL, &pool));
        assert_ok(vmm_pool_route(pool, NULL, NULL));
        block_free(test, block_alloc(test, 5000, 0));
        assert_ok(vmm_pool_unroute(pool));
        assert_ok(vmm_pool_destroy(pool, 1));
    }
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(recording_end(test, path).live_bytes, 0);
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
    vmm_config config = VMM_CONFIG_INIT;
    vmm_cache *other;
    config.driver = VMM_DRIVER_SIM;
    assert_ok(vmm_create(&config, &other));
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
    struct rlimit all;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    struct rlimit few = { .rlim_cur = 50000, .rlim_max = all.rlim_max };
    assert_ok(vmm_trace_start(test->cache, path, NULL));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 100000; i++)
        block_free(test, block_alloc(test, 1000, 0));
    vmm_status status = vmm_trace_stop(test->cache);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
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

/* Its caches are alive, as those of most programs of Python are. */
CACHE_TEST(a_program_that_exits_leaves_a_whole_file)
{
    const char *own = recording_begin(test);
    block_free(test, block_alloc(test, 1000, 0)); /* the child's exit must not write this */
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

/* How often a text is in a file. */
static unsigned file_count(const char *path, const char *text)
{
    char line[512];
    unsigned count = 0;
    FILE *file = trace_open(path);
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        count += strstr(line, text) != NULL ? 1 : 0;
    (void)fclose(file);
    return count;
}

/* Each unit with memory is a block of the trace, whenever it got its memory and the block its name. */
CACHE_TEST(units_of_a_reserved_block_have_its_name)
{
    void *block;
    const char *path = recording_begin(test);
    assert_ok(vmm_reserve(vmm_cache_pool(test->cache), 8 * MIB, 2 * MIB, test->streams[0], &block));
    assert_ok(vmm_name(test->cache, block, "weights"));
    assert_ok(vmm_commit(test->cache, block, 2 * MIB, 4 * MIB));
    assert_ok(vmm_decommit(test->cache, block, 2 * MIB, 2 * MIB));
    assert_ok(vmm_commit(test->cache, block, 2 * MIB, 2 * MIB));
    assert_ok(vmm_name(test->cache, block, "moved"));
    assert_ok(vmm_free(test->cache, block));
    (void)recording_end(test, path);
    assert_int_equal(file_count(path, " weights"), 3);
    assert_int_equal(file_count(path, " moved"), 2);
}

CACHE_TEST(a_recording_cuts_names_as_reports_do)
{
    char name[VMM_NAME_BYTES + 8];
    const char *path = recording_begin(test);
    void *block = block_alloc(test, 1000, 0);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_ok(vmm_name(test->cache, block, name));
    block_free(test, block);
    (void)recording_end(test, path);
    name[VMM_NAME_BYTES] = '\0';
    assert_int_equal(file_count(path, name), 0);
    name[VMM_NAME_BYTES - 1] = '\0';
    assert_int_equal(file_count(path, name), 1);
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
    void *block;
    assert_ok(vmm_alloc(one, 4096, NULL, &block));
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

CACHE_TEST(memory_of_reserved_blocks_is_recorded)
{
    void *block;
    const char *path = recording_begin(test);
    assert_ok(vmm_reserve(vmm_cache_pool(test->cache), 8 * MIB, 0, test->streams[1], &block));
    assert_ok(vmm_commit(test->cache, block, 0, 6 * MIB));
    assert_ok(vmm_decommit(test->cache, block, 0, 2 * MIB));
    block_free(test, block);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 3);
    assert_int_equal(sum.frees, 3);
    assert_int_equal(sum.live_bytes, 0);
}

CACHE_TEST(a_wrong_environment_makes_no_cache)
{
    char path[5000] = "";
    assert_int_equal(setenv("VMM_TRACE", "/nowhere/a.trace", 1), 0);
    assert_null(sim_create());
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
