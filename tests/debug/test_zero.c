/* vmm_config.zero: no block shows bytes of an earlier owner. */
#include "debug_support.h"

#include "driver/sim/sim.h"
#include "support/pool_support.h"

enum { CANARY_WORD = 0x7777 };

static const size_t sizes[] = { 1, 512, 1000, 8192, 70000, MIB, MIB + 1, 5 * MIB };
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Allocates a block, checks that it is zero to its end, and overwrites all of it. */
static void *block_allocate_clean(struct cache_test *test, size_t bytes, unsigned stream)
{
    void *block = block_alloc(test, bytes, stream);
    size_t whole = vmm_block_bytes(test->cache, bytes);
    assert_true(bytes_are(test, block, whole, 0, stream));
    bytes_write(test, block, 0, whole, stream);
    block_fill(test, block, whole, CANARY_WORD, stream);
    return block;
}

CACHE_TEST(blocks_of_every_size_are_zero)
{
    for (int debug = VMM_DEBUG_OFF; debug <= VMM_DEBUG_RECORD; debug++) {
        debug_restart(test, (vmm_debug_mode)debug, 1);
        for (size_t i = 0; i < SIZES * 3; i++)
            block_free(test, block_allocate_clean(test, sizes[i % SIZES], 1));
        work_verify(test);
        cache_verify(test);
    }
}

/* Also if the memory was another pool's before. */
CACHE_TEST(blocks_of_pools_are_zero)
{
    debug_restart(test, VMM_DEBUG_OFF, 1);
    vmm_pool *pools[2] = { pool_make(test, .name = "a"), pool_make(test, .name = "b") };
    for (size_t i = 0; i < SIZES * 3; i++) {
        void *block = pool_alloc(test, pools[i % 2], sizes[i % SIZES], 1);
        size_t whole = vmm_block_bytes(test->cache, sizes[i % SIZES]);
        assert_true(bytes_are(test, block, whole, 0, 1));
        bytes_write(test, block, 0, whole, 1);
        block_free(test, block);
    }
    assert_ok(vmm_pool_destroy(pools[0], 0));
    assert_ok(vmm_pool_destroy(pools[1], 0));
}

CACHE_TEST(placed_blocks_are_zero)
{
    for (int debug = VMM_DEBUG_ON; debug <= VMM_DEBUG_RECORD; debug++) {
        debug_restart(test, (vmm_debug_mode)debug, 1);
        vmm_pool *pool = pool_make(test, .kind = VMM_POOL_GRAPH);
        for (size_t i = 0; i < SIZES; i++) {
            void *block = pool_alloc(test, pool, sizes[i], 1);
            bytes_write(test, block, 0, sizes[i], 1);
            block_free(test, block);
            assert_ok(vmm_pool_place(pool, block, sizes[i], test->streams[1]));
            assert_true(bytes_are(test, block, sizes[i], 0, 1));
            block_free(test, block);
        }
        assert_ok(vmm_pool_destroy(pool, 0));
    }
}

/* With canaries, the block's own bytes are zero. */
CACHE_TEST(blocks_with_canaries_are_zero)
{
    debug_restart(test, VMM_DEBUG_ON, 1);
    for (size_t i = 0; i < SIZES * 3; i++) {
        void *block = block_alloc(test, sizes[i % SIZES], 1);
        assert_true(bytes_are(test, block, sizes[i % SIZES], 0, 1));
        bytes_write(test, block, 0, sizes[i % SIZES], 1);
        block_free(test, block);
    }
}

/* Only what debug mode watches has no views: an access after a free must fault there. */
CACHE_TEST(blocks_in_views_are_zero)
{
    enum { BLOCKS = CACHE_LIMIT / (8 * MIB) };
    static const vmm_debug_mode modes[] = { VMM_DEBUG_OFF, VMM_DEBUG_RECORD };
    for (int mode = 0; mode < 2; mode++) {
        void *blocks[BLOCKS];
        debug_restart(test, modes[mode], 1);
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = block_allocate_clean(test, 8 * MIB, 1);
        for (int i = 1; i < BLOCKS; i += 2)
            block_free(test, blocks[i]);
        work_verify(test);
        void *block = block_allocate_clean(test, 24 * MIB, 1);
        assert_true(cache_stats(test).stitches > 0);
        block_free(test, block);
        for (int i = 0; i < BLOCKS; i += 2)
            block_free(test, blocks[i]);
        work_verify(test);
        cache_verify(test);
    }
}

/* Neither memory that is transferred to another stream nor memory released to the driver shows old bytes. */
CACHE_TEST(streams_and_trims_show_no_old_bytes)
{
    debug_restart(test, VMM_DEBUG_OFF, 1);
    uint64_t seed = 5;
    for (unsigned round = 0; round < 12; round++) {
        void *blocks[6];
        for (unsigned i = 0; i < 6; i++)
            blocks[i] = block_allocate_clean(test, random_bytes(&seed, 12 * MIB), (round + i) % 4);
        block_use(test, blocks[1], (round + 3) % 4);
        for (unsigned i = 0; i < 6; i++)
            block_free(test, blocks[i]);
        if (round % 3 == 0)
            (void)cache_trim(test, 0);
        if (round % 3 == 1)
            assert_ok(vmm_wait(test->cache));
    }
    work_verify(test);
    cache_verify(test);
}

