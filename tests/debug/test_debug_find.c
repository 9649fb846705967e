/* Writes that VMM_DEBUG_ON detects: beyond blocks and after their free; and accesses that it must not report. */
#include "debug_support.h"
#include "support/find_support.h"
#include "support/listener_support.h"
#include "support/pool_calls.h"

enum { SMALL = 1000, LARGE = (3 << 20) - 100 };

/* The free of a block with an overwritten canary reports the write, and still frees the block. */
static void check_found_at_free(struct cache_test *test, size_t bytes, int64_t offset,
                                const char *place)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    void *block = block_allocate_here(test, bytes, 1);
    bytes_write(test, block, offset, 1, 1);
    assert_status(block_free_here(test, block), VMM_ERR_CORRUPTED);
    assert_says(place);
    assert_says("block_allocate_here");
    assert_text_has(report_read(test), "block_free_here");
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm__cache_check(test->cache));
}

CACHE_TEST(write_beyond_small_block_is_found)
{
    check_found_at_free(test, SMALL, SMALL, " 0 bytes beyond the end of the block of 1000 bytes");
    check_found_at_free(test, SMALL, SMALL + 63, " 63 bytes beyond the end");
    check_found_at_free(test, 70000, 70000, " 0 bytes beyond the end of the block of 70000 bytes");
}

CACHE_TEST(write_before_small_block_is_found)
{
    check_found_at_free(test, SMALL, -1, " 1 byte before the block of 1000 bytes");
    check_found_at_free(test, 70000, -512, " 512 bytes before the block of 70000 bytes");
}

CACHE_TEST(write_beyond_large_block_is_found)
{
    check_found_at_free(test, LARGE, LARGE,
                        " 0 bytes beyond the end of the block of 3145628 bytes");
    check_found_at_free(test, LARGE - 5000, -1, " 1 byte before the block");
}

/* A resize by copy frees the old block. It succeeds whatever that finds: the program has only the new block then. */
CACHE_TEST(a_resize_reports_a_write_beyond_the_old_block)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    void *block = block_allocate_here(test, SMALL, 1);
    block_fill(test, block, SMALL, 3, 1);
    bytes_write(test, block, SMALL, 1, 1);
    void *old = block;
    assert_ok(vmm_resize(test->cache, block, 2 * SMALL, &block));
    assert_text_has(report_read(test), " 0 bytes beyond the end of the block of 1000 bytes");
    block_check(test, block, SMALL, 3, 1);
    work_verify(test);
    assert_int_equal(cache_stats(test).allocations.current, 1);
    assert_status(vmm_free(test->cache, old), VMM_ERR_UNKNOWN_POINTER);
    block_free(test, block);
}

CACHE_TEST(live_blocks_are_checked_on_demand)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    void *sound = block_alloc(test, SMALL, 0);
    void *block = block_allocate_here(test, SMALL, 1);
    assert_ok(vmm_debug_check(test->cache));
    bytes_write(test, block, SMALL + 3, 1, 1);
    assert_status(vmm_debug_check(test->cache), VMM_ERR_CORRUPTED);
    assert_says("vmm_debug_check: ");
    assert_says(" 3 bytes beyond the end");
    assert_says("block_allocate_here");
    assert_ok(vmm_free(test->cache, sound));
    assert_status(vmm_free(test->cache, block), VMM_ERR_CORRUPTED);
    assert_ok(vmm_debug_check(test->cache));
}

static void reports_count(void *count, const char *line)
{
    *(unsigned *)count += strncmp(line, "misuse: ", 8) == 0;
}

CACHE_TEST(a_check_names_the_first_and_reports_all)
{
    unsigned reports = 0;
    vmm_config config = VMM_CONFIG_INIT;
    config.debug = VMM_DEBUG_ON;
    config.log = reports_count;
    config.log_context = &reports;
    cache_restart(test, &config);
    void *blocks[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = block_alloc(test, SMALL, 1);
        bytes_write(test, blocks[i], SMALL + i + 1, 1, 1);
    }
    assert_status(vmm_debug_check(test->cache), VMM_ERR_CORRUPTED);
    assert_says(" 1 byte beyond the end");
    assert_int_equal(reports, 3);
    for (int i = 0; i < 3; i++)
        assert_status(vmm_free(test->cache, blocks[i]), VMM_ERR_CORRUPTED);
    cache_restart(test, NULL); /* the log function ends with this test */
}

CACHE_TEST(freed_blocks_read_as_poison)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    void *block = block_alloc(test, SMALL, 1);
    block_fill(test, block, SMALL, 7, 1);
    block_free(test, block);
    assert_true(bytes_are(test, block, SMALL, 0xDF, 1));
}

CACHE_TEST(writes_after_free_are_found)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    void *block = block_allocate_here(test, SMALL, 1);
    assert_ok(block_free_here(test, block));
    assert_ok(vmm_debug_check(test->cache));
    bytes_write(test, block, 17, 1, 1);
    assert_status(vmm_debug_check(test->cache), VMM_ERR_CORRUPTED);
    assert_says(" 17 bytes inside the block of 1000 bytes");
    assert_says("was freed by thread");
    assert_says("block_free_here");
    size_t released = 12345;
    assert_status(vmm_trim(test->cache, 0, &released), VMM_ERR_CORRUPTED);
    assert_int_equal(released, 12345);
    assert_ok(vmm_trim(test->cache, 0, &released));
}

