/* Small requests when memory has run out: each is served while a hole of any kind holds it, and only then. */
#define _GNU_SOURCE
#include "support/pool_support.h"
#include "support/thread_support.h"

#include "cache/cache.h"

#define HOLES_MOST ((size_t)(CACHE_LIMIT / 1500))

/* A request that finds memory full searches all holes, and slow builds check all blocks each time. */
#define USED_LIMIT (IS_SLOW_BUILD ? CACHE_LIMIT / 4 : CACHE_LIMIT)

/* Blocks of one size that fill the limit, and the holes that every other one has left. */
struct holes {
    size_t bytes;
    size_t count; /* of blocks, before every other one was freed */
    void **blocks;
};

static bool block_try(struct cache_test *test, size_t bytes, unsigned stream, void **out)
{
    vmm_status status = vmm_alloc(test->cache, bytes, test->streams[stream], out);
    if (status != VMM_OK)
        assert_status(status, VMM_ERR_DEVICE_OOM);
    return status == VMM_OK;
}

static struct holes holes_make(struct cache_test *test, size_t bytes, unsigned stream)
{
    struct holes holes = { .bytes = bytes };
    holes.blocks = calloc(HOLES_MOST, sizeof *holes.blocks);
    assert_non_null(holes.blocks);
    while (holes.count < HOLES_MOST && block_try(test, bytes, stream, &holes.blocks[holes.count]))
        holes.count++;
    for (size_t i = 0; i < holes.count; i += 2)
        block_free(test, holes.blocks[i]);
    for (size_t i = 1; i < holes.count; i += 2)
        block_fill(test, holes.blocks[i], bytes, (uint32_t)i, stream);
    work_verify(test);
    return holes;
}

static void holes_end(struct cache_test *test, const struct holes *holes, unsigned stream)
{
    for (size_t i = 1; i < holes->count; i += 2) {
        block_check(test, holes->blocks[i], holes->bytes, (uint32_t)i, stream);
        block_free(test, holes->blocks[i]);
    }
    free(holes->blocks);
}

/* As many requests as there are holes, none larger than a hole. */
static void holes_use(struct cache_test *test, size_t bytes, unsigned taker)
{
    uint64_t seed = bytes;
    cache_restart_with(test, .limit_bytes = USED_LIMIT);
    struct holes holes = holes_make(test, bytes, 0);
    size_t count = holes.count / 2;
    size_t *sizes = calloc(count, sizeof *sizes);
    void **blocks = calloc(count, sizeof *blocks);
    for (size_t i = 0; i < count; i++) {
        sizes[i] = 1 + random_next(&seed) % bytes;
        if (!block_try(test, sizes[i], taker, &blocks[i]))
            fail_msg("%zu of %zu bytes, %zu holes of %zu: %s", i, sizes[i], count, bytes,
                     vmm_last_error());
        block_fill(test, blocks[i], sizes[i], (uint32_t)i, taker);
    }
    cache_verify(test);
    for (size_t i = 0; i < count; i++) {
        block_check(test, blocks[i], sizes[i], (uint32_t)i, taker);
        block_free(test, blocks[i]);
    }
    holes_end(test, &holes, 0);
    free(blocks);
    free(sizes);
    cache_verify_empty(test);
}

/* Blocks of one size that come one after the other: what one leaves of its granule begins the next one. */
CACHE_TEST(blocks_that_do_not_divide_a_granule_fill_it)
{
    enum { COUNT = 100 };
    static const size_t sizes[] = { 200 << 10, 416 << 10, 704 << 10 };
    void *blocks[COUNT];
    for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
        for (unsigned i = 0; i < COUNT; i++)
            blocks[i] = block_alloc(test, sizes[size], 1);
        assert_in_range(cache_stats(test).reserved_bytes.current, COUNT * sizes[size],
                        COUNT * sizes[size] + COUNT * sizes[size] / 20);
        cache_verify(test);
        for (unsigned i = 0; i < COUNT; i++)
            block_free(test, blocks[i]);
        work_verify(test);
        (void)cache_trim(test, 0);
    }
}

CACHE_TEST(objects_of_other_sizes_fill_the_holes_of_slabs)
{
    holes_use(test, 1500, 0);
    holes_use(test, 5000, 0);
}

CACHE_TEST(small_blocks_fill_the_holes_between_small_blocks)
{
    holes_use(test, 20000, 0);
    holes_use(test, 600000, 0);
}

CACHE_TEST(small_blocks_fill_the_holes_between_large_blocks)
{
    holes_use(test, 1500000, 0);
    holes_use(test, 3 * MIB, 0);
}

