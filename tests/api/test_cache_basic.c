/* vmm_alloc and vmm_free: sizes, pointers, contents. Wrong arguments and pointers: see ../negative. */
#include "support/cache_support.h"

#include <string.h>

enum { BLOCKS = 64 };

/* A size of each kind: tiny, in a slab, small block, large block. */
static const size_t sizes[] = {
    1, 512, 513, 3000, 8192, 8193, 70000, MIB, MIB + 1, 3 * MIB, 9 * MIB
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void assert_unknown(struct cache_test *test, void *ptr)
{
    vmm_stats before = cache_stats(test);
    assert_status(vmm_free(test->cache, ptr), VMM_ERR_UNKNOWN_POINTER);
    assert_non_null(strchr(vmm_last_error(), 'x'));
    assert_status(vmm_record_stream(test->cache, ptr, test->streams[1]), VMM_ERR_UNKNOWN_POINTER);
    vmm_stats after = cache_stats(test);
    before.driver_ns = after.driver_ns;
    assert_memory_equal(&before, &after, sizeof before);
    assert_ok(vmm__cache_check(test->cache));
}

CACHE_TEST(nothing_is_mapped_before_the_first_block)
{
    assert_int_equal(cache_stats(test).reserved_bytes.peak, 0);
    assert_int_equal(test->driver->handles, 0);
    assert_int_equal(test->driver->reservations, 1);
}

CACHE_TEST(zero_bytes_give_unique_pointers)
{
    void *blocks[BLOCKS * 3];
    for (int i = 0; i < BLOCKS * 3; i++) {
        blocks[i] = block_alloc(test, 0, 0);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(blocks[i], blocks[j]);
    }
    assert_int_equal(cache_stats(test).requested_bytes.current, 0);
    cache_verify(test);
    for (int i = 0; i < BLOCKS * 3; i++)
        block_free(test, blocks[i]);
    assert_unknown(test, blocks[0]);
}

CACHE_TEST(every_size_is_aligned_and_long_enough)
{
    void *blocks[SIZES];
    for (uint32_t i = 0; i < SIZES; i++) {
        blocks[i] = block_alloc(test, sizes[i], 0);
        block_fill(test, blocks[i], sizes[i], i, 0);
        cache_verify(test);
    }
    for (uint32_t i = 0; i < SIZES; i++) {
        block_check(test, blocks[i], sizes[i], i, 0);
        block_free(test, blocks[i]);
        cache_verify(test);
    }
}

/* More than any device has, less than the arena: out of memory at once, and no attempt is made. */
CACHE_TEST(sizes_beyond_the_device_are_out_of_memory)
{
    cache_restart(test, NULL);
    uint64_t calls = cache_stats(test).create_calls;
    void *out = test;
    assert_status(vmm_alloc(test->cache, test->driver->total_bytes + 1, NULL, &out),
                  VMM_ERR_DEVICE_OOM);
    assert_ptr_equal(out, test);
    assert_int_equal(cache_stats(test).create_calls, calls);
}

/* Freed in every order, so that the freed block joins to the left, to the right and to both. */
CACHE_TEST(double_frees_are_refused_after_joining)
{
    static const int orders[][3] = {
        { 0, 1, 2 }, { 2, 1, 0 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }
    };
    for (int size = 0; size < SIZES; size++) {
        for (int order = 0; order < 5; order++) {
            void *blocks[3];
            for (int i = 0; i < 3; i++)
                blocks[i] = block_alloc(test, sizes[size], 0);
            for (int i = 0; i < 3; i++) {
                block_free(test, blocks[orders[order][i]]);
                for (int j = 0; j <= i; j++)
                    assert_unknown(test, blocks[orders[order][j]]);
            }
        }
    }
}

CACHE_TEST(pointers_into_trimmed_memory_are_refused)
{
    void *blocks[SIZES];
    for (int i = 0; i < SIZES; i++)
        blocks[i] = block_alloc(test, sizes[i], 0);
    for (int i = 0; i < SIZES; i++)
        block_free(test, blocks[i]);
    (void)cache_trim(test, 0);
    for (int i = 0; i < SIZES; i++)
        assert_unknown(test, blocks[i]);
}

CACHE_TEST(freed_memory_is_reused)
{
    for (int i = 0; i < SIZES; i++) {
        void *first = block_alloc(test, sizes[i], 0);
        block_free(test, first);
        uint64_t calls = cache_stats(test).create_calls;
        void *second = block_alloc(test, sizes[i], 0);
        assert_int_equal(cache_stats(test).create_calls, calls);
        block_free(test, second);
    }
}

/* ---- Contents -------------------------------------------------------------------------------- */

enum { LIVE_BLOCKS = 2000, ROUNDS = 12000 };

struct live {
    void *block;
    size_t bytes;
    uint32_t word;
    unsigned stream;
};

static void live_turn(struct cache_test *test, struct live *live, uint64_t *seed, uint32_t word)
{
    if (live->block != NULL) {
        block_check(test, live->block, live->bytes, live->word, live->stream);
        block_free(test, live->block);
        live->block = NULL;
        return;
    }
    live->bytes = random_bytes(seed, 4 * MIB) / (random_next(seed) % 8 + 1);
    live->stream = (unsigned)(random_next(seed) % CACHE_STREAMS);
    live->word = word;
    block_try_fill(test, live->bytes, live->stream, word, &live->block);
}

CACHE_TEST(contents_survive)
{
    struct live *lives = calloc(LIVE_BLOCKS, sizeof *lives);
    uint64_t seed = 5;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        live_turn(test, &lives[random_next(&seed) % LIVE_BLOCKS], &seed, round);
        if (round % 1000 == 999)
            (void)cache_trim(test, 0);
        if (round % 500 == 499)
            cache_verify(test);
    }
    for (int i = 0; i < LIVE_BLOCKS; i++) {
        if (lives[i].block != NULL)
            live_turn(test, &lives[i], &seed, 0);
    }
    work_verify(test);
    free(lives);
    cache_verify(test);
    assert_int_equal(cache_stats(test).allocations.current, 0);
}

CACHE_MAIN()