CACHE_TEST(graph_pools_show_no_old_bytes)
{
    vmm_pool_id id = { 1, 2 };
    debug_restart(test, VMM_DEBUG_OFF, 1);
    block_free(test, block_allocate_clean(test, 8 * MIB, 1));
    assert_ok(graph_pool_begin(test->cache, id, NULL, NULL));
    void *block = block_allocate_clean(test, 8 * MIB, 1);
    void *small = block_allocate_clean(test, 3000, 2);
    block_free(test, block);
    block_free(test, block_allocate_clean(test, 4 * MIB, 1));
    assert_ok(graph_pool_end(test->cache, id));
    block_free(test, small);
    assert_ok(graph_pool_release(test->cache, id));
    block_free(test, block_allocate_clean(test, 8 * MIB, 1));
    block_free(test, block_allocate_clean(test, 3000, 2));
    work_verify(test);
}

/* On cuda the clear becomes part of the graph; nothing ends the capture. */
CACHE_TEST(captured_blocks_are_zero)
{
    vmm_pool_id id = { 1, 2 };
    debug_restart(test, VMM_DEBUG_ON, 1);
    assert_ok(graph_pool_begin(test->cache, id, NULL, NULL));
    capture_begin(test, 1);
    void *block = block_alloc(test, 3000, 1);
    void *large = block_alloc(test, 5 * MIB, 1);
    block_free(test, block);
    capture_end(test, 1);
    assert_ok(graph_pool_end(test->cache, id));
    block_free(test, large);
    assert_ok(graph_pool_release(test->cache, id));
    assert_ok(vmm_debug_check(test->cache));
}

/* Compaction moves live bytes to pages of earlier owners: no bytes of those owners may appear. */
CACHE_TEST(compaction_shows_no_old_bytes)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.footprint_permille = VMM_FOOTPRINT_ANY;
    config.zero = 1;
    cache_restart(test, &config);
    uint64_t moved = 0;
    void *blocks[8];
    large_chunks_make(test, 32 * MIB, 1);
    for (int i = 0; i < 2; i++)
        blocks[i] = block_allocate_clean(test, 12 * MIB, 1);
    for (int i = 0; i < 2; i++)
        block_free(test, blocks[i]);
    for (int i = 0; i < 8; i++)
        blocks[i] = block_allocate_clean(test, 3 * MIB, 1);
    for (int i = 0; i < 8; i += 2)
        block_free(test, blocks[i]);
    assert_ok(vmm_compact(test->cache, 0, &moved, NULL));
    assert_true(moved > 0);
    void *large = block_allocate_clean(test, 14 * MIB, 1);
    for (int i = 1; i < 8; i += 2) {
        block_check(test, blocks[i], vmm_block_bytes(test->cache, 3 * MIB), CANARY_WORD, 1);
        block_free(test, blocks[i]);
    }
    block_free(test, large);
    work_verify(test);
}

/* ---- Host memory: the program itself reads and writes it ---------------------------------------- */

enum { DIRTY = 0x11, DELAY_NS = 20000000 };

static bool is_host(void)
{
    return driver_choice_kind() == VMM_DRIVER_HOST;
}

/* Writes a block as its owner does: on host directly, elsewhere with work on the stream. */
static void owner_write(struct cache_test *test, void *block, size_t bytes, unsigned stream)
{
    if (is_host())
        memset(block, DIRTY, bytes);
    else
        bytes_write(test, block, 0, bytes, stream);
}

/* Returns whether the owner reads only this value: on host all bytes without a wait, elsewhere both ends in stream
 * order. */
static bool owner_sees(struct cache_test *test, const void *block, size_t bytes, uint8_t value,
                       unsigned stream)
{
    const unsigned char *first = block;
    if (is_host())
        return first[0] == value && memcmp(first, first + 1, bytes - 1) == 0;
    size_t end = bytes < 4096 ? bytes : 4096;
    return bytes_are(test, first, end, value, stream) &&
           bytes_are(test, first + bytes - end, end, value, stream);
}

CACHE_TEST(bytes_written_at_once_stay)
{
    size_t bytes = 3 * MIB;
    debug_restart(test, VMM_DEBUG_OFF, 1);
    for (int round = 0; round < 500; round++) {
        void *block = block_alloc(test, bytes, 1);
        owner_write(test, block, bytes, 1);
        assert_true(owner_sees(test, block, bytes, DIRTY, 1));
        block_free(test, block);
        work_verify(test);
    }
}

CACHE_TEST(reused_blocks_are_zero)
{
    size_t bytes = 3 * MIB;
    debug_restart(test, VMM_DEBUG_OFF, 1);
    for (int round = 0; round < 200; round++) {
        void *block = block_alloc(test, bytes, 1);
        assert_true(owner_sees(test, block, bytes, 0, 1));
        owner_write(test, block, bytes, 1);
        block_free(test, block);
    }
}

