/* The limit: it holds, memory is found under it, and what a refusal says and leaves. */
#define _GNU_SOURCE
#include "support/cache_support.h"
#include "support/thread_support.h"

#include <string.h>

#define LARGE (8 * MIB)
enum { PIECES = (int)(CACHE_LIMIT / LARGE) };

static void all_alloc(struct cache_test *test, void *blocks[PIECES], unsigned stream)
{
    for (int i = 0; i < PIECES; i++)
        blocks[i] = block_alloc(test, LARGE, stream);
}

/* Allocates all blocks on stream 1; each is filled with its index. */
static void all_fill(struct cache_test *test, void **blocks)
{
    all_alloc(test, blocks, 1);
    for (uint32_t i = 0; i < PIECES; i++)
        block_fill(test, blocks[i], LARGE, i, 1);
}

static void assert_refused(struct cache_test *test, size_t bytes, unsigned stream)
{
    void *out = test;
    assert_status(vmm_alloc(test->cache, bytes, test->streams[stream], &out), VMM_ERR_DEVICE_OOM);
    assert_ptr_equal(out, test);
}

CACHE_TEST(the_limit_can_be_used_to_the_last_byte)
{
    void *block = block_alloc(test, CACHE_LIMIT, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, CACHE_LIMIT);
    assert_int_equal(cache_stats(test).limit_bytes, CACHE_LIMIT);
    assert_refused(test, 1, 0);
    assert_refused(test, 1, 1);
    block_free(test, block);
    assert_refused(test, CACHE_LIMIT + 1, 0);
    block = block_alloc(test, CACHE_LIMIT, 1);
    block_free(test, block);
    assert_int_equal(cache_stats(test).reserved_bytes.peak, CACHE_LIMIT);
}

CACHE_TEST(the_limit_is_never_passed)
{
    enum { SLOTS = 200 };
    void *blocks[SLOTS] = { NULL };
    uint64_t seed = 3;
    for (int round = 0; round < 4000; round++) {
        void **slot = &blocks[random_next(&seed) % SLOTS];
        vmm_stream stream = test->streams[random_next(&seed) % CACHE_STREAMS];
        if (*slot == NULL) {
            vmm_status status = vmm_alloc(test->cache, random_bytes(&seed, 40 * MIB), stream, slot);
            if (status != VMM_OK)
                assert_status(status, VMM_ERR_DEVICE_OOM);
        } else {
            block_free(test, *slot);
            *slot = NULL;
        }
        assert_true(test->driver->created_bytes <= CACHE_LIMIT);
    }
    assert_true(cache_stats(test).ooms > 0);
    assert_true(cache_stats(test).retries >= cache_stats(test).ooms);
    assert_true(cache_stats(test).reserved_bytes.peak <= CACHE_LIMIT);
}

CACHE_TEST(a_failed_allocation_reports_free_memory)
{
    void *blocks[PIECES];
    all_alloc(test, blocks, 1);
    block_free(test, blocks[3]);
    block_free(test, blocks[7]);
    assert_refused(test, 3 * LARGE + 1, 1);
    static const char *const parts[] = { "needed 24.0 MiB",   "112.0 MiB live", "reserved",
                                         "128.0 MiB (limit)", "idle",           "pinned",
                                         "largest hole",      "limbo",          "the limit is" };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(vmm_last_error(), parts[i]) == NULL)
            fail_msg("'%s' is not in: %s", parts[i], vmm_last_error());
    }
    assert_null(strchr(vmm_last_error(), '\n'));
    assert_int_equal(cache_stats(test).ooms, 1);
}

struct live_sums {
    uint64_t hash;
};

static int live_sum(void *context, const vmm_item *item)
{
    struct live_sums *sums = context;
    if (item->kind == VMM_ITEM_BLOCK && item->state != VMM_ITEM_FREE)
        sums->hash = sums->hash * 31 + (item->address ^ item->bytes ^ item->requested_bytes);
    return 0;
}

