/* Reserved blocks: addresses first, memory later. */
#define _GNU_SOURCE
#include "support/find_support.h"
#include "support/growing_support.h"
#include "support/pool_support.h"

#include <pthread.h>
#include <string.h>

#define UNIT (2 * MIB)

static void commit(struct cache_test *test, void *block, size_t offset, size_t bytes)
{
    assert_ok(vmm_commit(test->cache, block, offset, bytes));
}

/* A reserved block with memory at its start. */
static void *block_committed(struct cache_test *test, size_t bytes, size_t committed)
{
    void *block = block_reserve(test, bytes, 0, 1);
    commit(test, block, 0, committed);
    return block;
}

static void decommit(struct cache_test *test, void *block, size_t offset, size_t bytes)
{
    assert_ok(vmm_decommit(test->cache, block, offset, bytes));
}

/* ---- Reserved blocks ------------------------------------------------------------------------ */

CACHE_TEST(addresses_need_no_memory)
{
    void *block = block_reserve(test, 64 * GIB, 0, 0);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.reserved_bytes.current, 0);
    assert_int_equal(stats.active_bytes.current, 0);
    assert_int_equal(stats.allocations.current, 1);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(both_find(test->cache, at(block, 63 * GIB), &item));
    assert_ptr_equal((void *)(uintptr_t)item.address, block);
    assert_int_equal(item.bytes, 64 * GIB);
    assert_true(item.is_reserved);
    cache_verify(test);
    block_free(test, block);
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_status(both_find(test->cache, block, &item), VMM_ERR_UNKNOWN_POINTER);
}

CACHE_TEST(committed_memory_counts_and_holds_contents)
{
    void *block = block_reserve(test, 64 * MIB, 4 * MIB, 1);
    commit(test, block, 0, 8 * MIB);
    commit(test, block, 16 * MIB, 4 * MIB);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 12 * MIB);
    assert_int_equal(cache_stats(test).active_bytes.current, 12 * MIB);
    assert_int_equal(cache_stats(test).chunks.current, 3);
    block_fill(test, block, 8 * MIB, 1, 1);
    block_fill(test, at(block, 16 * MIB), 4 * MIB, 2, 1);
    commit(test, block, 0, 20 * MIB); /* what is there stays */
    block_check(test, block, 8 * MIB, 1, 1);
    block_check(test, at(block, 16 * MIB), 4 * MIB, 2, 1);
    assert_int_equal(cache_stats(test).active_bytes.current, 20 * MIB);
}

CACHE_TEST(decommitted_memory_goes_after_its_work)
{
    void *block = block_committed(test, 16 * MIB, 8 * MIB);
    bool is_certain = flight_begin(test, block, 8 * MIB, 1);
    decommit(test, block, 0, 4 * MIB);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.active_bytes.current, 4 * MIB);
    if (is_certain) {
        assert_int_equal(stats.reserved_bytes.current, 8 * MIB);
        assert_int_equal(stats.limbo_bytes, 4 * MIB);
        cache_verify(test);
    }
    flight_end(test);
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 4 * MIB);
}

CACHE_TEST(a_commit_cancels_a_decommit)
{
    void *block = block_committed(test, 16 * MIB, 8 * MIB);
    bool is_certain = flight_begin(test, block, 8 * MIB, 1);
    uint64_t creates = cache_stats(test).create_calls;
    decommit(test, block, 0, 8 * MIB);
    commit(test, block, 2 * MIB, 4 * MIB);
    if (is_certain)
        assert_int_equal(cache_stats(test).create_calls, creates);
    cache_verify(test);
    block_fill(test, at(block, 2 * MIB), 4 * MIB, 9, 1);
    block_check(test, at(block, 2 * MIB), 4 * MIB, 9, 1);
    flight_end(test);
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 4 * MIB);
    assert_int_equal(cache_stats(test).limbo_bytes, 0);
}

CACHE_TEST(a_decommit_waits_for_the_other_streams_of_a_block)
{
    void *block = block_committed(test, 16 * MIB, 4 * MIB);
    block_use(test, block, 2);
    bool is_certain = flight_begin(test, block, 4 * MIB, 2);
    decommit(test, block, 0, 2 * MIB);
    block_free(test, block);
    if (is_certain) {
        assert_int_equal(cache_trim(test, 0), 0);
        assert_int_equal(cache_stats(test).limbo_bytes, 4 * MIB);
    }
}