/* The quarantine holds a sixteenth of the limit, here 8 MiB. */
CACHE_TEST(writes_after_free_are_found_before_reuse)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    void *first = block_allocate_here(test, 900000, 1);
    assert_ok(block_free_here(test, first));
    bytes_write(test, first, 899999, 1, 1);
    vmm_status status = VMM_OK;
    unsigned frees = 0;
    while (status == VMM_OK && frees < 20) {
        void *block = block_alloc(test, 900000, 1);
        assert_ptr_not_equal(block, first);
        status = vmm_free(test->cache, block);
        frees++;
    }
    assert_int_equal(status, VMM_ERR_CORRUPTED);
    assert_says("vmm_free: ");
    assert_says("899999 bytes inside the block of 900000 bytes");
    assert_in_range(frees, 5, 12);
    assert_ok(vmm_debug_check(test->cache));
}

/* A request must not fail while the quarantine holds enough memory. */
CACHE_TEST(quarantine_is_emptied_before_memory_runs_out)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = block_alloc(test, 900000, 1);
    for (int i = 0; i < 8; i++)
        block_free(test, blocks[i]);
    assert_status(vmm_free(NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    block_free(test, block_alloc(test, CACHE_LIMIT, 0));
    assert_says("vmm_free: "); /* the successful call kept the earlier error */
}

/* A block in quarantine is live to its pool, but its pin ends with the free. */
CACHE_TEST(pins_end_with_the_free)
{
    static const size_t sizes[] = { 500, SMALL, 70000, LARGE };
    debug_restart(test, VMM_DEBUG_ON, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = block_alloc(test, sizes[i], 1);
        assert_ok(vmm_pin(test->cache, block));
        assert_true(cache_stats(test).unmovable_bytes >= sizes[i]);
        block_free(test, block);
        assert_int_equal(cache_stats(test).unmovable_bytes, 0);
    }
    assert_ok(vmm__cache_check(test->cache));
}

CACHE_TEST(large_blocks_get_new_addresses)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    uintptr_t highest = 0;
    for (int i = 0; i < 300; i++) {
        void *block = block_alloc(test, 3 * MIB + (size_t)i, 1);
        assert_true((uintptr_t)block > highest);
        highest = (uintptr_t)block + 3 * MIB;
        block_free(test, block);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    }
    assert_int_equal(cache_stats(test).reserved_bytes.peak, 2 * 2 * MIB);
}

static int item_count(void *context, const vmm_item *item)
{
    struct {
        const void *block;
        unsigned found;
        uint64_t bytes;
    } *wanted = context;
    bool is_it = item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_LIVE &&
                 item->address == (uintptr_t)wanted->block;
    wanted->found += is_it;
    wanted->bytes = is_it ? item->bytes : wanted->bytes;
    return 0;
}

/* Reports show the program's blocks as without debug mode. */
CACHE_TEST(reports_show_blocks_as_requested)
{
    static const size_t sizes[] = { 1, 512, 1000, 8192, 70000, MIB - 577, MIB, 5 * MIB + 1 };
    for (int zero = 0; zero < 2; zero++) {
        debug_restart(test, zero ? VMM_DEBUG_ON : VMM_DEBUG_RECORD, zero);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *block = block_alloc(test, sizes[i], 1);
            vmm_item item = VMM_ITEM_INIT;
            assert_ok(both_find(test->cache, block + sizes[i] - 1, &item));
            assert_int_equal(item.address, (uintptr_t)block);
            assert_int_equal(item.requested_bytes, sizes[i]);
            assert_int_equal(item.bytes, vmm_block_bytes(test->cache, sizes[i]));
            assert_ptr_equal(item.stream, test->streams[1]);
            struct {
                const void *block;
                unsigned found;
                uint64_t bytes;
            } wanted = { .block = block };
            assert_ok(vmm_walk(test->cache, item_count, &wanted));
            assert_int_equal(wanted.found, 1);
            assert_int_equal(wanted.bytes, item.bytes);
            block_free(test, block);
            assert_status(both_find(test->cache, block, &item), VMM_ERR_UNKNOWN_POINTER);
        }
        assert_ok(vmm__cache_check(test->cache));
    }
}

/* Without caching, small blocks have canaries too, and all memory is released. */
CACHE_TEST(debug_mode_works_without_caching)
{
    cache_restart_with(test, .debug = VMM_DEBUG_ON, .no_caching = 1);
    for (int i = 0; i < 20; i++) {
        void *block = block_alloc(test, SMALL, 1);
        void *large = block_alloc(test, LARGE, 2);
        bytes_write(test, block, 0, SMALL, 1);
        block_free(test, large);
        block_free(test, block);
    }
    void *block = block_alloc(test, SMALL, 1);
    bytes_write(test, block, SMALL, 1, 1);
    assert_status(vmm_free(test->cache, block), VMM_ERR_CORRUPTED);
    cache_trim_all(test);
    assert_ok(vmm__cache_check(test->cache));
}

