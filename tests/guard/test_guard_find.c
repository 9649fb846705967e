/* What VMM_GUARD_ON finds: writes beyond blocks and after their free; and what it leaves alone. */
#include "guard_support.h"
#include "support/watch_support.h"

enum { SMALL = 1000, LARGE = (3 << 20) - 100 };

/* A block whose surroundings are overwritten is told of when it is freed, and is taken back all the same. */
static void found_at_free(struct cache_test *test, size_t bytes, int64_t offset, const char *place)
{
    guard_begun(test, VMM_GUARD_ON, 0);
    void *block = block_allocated_here(test, bytes, 1);
    bytes_written(test, block, offset, 1, 1);
    assert_status(block_freed_here(test, block), VMM_ERR_CORRUPTED);
    assert_says(place);
    assert_says("block_allocated_here");
    assert_text_has(story_read(test), "block_freed_here");
    assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm__cache_check(test->cache));
}

static void a_byte_beyond_a_small_block_is_found(void **state)
{
    found_at_free(*state, SMALL, SMALL, " 0 bytes beyond the end of the block of 1000 bytes");
    found_at_free(*state, SMALL, SMALL + 63, " 63 bytes beyond the end");
    found_at_free(*state, 70000, 70000, " 0 bytes beyond the end of the block of 70000 bytes");
}

static void a_byte_before_a_small_block_is_found(void **state)
{
    found_at_free(*state, SMALL, -1, " 1 byte before the block of 1000 bytes");
    found_at_free(*state, 70000, -512, " 512 bytes before the block of 70000 bytes");
}

static void a_byte_beyond_a_large_block_is_found(void **state)
{
    found_at_free(*state, LARGE, LARGE, " 0 bytes beyond the end of the block of 3145628 bytes");
    found_at_free(*state, LARGE - 5000, -1, " 1 byte before the block");
}

static void live_blocks_are_checked_on_demand(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    void *sound = block_taken(test, SMALL, 0);
    void *block = block_allocated_here(test, SMALL, 1);
    assert_ok(vmm_guard_check(test->cache));
    bytes_written(test, block, SMALL + 3, 1, 1);
    assert_status(vmm_guard_check(test->cache), VMM_ERR_CORRUPTED);
    assert_says("vmm_guard_check: ");
    assert_says(" 3 bytes beyond the end");
    assert_says("block_allocated_here");
    assert_ok(vmm_free(test->cache, sound));
    assert_status(vmm_free(test->cache, block), VMM_ERR_CORRUPTED);
    assert_ok(vmm_guard_check(test->cache));
}

static void freed_blocks_read_as_poison(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    void *block = block_taken(test, SMALL, 1);
    block_filled(test, block, SMALL, 7, 1);
    block_given(test, block);
    assert_true(bytes_are(test, block, SMALL, 0xDF, 1));
}

static void writes_after_free_are_found(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    void *block = block_allocated_here(test, SMALL, 1);
    assert_ok(block_freed_here(test, block));
    assert_ok(vmm_guard_check(test->cache));
    bytes_written(test, block, 17, 1, 1);
    assert_status(vmm_guard_check(test->cache), VMM_ERR_CORRUPTED);
    assert_says(" 17 bytes inside the block of 1000 bytes");
    assert_says("was freed by thread");
    assert_says("block_freed_here");
    size_t released = 12345;
    assert_status(vmm_trim(test->cache, 0, &released), VMM_ERR_CORRUPTED);
    assert_int_equal(released, 12345);
    assert_ok(vmm_trim(test->cache, 0, &released));
}

/* The quarantine holds a sixteenth of the limit here: 8 MiB. */
static void writes_after_free_are_found_before_reuse(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    void *first = block_allocated_here(test, 900000, 1);
    assert_ok(block_freed_here(test, first));
    bytes_written(test, first, 899999, 1, 1);
    vmm_status status = VMM_OK;
    unsigned frees = 0;
    while (status == VMM_OK && frees < 20) {
        void *block = block_taken(test, 900000, 1);
        assert_ptr_not_equal(block, first);
        status = vmm_free(test->cache, block);
        frees++;
    }
    assert_int_equal(status, VMM_ERR_CORRUPTED);
    assert_says("vmm_free: ");
    assert_says("899999 bytes inside the block of 900000 bytes");
    assert_in_range(frees, 5, 12);
    assert_ok(vmm_guard_check(test->cache));
}

