/* Many streams with little memory each: they share what there is, and leave nothing behind. */
#include "support/cache_support.h"

#include <string.h>

#define TINY_BYTES 1000
#define LIMIT      (64 * MIB)
#define RESERVED   (8 * MIB) /* at most, for tiny blocks that come one after the other */

enum { SCORE = 33, MANY = 200, CROWD = 100 };

struct crowd {
    unsigned count;
    vmm_stream streams[MANY];
    void *blocks[MANY];
};

static void crowd_create(struct cache_test *test, struct crowd *crowd, unsigned count)
{
    *crowd = (struct crowd){ .count = count };
    for (unsigned i = 0; i < count; i++)
        assert_ok(vmm__driver_stream_create(test->driver, &crowd->streams[i]));
}

/* Nothing may be left. CUDA crashes if it is asked about a stream that was destroyed, so there each stream is ended
 * first. */
static void crowd_destroy(struct cache_test *test, struct crowd *crowd)
{
    cache_verify_empty(test);
    for (unsigned i = 0; i < crowd->count; i++) {
        if (driver_choice_kind() == VMM_DRIVER_CUDA)
            assert_ok(vmm_stream_end(test->cache, crowd->streams[i]));
        assert_ok(vmm__driver_stream_destroy(test->driver, crowd->streams[i]));
    }
}

static int crowd_group_setup(void **state)
{
    int status = cache_group_setup(state);
    cache_streams_warm(*state, MANY);
    return status;
}

static void *crowd_alloc(struct cache_test *test, size_t bytes, vmm_stream stream)
{
    return block_in(test->cache, bytes, stream);
}

static void tiny_fill(struct cache_test *test, void *block, uint32_t word, vmm_stream stream)
{
    assert_ok(vmm__driver_fill(test->driver, (uint64_t)(uintptr_t)block, TINY_BYTES, word, stream));
}

static void tiny_check(struct cache_test *test, void *block, uint32_t word, vmm_stream stream)
{
    assert_ok(
        vmm__driver_check(test->driver, (uint64_t)(uintptr_t)block, TINY_BYTES, word, stream));
}

static void blocks_check(struct cache_test *test, struct crowd *crowd)
{
    for (unsigned i = 0; i < crowd->count; i++)
        tiny_check(test, crowd->blocks[i], i + 1, crowd->streams[i]);
}

/* Under a limit, a block of its own for each stream, with a pattern of its own. */
static void crowd_begin(struct cache_test *test, struct crowd *crowd, unsigned count)
{
    cache_restart_with(test, .limit_bytes = LIMIT);
    crowd_create(test, crowd, count);
    for (unsigned i = 0; i < count; i++) {
        crowd->blocks[i] = crowd_alloc(test, TINY_BYTES, crowd->streams[i]);
        tiny_fill(test, crowd->blocks[i], i + 1, crowd->streams[i]);
    }
}

static void blocks_free(struct cache_test *test, struct crowd *crowd)
{
    for (unsigned i = 0; i < crowd->count; i++)
        block_free(test, crowd->blocks[i]);
}

/* ---- What tiny blocks leave ------------------------------------------------------------------ */

CACHE_TEST(tiny_blocks_of_many_streams_leave_little)
{
    struct crowd crowd;
    crowd_create(test, &crowd, MANY);
    for (unsigned i = 0; i < MANY; i++)
        block_free(test, crowd_alloc(test, TINY_BYTES, crowd.streams[i]));
    vmm_stats stats = cache_stats(test);
    assert_true(stats.reserved_bytes.current <= RESERVED);
    assert_int_equal(stats.idle_bytes, stats.reserved_bytes.current);
    assert_int_equal(stats.pinned_bytes, 0);
    crowd_destroy(test, &crowd);
}

/* What tiny blocks left is there for a large one. */
CACHE_TEST(memory_of_tiny_blocks_serves_a_large_block)
{
    struct crowd crowd;
    crowd_begin(test, &crowd, SCORE - 1);
    blocks_free(test, &crowd);
    void *large = crowd_alloc(test, LIMIT, test->streams[0]);
    block_free(test, large);
    crowd_destroy(test, &crowd);
}

/* What a lane does not use it does not have; also one with a clock of its own. */
static void one_block_takes_little(struct cache_test *test, vmm_reuse reuse)
{
    enum { BLOCK_BYTES = 64 * KIB, MOST_BYTES = 8192 };
    struct crowd crowd;
    cache_restart_with(test, .limit_bytes = VMM_NO_LIMIT, .reuse = reuse);
    crowd_create(test, &crowd, MANY);
    uint64_t before = cache_stats(test).host_bytes;
    for (unsigned i = 0; i < MANY; i++)
        crowd.blocks[i] = crowd_alloc(test, BLOCK_BYTES, crowd.streams[i]);
    uint64_t bytes = (cache_stats(test).host_bytes - before) / MANY;
    print_message("%llu bytes of host memory a stream\n", (unsigned long long)bytes);
    assert_in_range(bytes, 1, MOST_BYTES);
    blocks_free(test, &crowd);
    crowd_destroy(test, &crowd);
}

CACHE_TEST(a_stream_with_one_live_block_takes_little_host_memory)
{
    one_block_takes_little(test, VMM_REUSE_ANY_USE);
}

CACHE_TEST(so_does_one_with_a_clock_of_its_own)
{
    one_block_takes_little(test, VMM_REUSE_DECLARED);
}

/* ---- What they share ------------------------------------------------------------------------- */

