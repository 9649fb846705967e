/* Resized and aligned blocks, and names of blocks. */
#define _GNU_SOURCE
#include "support/graph_support.h"
#include "support/growing_support.h"

#include <string.h>

/* ---- Sizes ---------------------------------------------------------------------------------- */

CACHE_TEST(a_small_block_is_copied)
{
    void *block = block_alloc(test, 4096, 1);
    block_fill(test, block, 4096, 3, 1);
    block = block_resize(test, block, 8192);
    block_check(test, block, 4096, 3, 1);
    block = block_resize(test, block, 3 * MIB);
    block_check(test, block, 4096, 3, 1);
    assert_int_equal(cache_stats(test).resize_copied_bytes, 4096 + 8192);
    assert_int_equal(cache_stats(test).requested_bytes.current, 3 * MIB);
    work_verify(test);
}

CACHE_TEST(a_copy_is_one_call_if_there_are_bytes)
{
    for (size_t bytes = 0; bytes < 2; bytes++) {
        void *block = block_alloc(test, bytes, 1);
        uint64_t copies = vmm__driver_calls(test->driver, DRIVER_CALL_copy);
        block = block_resize(test, block, 8192);
        assert_int_equal(vmm__driver_calls(test->driver, DRIVER_CALL_copy), copies + bytes);
        block_end(test, block);
    }
}

/* A block that the host has written, with work under way on its stream; the host reads it right after the resize. */
static void resize_at_once(struct cache_test *test, size_t bytes, size_t more, bool has_neighbour)
{
    enum { DELAY_NS = 10 * 1000 * 1000 };
    void *block = block_alloc(test, bytes, 1);
    void *next = has_neighbour ? block_alloc(test, bytes, 1) : NULL;
    memset(block, 0x5A, bytes);
    assert_ok(vmm__driver_delay(test->driver, DELAY_NS, test->streams[1]));
    uint64_t copied = cache_stats(test).resize_copied_bytes;
    block = block_resize(test, block, more);
    assert_true(cache_stats(test).resize_copied_bytes > copied);
    for (size_t i = 0; i < bytes; i++) {
        if (((unsigned char *)block)[i] != 0x5A)
            fail_msg("byte %zu of %zu is not there", i, bytes);
    }
    block_free(test, block);
    block_free(test, next);
}

/* Programs access memory of the host driver without a stream. */
CACHE_TEST(bytes_of_the_host_are_there_when_a_resize_returns)
{
    if (driver_choice_kind() != VMM_DRIVER_HOST)
        return;
    resize_at_once(test, 4096, 8192, false);
    resize_at_once(test, 300000, 600000, false);
    resize_at_once(test, 9 * MIB + 4096, 30 * MIB, true); /* a part moves with its chunks */
    cache_verify_empty(test);
    cache_restart_with(test, .debug = VMM_DEBUG_ON);
    resize_at_once(test, 4096, 3 * MIB, false);
}

static void copy_refuse(struct cache_test *test, void *block, vmm_status wanted, const char *why)
{
    void *out = test;
    assert_status(vmm_resize(test->cache, block, 8192, &out), wanted);
    assert_non_null(strstr(vmm_last_error(), why));
    assert_ptr_equal(out, test);
    cache_verify(test);
}

/* The copy is work of the block's stream. */
CACHE_TEST(a_small_block_is_copied_only_in_the_order_of_its_stream)
{
    vmm_stream stream;
    void *block = block_alloc(test, 4096, 1);
    capture_begin(test, 1);
    copy_refuse(test, block, VMM_ERR_INVALID_ARGUMENT, "its stream is being captured");
    capture_end(test, 1);
    assert_ok(vmm_pin(test->cache, block));
    copy_refuse(test, block, VMM_ERR_INVALID_ARGUMENT, "it is under vmm_pin()");
    assert_ok(vmm_unpin(test->cache, block));
    copy_refuse(test, at(block, 512), VMM_ERR_UNKNOWN_POINTER, "not the start of a live block");
    block_free(test, block_resize(test, block, 8192));
    assert_ok(vmm__driver_stream_create(test->driver, &stream));
    assert_ok(vmm_alloc(test->cache, 4096, stream, &block));
    assert_ok(vmm_stream_end(test->cache, stream));
    copy_refuse(test, block, VMM_ERR_INVALID_ARGUMENT, "its stream has ended");
    assert_ok(vmm__driver_stream_destroy(test->driver, stream));
}

