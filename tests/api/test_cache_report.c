/* Statistics, what a failure says, and the summary. */
#define _GNU_SOURCE
#include "support/cache_support.h"

#include <string.h>

#define LARGE       (8 * MIB)
#define LARGE_BLOCK (LARGE + 16 * KIB) /* of a request of LARGE + 1 */

CACHE_TEST(stats_of_an_older_caller_fit_its_struct)
{
    (void)block_alloc(test, LARGE, 0);
    vmm_stats all = cache_stats(test);
    for (size_t size = sizeof(size_t) + sizeof(vmm_stat); size <= sizeof all; size += 8) {
        vmm_stats stats;
        memset(&stats, 0x5a, sizeof stats);
        stats.struct_size = size;
        assert_ok(vmm_stats_get(test->cache, &stats));
        assert_int_equal(stats.struct_size, size);
        assert_memory_equal(&stats.requested_bytes, &all.requested_bytes, sizeof(vmm_stat));
        for (size_t i = size; i < sizeof stats; i++)
            assert_int_equal(((unsigned char *)&stats)[i], 0x5a);
    }
    struct {
        vmm_stats stats;
        uint64_t later_field;
    } newer = { .stats.struct_size = sizeof newer };
    assert_ok(vmm_stats_get(test->cache, &newer.stats));
    assert_int_equal(newer.stats.requested_bytes.current, LARGE);
}

static void assert_stat(vmm_stat figure, uint64_t current, uint64_t peak, uint64_t allocated)
{
    assert_int_equal(figure.current, current);
    assert_int_equal(figure.peak, peak);
    assert_int_equal(figure.allocated, allocated);
    assert_int_equal(figure.freed, allocated - current);
}

CACHE_TEST(stats_add_up)
{
    void *large = block_alloc(test, LARGE + 1, 0);
    void *tiny = block_alloc(test, 100, 0);
    vmm_stats stats = cache_stats(test);
    assert_stat(stats.requested_bytes, LARGE + 101, LARGE + 101, LARGE + 101);
    assert_stat(stats.allocated_bytes, LARGE_BLOCK + 512, LARGE_BLOCK + 512, LARGE_BLOCK + 512);
    assert_stat(stats.active_bytes, LARGE_BLOCK + 512, LARGE_BLOCK + 512, LARGE_BLOCK + 512);
    assert_stat(stats.allocations, 2, 2, 2);
    block_free(test, large);
    stats = cache_stats(test);
    assert_stat(stats.requested_bytes, 100, LARGE + 101, LARGE + 101);
    assert_stat(stats.allocations, 1, 2, 2);
    block_free(test, tiny);
    block_free(test, block_alloc(test, 3 * MIB, 0));
    stats = cache_stats(test);
    assert_stat(stats.requested_bytes, 0, LARGE + 101, LARGE + 3 * MIB + 101);
    assert_stat(stats.allocations, 0, 2, 3);
}

CACHE_TEST(peaks_can_be_reset)
{
    (void)block_alloc(test, LARGE, 0);
    block_free(test, block_alloc(test, 4 * LARGE, 0));
    work_verify(test);
    (void)cache_trim(test, 0);
    assert_ok(vmm_stats_reset_peak(test->cache));
    vmm_stats stats = cache_stats(test);
    assert_stat(stats.requested_bytes, LARGE, LARGE, 5 * LARGE);
    assert_int_equal(stats.allocated_bytes.peak, stats.allocated_bytes.current);
    assert_int_equal(stats.active_bytes.peak, stats.active_bytes.current);
    assert_int_equal(stats.reserved_bytes.peak, stats.reserved_bytes.current);
    assert_int_equal(stats.chunks.peak, stats.chunks.current);
    assert_int_equal(stats.allocations.peak, 1);
    (void)block_alloc(test, LARGE, 0);
    assert_int_equal(cache_stats(test).requested_bytes.peak, 2 * LARGE);
}

/* Memory created for a block that fits none of the holes of a peak that is over. */
static uint64_t created_after_a_peak(struct cache_test *test, bool resets)
{
    void *blocks[12];
    for (int i = 0; i < 12; i++)
        blocks[i] = block_alloc(test, 4 * MIB, 0);
    for (int i = 0; i < 12; i += 2)
        block_free(test, blocks[i]);
    if (resets)
        assert_ok(vmm_stats_reset_peak(test->cache));
    uint64_t before = cache_stats(test).reserved_bytes.allocated;
    (void)block_alloc(test, LARGE, 0);
    return cache_stats(test).reserved_bytes.allocated - before;
}

/* Reading and resetting statistics changes nothing that the cache does. */
CACHE_TEST(resetting_peaks_changes_no_decision)
{
    uint64_t without = created_after_a_peak(test, false);
    cache_restart(test, NULL);
    assert_int_equal(created_after_a_peak(test, true), without);
    cache_restart(test, NULL);
    assert_int_equal(created_after_a_peak(test, false), without);
}