/* Memory in quarantine is no reason to run out of it. */
static void the_quarantine_goes_before_memory_runs_out(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = block_taken(test, 900000, 1);
    for (int i = 0; i < 8; i++)
        block_given(test, blocks[i]);
    assert_status(vmm_free(NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    block_given(test, block_taken(test, CACHE_LIMIT, 0));
    assert_says("vmm_free: "); /* what was tried first is not told */
}

/* A block in quarantine is live to its pool, but nobody wants its bytes where they are. */
static void pins_end_with_the_free(void **state)
{
    static const size_t sizes[] = { 500, SMALL, 70000, LARGE };
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = block_taken(test, sizes[i], 1);
        assert_ok(vmm_pin(test->cache, block));
        assert_true(cache_stats(test).unmovable_bytes >= sizes[i]);
        block_given(test, block);
        assert_int_equal(cache_stats(test).unmovable_bytes, 0);
    }
    assert_ok(vmm__cache_check(test->cache));
}

static void addresses_of_large_blocks_are_new(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    uintptr_t highest = 0;
    for (int i = 0; i < 300; i++) {
        void *block = block_taken(test, 3 * MIB + (size_t)i, 1);
        assert_true((uintptr_t)block > highest);
        highest = (uintptr_t)block + 3 * MIB;
        block_given(test, block);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    }
    assert_int_equal(cache_stats(test).reserved_bytes.peak, 2 * 2 * MIB);
}

static int items_counted(void *context, const vmm_item *item)
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

/* What the program asks about its blocks, it is told as if there were no guard. */
static void reports_know_blocks_as_the_program_does(void **state)
{
    static const size_t sizes[] = { 1, 512, 1000, 8192, 70000, MIB - 577, MIB, 5 * MIB + 1 };
    struct cache_test *test = *state;
    for (int guard = VMM_GUARD_RECORD; guard <= VMM_GUARD_ON; guard++) {
        guard_begun(test, (vmm_guard)guard, guard == VMM_GUARD_ON);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *block = block_taken(test, sizes[i], 1);
            vmm_item item = VMM_ITEM_INIT;
            assert_ok(vmm_find(test->cache, block + sizes[i] - 1, &item));
            assert_int_equal(item.address, (uintptr_t)block);
            assert_int_equal(item.requested_bytes, sizes[i]);
            assert_int_equal(item.bytes, vmm_block_bytes(test->cache, sizes[i]));
            assert_ptr_equal(item.stream, test->streams[1]);
            struct {
                const void *block;
                unsigned found;
                uint64_t bytes;
            } wanted = { .block = block };
            assert_ok(vmm_walk(test->cache, items_counted, &wanted));
            assert_int_equal(wanted.found, 1);
            assert_int_equal(wanted.bytes, item.bytes);
            block_given(test, block);
            assert_status(vmm_find(test->cache, block, &item), VMM_ERR_UNKNOWN_POINTER);
        }
        assert_ok(vmm__cache_check(test->cache));
    }
}

/* Without caching too, small blocks have canaries, and all memory goes back. */
static void a_guard_needs_no_cache(void **state)
{
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT;
    config.guard = VMM_GUARD_ON;
    config.no_caching = 1;
    cache_restart(test, &config);
    for (int i = 0; i < 20; i++) {
        void *block = block_taken(test, SMALL, 1);
        void *large = block_taken(test, LARGE, 2);
        bytes_written(test, block, 0, SMALL, 1);
        block_given(test, large);
        block_given(test, block);
    }
    void *block = block_taken(test, SMALL, 1);
    bytes_written(test, block, SMALL, 1, 1);
    assert_status(vmm_free(test->cache, block), VMM_ERR_CORRUPTED);
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
    assert_ok(vmm__cache_check(test->cache));
}