/* Annotations cannot show what has several addresses, or none. */
CACHE_TEST(annotated_blocks_are_copied)
{
    void *block;
    cache_restart_with(test, .nvtx = VMM_ON);
    assert_ok(vmm_alloc_aligned(pool_of(test), 8192, 4096, test->streams[1], &block));
    copy_refuse(test, at(block, 512), VMM_ERR_UNKNOWN_POINTER, "not the start of a live block");
    block_fill(test, block, 8192, 3, 1);
    block = block_resize(test, block, 3 * MIB);
    block = block_resize(test, block, 6 * MIB);
    block_check(test, block, 8192, 3, 1);
    work_verify(test);
    assert_int_equal(cache_stats(test).resize_copied_bytes, 8192 + 3 * MIB);
    assert_status(vmm_reserve(pool_of(test), MIB, 0, NULL, &block), VMM_ERR_UNSUPPORTED);
}

CACHE_TEST(a_copy_that_finds_no_memory_changes_nothing)
{
    void *block = block_alloc(test, 4096, 1);
    void *out = test;
    block_fill(test, block, 4096, 3, 1);
    assert_status(vmm_resize(test->cache, block, 2 * CACHE_LIMIT, &out), VMM_ERR_DEVICE_OOM);
    assert_ptr_equal(out, test);
    block_check(test, block, 4096, 3, 1);
}

CACHE_TEST(a_large_block_grows_in_place)
{
    void *block = block_alloc(test, 3 * MIB + 512, 1);
    block_fill(test, block, 3 * MIB, 3, 1);
    vmm_stats before = cache_stats(test);
    for (size_t bytes = 4 * MIB; bytes <= 40 * MIB; bytes += 4 * MIB)
        assert_ptr_equal(block_resize(test, block, bytes), block);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.resize_copied_bytes, 0);
    assert_int_equal(stats.map_calls - before.map_calls, stats.create_calls - before.create_calls);
    assert_int_equal(stats.unmap_calls, before.unmap_calls);
    assert_int_equal(stats.requested_bytes.current, 40 * MIB);
    block_check(test, block, 3 * MIB, 3, 1);
    cache_verify(test);
    assert_ptr_equal(block_resize(test, block, 5 * MIB), block);
    assert_int_equal(cache_stats(test).allocated_bytes.current, 5 * MIB);
    cache_verify(test);
    assert_ptr_equal(block_resize(test, block, 5000), block);
    assert_int_equal(cache_stats(test).requested_bytes.current, 5000);
    assert_int_equal(cache_stats(test).allocated_bytes.current,
                     vmm_block_bytes(test->cache, MIB + 1));
    work_verify(test);
}

/* A block with live ones directly behind it. Its ends lie in chunks that it shares. */
static void *block_between(struct cache_test *test, size_t bytes)
{
    (void)block_alloc(test, 3 * MIB, 1);
    void *block = block_alloc(test, bytes, 1);
    (void)block_alloc(test, 3 * MIB, 1);
    return block;
}

CACHE_TEST(a_large_block_that_cannot_grow_moves)
{
    enum { WORDS = 10 };
    void *block = block_between(test, 20 * MIB);
    for (uint32_t i = 0; i < WORDS; i++)
        block_fill(test, at(block, i * 2 * MIB), 2 * MIB, i, 1);
    vmm_stats before = cache_stats(test);
    void *moved = block_resize(test, block, 30 * MIB);
    assert_ptr_not_equal(moved, block);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.resize_copied_bytes, 2 * MIB); /* half a granule at either end */
    assert_int_equal(stats.requested_bytes.current, before.requested_bytes.current + 10 * MIB);
    assert_int_equal(stats.allocations.current, 3);
    assert_int_equal(stats.allocations.allocated, 3);
    for (uint32_t i = 0; i < WORDS; i++)
        block_check(test, at(moved, i * 2 * MIB), 2 * MIB, i, 1);
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    cache_verify(test);
    work_verify(test);
    uint64_t maps = cache_stats(test).map_calls;
    assert_ptr_equal(block_resize(test, moved, 34 * MIB), moved); /* there is room now */
    assert_true(cache_stats(test).map_calls - maps <= 2);
    block_free(test, moved);
}

CACHE_TEST(a_block_in_a_view_moves)
{
    void *blocks[8];
    cache_restart_with(test, .limit_bytes = 32 * MIB);
    for (int i = 0; i < 8; i++)
        blocks[i] = block_alloc(test, 4 * MIB, 1);
    for (int i = 0; i < 8; i += 2)
        block_free(test, blocks[i]);
    void *view = block_alloc(test, 12 * MIB, 1);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_find(test->cache, view, &item));
    if (!item.is_view) /* plain memory */
        return;
    block_fill(test, view, 12 * MIB, 6, 1);
    assert_ok(vmm_limit_set(test->cache, 0));
    void *moved = block_resize(test, view, 20 * MIB);
    block_check(test, moved, 12 * MIB, 6, 1);
    cache_verify(test);
    work_verify(test);
    assert_ptr_not_equal(moved, view);
}

