/* A cache with vmm_config.shareable: any block can be exported, where it lies. */
#define _GNU_SOURCE
#include "support/folder_support.h"
#include "support/share_support.h"

#include "base/handle.h"
#include "cache/cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>

/* ---- Steps --------------------------------------------------------------------------------- */

static void shareable_restart(struct cache_test *test)
{
    cache_restart_with(test, .shareable = VMM_ON, .limit_bytes = CACHE_LIMIT);
}

/* The bytes of a block travel in both directions. */
static void block_share(struct cache_test *test, vmm_cache *other, void *block, size_t bytes)
{
    vmm_share *share = export_of(test->cache, block);
    block_fill(test, block, bytes, EXPORT_WORD, 0);
    void *imported = import_of(other, share, test->streams[0]);
    block_check(test, imported, bytes, EXPORT_WORD, 0);
    block_fill(test, imported, bytes, ANSWER_WORD, 0);
    block_check(test, block, bytes, ANSWER_WORD, 0);
    work_verify(test);
    assert_ok(vmm_free(other, imported));
    assert_ok(vmm_share_close(share, 0));
}

/* ---- Blocks of each kind ------------------------------------------------------------------- */

CACHE_TEST(blocks_of_every_size_are_shared)
{
    static const size_t sizes[] = { 512, 1024,      8192,    12288,         MIB - 4096,
                                    MIB, MIB + 512, 3 * MIB, GRANULE + 512, 20 * MIB };
    enum { SIZES = sizeof sizes / sizeof *sizes, OF_EACH = 3 };
    void *blocks[SIZES][OF_EACH];
    shareable_restart(test);
    vmm_cache *other = cache_second(test);
    for (int n = 0; n < OF_EACH; n++) {
        for (size_t i = 0; i < SIZES; i++)
            blocks[i][n] = block_alloc(test, sizes[i], 0);
    }
    for (size_t i = 0; i < SIZES; i++) {
        block_fill(test, blocks[i][0], sizes[i], NEIGHBOUR_WORD, 0);
        block_fill(test, blocks[i][2], sizes[i], NEIGHBOUR_WORD, 0);
        block_share(test, other, blocks[i][1], sizes[i]);
        block_check(test, blocks[i][0], sizes[i], NEIGHBOUR_WORD, 0);
        block_check(test, blocks[i][2], sizes[i], NEIGHBOUR_WORD, 0);
    }
    work_verify(test);
    for (size_t i = 0; i < SIZES; i++) {
        for (int n = 0; n < OF_EACH; n++)
            block_free(test, blocks[i][n]);
    }
}

/* Blocks that fill the cache, every second one freed, so that a larger one lies in a view. */
CACHE_TEST(a_block_in_a_view_is_shared)
{
    enum { PIECES = 16 };
    void *pieces[PIECES];
    shareable_restart(test);
    vmm_cache *other = cache_second(test);
    for (int i = 0; i < PIECES; i++)
        pieces[i] = block_alloc(test, 5 * MIB, 0);
    for (int i = 0; i < PIECES; i++)
        block_fill(test, pieces[i], 5 * MIB, NEIGHBOUR_WORD, 0);
    for (int i = 0; i < PIECES; i += 2)
        block_free(test, pieces[i]);
    for (size_t bytes = 16 * MIB; bytes <= 21 * MIB; bytes += 5 * MIB / 2) {
        void *block = block_alloc(test, bytes, 0);
        assert_int_equal(item_of(test->cache, block).is_view, test->cache->has_views);
        block_share(test, other, block, bytes);
        vmm_share *share = export_of(test->cache, block);
        block_free(test, block); /* it waits in its view */
        cache_verify(test);
        assert_ok(vmm_share_close(share, 0));
    }
    for (int i = 1; i < PIECES; i += 2) {
        block_check(test, pieces[i], 5 * MIB, NEIGHBOUR_WORD, 0);
        block_free(test, pieces[i]);
    }
}

CACHE_TEST(blocks_of_all_pools_are_shared_and_idle_memory_goes_between_pools)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    shareable_restart(test);
    vmm_cache *other = cache_second(test);
    block_free(test, block_alloc(test, 16 * MIB, 0));
    assert_ok(vmm_wait(test->cache));
    for (int kind = VMM_POOL_GENERAL; kind <= VMM_POOL_GRAPH; kind++) {
        options.kind = (vmm_pool_kind)kind;
        assert_ok(vmm_pool_create(test->cache, &options, &pool));
        void *block = block_from(test, pool, 4 * MIB, 0);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 16 * MIB);
        block_share(test, other, block, 4 * MIB);
        block_free(test, block);
        assert_ok(vmm_pool_destroy(pool, 0));
    }
}