CACHE_TEST(a_failed_allocation_changes_nothing)
{
    void *blocks[PIECES];
    all_fill(test, blocks);
    block_free(test, blocks[3]);
    struct live_sums sums_before = { 0 };
    struct live_sums sums_after = { 0 };
    assert_ok(vmm_walk(test->cache, live_sum, &sums_before));
    vmm_stats before = cache_stats(test);
    assert_refused(test, 2 * LARGE, 1);
    assert_refused(test, 2 * LARGE, 2);
    assert_refused(test, LARGE + MIB, 3);
    vmm_stats after = cache_stats(test);
    assert_ok(vmm_walk(test->cache, live_sum, &sums_after));
    assert_int_equal(sums_before.hash, sums_after.hash);
    assert_memory_equal(&before.requested_bytes, &after.requested_bytes, sizeof(vmm_stat));
    assert_memory_equal(&before.allocated_bytes, &after.allocated_bytes, sizeof(vmm_stat));
    assert_memory_equal(&before.active_bytes, &after.active_bytes, sizeof(vmm_stat));
    assert_memory_equal(&before.allocations, &after.allocations, sizeof(vmm_stat));
    assert_int_equal(after.ooms, before.ooms + 3);
    assert_true(after.reserved_bytes.current <= before.reserved_bytes.current);
    cache_verify(test);
    for (uint32_t i = 0; i < PIECES; i++) {
        if (i != 3)
            block_check(test, blocks[i], LARGE, i, 1);
    }
    blocks[3] = block_alloc(test, LARGE, 2);
}

/* A cache that only splits and joins blocks fails here. */
CACHE_TEST(scattered_idle_memory_serves_a_large_block)
{
    void *blocks[PIECES];
    all_fill(test, blocks);
    for (int i = 0; i < PIECES; i += 2)
        block_free(test, blocks[i]);
    for (unsigned stream = 1; stream < 3; stream++) {
        void *large = block_alloc(test, CACHE_LIMIT / 2, stream);
        block_fill(test, large, CACHE_LIMIT / 2, 99, stream);
        block_check(test, large, CACHE_LIMIT / 2, 99, stream);
        block_free(test, large);
    }
    for (uint32_t i = 1; i < PIECES; i += 2)
        block_check(test, blocks[i], LARGE, i, 1);
    assert_int_equal(cache_stats(test).ooms, 0);
}

CACHE_TEST(small_idle_memory_serves_large_blocks_and_back)
{
    enum { SMALLS = 256 };
    for (unsigned round = 0; round < 4; round++) {
        void *blocks[SMALLS];
        size_t bytes = (size_t)(CACHE_LIMIT / SMALLS);
        for (int i = 0; i < SMALLS; i++)
            blocks[i] = block_alloc(test, bytes, round % 2);
        assert_refused(test, bytes, 2);
        for (int i = 0; i < SMALLS; i++)
            block_free(test, blocks[i]);
        block_free(test, block_alloc(test, CACHE_LIMIT, round / 2));
        cache_verify(test);
    }
}

/* Every class of slabs keeps an empty one; together they must serve a request that they can. */
CACHE_TEST(empty_slabs_serve_other_sizes)
{
    cache_restart_with(test, .limit_bytes = test->driver->granule_bytes);
    enum { FILLERS = 4096 };
    void **fillers = calloc(FILLERS, sizeof *fillers);
    void *objects[8];
    for (size_t i = 0; i < 8; i++)
        objects[i] = block_alloc(test, (i + 1) * 1024, 0);
    int count = 0;
    for (size_t bytes = MIB; bytes > 8192; bytes /= 2) {
        while (vmm_alloc(test->cache, bytes, test->streams[0], &fillers[count]) == VMM_OK)
            count++;
    }
    for (size_t i = 0; i < 8; i++)
        block_free(test, objects[i]);
    void *block = block_alloc(test, 400000, 0);
    block_free(test, block);
    free(fillers);
}