CACHE_TEST(a_block_that_other_streams_use_is_copied)
{
    void *block = block_between(test, 20 * MIB);
    block_fill(test, block, 20 * MIB, 4, 1);
    block_use(test, block, 2);
    void *moved = block_resize(test, block, 30 * MIB);
    assert_int_equal(cache_stats(test).resize_copied_bytes, 20 * MIB);
    block_check(test, moved, 20 * MIB, 4, 1);
    work_verify(test);
}

CACHE_TEST(a_resize_that_is_refused_changes_nothing)
{
    void *block = block_between(test, 20 * MIB);
    void *out = test;
    block_fill(test, block, 20 * MIB, 4, 1);
    assert_status(vmm_resize(test->cache, block, 2 * CACHE_LIMIT, &out), VMM_ERR_DEVICE_OOM);
    assert_status(vmm_resize(test->cache, block, SIZE_MAX, &out), VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm_resize(test->cache, block, 0, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_resize(test->cache, NULL, MIB, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_resize(test->cache, block, MIB, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_resize(test->cache, at(block, 512), MIB, &out), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_pin(test->cache, block));
    assert_status(vmm_resize(test->cache, block, 30 * MIB, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_pin()"));
    assert_ok(vmm_unpin(test->cache, block));
    assert_ptr_equal(out, test);
    block_check(test, block, 20 * MIB, 4, 1);
    work_verify(test);
}

CACHE_TEST(resized_blocks_keep_their_contents)
{
    enum { BLOCKS = 6, ROUNDS = 300 };
    void *blocks[BLOCKS] = { NULL };
    size_t sizes[BLOCKS];
    uint64_t seed = 11;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned i = (unsigned)(random_next(&seed) % BLOCKS);
        size_t bytes = random_bytes(&seed, 16 * MIB);
        unsigned stream = i % CACHE_STREAMS;
        if (blocks[i] == NULL) {
            blocks[i] = block_alloc(test, bytes, stream);
            sizes[i] = bytes;
        } else if (random_next(&seed) % 4 == 0) {
            block_free(test, blocks[i]);
            blocks[i] = NULL;
            continue;
        } else {
            size_t kept = bytes < sizes[i] ? bytes : sizes[i];
            block_fill(test, blocks[i], kept, (uint32_t)round, stream);
            blocks[i] = block_resize(test, blocks[i], bytes);
            block_check(test, blocks[i], kept, (uint32_t)round, stream);
            sizes[i] = bytes;
        }
        if (round % 50 == 0)
            cache_verify(test);
    }
}

CACHE_TEST(without_caching_nothing_is_copied)
{
    cache_restart_with(test, .no_caching = VMM_ON);
    void *block = block_alloc(test, 5 * MIB, 1);
    block_fill(test, block, 5 * MIB, 8, 1);
    for (size_t bytes = 7 * MIB; bytes < 60 * MIB; bytes += 9 * MIB) {
        block = block_resize(test, block, bytes);
        (void)block_alloc(test, MIB, 1);
    }
    block_check(test, block, 5 * MIB, 8, 1);
    assert_int_equal(cache_stats(test).resize_copied_bytes, 0);
    work_verify(test);
    uint64_t reserved_bytes = cache_stats(test).reserved_bytes.current;
    block = block_resize(test, block, 5 * MIB);
    assert_true(cache_stats(test).reserved_bytes.current < reserved_bytes);
}

/* ---- Alignment ------------------------------------------------------------------------------ */

CACHE_TEST(blocks_have_the_alignment_that_was_asked_for)
{
    static const size_t sizes[] = { 0, 1, 5000, MIB, MIB + 1, 5 * MIB };
    void *blocks[6];
    for (size_t alignment = 1; alignment <= 16 * MIB; alignment *= 2) {
        for (int i = 0; i < 6; i++) {
            assert_ok(vmm_alloc_aligned(pool_of(test), sizes[i], alignment, test->streams[1],
                                        &blocks[i]));
            assert_int_equal((uintptr_t)blocks[i] % alignment, 0);
            assert_int_equal((uintptr_t)blocks[i] % 512, 0);
            if (sizes[i] > 512)
                block_fill(test, blocks[i], sizes[i] / 512 * 512, 1, 1);
        }
        cache_verify(test);
        for (int i = 0; i < 6; i++)
            block_free(test, blocks[i]);
    }
}

CACHE_TEST(free_memory_serves_aligned_blocks)
{
    void *block;
    assert_ok(vmm_alloc_aligned(pool_of(test), 3 * MIB, MIB, test->streams[1], &block));
    uint64_t creates = cache_stats(test).create_calls;
    for (int i = 0; i < 100; i++) {
        block_free(test, block);
        assert_ok(vmm_alloc_aligned(pool_of(test), 3 * MIB, MIB, test->streams[1], &block));
    }
    assert_int_equal(cache_stats(test).create_calls, creates);
}

CACHE_TEST(a_bad_alignment_is_refused_with_a_line)
{
    void *out = test;
    assert_status(vmm_alloc_aligned(pool_of(test), MIB, 0, NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_alloc_aligned(pool_of(test), MIB, 768, NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "power of two"));
    assert_status(vmm_alloc_aligned(pool_of(test), SIZE_MAX, 4096, NULL, &out),
                  VMM_ERR_ADDRESS_SPACE);
    assert_status(vmm_alloc_aligned(pool_of(test), 1, (size_t)1 << 63, NULL, &out),
                  VMM_ERR_ADDRESS_SPACE);
    assert_ptr_equal(out, test);
}

CACHE_TEST(an_aligned_block_larger_than_the_arena_is_refused_in_each_mode)
{
    const vmm_config configs[] = { CONFIG(.no_caching = VMM_ON), CONFIG(.debug = VMM_DEBUG_ON),
                                   CONFIG(.zero = VMM_ON) };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        void *out = test;
        cache_restart(test, &configs[i]);
        for (size_t bytes = SIZE_MAX; bytes > SIZE_MAX / 2; bytes -= SIZE_MAX / 16)
            assert_status(vmm_alloc_aligned(pool_of(test), bytes, 4096, NULL, &out),
                          VMM_ERR_ADDRESS_SPACE);
        assert_ptr_equal(out, test);
        cache_verify_empty(test);
    }
}

/* ---- Names ---------------------------------------------------------------------------------- */

static void assert_name(struct cache_test *test, void *block, const char *name)
{
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_find(test->cache, block, &item));
    assert_string_equal(item.name, name);
}

static int names_count(void *context, const vmm_item *item)
{
    unsigned *names = context;
    *names += item->name[0] != '\0';
    return 0;
}

static void names_verify(struct cache_test *test)
{
    static const size_t sizes[] = { 100, 5000, 20000, 5 * MIB };
    void *blocks[5];
    unsigned names = 0;
    for (int i = 0; i < 4; i++)
        blocks[i] = block_alloc(test, sizes[i], 1);
    blocks[4] = block_reserve(test, 8 * MIB, 0, 1);
    for (int i = 0; i < 5; i++) {
        assert_name(test, blocks[i], "");
        assert_ok(vmm_name(test->cache, blocks[i], "first"));
        assert_ok(vmm_name(test->cache, blocks[i], "a\nname"));
        assert_name(test, blocks[i], "a?name");
    }
    assert_ok(vmm_walk(test->cache, names_count, &names));
    assert_int_equal(names, 5);
    assert_ok(vmm__cache_check(test->cache));
    for (int i = 0; i < 4; i++) {
        block_free(test, blocks[i]);
        assert_status(vmm_name(test->cache, blocks[i], "gone"), VMM_ERR_UNKNOWN_POINTER);
        void *again = block_alloc(test, sizes[i], 1);
        assert_name(test, again, "");
        assert_ok(vmm_name(test->cache, again, "twice"));
        assert_ok(vmm_name(test->cache, again, NULL));
        assert_name(test, again, "");
        block_free(test, again);
    }
    block_free(test, blocks[4]);
}

CACHE_TEST(blocks_have_names_until_they_are_freed)
{
    names_verify(test);
}

CACHE_TEST(blocks_have_names_in_debug_mode)
{
    cache_restart_with(test, .debug = VMM_DEBUG_ON);
    names_verify(test);
}

CACHE_TEST(resized_blocks_keep_their_names)
{
    void *blocks[] = { block_alloc(test, 100, 1), block_between(test, 20 * MIB),
                       block_enclose(test, 4 * MIB) };
    for (int i = 0; i < 3; i++) {
        assert_ok(vmm_name(test->cache, blocks[i], "mine"));
        void *moved = block_resize(test, blocks[i], i < 2 ? 40 * MIB : 512 * MIB);
        assert_ptr_not_equal(moved, blocks[i]);
        assert_name(test, moved, "mine");
        assert_ok(vmm_name(test->cache, moved, "still mine"));
        block_free(test, moved);
    }
}

CACHE_MAIN()