CACHE_TEST(live_tiny_blocks_of_many_streams_fit_a_limit)
{
    struct crowd crowd;
    crowd_begin(test, &crowd, CROWD);
    assert_true(cache_stats(test).reserved_bytes.current <= LIMIT);
    assert_int_equal(cache_stats(test).ooms, 0);
    assert_int_equal(cache_stats(test).allocations.current, CROWD);
    blocks_check(test, &crowd);
    cache_verify(test);
    blocks_free(test, &crowd);
    crowd_destroy(test, &crowd);
}

/* A shared block is reused only after the work of the stream that had it has ended. */
CACHE_TEST(a_shared_block_waits_for_the_stream_that_used_it)
{
    struct crowd crowd;
    crowd_begin(test, &crowd, SCORE);
    vmm_stream owner = crowd.streams[0];
    void *shared = crowd.blocks[SCORE - 1];
    bool has_shared = false;
    for (unsigned i = 0; i + 1 < SCORE; i++) {
        vmm_item item = { .struct_size = sizeof item };
        assert_ok(vmm_find(test->cache, shared, &item));
        has_shared = has_shared || item.stream == crowd.streams[i];
        owner = item.stream == crowd.streams[i] ? crowd.streams[i] : owner;
    }
    assert_true(has_shared);
    block_free(test, shared);
    void *next[SCORE];
    for (unsigned i = 0; i < SCORE; i++) { /* the owner's work is in order with the other's */
        next[i] = crowd_alloc(test, TINY_BYTES, owner);
        tiny_fill(test, next[i], SCORE + i, owner);
    }
    for (unsigned i = 0; i < SCORE; i++)
        block_free(test, next[i]);
    for (unsigned i = 0; i + 1 < SCORE; i++)
        block_free(test, crowd.blocks[i]);
    crowd_destroy(test, &crowd);
}

CACHE_TEST(a_shared_block_is_resized_in_order_of_the_stream_that_has_it)
{
    struct crowd crowd;
    crowd_begin(test, &crowd, SCORE);
    vmm_stream stream = crowd.streams[SCORE - 1];
    void **shared = &crowd.blocks[SCORE - 1];
    assert_ok(vmm__driver_delay(test->driver, 50 * UINT64_C(1000000), stream));
    tiny_fill(test, *shared, MANY, stream);
    assert_ok(
        vmm_limit_set(test->cache, LIMIT + 4 * MIB)); /* a copy is not in another stream's memory */
    assert_ok(vmm_resize(test->cache, *shared, 2 * TINY_BYTES, shared));
    assert_ok(
        vmm__driver_check(test->driver, (uint64_t)(uintptr_t)*shared, TINY_BYTES, MANY, stream));
    blocks_free(test, &crowd);
    crowd_destroy(test, &crowd);
}

/* A stream may end while a block that it has from another one lives. */
CACHE_TEST(a_stream_ends_with_a_shared_block)
{
    struct crowd crowd;
    crowd_begin(test, &crowd, SCORE);
    assert_ok(vmm_stream_end(test->cache, crowd.streams[SCORE - 1]));
    assert_ok(vmm_stream_end(test->cache, crowd.streams[0]));
    blocks_free(test, &crowd);
    crowd_destroy(test, &crowd);
}

/* ---- Out of memory --------------------------------------------------------------------------- */

CACHE_TEST(no_pinned_memory_is_reported_without_live_blocks)
{
    void *block;
    cache_restart_with(test, .limit_bytes = LIMIT);
    block_free(test, crowd_alloc(test, TINY_BYTES, test->streams[1]));
    assert_status(vmm_alloc(test->cache, 2 * LIMIT, test->streams[0], &block), VMM_ERR_DEVICE_OOM);
    assert_null(strstr(vmm_last_error(), "pinned"));
    (void)crowd_alloc(test, TINY_BYTES, test->streams[1]);
    assert_status(vmm_alloc(test->cache, 2 * LIMIT, test->streams[0], &block), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "pinned beside live blocks"));
}

/* ---- Handles that CUDA gives a meaning -------------------------------------------------------- */

CACHE_TEST(the_legacy_stream_is_the_default_one)
{
    vmm_stream legacy = (vmm_stream)(uintptr_t)1;
    void *block = crowd_alloc(test, TINY_BYTES, legacy);
    vmm_item item = { .struct_size = sizeof item };
    assert_ok(vmm_find(test->cache, block, &item));
    assert_null(item.stream);
    assert_ok(vmm_record_stream(test->cache, block, legacy));
    uint64_t streams = cache_stats(test).streams;
    block_free(test, block);
    assert_ptr_equal(crowd_alloc(test, TINY_BYTES, NULL), block);
    assert_int_equal(cache_stats(test).streams, streams);
    assert_status(vmm_stream_end(test->cache, legacy), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "the default stream has no end"));
}

CACHE_TEST(the_per_thread_stream_is_refused_by_name)
{
    vmm_stream per_thread = (vmm_stream)(uintptr_t)2;
    void *block = crowd_alloc(test, TINY_BYTES, test->streams[1]);
    void *none = NULL;
    uint64_t streams = cache_stats(test).streams;
    assert_status(vmm_alloc(test->cache, 1, per_thread, &none), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_alloc: stream 0x2 (CU_STREAM_PER_THREAD)"));
    assert_null(none);
    assert_status(vmm_record_stream(test->cache, block, per_thread), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(
        strstr(vmm_last_error(), "vmm_record_stream: stream 0x2 (CU_STREAM_PER_THREAD)"));
    assert_status(vmm_stream_end(test->cache, per_thread), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_stream_end: stream 0x2 (CU_STREAM_PER_THREAD)"));
    assert_int_equal(cache_stats(test).streams, streams);
}

DRIVER_MAIN(crowd_group_setup, cache_group_teardown)