CACHE_TEST(a_limit_below_the_granule_allows_nothing)
{
    cache_restart_with(test, .limit_bytes = 1);
    assert_refused(test, 0, 0);
    assert_refused(test, 1, 1);
    assert_refused(test, LARGE, 0);
}

CACHE_TEST(no_limit_can_be_set_in_two_ways)
{
    static const uint64_t values[] = { 0, VMM_NO_LIMIT };
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        options.limit_bytes = values[i];
        assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT / 2));
        assert_ok(vmm_limit_set(test->cache, values[i]));
        assert_int_equal(cache_stats(test).limit_bytes, 0);
        vmm_pool *pool = pool_in_with(test->cache, &options);
        vmm_stats stats = pool_stats(pool);
        assert_int_equal(stats.limit_bytes, 0);
        assert_ok(vmm_pool_limit_set(pool, LARGE));
        assert_ok(vmm_pool_limit_set(pool, values[i]));
        assert_ok(vmm_pool_stats_get(pool, &stats));
        assert_int_equal(stats.limit_bytes, 0);
        assert_ok(vmm_pool_destroy(pool, 0));
    }
}

CACHE_TEST(odd_limits_hold)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = 5 * test->driver->granule_bytes + 12345;
    cache_restart(test, &config);
    void *block = block_alloc(test, 5 * test->driver->granule_bytes, 0);
    assert_refused(test, 12345, 0);
    block_free(test, block);
    assert_refused(test, config.limit_bytes, 0);
    block_free(test, block_alloc(test, 4 * test->driver->granule_bytes + 1, 1));
}

/* vmm_last_error() speaks of calls that failed, not of what was tried on the way to success. */
static void *success_after_retry(void *context)
{
    struct cache_test *test = context;
    void *block = NULL;
    if (vmm_last_error()[0] != '\0')
        return "a new thread has a last error";
    if (vmm_alloc(test->cache, CACHE_LIMIT, test->streams[2], &block) != VMM_OK)
        return "the allocation failed";
    if (vmm_last_error()[0] != '\0')
        return "a successful call left a last error";
    return vmm_free(test->cache, block) == VMM_OK ? NULL : "the free failed";
}

CACHE_TEST(retries_leave_no_error)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .reuse = VMM_REUSE_DECLARED);
    void *block = block_alloc(test, CACHE_LIMIT, 1);
    bool is_sure = flight_begin(test, block, CACHE_LIMIT, 1);
    block_free(test, block);
    const char *trouble = thread_run(success_after_retry, test);
    if (trouble != NULL)
        fail_msg("%s", trouble);
    if (is_sure)
        assert_true(cache_stats(test).retries > 0);
}