/* A free during a capture is recorded and does not touch the block. Blocks of graphs are not poisoned or unmapped. */
CACHE_TEST(captured_blocks_are_not_touched)
{
    vmm_pool_id id = { 5, 6 };
    debug_restart(test, VMM_DEBUG_ON, 0);
    assert_ok(graph_pool_begin(test->cache, id, NULL, NULL));
    void *early = block_alloc(test, SMALL, 1);
    bytes_write(test, early, 0, SMALL, 1);
    capture_begin(test, 1);
    void *block = block_allocate_here(test, SMALL, 1);
    void *large = block_alloc(test, LARGE, 1);
    block_free(test, large);
    assert_status(block_misuse_here(test, large), VMM_ERR_UNKNOWN_POINTER);
    assert_says("was freed before");
    capture_end(test, 1);
    assert_ok(graph_pool_end(test->cache, id));
    bytes_write(test, large, 0, LARGE, 1); /* as a launch of the graph does */
    block_free(test, early);
    block_free(test, block);
    assert_true(bytes_are(test, early, SMALL, 0x11, 1));
    assert_ok(vmm_debug_check(test->cache));
    assert_ok(graph_pool_release(test->cache, id));
    assert_ok(vmm_debug_check(test->cache));
    cache_trim_all(test);
}

/* Debug mode cannot wait for a captured stream, whose canaries may not be written yet, so it checks them later. */
CACHE_TEST(blocks_of_captured_streams_are_checked_later)
{
    debug_restart(test, VMM_DEBUG_ON, 0);
    void *others = block_alloc(test, SMALL, 0);
    void *small = block_alloc(test, SMALL, 1);
    void *large = block_alloc(test, LARGE, 1);
    capture_begin(test, 1);
    assert_ok(vmm_debug_check(test->cache));
    capture_end(test, 1);
    bytes_write(test, small, SMALL, 1, 1);
    assert_status(vmm_debug_check(test->cache), VMM_ERR_CORRUPTED);
    assert_status(vmm_free(test->cache, small), VMM_ERR_CORRUPTED);
    block_free(test, large);
    block_free(test, others);
}

/* The listener sees the program's addresses, so a listener that counts waiting blocks sees no unknown address. */
CACHE_TEST(listener_sees_freed_blocks_as_free)
{
    const size_t sizes[] = { SMALL, LARGE };
    for (unsigned i = 0; i < 2; i++) {
        debug_restart(test, VMM_DEBUG_ON, 0);
        struct model *model = listen_begin(test);
        void *block = block_alloc(test, sizes[i], 0);
        assert_ok(vmm_record_stream(test->cache, block, test->streams[1]));
        capture_begin(test, 1); /* the cache cannot wait for a captured stream */
        block_free(test, block);
        model_verify(test, model);
        assert_int_equal(cache_scan(test).waiting_blocks, 0);
        capture_end(test, 1);
        assert_int_equal(cache_stats(test).allocations.current, 0);
        listen_end(test, model);
    }
}

struct observer {
    struct cache_test *test;
    void *live;
    unsigned times;
};

/* The function is called while vmm_destroy() tears the cache down: every call that it makes fails. */
static void misuse_handle_at_destroy(void *context, const char *line)
{
    struct observer *observer = context;
    vmm_cache *cache = observer->test->cache;
    vmm_stats stats = VMM_STATS_INIT;
    void *out = observer;
    observer->times++;
    assert_text_has(line, "vmm_destroy: the byte at ");
    assert_status(vmm_alloc(cache, SMALL, observer->test->streams[1], &out),
                  VMM_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(out, observer);
    assert_status(vmm_free(cache, observer->live), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_record_stream(cache, observer->live, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_trim(cache, 0, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_stats_get(cache, &stats), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_debug_check(cache), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_debug_report(cache, stderr), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_destroy(cache), VMM_ERR_INVALID_ARGUMENT);
}

/* For a write beyond a live block, and for a write into a freed one. */
CACHE_TEST(misuse_function_cannot_call_during_destroy)
{
    for (int is_freed = 0; is_freed < 2; is_freed++) {
        struct observer observer = { .test = test };
        cache_restart_with(test, .debug = VMM_DEBUG_ON, .misuse = misuse_handle_at_destroy,
                           .misuse_context = &observer);
        void *block = block_alloc(test, SMALL, 1);
        observer.live = block_alloc(test, SMALL, 1);
        if (is_freed != 0)
            block_free(test, block);
        bytes_write(test, block, is_freed != 0 ? 0 : SMALL, 1, 1);
        assert_status(vmm_destroy(test->cache), VMM_ERR_CORRUPTED);
        assert_says("vmm_destroy: the byte at ");
        assert_int_equal(observer.times, 1);
        driver_choice_census_is_zero(test->driver);
        assert_ok(vmm__cache_create_on(NULL, test->driver, &test->cache));
    }
}

CACHE_MAIN()