CACHE_TEST(idle_memory_is_what_a_trim_would_free)
{
    void *blocks[3] = { block_alloc(test, LARGE, 0), block_alloc(test, 300000, 0),
                        block_alloc(test, 3 * LARGE + MIB, 1) };
    for (int i = 0; i < 3; i++) {
        block_free(test, blocks[i]);
        cache_verify(test);
    }
    uint64_t idle = cache_stats(test).idle_bytes;
    assert_int_equal(idle, cache_stats(test).reserved_bytes.current);
    assert_true(cache_stats(test).largest_free_bytes >= 3 * LARGE + MIB);
    work_verify(test);
    assert_int_equal(cache_trim(test, 0), idle);
    assert_int_equal(cache_stats(test).largest_free_bytes, 0);
}

CACHE_TEST(calls_and_streams_are_counted)
{
    vmm_stats before = cache_stats(test);
    for (unsigned stream = 0; stream < 3; stream++)
        block_free(test, block_alloc(test, LARGE, stream));
    work_verify(test);
    (void)cache_trim(test, 0);
    vmm_stats after = cache_stats(test);
    assert_int_equal(before.streams, 0);
    assert_int_equal(after.streams, 3);
    assert_true(after.create_calls > before.create_calls);
    assert_int_equal(after.create_calls - before.create_calls, after.map_calls - before.map_calls);
    assert_int_equal(after.create_calls - before.create_calls,
                     after.release_calls - before.release_calls);
    assert_int_equal(after.unmap_calls - before.unmap_calls, after.map_calls - before.map_calls);
    assert_true(after.access_calls > before.access_calls);
    assert_true(after.driver_ns > before.driver_ns);
    assert_int_equal(after.reserve_calls, before.reserve_calls);
}

/* ---- Pinned, and not to be moved --------------------------------------------------------------- */

CACHE_TEST(free_memory_is_idle_or_pinned)
{
    uint64_t granule = test->driver->granule_bytes;
    void *blocks[9];
    for (unsigned i = 0; i < 9; i++)
        blocks[i] = block_alloc(test, granule / 2 * 3, i % 2);
    assert_int_equal(cache_stats(test).pinned_bytes, cache_stats(test).reserved_bytes.current -
                                                         cache_stats(test).allocated_bytes.current -
                                                         cache_stats(test).idle_bytes);
    for (unsigned i = 0; i < 9; i++) {
        block_free(test, blocks[i]);
        vmm_stats stats = cache_stats(test);
        assert_int_equal(stats.pinned_bytes + stats.idle_bytes + stats.allocated_bytes.current,
                         stats.reserved_bytes.current);
        assert_true(stats.pinned_bytes < stats.chunks.current * 16 * granule);
    }
    assert_int_equal(cache_stats(test).pinned_bytes, 0);
}

static void assert_unmovable(struct cache_test *test, uint64_t bytes)
{
    assert_int_equal(cache_stats(test).unmovable_bytes, bytes);
    cache_verify(test);
}

CACHE_TEST(unmovable_bytes_are_counted)
{
    void *large = block_alloc(test, LARGE + 1, 0);
    void *small = block_alloc(test, 100000, 1);
    void *tiny = block_alloc(test, 700, 1);
    void *other = block_alloc(test, 700, 1);
    assert_unmovable(test, 0);
    for (int round = 0; round < 2; round++) {
        assert_ok(vmm_pin(test->cache, large));
        assert_unmovable(test, LARGE_BLOCK);
    }
    assert_ok(vmm_pin(test->cache, small));
    assert_unmovable(test, LARGE_BLOCK + 102400);
    assert_ok(vmm_pin(test->cache, tiny));
    assert_unmovable(test, LARGE_BLOCK + 102400 + 1024);
    for (int round = 0; round < 2; round++) {
        assert_ok(vmm_unpin(test->cache, small));
        assert_ok(vmm_unpin(test->cache, other));
        assert_unmovable(test, LARGE_BLOCK + 1024);
    }
    block_use(test, large, 2);
    (void)flight_begin(test, large, LARGE, 2);
    block_free(test, large); /* it waits, and is not live any more */
    assert_unmovable(test, 1024);
    block_free(test, tiny);
    assert_unmovable(test, 0);
    assert_status(vmm_pin(test->cache, tiny), VMM_ERR_UNKNOWN_POINTER);
    flight_end(test);
    assert_ptr_equal(block_alloc(test, 700, 1), tiny); /* pinned no longer */
    assert_unmovable(test, 0);
}

/* ---- Failure ---------------------------------------------------------------------------------- */

/* The figures of a failure's line, in the order in which it tells them. */
struct told {
    double needed, live, rounding, reserved, limit, idle, busy, pinned, hole, limbo, missing;
    void *stream;
};