/* ---- Chunks and descriptors ---------------------------------------------------------------- */

CACHE_TEST(shares_of_a_chunk_have_one_descriptor)
{
    enum { BLOCKS = 200 };
    void *blocks[BLOCKS];
    vmm_share *shares[BLOCKS];
    shareable_restart(test);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = block_alloc(test, 512, 0);
    int before = descriptors_open();
    for (int i = 0; i < BLOCKS; i++) {
        shares[i] = export_of(test->cache, blocks[i]);
        assert_int_equal(descriptors_open(), before + 1);
    }
    for (int i = 0; i < BLOCKS; i++) {
        block_free(test, blocks[i]);
        assert_int_equal(descriptors_open(), before + 1);
        assert_ok(vmm_share_close(shares[i], 0));
    }
    assert_int_equal(descriptors_open(), before);
    blocks[0] = block_alloc(test, 512, 0);
    shares[0] = export_of(test->cache, blocks[0]); /* it opens another one */
    assert_int_equal(descriptors_open(), before + 1);
    block_free(test, blocks[0]);
    assert_ok(vmm_share_close(shares[0], 0));
    assert_int_equal(descriptors_open(), before);
}

CACHE_TEST(shares_keep_their_descriptor_beyond_the_cache)
{
    vmm_share *shares[2];
    void *block;
    int before = descriptors_open();
    vmm_cache *other = cache_on(test->driver, .shareable = VMM_ON);
    for (int i = 0; i < 2; i++) {
        assert_ok(vmm_alloc(other, 4096, test->streams[0], &block));
        assert_ok(vmm_share_export(other, block, &shares[i]));
    }
    void *kept = import_of(test->cache, shares[0], test->streams[0]);
    assert_ok(vmm_destroy(other));
    assert_ok(vmm_share_close(shares[0], 0));
    void *imported = import_of(test->cache, shares[1], test->streams[0]);
    block_fill(test, imported, 4096, ANSWER_WORD, 0);
    block_check(test, imported, 4096, ANSWER_WORD, 0);
    work_verify(test);
    block_free(test, imported);
    block_free(test, kept);
    assert_ok(vmm_share_close(shares[1], 0));
    imports_vanish(test->cache);
    assert_int_equal(descriptors_open(), before);
}

/* ---- It stays in place --------------------------------------------------------------------- */

CACHE_TEST(a_small_exported_block_stays_after_its_free)
{
    static const size_t sizes[] = { 512, 40960 };
    shareable_restart(test);
    vmm_cache *other = cache_second(test);
    for (int i = 0; i < 2; i++) {
        void *neighbour = block_alloc(test, sizes[i], 0);
        void *block = block_alloc(test, sizes[i], 0);
        vmm_share *share = export_of(test->cache, block);
        block_fill(test, block, sizes[i], EXPORT_WORD, 0);
        block_free(test, block);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        void *next = block_alloc(test, sizes[i], 0);
        assert_ptr_not_equal(next, block);
        block_fill(test, next, sizes[i], NEIGHBOUR_WORD, 0);
        cache_verify(test);
        void *imported = import_of(other, share, test->streams[0]);
        block_check(test, imported, sizes[i], EXPORT_WORD, 0);
        work_verify(test);
        assert_ok(vmm_free(other, imported));
        assert_ok(vmm_share_close(share, 0));
        assert_ptr_equal(block_alloc(test, sizes[i], 0), block);
        block_free(test, block);
        block_free(test, next);
        block_free(test, neighbour);
    }
}

CACHE_TEST(a_pin_and_an_export_of_a_small_block_end_by_themselves)
{
    shareable_restart(test);
    void *block = block_alloc(test, 512, 0);
    assert_ok(vmm_pin(test->cache, block));
    vmm_share *share = export_of(test->cache, block);
    assert_ok(vmm_unpin(test->cache, block));
    assert_int_equal(cache_stats(test).unmovable_bytes, 512);
    cache_verify(test);
    assert_ok(vmm_pin(test->cache, block));
    assert_ok(vmm_share_close(share, 0));
    assert_int_equal(cache_stats(test).unmovable_bytes, 512);
    assert_ok(vmm_unpin(test->cache, block));
    assert_int_equal(cache_stats(test).unmovable_bytes, 0);
}