/* They may still write to what the decommit took. */
CACHE_TEST(a_commit_waits_for_the_other_streams_of_a_decommit)
{
    void *block = block_committed(test, 16 * MIB, 4 * MIB);
    stream_follow(test, 2, 1);
    block_use(test, block, 2);
    (void)flight_begin(test, block, 4 * MIB, 2);
    decommit(test, block, 0, 4 * MIB);
    commit(test, block, 0, 4 * MIB);
    block_fill(test, block, 4 * MIB, 9, 1);
    block_check(test, block, 4 * MIB, 9, 1);
    flight_end(test);
}

/* A capture keeps the block's stream from waiting for another one: its own capture, or any if that stream has ended, so
 * that only the clock tells the end of its work. The memory stays where it is until that has ended. */
CACHE_TEST(a_commit_beside_a_capture_does_not_overtake_other_streams)
{
    for (unsigned captured = 1; captured <= 3; captured += 2) {
        void *block = block_committed(test, 16 * MIB, 4 * MIB);
        stream_follow(test, 2, 1);
        block_use(test, block, 2);
        bool is_certain = flight_begin(test, block, 4 * MIB, 2);
        if (captured == 3)
            assert_ok(vmm_stream_end(test->cache, test->streams[2]));
        capture_begin(test, captured);
        decommit(test, block, 0, 4 * MIB);
        if (is_certain)
            assert_status(vmm_commit(test->cache, block, 0, 4 * MIB), VMM_ERR_INVALID_ARGUMENT);
        commit(test, block, 4 * MIB, 4 * MIB); /* others did not use that */
        capture_end(test, captured);
        commit(test, block, 0, 4 * MIB);
        block_fill(test, block, 4 * MIB, 9, 1);
        block_check(test, block, 4 * MIB, 9, 1);
        flight_end(test);
        cache_verify(test);
        block_end(test, block);
    }
}

CACHE_TEST(a_unit_is_any_number_of_granules)
{
    void *block = block_reserve(test, 32 * MIB, 6 * MIB, 0);
    commit(test, block, 0, 36 * MIB);
    assert_ptr_equal(block_resize(test, block, 13 * MIB), block);
    assert_int_equal(cache_stats(test).active_bytes.current, 18 * MIB);
}

CACHE_TEST(bad_parts_are_refused_with_a_line)
{
    void *block = block_reserve(test, 10 * MIB, 4 * MIB, 1); /* three units */
    void *plain = block_alloc(test, 4 * MIB, 1);
    assert_status(vmm_commit(test->cache, block, 2 * MIB, 4 * MIB), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "units"));
    assert_status(vmm_commit(test->cache, block, 0, 2 * MIB), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_commit(test->cache, block, 8 * MIB, 8 * MIB), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "beyond"));
    assert_status(vmm_commit(test->cache, block, SIZE_MAX - 4 * MIB + 1, 8 * MIB),
                  VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_decommit(test->cache, block, 12 * MIB, 4 * MIB), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_commit(test->cache, plain, 0, 4 * MIB), VMM_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(vmm_last_error(), "vmm_reserve"));
    assert_status(vmm_commit(test->cache, at(block, 4 * MIB), 0, 4 * MIB), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_commit(test->cache, NULL, 0, 0), VMM_ERR_UNKNOWN_POINTER);
    uint64_t creates = cache_stats(test).create_calls;
    commit(test, block, 8 * MIB, 4 * MIB); /* the last unit has all of its bytes */
    commit(test, block, 12 * MIB, 0);
    assert_int_equal(cache_stats(test).create_calls, creates + 1);
}

