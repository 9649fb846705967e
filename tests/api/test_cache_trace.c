/* vmm_trace_start(): what is recorded is what was done. Reserved blocks: test_cache_trace_growing.c; files and
 * processes: test_cache_trace_files.c. */
#define _GNU_SOURCE
#include "support/recording_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

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
}

CACHE_TEST(a_name_that_ends_with_gz_packs_the_file)
{
    const char *path = trace_path_packed();
    assert_ok(vmm_trace_start(test->cache, path, NULL));
    for (int i = 0; i < 1000; i++)
        block_free(test, block_alloc(test, 1000, 0));
    (void)usleep(1200000); /* now it is in the file */
    assert_int_equal(trace_sum_of(path).frees, 1000);
    (void)block_alloc(test, 3 * MIB, 1);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 1001);
    assert_int_equal(sum.live_bytes, 3 * MIB);
    assert_int_equal(sum.mapped_bytes, cache_stats(test).reserved_bytes.current);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fgetc(file), 0x1F);
    assert_int_equal(fgetc(file), 0x8B);
    (void)fclose(file);
}

CACHE_TEST(blocks_that_were_there_are_recorded)
{
    void *small = block_alloc(test, 100, 0);
    (void)block_alloc(test, 5 * MIB, 1);
    const char *path = recording_begin(test);
    block_free(test, small);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.allocations, 2);
    assert_int_equal(sum.frees, 1);
    assert_int_equal(sum.live_bytes, 5 * MIB);
    assert_int_equal(sum.mapped_bytes, cache_stats(test).reserved_bytes.current);
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
    options.name = "weights";
    (void)pool_in_with(test->cache, &options);
    const char *path = recording_begin(test);
    options.name = "activations";
    vmm_pool *later = pool_in_with(test->cache, &options);
    (void)block_in_pool(later, MIB, test->streams[0]);
    struct trace_sum sum = recording_end(test, path);
    assert_int_equal(sum.pools, 2);
    assert_int_equal(sum.last_pool, 2);
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
    vmm_share *share;
    void *imports[2];
    vmm_pool *pool = pool_in(test->cache, .shareable = 1);
    void *block = block_in_pool(pool, 3 * MIB, test->streams[0]);
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
    assert_int_equal(trace_count(path, name), 0);
    name[VMM_NAME_BYTES - 1] = '\0';
    assert_int_equal(trace_count(path, name), 1);
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
        vmm_pool *pool = pool_in_with(test->cache, NULL);
        assert_ok(vmm_pool_route(pool, NULL, NULL));
        block_free(test, block_alloc(test, 5000, 0));
        assert_ok(vmm_pool_unroute(pool));
        assert_ok(vmm_pool_destroy(pool, 1));
    }
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(recording_end(test, path).live_bytes, 0);
}

CACHE_MAIN()