CACHE_TEST(device_memory_is_reported)
{
    uint64_t free_before, free_bytes, total_bytes;
    assert_ok(vmm_device_memory(test->cache, &free_before, &total_bytes));
    assert_int_equal(total_bytes, test->driver->total_bytes);
    assert_true(free_before <= total_bytes);
    void *block = block_alloc(test, CACHE_LIMIT, 0);
    assert_ok(vmm_device_memory(test->cache, &free_bytes, &total_bytes));
    assert_true(free_bytes <=
                free_before - CACHE_LIMIT); /* a real driver may take some for itself */
    block_free(test, block);
    free_bytes = 1;
    assert_status(vmm_device_memory(NULL, &free_bytes, &total_bytes), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_device_memory(test->cache, &free_bytes, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_device_memory(test->cache, NULL, &total_bytes), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(free_bytes, 1);
}

/* ---- Splits ------------------------------------------------------------------------------------ */

/* Under a limit, a block that enters an idle chunk leaves the rest of it idle. Contents of other blocks stay. */
CACHE_TEST(near_a_limit_blocks_do_not_pin_large_chunks)
{
    enum { CHUNKS = 6 };
    void *blocks[CHUNKS];
    cache_restart_with(test, .footprint_permille = VMM_FOOTPRINT_ANY);
    large_chunks_make(test, CHUNKS * LARGE_CHUNK, 1);
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
    (void)block_alloc(test, 100, 1); /* a miss, at which the stream learns of the limit */
    for (uint32_t i = 0; i < CHUNKS; i++) {
        blocks[i] = block_alloc(test, LARGE_CHUNK, 1);
        block_fill(test, blocks[i], LARGE_CHUNK, i + 1, 1);
    }
    for (uint32_t i = 0; i < CHUNKS; i += 2) {
        block_free(test, blocks[i]);
        blocks[i] = NULL;
    }
    work_verify(test);
    uint64_t idle_bytes = cache_stats(test).idle_bytes;
    for (uint32_t i = 0; i < 4; i += 2) {
        blocks[i] = block_alloc(test, 4 * MIB, 1);
        block_fill(test, blocks[i], 4 * MIB, i + 1, 1);
        work_verify(test); /* a chunk is split only if its work has finished */
        idle_bytes -= 4 * MIB;
        assert_int_equal(cache_stats(test).idle_bytes, idle_bytes);
    }
    for (uint32_t i = 0; i < CHUNKS; i++) {
        if (blocks[i] == NULL)
            continue;
        block_check(test, blocks[i], i % 2 == 0 ? 4 * MIB : LARGE_CHUNK, i + 1, 1);
        block_free(test, blocks[i]);
    }
}

/*
 * Work that uses all memory under the limit but that of a live block ends at any moment of a request, also between two
 * looks of the same request: what an attempt releases while it fails serves the next one.
 */
#define HALF (LARGE / 2)

static void late_alloc(struct cache_test *test, void **live)
{
    (void)live;
    block_free(test, block_alloc(test, HALF, 2));
}

static void late_commit(struct cache_test *test, void **live)
{
    vmm_pool *pool = vmm_cache_pool(test->cache);
    void *block;
    (void)live;
    assert_ok(vmm_reserve(pool, HALF, 0, test->streams[2], &block));
    assert_ok(vmm_commit(test->cache, block, 0, HALF));
    block_free(test, block);
}

static void late_resize(struct cache_test *test, void **live)
{
    assert_ok(vmm_resize(test->cache, *live, LARGE, live));
    block_check(test, *live, HALF, 7, 2);
    assert_ok(vmm_resize(test->cache, *live, HALF, live));
}

static void late_sweep(struct cache_test *test, void (*request)(struct cache_test *, void **))
{
    /* A query of an event takes sim 180 ns. Elsewhere time passes by itself, and threads wake when the system likes:
     * smaller steps try the same moments again. */
    enum { NS_MOST = 30000, SIM_STEP_NS = 60, STEP_NS = 600 };
    uint64_t step_ns = driver_choice_kind() == VMM_DRIVER_SIM ? SIM_STEP_NS : STEP_NS;
    cache_restart_with(test, .limit_bytes = LARGE);
    vmm_pool *pool = vmm_cache_pool(test->cache);
    void *live = block_alloc(test, HALF, 2);
    void *old;
    block_fill(test, live, HALF, 7, 2);
    assert_ok(vmm_reserve(pool, HALF, 0, test->streams[1], &old));
    for (uint64_t ns = 1; ns < NS_MOST; ns += step_ns) {
        assert_ok(vmm_commit(test->cache, old, 0, HALF));
        assert_ok(vmm__driver_delay(test->driver, ns, test->streams[1]));
        assert_ok(vmm_decommit(test->cache, old, 0, HALF));
        request(test, &live);
    }
    cache_verify(test);
}

CACHE_TEST(an_alloc_gets_what_ends_late)
{
    late_sweep(test, late_alloc);
}

CACHE_TEST(a_commit_gets_what_ends_late)
{
    late_sweep(test, late_commit);
}

CACHE_TEST(a_resize_gets_what_ends_late)
{
    late_sweep(test, late_resize);
}

CACHE_MAIN()