/* Of three blocks of 600 KB one stays. */
CACHE_TEST(large_blocks_fill_the_holes_between_small_blocks)
{
    for (unsigned taker = 0; taker < 2; taker++) {
        void *blocks[USED_LIMIT / 600000];
        size_t count = 0;
        size_t holes = 0;
        cache_restart_with(test, .limit_bytes = USED_LIMIT);
        while (block_try(test, 600000, 0, &blocks[count]))
            count++;
        for (size_t i = 2; i < count; i += 3, holes++) {
            block_free(test, blocks[i - 1]);
            block_free(test, blocks[i]);
        }
        work_verify(test);
        for (size_t i = 0; i < holes; i++)
            block_fill(test, block_alloc(test, 1100000, taker), 1100000, (uint32_t)i, taker);
        cache_verify(test);
    }
}

CACHE_TEST(another_stream_fills_the_holes_of_finished_memory)
{
    holes_use(test, 5000, 1);
    holes_use(test, 20000, 1);
    holes_use(test, 1500000, 1);
}

/* ---- A misfit is a block like any other ------------------------------------------------------ */

static vmm_item item_of(struct cache_test *test, const void *block)
{
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(vmm_find(test->cache, block, &item));
    return item;
}

/* Its block may be larger than others of its size, because it has a slot of a larger class. */
CACHE_TEST(a_misfit_says_what_it_has)
{
    struct holes holes = holes_make(test, 5000, 0);
    void *block = block_alloc(test, 100, 0);
    vmm_item item = item_of(test, block);
    assert_ptr_equal((void *)(uintptr_t)item.address, block);
    assert_int_equal(item.requested_bytes, 100);
    assert_true(item.bytes >= vmm_block_bytes(test->cache, 100));
    assert_ok(vmm_name(test->cache, block, "misfit"));
    assert_ok(vmm_pin(test->cache, block));
    assert_ok(vmm_unpin(test->cache, block));
    block_use(test, block, 1);
    block_free(test, block);
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    cache_verify(test);
    holes_end(test, &holes, 0);
}

CACHE_TEST(a_misfit_is_resized)
{
    static const size_t sizes[] = { 2000, 300000, 900, 400000, 300000 };
    struct holes holes = holes_make(test, 1500000, 0);
    void *block = block_alloc(test, 1000, 0);
    assert_int_equal(item_of(test, block).bytes, vmm_block_bytes(test->cache, 1000));
    block_fill(test, block, 900, 7, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_ok(vmm_resize(test->cache, block, sizes[i], &block));
        assert_int_equal(item_of(test, block).requested_bytes, sizes[i]);
        block_check(test, block, 900, 7, 0);
        cache_verify(test);
    }
    block_free(test, block);
    holes_end(test, &holes, 0);
}

static void *other_free(void *context)
{
    struct cache_test *test = ((void **)context)[0];
    return (void *)(uintptr_t)vmm_free(test->cache, ((void **)context)[1]);
}

/* A magazine would count it as a block of its size. */
CACHE_TEST(another_thread_frees_a_misfit_under_the_lock)
{
    struct holes holes = holes_make(test, 5000, 0);
    struct lane *lane = vmm__lane_table_find(&test->cache->pool.table, test->streams[0]);
    vmm__lane_lock(lane);
    vmm__magazines_make_locked(lane);
    vmm__lane_unlock(lane);
    for (int i = 0; i < 100; i++) {
        void *block = block_alloc(test, 100, 0);
        void *context[] = { test, block };
        assert_false(vmm__live_table_has(lane->large.directory->live, (uintptr_t)block));
        assert_int_equal((uintptr_t)thread_run(other_free, context), VMM_OK);
    }
    assert_int_equal(cache_stats(test).allocations.current, holes.count / 2);
    cache_verify(test);
    holes_end(test, &holes, 0);
}

/* vmm_pool_place() finds a place by its size. */
CACHE_TEST(a_pool_of_the_program_has_no_misfits)
{
    vmm_pool *pool = pool_make(test, .name = "own");
    size_t count = 0;
    void *blocks[CACHE_LIMIT / MIB];
    while (vmm_alloc_from(pool, 1500000, test->streams[0], &blocks[count]) == VMM_OK)
        count++;
    for (size_t i = 0; i < count; i += 2)
        block_free(test, blocks[i]);
    void *block = NULL;
    assert_status(vmm_alloc_from(pool, 1000, test->streams[0], &block), VMM_ERR_DEVICE_OOM);
    assert_status(vmm_alloc(test->cache, 1000, test->streams[0], &block), VMM_ERR_DEVICE_OOM);
    assert_null(block);
    assert_ok(vmm_pool_place(pool, blocks[0], 1500000, test->streams[0]));
}

CACHE_MAIN()