/* A compaction leaves the chunk of an exported block, and moves others to memory that can be exported. */
CACHE_TEST(compaction_leaves_exported_blocks)
{
    enum { BLOCKS = 16 };
    void *blocks[BLOCKS];
    shareable_restart(test);
    vmm_cache *other = cache_second(test);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = block_alloc(test, 3 * MIB, 0);
    for (int i = 0; i < BLOCKS; i++)
        block_fill(test, blocks[i], 3 * MIB, NEIGHBOUR_WORD, 0);
    vmm_share *share = export_of(test->cache, blocks[1]);
    void *imported = import_of(other, share, test->streams[0]);
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 5 != 1)
            block_free(test, blocks[i]);
    }
    assert_ok(vmm_wait(test->cache));
    assert_ok(vmm_compact(test->cache, 0, NULL, NULL));
    cache_verify(test);
    block_fill(test, imported, 3 * MIB, ANSWER_WORD, 0);
    block_check(test, blocks[1], 3 * MIB, ANSWER_WORD, 0);
    block_share(test, other, blocks[6], 3 * MIB);
}

CACHE_TEST(a_resize_does_not_take_memory_from_importers)
{
    void *resized;
    shareable_restart(test);
    void *block = block_alloc(test, 8 * MIB, 0);
    vmm_share *share = export_of(test->cache, block);
    assert_status(vmm_resize(test->cache, block, 3 * MIB, &resized), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_share_close(share, 0));
    assert_ok(vmm_resize(test->cache, block, 3 * MIB, &resized));
}

CACHE_TEST(a_pool_with_exported_small_blocks_does_not_sleep)
{
    shareable_restart(test);
    vmm_pool *pool = pool_in_with(test->cache, NULL);
    void *block = block_from(test, pool, 512, 0);
    block_fill(test, block, 512, EXPORT_WORD, 0);
    vmm_share *share = export_of(test->cache, block);
    assert_status(vmm_pool_sleep(&pool, 1, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_share_close(share, 0));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    share = export_of(test->cache, block); /* of the new memory */
    block_check(test, block, 512, EXPORT_WORD, 0);
}

/* ---- Where it is refused ------------------------------------------------------------------- */

CACHE_TEST(memory_of_a_destroyed_shareable_pool_is_not_shared)
{
    vmm_pool *pool = shareable_make(test->cache);
    vmm_share *share;
    block_free(test, block_from(test, pool, 16 * MIB, 0));
    assert_ok(vmm_pool_destroy(pool, 0));
    assert_ok(vmm_wait(test->cache));
    void *block = block_alloc(test, 3 * MIB, 1); /* from the pool's chunk, perhaps */
    assert_status(vmm_share_export(test->cache, block, &share), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_config.shareable"));
}

CACHE_TEST(imported_memory_is_not_shared)
{
    vmm_share *again;
    shareable_restart(test);
    void *block = block_alloc(test, 3 * MIB, 0);
    vmm_share *share = export_of(test->cache, block);
    void *imported = import_of(test->cache, share, test->streams[0]);
    assert_status(vmm_share_export(test->cache, imported, &again), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "is imported"));
    block_free(test, imported);
    assert_ok(vmm_share_close(share, 0));
}

CACHE_TEST(a_driver_without_sharing_refuses_the_cache)
{
    vmm_config config = CONFIG(.shareable = VMM_ON);
    vmm_cache *cache;
    bool has_sharing = test->driver->has_sharing;
    test->driver->has_sharing = false;
    vmm_status status = vmm__cache_create_on(&config, test->driver, &cache);
    test->driver->has_sharing = has_sharing;
    assert_status(status, VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "cannot share memory between processes"));
}

/* ---- Threads ------------------------------------------------------------------------------- */

enum { THREADS = 4 };

struct worker {
    struct cache_test *test;
    void *block; /* of a chunk that the others share, too */
};

static void *worker_run(void *context)
{
    const struct worker *worker = context;
    int cycles = IS_SLOW_BUILD ? 50 : 500;
    for (int i = 0; i < cycles; i++) {
        vmm_share *share = export_of(worker->test->cache, worker->block);
        const struct share *record = vmm__handle_find(HANDLE_SHARE, share);
        assert_true(fcntl(record->chunks[0].exported->descriptor, F_GETFD) >= 0);
        assert_ok(vmm_share_close(share, 0));
    }
    return NULL;
}

CACHE_TEST(threads_share_blocks_of_a_chunk_at_once)
{
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    shareable_restart(test);
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){ .test = test, .block = block_alloc(test, 512, 0) };
    int before = descriptors_open();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(descriptors_open(), before);
}

CACHE_MAIN()
