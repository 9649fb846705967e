/* Blocks of shareable pools that are resized, aligned, reserved or placed: importers see no other block. */
#include "support/share_support.h"

#include <string.h>

static void block_is_exportable(struct cache_test *test, void *block)
{
    assert_ok(vmm_share_close(export_of(test->cache, block), 0));
}

CACHE_TEST(a_block_that_grows_shares_no_memory)
{
    vmm_cache *other = cache_second(test);
    vmm_pool *pool = shareable_make(test->cache);
    void *block = block_from(test, pool, 3 * MIB, 0);
    (void)block_from(test, pool, 3 * MIB, 0);
    block_fill(test, block, 3 * MIB, EXPORT_WORD, 0);
    assert_ok(vmm_resize(test->cache, block, 4 * MIB, &block)); /* it has these granules */
    assert_int_equal(cache_stats(test).reserved_bytes.current, 8 * MIB);
    assert_ok(vmm_resize(test->cache, block, 9 * MIB, &block));
    assert_int_equal(item_of(test->cache, block).bytes, 10 * MIB);
    vmm_share *share = export_of(test->cache, block);
    void *imported = import_of(other, share, test->streams[0]);
    block_check(test, imported, 3 * MIB, EXPORT_WORD, 0);
    work_verify(test);
    assert_ok(vmm_free(other, imported));
    assert_ok(vmm_share_close(share, 0));
    assert_ok(vmm_resize(test->cache, block, 100, &block)); /* a copy, in a chunk of its own */
    assert_int_equal(item_of(test->cache, block).bytes, GRANULE);
    block_is_exportable(test, block);
    cache_verify(test);
}

CACHE_TEST(a_grown_block_takes_no_part_of_an_idle_chunk)
{
    vmm_pool *pool = shareable_make(test->cache);
    void *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = block_from(test, pool, 8 * MIB, 0);
    for (int i = 1; i < 4; i++)
        block_free(test, blocks[i]);
    for (size_t bytes = 10 * MIB; bytes <= 40 * MIB; bytes += 6 * MIB) {
        assert_ok(vmm_resize(test->cache, blocks[0], bytes, &blocks[0]));
        block_is_exportable(test, blocks[0]);
        void *small = block_from(test, pool, 1, 0);
        block_is_exportable(test, small);
        block_free(test, small);
        cache_verify(test);
    }
}

CACHE_TEST(a_shared_block_keeps_its_place_in_a_resize)
{
    vmm_cache *other = cache_second(test);
    vmm_share *share;
    void *block = block_shared(test, 8 * MIB, &share);
    void *imported = import_of(other, share, test->streams[0]);
    void *out = NULL;
    assert_status(vmm_resize(test->cache, block, MIB, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "exported"));
    assert_status(vmm_resize(other, imported, MIB, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "is imported"));
    assert_status(vmm_resize(other, imported, 20 * MIB, &out), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_decommit(other, imported, 0, GRANULE), VMM_ERR_UNKNOWN_POINTER);
    assert_null(out);
    assert_ok(vmm_free(other, imported));
    assert_ok(vmm_share_close(share, 0));
    assert_ok(vmm_resize(test->cache, block, MIB, &block));
}

CACHE_TEST(reserved_and_aligned_blocks_of_a_shareable_pool)
{
    vmm_pool *pool = shareable_make(test->cache);
    vmm_share *share = NULL;
    void *reserved;
    void *aligned = NULL;
    assert_ok(vmm_reserve(pool, 8 * MIB, 0, test->streams[0], &reserved));
    assert_ok(vmm_commit(test->cache, reserved, 0, 4 * MIB));
    assert_status(vmm_share_export(test->cache, reserved, &share), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_reserve()"));
    assert_status(vmm_alloc_aligned(pool, 5000, 4 * MIB, test->streams[0], &aligned),
                  VMM_ERR_UNSUPPORTED);
    assert_null(aligned);
    assert_ok(vmm_alloc_aligned(pool, 5000, GRANULE, test->streams[0], &aligned));
    assert_int_equal((uintptr_t)aligned % GRANULE, 0);
    assert_int_equal(item_of(test->cache, aligned).bytes, GRANULE);
    block_is_exportable(test, aligned);
}

CACHE_TEST(a_placed_block_shares_no_memory)
{
    static const size_t sizes[] = { 5000, 5 * MIB };
    vmm_pool *pool = shareable_make(test->cache);
    assert_ok(vmm_pool_retain(pool));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = block_from(test, pool, sizes[i], 0);
        uint64_t bytes = item_of(test->cache, block).bytes;
        block_free(test, block);
        assert_status(vmm_pool_place(pool, block, 3 * MIB, test->streams[0]),
                      VMM_ERR_INVALID_ARGUMENT);
        assert_ok(vmm_pool_place(pool, block, sizes[i], test->streams[0]));
        assert_int_equal(item_of(test->cache, block).bytes, bytes);
        block_is_exportable(test, block);
        cache_verify(test);
        block_free(test, block);
    }
}

CACHE_MAIN()