/* Blocks in a stream's capture are recorded and not touched; what graphs hold is neither poisoned nor unmapped. */
static void captured_blocks_are_left_alone(void **state)
{
    struct cache_test *test = *state;
    vmm_pool_id id = { 5, 6 };
    guard_begun(test, VMM_GUARD_ON, 0);
    assert_ok(vmm_pool_begin(test->cache, id, NULL, NULL));
    void *early = block_taken(test, SMALL, 1);
    bytes_written(test, early, 0, SMALL, 1);
    capture_begun(test, 1);
    void *block = block_allocated_here(test, SMALL, 1);
    void *large = block_taken(test, LARGE, 1);
    block_given(test, large);
    assert_status(block_misused_here(test, large), VMM_ERR_UNKNOWN_POINTER);
    assert_says("was freed before");
    capture_ended(test, 1);
    assert_ok(vmm_pool_end(test->cache, id));
    bytes_written(test, large, 0, LARGE, 1); /* as a launch of the graph does */
    block_given(test, early);
    block_given(test, block);
    assert_true(bytes_are(test, early, SMALL, 0x11, 1));
    assert_ok(vmm_guard_check(test->cache));
    assert_ok(vmm_pool_release(test->cache, id));
    assert_ok(vmm_guard_check(test->cache));
    (void)cache_trimmed(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
}

/* Nobody waits for a stream that is being captured, so its canaries may be on their way. */
static void blocks_of_captured_streams_are_looked_at_later(void **state)
{
    struct cache_test *test = *state;
    guard_begun(test, VMM_GUARD_ON, 0);
    void *others = block_taken(test, SMALL, 0);
    void *small = block_taken(test, SMALL, 1);
    void *large = block_taken(test, LARGE, 1);
    capture_begun(test, 1);
    assert_ok(vmm_guard_check(test->cache));
    capture_ended(test, 1);
    bytes_written(test, small, SMALL, 1, 1);
    assert_status(vmm_guard_check(test->cache), VMM_ERR_CORRUPTED);
    assert_status(vmm_free(test->cache, small), VMM_ERR_CORRUPTED);
    block_given(test, large);
    block_given(test, others);
}

/* The program's addresses are not the pool's: one that counts what waits must hear of none that it does not know. */
static void what_is_freed_is_shown_as_free(void **state)
{
    struct cache_test *test = *state;
    const size_t sizes[] = { SMALL, LARGE };
    for (unsigned i = 0; i < 2; i++) {
        guard_begun(test, VMM_GUARD_ON, 0);
        struct model *model = watch_begun(test);
        void *block = block_taken(test, sizes[i], 0);
        assert_ok(vmm_use(test->cache, block, test->streams[1]));
        capture_begun(test, 1); /* so what this stream does cannot be waited for */
        block_given(test, block);
        model_verified(test, model);
        assert_int_equal(cache_survey(test).waiting_blocks, 0);
        capture_ended(test, 1);
        assert_int_equal(cache_stats(test).allocations.current, 0);
        watch_ended(test, model);
    }
}

struct told {
    struct cache_test *test;
    void *live;
    unsigned times;
};

/* Of a cache that is ending: it takes no call. */
static void told_at_the_end(void *context, const char *line)
{
    struct told *told = context;
    vmm_cache *cache = told->test->cache;
    vmm_stats stats = VMM_STATS_INIT;
    void *out = told;
    told->times++;
    assert_text_has(line, "vmm_destroy: the byte at ");
    assert_status(vmm_alloc(cache, SMALL, told->test->streams[1], &out), VMM_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(out, told);
    assert_status(vmm_free(cache, told->live), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_use(cache, told->live, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_trim(cache, 0, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_stats_get(cache, &stats), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_guard_check(cache), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_misuse_write(cache, stderr), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_destroy(cache), VMM_ERR_INVALID_ARGUMENT);
}

/* Of a write beyond a live block, and of one into a freed one. */
static void who_is_told_by_the_end_cannot_call(void **state)
{
    struct cache_test *test = *state;
    for (int is_freed = 0; is_freed < 2; is_freed++) {
        struct told told = { .test = test };
        vmm_config config = VMM_CONFIG_INIT;
        config.guard = VMM_GUARD_ON;
        config.misuse = told_at_the_end;
        config.misuse_context = &told;
        cache_restart(test, &config);
        void *block = block_taken(test, SMALL, 1);
        told.live = block_taken(test, SMALL, 1);
        if (is_freed != 0)
            block_given(test, block);
        bytes_written(test, block, is_freed != 0 ? 0 : SMALL, 1, 1);
        assert_status(vmm_destroy(test->cache), VMM_ERR_CORRUPTED);
        assert_says("vmm_destroy: the byte at ");
        assert_int_equal(told.times, 1);
        driver_choice_census_is_zero(test->driver);
        assert_ok(vmm__cache_create_on(NULL, test->driver, &test->cache));
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(a_byte_beyond_a_small_block_is_found),
        CACHE_TEST(a_byte_before_a_small_block_is_found),
        CACHE_TEST(a_byte_beyond_a_large_block_is_found),
        CACHE_TEST(live_blocks_are_checked_on_demand),
        CACHE_TEST(freed_blocks_read_as_poison),
        CACHE_TEST(writes_after_free_are_found),
        CACHE_TEST(writes_after_free_are_found_before_reuse),
        CACHE_TEST(the_quarantine_goes_before_memory_runs_out),
        CACHE_TEST(pins_end_with_the_free),
        CACHE_TEST(addresses_of_large_blocks_are_new),
        CACHE_TEST(reports_know_blocks_as_the_program_does),
        CACHE_TEST(a_guard_needs_no_cache),
        CACHE_TEST(captured_blocks_are_left_alone),
        CACHE_TEST(blocks_of_captured_streams_are_looked_at_later),
        CACHE_TEST(what_is_freed_is_shown_as_free),
        CACHE_TEST(who_is_told_by_the_end_cannot_call),
    };
    CACHE_MAIN(tests);
}