static struct told line_read(const char *line)
{
    struct told told = { .missing = 0 };
    void *pinner;
    double most;
    char idle_unit[2];
    char busy_unit[2];
    char limbo_unit[2];
    char hole_unit[2];
    int found = sscanf(
        line,
        "needed %lf MiB on stream %p: %lf MiB live, %lf KiB rounding, %lf MiB reserved of %lf "
        "MiB (limit), %lf %1[KM]iB idle (%lf %1[KM]iB in flight), %lf MiB pinned beside "
        "live blocks (most by stream %p: %lf MiB), largest hole %lf %1[KM]iB, "
        "%lf %1[KM]iB in limbo; the limit is %lf MiB too small",
        &told.needed, &told.stream, &told.live, &told.rounding, &told.reserved, &told.limit,
        &told.idle, idle_unit, &told.busy, busy_unit, &told.pinned, &pinner, &most, &told.hole,
        hole_unit, &told.limbo, limbo_unit, &told.missing);
    if (found != 18)
        fail_msg("%d figures are in: %s", found, line);
    told.idle /= *idle_unit == 'K' ? 1024 : 1;
    told.busy /= *busy_unit == 'K' ? 1024 : 1;
    told.limbo /= *limbo_unit == 'K' ? 1024 : 1;
    told.hole /= *hole_unit == 'K' ? 1024 : 1;
    assert_true(most > 0 && most <= told.pinned);
    return told;
}

static void assert_mib(double mib, uint64_t bytes)
{
    double wanted = (double)bytes / MIB;
    assert_true(mib > wanted - 0.06 && mib < wanted + 0.06);
}

CACHE_TEST(the_line_of_a_failure_says_what_the_statistics_say)
{
    enum { PIECES = (int)(CACHE_LIMIT / LARGE) };
    void *blocks[2 * PIECES];
    for (unsigned i = 0; i < 2 * PIECES; i++)
        blocks[i] = block_alloc(test, LARGE / 2 - 700000, 1 + i % 3);
    for (unsigned i = 0; i < 2 * PIECES; i += 5)
        block_free(test, blocks[i]);
    void *out = NULL;
    assert_status(vmm_alloc(test->cache, 6 * LARGE, test->streams[2], &out), VMM_ERR_DEVICE_OOM);
    struct told told = line_read(vmm_last_error());
    vmm_stats stats = cache_stats(test);
    assert_ptr_equal(told.stream, test->streams[2]);
    assert_mib(told.needed, 6 * LARGE);
    assert_mib(told.live, stats.requested_bytes.current);
    assert_mib(told.reserved, stats.reserved_bytes.current);
    assert_mib(told.limit, stats.limit_bytes);
    assert_mib(told.idle, stats.idle_bytes);
    assert_mib(told.pinned, stats.pinned_bytes);
    assert_mib(told.hole, stats.largest_free_bytes);
    assert_mib(told.limbo, stats.limbo_bytes);
    assert_true(told.busy <= told.idle);
    assert_mib(told.live + told.rounding / 1024 + told.idle + told.pinned + told.limbo,
               stats.reserved_bytes.current);
    assert_true(told.missing > 0 && told.missing <= told.needed);
}

/* ---- Summary ----------------------------------------------------------------------------------
 */

/* Not inlined: GCC 12 then takes the stream's text for the pointer to it. */
static __attribute__((noinline)) char *summary_text(struct cache_test *test)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    _Atomic uint64_t *driver_ns = &test->driver->counts.driver_ns;
    atomic_fetch_add(driver_ns, 123456789000000); /* more than a day */
    vmm_status status = vmm_summary_write(test->cache, out);
    atomic_fetch_sub(driver_ns, 123456789000000);
    assert_ok(status);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void lines_are_as_wide_as_each_other(const char *text)
{
    const char *table = strchr(text, '+');
    assert_non_null(table);
    size_t width = strcspn(table, "\n");
    for (size_t at = 0; table[at] != '\0'; at += width + 1)
        assert_int_equal(strcspn(table + at, "\n"), width);
}

CACHE_TEST(the_summary_has_every_stat)
{
    (void)block_alloc(test, 3 * MIB, 0);
    char *text = summary_text(test);
#define LABEL_IS_THERE(name, unit, kind, of, label, help) assert_non_null(strstr(text, label));
    VMM_STAT_MAP(LABEL_IS_THERE)
    VMM_VALUE_MAP(LABEL_IS_THERE)
#undef LABEL_IS_THERE
    assert_non_null(strstr(text, vmm_version()));
    assert_non_null(strstr(text, test->driver->ops->name));
    assert_non_null(strstr(text, "3.0 MiB"));
    assert_non_null(strstr(text, "128 MiB"));
    lines_are_as_wide_as_each_other(text);
    free(text);
}

CACHE_TEST(a_failed_write_is_reported)
{
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_status(vmm_summary_write(test->cache, full), VMM_ERR_INVALID_ARGUMENT);
    (void)fclose(full);
}

CACHE_MAIN()