/* Work in flight on the block's stream, or on another stream that uses it, ends before the block is cleared. */
CACHE_TEST(clear_waits_for_earlier_work)
{
    size_t bytes = 24 * MIB;
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = 32 * MIB; /* the second block needs the memory of the first */
    config.zero = 1;
    config.reuse = VMM_REUSE_STREAM_WAIT;
    for (unsigned worker = 1; worker < 3; worker++) {
        for (unsigned next = 1; next < 4; next++) {
            cache_restart(test, &config);
            void *block = block_alloc(test, bytes, 1);
            if (worker != 1)
                block_use(test, block, worker);
            stream_follow(test, worker, 1);
            assert_ok(vmm__driver_delay(test->driver, DELAY_NS, test->streams[worker]));
            block_fill(test, block, bytes, CANARY_WORD, worker);
            block_free(test, block);
            block = block_alloc(test, bytes, next);
            assert_true(owner_sees(test, block, bytes, 0, next));
            work_verify(test);
            assert_true(owner_sees(test, block, bytes, 0, next));
            block_free(test, block);
        }
    }
}

/* A capture gets this memory, which work may use: host memory is zero at once, and stays so. */
static void captured_block_is_zero(struct cache_test *test, void *freed, size_t bytes)
{
    capture_begin(test, 1);
    void *block = block_alloc(test, bytes, 1);
    assert_ptr_equal(block, freed);
    assert_true(!is_host() || owner_sees(test, block, bytes, 0, 1));
    capture_end(test, 1);
    work_verify(test);
    assert_true(!is_host() || owner_sees(test, block, bytes, 0, 1));
    block_free(test, block);
}

/* During a capture, host memory is cleared at once, too. On a GPU the graph clears it at its launch, and no test
 * launches the graph. */
CACHE_TEST(captured_host_blocks_are_zero_at_once)
{
    vmm_pool_id id = { 1, 2 };
    size_t bytes = 5 * MIB;
    debug_restart(test, VMM_DEBUG_OFF, 1);
    assert_ok(graph_pool_begin(test->cache, id, NULL, NULL));
    void *before = block_alloc(test, bytes, 1);
    assert_ok(vmm__driver_delay(test->driver, DELAY_NS, test->streams[1]));
    block_fill(test, before, bytes, CANARY_WORD, 1);
    block_free(test, before);
    captured_block_is_zero(test, before, bytes);
    assert_ok(graph_pool_end(test->cache, id));
    assert_ok(graph_pool_release(test->cache, id));
}

/* Launches of a pool's graphs write to what those graphs freed, on any stream. A later capture gets that memory: its
 * clear must not write under a launch. */
CACHE_TEST(captured_clear_waits_for_launches)
{
    vmm_pool_id id = { 1, 2 };
    size_t bytes = 5 * MIB;
    debug_restart(test, VMM_DEBUG_OFF, 1);
    assert_ok(graph_pool_begin(test->cache, id, NULL, NULL));
    capture_begin(test, 1);
    void *first = block_alloc(test, bytes, 1);
    block_free(test, first);
    capture_end(test, 1);
    block_fill(test, first, bytes, CANARY_WORD, 2); /* a launch of that capture */
    assert_ok(vmm__driver_delay(test->driver, DELAY_NS, test->streams[2]));
    block_check(test, first, bytes, CANARY_WORD, 2);
    captured_block_is_zero(test, first, bytes);
    assert_ok(graph_pool_end(test->cache, id));
    assert_ok(graph_pool_release(test->cache, id));
}

/* An allocation that cannot clear its block fails and changes nothing. */
CACHE_TEST(allocation_without_zeros_fails)
{
    if (driver_choice_kind() != VMM_DRIVER_SIM) {
        assert_true(driver_choice_kind() != VMM_DRIVER_DEFAULT); /* only sim fails numbered calls */
        return;
    }
    for (int debug = VMM_DEBUG_ON; debug <= VMM_DEBUG_RECORD; debug++) {
        for (size_t i = 0; i < SIZES; i++) {
            debug_restart(test, (vmm_debug_mode)debug, 1);
            bool has_failed = true;
            for (uint64_t call = 1; has_failed; call++) {
                void *block = test;
                vmm__sim_fail_at(test->driver, call, VMM_ERR_DRIVER, false);
                vmm_status status = vmm_alloc(test->cache, sizes[i], test->streams[1], &block);
                has_failed = vmm__sim_faults_fired(test->driver) > 0;
                vmm__sim_fail_at(test->driver, 0, VMM_OK, false);
                assert_true(call < 100);
                assert_true(status == VMM_OK || block == (void *)test);
                assert_int_equal(cache_stats(test).allocations.current, status == VMM_OK);
                assert_ok(vmm__cache_check(test->cache));
                if (status == VMM_OK)
                    block_free(test, block);
            }
        }
    }
}

CACHE_MAIN()