CACHE_TEST(bad_reservations_are_refused_with_a_line)
{
    void *out = test;
    assert_status(vmm_reserve(pool_of(test), 0, 0, NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_reserve(pool_of(test), MIB, 3 * MIB, NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_reserve(pool_of(test), SIZE_MAX, 0, NULL, &out), VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm_reserve(pool_of(test), MIB, (size_t)1 << 63, NULL, &out),
                  VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm_reserve(pool_of(test), MIB, 0, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_reserve((vmm_pool *)test, MIB, 0, NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(out, test);
}

CACHE_TEST(a_commit_stays_below_the_limits_and_takes_idle_memory)
{
    void *block = block_reserve(test, 2 * CACHE_LIMIT, 0, 1);
    block_free(test, block_alloc(test, 64 * MIB, 2)); /* stays idle */
    commit(test, block, 0, CACHE_LIMIT);
    assert_int_equal(cache_stats(test).reserved_bytes.current, CACHE_LIMIT);
    assert_status(vmm_commit(test->cache, block, CACHE_LIMIT - UNIT, 2 * UNIT), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "limit"));
    assert_int_equal(cache_stats(test).active_bytes.current, CACHE_LIMIT);
    cache_verify(test);
    decommit(test, block, 0, 2 * UNIT);
    commit(test, block, CACHE_LIMIT, 2 * UNIT);
    assert_ok(vmm_pool_limit_set(pool_of(test), CACHE_LIMIT - UNIT));
    decommit(test, block, 2 * UNIT, UNIT);
    assert_status(vmm_commit(test->cache, block, 0, UNIT), VMM_ERR_DEVICE_OOM);
    assert_non_null(strstr(vmm_last_error(), "pool default"));
}

/* Each block of the pool has a chunk of its own, so that one at a time can be released. */
/* Nothing has used it, so it need not wait for work of the block's stream. */
CACHE_TEST(a_commit_that_fails_leaves_no_memory_behind)
{
    vmm_pool *pool = pool_make(test, .name = "small", .limit_bytes = 3 * UNIT);
    void *block = NULL;
    assert_ok(vmm_reserve(pool, 8 * UNIT, UNIT, test->streams[1], &block));
    commit(test, block, UNIT, UNIT);
    (void)flight_begin(test, at(block, UNIT), UNIT, 1);
    uint64_t stalls = cache_stalls(test);
    assert_status(vmm_commit(test->cache, block, 0, 4 * UNIT), VMM_ERR_DEVICE_OOM);
    assert_int_equal(cache_stalls(test), stalls);
    assert_int_equal(pool_reserved(pool), UNIT);
}

CACHE_TEST(a_commit_releases_as_much_as_it_needs)
{
    enum { BLOCKS = 8, NEEDED = 2 };
    void *blocks[BLOCKS];
    vmm_pool *pool = pool_make(test, .name = "whole", .no_split = 1);
    void *block = block_committed(test, 16 * UNIT, 2 * UNIT);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = pool_alloc(test, pool, UNIT, 1);
    for (int i = 0; i < BLOCKS; i++)
        block_free(test, blocks[i]);
    work_verify(test);
    assert_ok(vmm_limit_set(test->cache, cache_stats(test).reserved_bytes.current));
    commit(test, block, UNIT, (1 + NEEDED) * UNIT);
    assert_int_equal(pool_reserved(pool), (BLOCKS - NEEDED) * UNIT);
}

static void assert_zeros(struct cache_test *test, void *address)
{
    unsigned char bytes[64];
    struct driver_piece piece = { (uintptr_t)address, sizeof bytes, bytes };
    assert_ok(vmm__driver_read(test->driver, &piece, 1, test->streams[1]));
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0);
}

CACHE_TEST(memory_that_a_commit_adds_is_cleared_on_request)
{
    cache_restart_with(test, .zero = VMM_ON);
    void *block = block_committed(test, 8 * MIB, 4 * MIB);
    assert_zeros(test, at(block, 3 * MIB));
}

/* Its stream was destroyed without vmm_stream_end(): nothing runs there that could come too early. */
CACHE_TEST(a_commit_needs_no_order_on_a_destroyed_stream)
{
    vmm_stream stream;
    void *block;
    if (driver_choice_kind() == VMM_DRIVER_CUDA)
        return; /* what CUDA does with such a handle is undefined */
    assert_ok(vmm__driver_stream_create(test->driver, &stream));
    assert_ok(vmm_reserve(pool_of(test), 8 * MIB, 0, stream, &block));
    commit(test, block, 0, 4 * MIB);
    block_use(test, block, 2);
    (void)flight_begin(test, block, 4 * MIB, 2);
    decommit(test, block, 0, 4 * MIB);
    assert_ok(vmm__driver_stream_destroy(test->driver, stream));
    commit(test, block, 0, 4 * MIB);
}

/* On the host driver the commit waits for the clear, and so for them. */
CACHE_TEST(memory_is_cleared_after_the_other_streams_of_a_decommit)
{
    cache_restart_with(test, .zero = VMM_ON);
    void *block = block_committed(test, 8 * MIB, 4 * MIB);
    stream_follow(test, 2, 1);
    block_use(test, block, 2);
    if (driver_choice_kind() == VMM_DRIVER_HOST)
        block_fill(test, block, 4 * MIB, 77, 2);
    else
        (void)flight_begin(test, block, 4 * MIB, 2);
    decommit(test, block, 0, 4 * MIB);
    commit(test, block, 0, 4 * MIB);
    flight_end(test);
    assert_zeros(test, at(block, 3 * MIB));
}

CACHE_TEST(a_reserved_block_moves_without_a_copy)
{
    void *block = block_committed(test, 8 * MIB, 4 * MIB);
    commit(test, block, 6 * MIB, 2 * MIB);
    block_fill(test, block, 4 * MIB, 1, 1);
    block_fill(test, at(block, 6 * MIB), 2 * MIB, 2, 1);
    void *last = block;
    unsigned moves = 0;
    for (size_t bytes = 10 * MIB; bytes <= 512 * MIB; bytes += 10 * MIB) {
        block = block_resize(test, block, bytes);
        moves += block != last;
        last = block;
    }
    assert_true(moves <= 7);
    block_check(test, block, 4 * MIB, 1, 1);
    block_check(test, at(block, 6 * MIB), 2 * MIB, 2, 1);
    assert_int_equal(cache_stats(test).resize_copied_bytes, 0);
    assert_int_equal(cache_stats(test).active_bytes.current, 6 * MIB);
    commit(test, block, 500 * MIB, 2 * MIB);
    work_verify(test);
    cache_verify(test);
    assert_ptr_equal(block_resize(test, block, 5 * MIB), block);
    assert_int_equal(cache_stats(test).active_bytes.current, 4 * MIB);
    assert_status(vmm_commit(test->cache, block, 6 * MIB, 2 * MIB), VMM_ERR_INVALID_ARGUMENT);
    block_check(test, block, 4 * MIB, 1, 1);
}

CACHE_TEST(work_at_the_old_addresses_of_a_moved_block_runs_on)
{
    void *block = block_enclose(test, 4 * MIB);
    commit(test, block, 0, 4 * MIB);
    block_use(test, block, 2);
    (void)flight_begin(test, block, 4 * MIB, 2);
    void *moved = block_resize(test, block, 512 * MIB);
    (void)vmm_poll(test->cache);
    flight_end(test);
    if (moved != block)
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    stream_follow(test, 1, 2);
    block_check(test, moved, 4 * MIB, 77, 1);
    work_verify(test);
}

CACHE_TEST(names_and_other_streams_of_a_block_move_with_it)
{
    vmm_item item = VMM_ITEM_INIT;
    void *block = block_enclose(test, 4 * MIB);
    commit(test, block, 0, 4 * MIB);
    assert_ok(vmm_name(test->cache, block, "grows"));
    stream_follow(test, 2, 1);
    block_use(test, block, 2);
    void *moved = block_resize(test, block, 512 * MIB);
    assert_ok(vmm_find(test->cache, at(moved, 300 * MIB), &item));
    assert_string_equal(item.name, "grows");
    (void)flight_begin(test, moved, 4 * MIB, 2);
    decommit(test, moved, 0, 4 * MIB);
    commit(test, moved, 0, 4 * MIB); /* waits for that stream */
    block_fill(test, moved, 4 * MIB, 9, 1);
    block_check(test, moved, 4 * MIB, 9, 1);
    flight_end(test);
    work_verify(test);
}

CACHE_TEST(an_address_inside_a_reserved_block_is_no_block)
{
    void *out;
    vmm_share *share;
    void *block = block_committed(test, 8 * MIB, 4 * MIB);
    assert_status(vmm_free(test->cache, at(block, 6 * MIB)), VMM_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(vmm_last_error(), "it is byte 6291456 of the block at"));
    assert_status(vmm_resize(test->cache, at(block, 6 * MIB), MIB, &out), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_pin(test->cache, at(block, 1)), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_share_export(test->cache, at(block, 6 * MIB), &share),
                  VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_commit(test->cache, at(block, 2 * MIB), 0, UNIT), VMM_ERR_UNKNOWN_POINTER);
}

enum { TURNS = 200 };

struct turns {
    struct cache_test *test;
    void *block;
    bool failed;
};

/* Commits and decommits the second unit of the block. */
static void *turns_run(void *argument)
{
    struct turns *turns = argument;
    vmm_cache *cache = turns->test->cache;
    for (int i = 0; i < TURNS && !turns->failed; i++)
        turns->failed = vmm_commit(cache, turns->block, UNIT, UNIT) != VMM_OK ||
                        vmm_decommit(cache, turns->block, UNIT, UNIT) != VMM_OK;
    return NULL;
}

CACHE_TEST(an_address_is_found_while_memory_comes_and_goes)
{
    pthread_t thread;
    void *block = block_committed(test, 4 * MIB, UNIT);
    struct turns turns = { .test = test, .block = block };
    assert_int_equal(pthread_create(&thread, NULL, turns_run, &turns), 0);
    for (int i = 0; i < 10 * TURNS; i++) {
        vmm_item item = { .struct_size = sizeof item };
        assert_ok(vmm_find(test->cache, at(block, 3 * MIB), &item));
        assert_int_equal(item.address, (uintptr_t)block);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(turns.failed);
}

CACHE_TEST(pinned_memory_stays)
{
    void *block = block_committed(test, 8 * MIB, 4 * MIB);
    assert_ok(vmm_pin(test->cache, block));
    assert_int_equal(cache_stats(test).unmovable_bytes, 4 * MIB);
    assert_status(vmm_decommit(test->cache, block, 0, 2 * MIB), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_pin()"));
    commit(test, block, 4 * MIB, 2 * MIB);
    assert_status(vmm_resize(test->cache, block, 2 * MIB, &block), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_unpin(test->cache, block));
    decommit(test, block, 0, 2 * MIB);
}

CACHE_TEST(pinned_memory_that_would_have_to_move_stays)
{
    void *block = block_enclose(test, 4 * MIB);
    void *out = test;
    assert_ok(vmm_pin(test->cache, block));
    assert_status(vmm_resize(test->cache, block, 512 * MIB, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "move: it is under vmm_pin()"));
    assert_status(vmm_resize(test->cache, block, SIZE_MAX, &out), VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm_resize(test->cache, block, SIZE_MAX / 2, &out), VMM_ERR_ADDRESS_SPACE);
    assert_ptr_equal(out, test);
}

CACHE_TEST(a_retained_pool_keeps_a_freed_reserved_block)
{
    void *block;
    vmm_pool *pool = pool_in(test->cache, .name = "graphs");
    assert_ok(vmm_pool_retain(pool));
    assert_ok(vmm_reserve(pool, 8 * MIB, 0, test->streams[1], &block));
    commit(test, block, 0, 8 * MIB);
    assert_status(vmm_decommit(test->cache, block, 0, 2 * MIB), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_resize(test->cache, block, 2 * MIB, &block), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "retained"));
    block_free(test, block);
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 8 * MIB);
    assert_int_equal(cache_stats(test).retained_bytes, 8 * MIB);
    assert_int_equal(cache_stats(test).active_bytes.current, 0);
    assert_ok(vmm__cache_check(test->cache));
    assert_ok(vmm_pool_drop(pool));
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

CACHE_TEST(a_sleeping_pool_serves_no_growing)
{
    vmm_share *share;
    void *block;
    void *kept;
    vmm_pool *pool = pool_in_with(test->cache, NULL);
    assert_ok(vmm_reserve(pool, 8 * MIB, 0, test->streams[1], &block));
    commit(test, block, 0, 2 * MIB);
    block_free(test, block);
    void *large = block_in_pool(pool, 3 * MIB, test->streams[1]);
    assert_ok(vmm_reserve(pool, 8 * MIB, 0, test->streams[1], &kept));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_status(vmm_share_export(test->cache, kept, &share), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_reserve(pool, 8 * MIB, 0, test->streams[1], &block), VMM_ERR_ASLEEP);
    assert_status(vmm_resize(test->cache, large, 9 * MIB, &block), VMM_ERR_ASLEEP);
    assert_status(vmm_alloc_aligned(pool, 3 * MIB, MIB, test->streams[1], &block), VMM_ERR_ASLEEP);
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_ok(vmm_resize(test->cache, large, 9 * MIB, &large));
}

CACHE_TEST(a_destroyed_pool_leaves_its_reserved_blocks_to_the_default_pool)
{
    void *block;
    vmm_pool *pool = pool_in_with(test->cache, NULL);
    assert_ok(vmm_reserve(pool, 8 * MIB, 0, test->streams[1], &block));
    commit(test, block, 0, 4 * MIB);
    assert_status(vmm_pool_destroy(pool, 0), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_pool_destroy(pool, 1));
    commit(test, block, 4 * MIB, 4 * MIB);
    vmm_stats stats = pool_stats(pool_of(test));
    assert_int_equal(stats.active_bytes.current, 8 * MIB);
    assert_int_equal(stats.reserved_bytes.current, 8 * MIB);
}

CACHE_TEST(a_reserved_block_outlives_its_stream)
{
    vmm_stream stream;
    void *block;
    assert_ok(vmm__driver_stream_create(test->driver, &stream));
    assert_ok(vmm_reserve(pool_of(test), 8 * MIB, 0, stream, &block));
    commit(test, block, 0, 4 * MIB);
    assert_ok(vmm_stream_end(test->cache, stream));
    assert_ok(vmm__driver_stream_destroy(test->driver, stream));
    for (int i = 0; i < 4; i++) { /* other streams look for a lane to take over */
        assert_ok(vmm__driver_stream_create(test->driver, &stream));
        void *other = block_in(test->cache, 1000, stream);
        assert_ok(vmm_free(test->cache, other));
        assert_ok(vmm_stream_end(test->cache, stream));
        assert_ok(vmm__driver_stream_destroy(test->driver, stream));
    }
    commit(test, block, 4 * MIB, 4 * MIB);
    decommit(test, block, 0, 8 * MIB);
}

CACHE_TEST(memory_can_be_committed_during_a_capture)
{
    void *block = block_committed(test, 8 * MIB, 2 * MIB);
    capture_begin(test, 1);
    commit(test, block, 2 * MIB, 4 * MIB);
    decommit(test, block, 0, 2 * MIB);
    void *other = block_reserve(test, 8 * MIB, 0, 1);
    commit(test, other, 0, 2 * MIB);
    block_free(test, other);
    capture_end(test, 1);
}

CACHE_TEST(debug_mode_takes_reserved_and_resized_blocks)
{
    cache_restart_with(test, .debug = VMM_DEBUG_ON);
    void *block = block_committed(test, 8 * MIB, 4 * MIB);
    block_fill(test, block, 4 * MIB, 5, 1);
    assert_ok(vmm_pin(test->cache, block));
    assert_ok(vmm_unpin(test->cache, block));
    block_use(test, block, 2);
    assert_ok(vmm_debug_check(test->cache));
    block_free(test, block);
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    block = block_alloc(test, 3000, 1);
    block_fill(test, block, 3000 / 512 * 512, 7, 1);
    block = block_resize(test, block, 6 * MIB);
    block_check(test, block, 3000 / 512 * 512, 7, 1);
    assert_ok(vmm_debug_check(test->cache));
    assert_status(vmm_resize(test->cache, at(block, 512), MIB, &block), VMM_ERR_UNKNOWN_POINTER);
    assert_status(vmm_resize(test->cache, test, MIB, &block), VMM_ERR_UNKNOWN_POINTER);
    block_free(test, block);
    for (size_t alignment = 1; alignment <= 8 * MIB; alignment *= 4) {
        assert_ok(vmm_alloc_aligned(pool_of(test), 5000, alignment, test->streams[1], &block));
        assert_int_equal((uintptr_t)block % alignment, 0);
        assert_ok(vmm_debug_check(test->cache));
        block_free(test, block);
    }
    work_verify(test);
}

CACHE_TEST(an_alignment_that_no_arena_has_is_named)
{
    void *block = test;
    assert_status(vmm_alloc_aligned(pool_of(test), 1, (size_t)1 << 63, test->streams[1], &block),
                  VMM_ERR_ADDRESS_SPACE);
    assert_ptr_equal(block, test);
    assert_non_null(strstr(vmm_last_error(), "1 bytes at a multiple of 9223372036854775808"));
}

/* Addresses that wait for work are used again once it has ended. */
CACHE_TEST(reserved_addresses_come_back_from_limbo)
{
    cache_restart_with(test, .arena_bytes = 256 * MIB);
    void *block = block_committed(test, 160 * MIB, 2 * MIB);
    commit(test, block, 80 * MIB, 2 * MIB);
    (void)flight_begin(test, at(block, 80 * MIB), 2 * MIB, 1);
    block_free(test, block);
    flight_end(test);
    block = block_committed(test, 160 * MIB, 2 * MIB);
    commit(test, block, 80 * MIB, 2 * MIB);
    (void)flight_begin(test, at(block, 80 * MIB), 2 * MIB, 1);
    assert_ptr_equal(block_resize(test, block, 80 * MIB), block);
    flight_end(test);
    assert_ptr_equal(block_resize(test, block, 160 * MIB), block);
}

/* Out of memory, the program's function replaces the block of the commit by one of another stream. */
struct exchange {
    struct cache_test *test;
    void *block;
    unsigned calls;
};

static int pressure_exchange(void *context, vmm_pool *pool, size_t bytes)
{
    struct exchange *exchange = context;
    void *block;
    (void)pool;
    (void)bytes;
    if (exchange->calls++ > 0)
        return 0;
    block_free(exchange->test, exchange->block);
    block = block_reserve(exchange->test, 8 * MIB, 0, 2);
    assert_ptr_equal(block, exchange->block);
    return 1;
}

CACHE_TEST(a_commit_ends_if_its_block_is_freed_meanwhile)
{
    struct exchange exchange = { .test = test };
    cache_restart_with(test, .limit_bytes = 16 * MIB, .pressure = pressure_exchange,
                       .pressure_context = &exchange);
    (void)block_alloc(test, 12 * MIB, 1);
    exchange.block = block_reserve(test, 8 * MIB, 0, 1);
    assert_status(vmm_commit(test->cache, exchange.block, 0, 8 * MIB), VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(exchange.calls, 1);
    commit(test, exchange.block, 0, 4 * MIB);
}

/* ---- Threads -------------------------------------------------------------------------------- */

enum { THREADS = 4, STEPS = 200 };

struct worker {
    struct cache_test *test;
    unsigned number;
};

/* Each thread has blocks of its own; two share a stream. It frees what another one has reserved. */
static void *blocks_grow(void *context)
{
    struct worker *worker = context;
    struct cache_test *test = worker->test;
    unsigned stream = worker->number / 2;
    uint64_t seed = worker->number + 1;
    void *block = NULL;
    bool failed = vmm_reserve(pool_of(test), 32 * MIB, 0, test->streams[stream], &block) != VMM_OK;
    for (int i = 0; i < STEPS && !failed; i++) {
        void *other = NULL;
        size_t offset = random_next(&seed) % 8 * UNIT;
        failed = vmm_commit(test->cache, block, offset, 2 * UNIT) != VMM_OK ||
                 vmm_decommit(test->cache, block, offset + UNIT, UNIT) != VMM_OK ||
                 vmm_resize(test->cache, block, (16 + random_next(&seed) % 64) * UNIT, &block) !=
                     VMM_OK ||
                 vmm_alloc(test->cache, 2 * MIB, test->streams[stream], &other) != VMM_OK ||
                 vmm_name(test->cache, other, "other") != VMM_OK ||
                 vmm_resize(test->cache, other, 3 * MIB, &other) != VMM_OK ||
                 vmm_free(test->cache, other) != VMM_OK;
    }
    return failed ? NULL : block;
}

CACHE_TEST(threads_grow_blocks_at_once)
{
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .test = test, .number = i };
        assert_int_equal(pthread_create(&threads[i], NULL, blocks_grow, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *block = NULL;
        assert_int_equal(pthread_join(threads[i], &block), 0);
        assert_non_null(block);
        block_free(test, block);
    }
}

CACHE_MAIN()
