/* vmm_alloc and vmm_free: arguments, sizes, pointers, contents. */
#include "support/cache_support.h"

#include <string.h>

enum { BLOCKS = 64 };

/* A size of each kind: tiny, in a slab, small block, large block. */
static const size_t sizes[] = {
    1, 512, 513, 3000, 8192, 8193, 70000, MIB, MIB + 1, 3 * MIB, 9 * MIB
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

#define assert_says(part)                                                                          \
    do {                                                                                           \
        if (strstr(vmm_last_error(), part) == NULL)                                                \
            fail_msg("last error: %s", vmm_last_error());                                          \
    } while (0)

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

CACHE_TEST(null_arguments_are_refused)
{
    void *out = test;
    assert_status(vmm_alloc(NULL, 1, NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_says("cache");
    assert_status(vmm_alloc(test->cache, 1, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_says("out");
    assert_status(vmm_free(NULL, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_free(NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_record_stream(NULL, &out, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_trim(NULL, 0, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(out, test);
    assert_int_equal(cache_stats(test).create_calls, cache_stats(test).release_calls);
}

CACHE_TEST(null_is_freed_for_nothing)
{
    assert_ok(vmm_free(test->cache, NULL));
    assert_ok(vmm_destroy(NULL));
    assert_status(vmm_record_stream(test->cache, NULL, test->streams[1]), VMM_ERR_UNKNOWN_POINTER);
    assert_int_equal(cache_stats(test).allocations.allocated, 0);
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

CACHE_TEST(sizes_beyond_reason_are_refused)
{
    size_t granule = test->driver->granule_bytes;
    const size_t wrong[] = { SIZE_MAX,
                             SIZE_MAX - 1,
                             SIZE_MAX - 510,
                             SIZE_MAX - 511,
                             SIZE_MAX - granule + 1,
                             SIZE_MAX - granule,
                             SIZE_MAX / 2 + 1,
                             SIZE_MAX / 2,
                             (size_t)1 << 62,
                             ((size_t)1 << 57) + 1 };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        void *out = test;
        assert_status(vmm_alloc(test->cache, wrong[i], NULL, &out), VMM_ERR_ADDRESS_SPACE);
        assert_ptr_equal(out, test);
        assert_says("more than the arena of ");
        assert_says("see arena_bytes");
        assert_int_equal(cache_stats(test).ooms, i + 1);
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

CACHE_TEST(foreign_pointers_are_refused)
{
    int local = 0;
    uint8_t *block = block_alloc(test, 3 * MIB, 0);
    vmm_cache *other = cache_on_with(test->driver, NULL);
    void *others = block_in(other, 3 * MIB, NULL);
    assert_unknown(test, &local);
    assert_unknown(test, others);
    assert_unknown(test, (void *)(uintptr_t)1);
    assert_unknown(test, (void *)UINTPTR_MAX);
    assert_status(vmm_free(other, block), VMM_ERR_UNKNOWN_POINTER);
    for (uint64_t granule = 0; granule < 64; granule++) {
        assert_unknown(test, block + (granule + 2) * test->driver->granule_bytes);
        assert_unknown(test, block - (granule + 1) * test->driver->granule_bytes);
    }
    assert_ok(vmm_destroy(other));
    assert_unknown(test, others);
}

CACHE_TEST(inner_pointers_are_refused)
{
    for (int i = 0; i < SIZES; i++) {
        uint8_t *block = block_alloc(test, sizes[i], 0);
        for (size_t offset = 1; offset < sizes[i]; offset = offset * 2 + offset % 3)
            assert_unknown(test, block + offset);
        if (sizes[i] > 1)
            assert_unknown(test, block + sizes[i] - 1);
        block_free(test, block);
        assert_unknown(test, block);
    }
}

CACHE_TEST(unused_objects_of_a_slab_are_refused)
{
    uint8_t *first = block_alloc(test, 512, 0);
    for (size_t i = 1; i < 64; i++)
        assert_unknown(test, first + i * 512);
    uint8_t *second = block_alloc(test, 512, 0);
    assert_unknown(test, second + 256);
    block_free(test, first);
    assert_unknown(test, first);
    block_free(test, second);
    assert_unknown(test, second);
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
