/* Statistics, summary and walk. */
#define _GNU_SOURCE
#include "support/cache_support.h"

#include <string.h>

#define LARGE (8 * MIB)

static void null_arguments_are_refused(void **state)
{
    struct cache_test *test = *state;
    vmm_stats stats = { .struct_size = sizeof stats };
    assert_status(vmm_stats_get(NULL, &stats), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_stats_get(test->cache, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_stats_reset_peak(NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_summary_write(NULL, stderr), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_summary_write(test->cache, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_walk(test->cache, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_walk(NULL, (vmm_visitor)0, NULL), VMM_ERR_INVALID_ARGUMENT);
}

static void a_struct_size_too_small_is_refused(void **state)
{
    struct cache_test *test = *state;
    for (size_t size = 0; size < sizeof(size_t) + sizeof(vmm_figure); size++) {
        vmm_stats stats;
        memset(&stats, 0x5a, sizeof stats);
        stats.struct_size = size;
        vmm_stats before = stats;
        assert_status(vmm_stats_get(test->cache, &stats), VMM_ERR_INVALID_ARGUMENT);
        assert_memory_equal(&stats, &before, sizeof stats);
    }
}

static void callers_get_what_they_know(void **state)
{
    struct cache_test *test = *state;
    void *block = block_taken(test, LARGE, 0);
    vmm_stats all = cache_stats(test);
    for (size_t size = sizeof(size_t) + sizeof(vmm_figure); size <= sizeof all; size += 8) {
        vmm_stats stats;
        memset(&stats, 0x5a, sizeof stats);
        stats.struct_size = size;
        assert_ok(vmm_stats_get(test->cache, &stats));
        assert_int_equal(stats.struct_size, size);
        assert_memory_equal(&stats.requested_bytes, &all.requested_bytes, sizeof(vmm_figure));
        for (size_t i = size; i < sizeof stats; i++)
            assert_int_equal(((unsigned char *)&stats)[i], 0x5a);
    }
    struct {
        vmm_stats stats;
        uint64_t later_field;
    } newer = { .stats.struct_size = sizeof newer };
    assert_ok(vmm_stats_get(test->cache, &newer.stats));
    assert_int_equal(newer.stats.requested_bytes.current, LARGE);
    block_given(test, block);
}

static void assert_figure(vmm_figure figure, uint64_t current, uint64_t peak, uint64_t allocated)
{
    assert_int_equal(figure.current, current);
    assert_int_equal(figure.peak, peak);
    assert_int_equal(figure.allocated, allocated);
    assert_int_equal(figure.freed, allocated - current);
}

static void figures_add_up(void **state)
{
    struct cache_test *test = *state;
    void *large = block_taken(test, LARGE + 1, 0);
    void *tiny = block_taken(test, 100, 0);
    vmm_stats stats = cache_stats(test);
    assert_figure(stats.requested_bytes, LARGE + 101, LARGE + 101, LARGE + 101);
    assert_figure(stats.allocated_bytes, LARGE + 1024, LARGE + 1024, LARGE + 1024);
    assert_figure(stats.active_bytes, LARGE + 1024, LARGE + 1024, LARGE + 1024);
    assert_figure(stats.allocations, 2, 2, 2);
    block_given(test, large);
    stats = cache_stats(test);
    assert_figure(stats.requested_bytes, 100, LARGE + 101, LARGE + 101);
    assert_figure(stats.allocations, 1, 2, 2);
    block_given(test, tiny);
    block_given(test, block_taken(test, 3 * MIB, 0));
    stats = cache_stats(test);
    assert_figure(stats.requested_bytes, 0, LARGE + 101, LARGE + 3 * MIB + 101);
    assert_figure(stats.allocations, 0, 2, 3);
    cache_verified(test);
}

static void peaks_can_be_reset(void **state)
{
    struct cache_test *test = *state;
    void *stays = block_taken(test, LARGE, 0);
    block_given(test, block_taken(test, 4 * LARGE, 0));
    work_verified(test);
    (void)cache_trimmed(test, 0);
    assert_ok(vmm_stats_reset_peak(test->cache));
    vmm_stats stats = cache_stats(test);
    assert_figure(stats.requested_bytes, LARGE, LARGE, 5 * LARGE);
    assert_int_equal(stats.allocated_bytes.peak, stats.allocated_bytes.current);
    assert_int_equal(stats.active_bytes.peak, stats.active_bytes.current);
    assert_int_equal(stats.reserved_bytes.peak, stats.reserved_bytes.current);
    assert_int_equal(stats.chunks.peak, stats.chunks.current);
    assert_int_equal(stats.allocations.peak, 1);
    void *more = block_taken(test, LARGE, 0);
    assert_int_equal(cache_stats(test).requested_bytes.peak, 2 * LARGE);
    block_given(test, more);
    block_given(test, stays);
}

/* Memory created for a block that fits none of the holes of a peak that is over. */
static uint64_t created_after_a_peak(struct cache_test *test, bool resets)
{
    void *blocks[12];
    for (int i = 0; i < 12; i++)
        blocks[i] = block_taken(test, 4 * MIB, 0);
    for (int i = 0; i < 12; i += 2)
        block_given(test, blocks[i]);
    if (resets)
        assert_ok(vmm_stats_reset_peak(test->cache));
    uint64_t before = cache_stats(test).reserved_bytes.allocated;
    (void)block_taken(test, LARGE, 0);
    return cache_stats(test).reserved_bytes.allocated - before;
}

/* Reading and resetting statistics changes nothing that the cache does. */
static void resetting_peaks_changes_no_decision(void **state)
{
    struct cache_test *test = *state;
    uint64_t without = created_after_a_peak(test, false);
    cache_restart(test, NULL);
    assert_int_equal(created_after_a_peak(test, true), without);
    cache_restart(test, NULL);
    assert_int_equal(created_after_a_peak(test, false), without);
}

static void idle_memory_is_what_a_trim_would_free(void **state)
{
    struct cache_test *test = *state;
    void *blocks[3] = { block_taken(test, LARGE, 0), block_taken(test, 300000, 0),
                        block_taken(test, 3 * LARGE + MIB, 1) };
    for (int i = 0; i < 3; i++) {
        block_given(test, blocks[i]);
        cache_verified(test);
    }
    uint64_t idle = cache_stats(test).idle_bytes;
    assert_int_equal(idle, cache_stats(test).reserved_bytes.current);
    assert_true(cache_stats(test).largest_free_bytes >= 3 * LARGE + MIB);
    work_verified(test);
    assert_int_equal(cache_trimmed(test, 0), idle);
    assert_int_equal(cache_stats(test).largest_free_bytes, 0);
}

static void calls_and_streams_are_counted(void **state)
{
    struct cache_test *test = *state;
    vmm_stats before = cache_stats(test);
    for (unsigned stream = 0; stream < 3; stream++)
        block_given(test, block_taken(test, LARGE, stream));
    work_verified(test);
    (void)cache_trimmed(test, 0);
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

/* ---- Summary ----------------------------------------------------------------------------------
 */

static void the_summary_has_every_figure(void **state)
{
    struct cache_test *test = *state;
    void *block = block_taken(test, 3 * MIB, 0);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    assert_ok(vmm_summary_write(test->cache, out));
    assert_int_equal(fclose(out), 0);
#define LABEL_IS_THERE(name, unit, label) assert_non_null(strstr(text, label));
    VMM_FIGURE_MAP(LABEL_IS_THERE)
    VMM_NUMBER_MAP(LABEL_IS_THERE)
#undef LABEL_IS_THERE
    assert_non_null(strstr(text, vmm_version()));
    assert_non_null(strstr(text, test->driver->ops->name));
    assert_non_null(strstr(text, "3.0 MiB"));
    assert_non_null(strstr(text, "128 MiB"));
    size_t width = 0;
    for (char *line = strchr(text, '+'); line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n");
        width = width == 0 ? length : width;
        assert_int_equal(length, width);
        line += length + 1;
    }
    free(text);
    block_given(test, block);
}

static void a_file_that_takes_no_output_is_told(void **state)
{
    struct cache_test *test = *state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_status(vmm_summary_write(test->cache, full), VMM_ERR_INVALID_ARGUMENT);
    (void)fclose(full);
}

/* ---- Walk -------------------------------------------------------------------------------------
 */

struct counter {
    int seen;
    int most;
};

static int visits_counted(void *context, const vmm_item *item)
{
    struct counter *counter = context;
    (void)item;
    counter->seen++;
    return counter->seen == counter->most ? 7 : 0;
}

static void a_walk_can_end_early(void **state)
{
    struct cache_test *test = *state;
    void *blocks[20];
    for (unsigned i = 0; i < 20; i++)
        blocks[i] = block_taken(test, i % 2 == 0 ? 512 : 3 * MIB, i % 3);
    struct counter all = { 0 };
    assert_ok(vmm_walk(test->cache, visits_counted, &all));
    assert_true(all.seen > 40);
    for (int most = 1; most <= all.seen; most++) {
        struct counter some = { .most = most };
        assert_ok(vmm_walk(test->cache, visits_counted, &some));
        assert_int_equal(some.seen, most);
    }
    for (int i = 0; i < 20; i++)
        block_given(test, blocks[i]);
}

struct search {
    uint64_t address;
    vmm_item found;
    int hits;
};

static int block_searched(void *context, const vmm_item *item)
{
    struct search *search = context;
    if (item->kind == VMM_ITEM_BLOCK && item->address == search->address) {
        search->found = *item;
        search->hits++;
    }
    return 0;
}

static void every_block_is_visited_once(void **state)
{
    struct cache_test *test = *state;
    static const size_t sizes[] = { 0, 1, 777, 8192, 8193, MIB, MIB + 1, 5 * MIB + 3 };
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned stream = i % CACHE_STREAMS;
        struct search search = { .address = (uintptr_t)block_taken(test, sizes[i], stream) };
        assert_ok(vmm_walk(test->cache, block_searched, &search));
        assert_int_equal(search.hits, 1);
        assert_int_equal(search.found.state, VMM_ITEM_LIVE);
        assert_int_equal(search.found.requested_bytes, sizes[i]);
        assert_true(search.found.bytes >= sizes[i]);
        assert_ptr_equal(search.found.stream, test->streams[stream]);
    }
}

/* Slabs of odd sizes come to lie over the borders of chunks. */
static void slabs_over_chunk_borders_are_walked_in_order(void **state)
{
    struct cache_test *test = *state;
    enum { OBJECTS = 3000 };
    void **objects = calloc(OBJECTS, sizeof *objects);
    for (size_t i = 0; i < OBJECTS; i++)
        objects[i] = block_taken(test, 1 + i * 2711 % 8192, 0);
    cache_verified(test);
    for (size_t i = 0; i < OBJECTS; i += 2)
        block_given(test, objects[i]);
    cache_verified(test);
    for (size_t i = 1; i < OBJECTS; i += 2)
        block_given(test, objects[i]);
    cache_verified(test);
    free(objects);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(null_arguments_are_refused),
        CACHE_TEST(a_struct_size_too_small_is_refused),
        CACHE_TEST(callers_get_what_they_know),
        CACHE_TEST(figures_add_up),
        CACHE_TEST(peaks_can_be_reset),
        CACHE_TEST(resetting_peaks_changes_no_decision),
        CACHE_TEST(idle_memory_is_what_a_trim_would_free),
        CACHE_TEST(calls_and_streams_are_counted),
        CACHE_TEST(the_summary_has_every_figure),
        CACHE_TEST(a_file_that_takes_no_output_is_told),
        CACHE_TEST(a_walk_can_end_early),
        CACHE_TEST(every_block_is_visited_once),
        CACHE_TEST(slabs_over_chunk_borders_are_walked_in_order),
    };
    CACHE_MAIN(tests);
}
