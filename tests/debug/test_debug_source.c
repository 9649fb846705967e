/* Debug mode and vmm_config.zero with blocks in memory of a source. */
#include "debug_support.h"
#include "support/find_support.h"
#include "support/source_support.h"

#include <stdlib.h>

enum { SMALL = 4000, LARGE = 3 * MIB, SEGMENT = 20 * MIB };

CACHE_TEST(a_write_beyond_a_block_of_a_source_is_found)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    struct source *source = source_open(test);
    vmm_pool *pool = pool_make(test, .source = source_of(source, SEGMENT));
    char *large = pool_alloc(test, pool, LARGE, 1);
    char *small = pool_alloc(test, pool, SMALL, 1);
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(both_find(source->cache, large, &item));
    block_fill(test, large, LARGE, 5, 1);
    work_verify(test);
    assert_ok(vmm_debug_check(test->cache));
    assert_ok(vmm_record_stream(test->cache, large, test->streams[2]));
    assert_ok(vmm_pin(test->cache, small));
    assert_ok(vmm_name(test->cache, small, "small"));
    bytes_write(test, small, SMALL, 1, 1);
    assert_status(vmm_debug_check(test->cache), VMM_ERR_CORRUPTED);
    assert_says(" 0 bytes beyond the end of the block of 4000 bytes");
    block_free(test, large);
    assert_status(vmm_free(test->cache, small), VMM_ERR_CORRUPTED);
    assert_status(vmm_free(test->cache, small), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm__cache_check(test->cache));
    assert_ok(vmm_pool_destroy(pool, 0));
    source_close(source);
}

CACHE_TEST(zeros_are_written_into_segments)
{
    for (int debug = VMM_DEBUG_ON; debug <= VMM_DEBUG_RECORD; debug++) {
        debug_restart(test, (vmm_debug_mode)debug, 1);
        struct source *source = source_open(test);
        vmm_pool *pool = pool_make(test, .source = source_of(source, SEGMENT));
        for (int i = 0; i < 3; i++) {
            void *block = pool_alloc(test, pool, LARGE, 1);
            assert_true(bytes_are(test, block, LARGE, 0, 1));
            block_fill(test, block, LARGE, 5, 1);
            block_free(test, block);
        }
        work_verify(test);
        assert_ok(vmm_pool_destroy(pool, 0));
        source_close(source);
    }
}

static void *foreign_alloc(void *context, size_t bytes, vmm_stream stream)
{
    (void)context;
    (void)stream;
    return aligned_alloc(512, bytes);
}

static void foreign_free(void *context, void *segment, size_t bytes)
{
    (void)context;
    (void)bytes;
    free(segment);
}

/* With one small block and one large one, which is also poisoned when it is freed. */
static void foreign_blocks_use(vmm_cache *cache, vmm_pool *pool)
{
    for (int round = 0; round < 3; round++) {
        void *small = NULL;
        void *large = NULL;
        assert_ok(vmm_alloc_from(pool, SMALL, NULL, &small));
        assert_ok(vmm_alloc_from(pool, LARGE, NULL, &large));
        assert_ok(vmm_debug_check(cache));
        assert_ok(vmm_free(cache, large));
        assert_ok(vmm_free(cache, small));
        assert_ok(vmm_debug_check(cache));
    }
}

/* The sim driver knows only memory that it has mapped, and must not blame the program for what it cannot know. */
CACHE_TEST(memory_that_sim_has_not_mapped_is_not_called_overwritten)
{
    (void)test;
    vmm_cache *cache = NULL;
    vmm_pool *pool = NULL;
    vmm_config config = VMM_CONFIG_INIT;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    config.driver = VMM_DRIVER_SIM;
    config.debug = VMM_DEBUG_ON;
    options.source.alloc = foreign_alloc;
    options.source.free = foreign_free;
    options.source.segment_bytes = SEGMENT;
    assert_ok(vmm_create(&config, &cache));
    assert_ok(vmm_pool_create(cache, &options, &pool));
    foreign_blocks_use(cache, pool);
    assert_ok(vmm_destroy(cache));
}

CACHE_MAIN()
