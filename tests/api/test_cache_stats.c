/* Totals and peaks of allocations: exact for one caller, within known bounds for several. */
#define _GNU_SOURCE
#include "support/cache_support.h"
#include "support/thread_support.h"

#include "base/hostmem.h"
#include "cache/cache.h"

#include <limits.h>
#include <string.h>

/* What a lane may not have flushed while several threads call: see lane/counters.h. */
#define COUNTERS_SLACK (4 * MIB)

/* Two streams that have memory of their own, all of it free. */
static void streams_warmed(struct cache_test *test, size_t bytes)
{
    void *blocks[2];
    for (unsigned i = 0; i < 2; i++)
        blocks[i] = block_alloc(test, bytes, i);
    for (unsigned i = 0; i < 2; i++)
        block_free(test, blocks[i]);
    assert_ok(vmm_stats_reset_peak(test->cache));
}

/* The first block of each stream is handed out by the slow path. */
CACHE_TEST(first_blocks_count)
{
    streams_warmed(test, 32 * MIB);
    void *blocks[2] = { block_alloc(test, 16 * MIB, 2), block_alloc(test, 16 * MIB, 3) };
    block_free(test, blocks[0]);
    block_free(test, blocks[1]);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.allocated_bytes.peak, 32 * MIB);
    assert_int_equal(stats.active_bytes.peak, 32 * MIB);
    assert_int_equal(stats.allocations.peak, 2);
    assert_int_equal(stats.allocated_bytes.current, 0);
}

/* Idle, beside a live block, in a slab, in a retained pool: all that a request could get. */
CACHE_TEST(free_bytes_are_all_that_no_block_has)
{
    assert_int_equal(cache_stats(test).free_bytes, 0);
    void *live = block_alloc(test, 5 * MIB, 0);
    void *small = block_alloc(test, 512, 0);
    uint64_t beside = cache_stats(test).free_bytes;
    assert_true(beside >= 2 * MIB - 64 * KIB && beside < 4 * MIB);
    block_free(test, block_alloc(test, 16 * MIB, 1));
    assert_int_equal(cache_stats(test).free_bytes, beside + 16 * MIB);
    vmm_pool *pool = pool_in_with(test->cache, NULL);
    assert_ok(vmm_pool_retain(pool));
    void *block = block_in_pool(pool, 8 * MIB, test->streams[2]);
    block_free(test, block);
    assert_int_equal(cache_stats(test).free_bytes, beside + 16 * MIB); /* it took idle memory */
    vmm_stats of_pool = pool_stats(pool);
    assert_int_equal(of_pool.free_bytes, 8 * MIB);
    assert_int_equal(of_pool.host_bytes, 0);
    assert_ok(vmm_pool_drop(pool));
    assert_ok(vmm_pool_destroy(pool, 0));
    block_free(test, live);
    block_free(test, small);
    cache_verify_empty(test);
    assert_int_equal(cache_stats(test).free_bytes, 0);
}

/* Records of all caches count, and the tables by address, which would hide them, do not. */
CACHE_TEST(host_bytes_are_those_of_records)
{
    enum { BLOCKS = 2000, FEWEST_BYTES_EACH = 16, MOST_BYTES = 4 * MIB };
    static void *blocks[BLOCKS];
    uint64_t before = cache_stats(test).host_bytes;
    assert_true(before > 0 && before < MOST_BYTES);
    assert_true(before < vmm__host_outstanding());
    vmm_cache *second = cache_second(test);
    uint64_t with_second = cache_stats(test).host_bytes;
    assert_true(with_second > before);
    for (int i = 0; i < BLOCKS; i++)
        assert_ok(vmm_alloc(second, 20000, test->streams[i % CACHE_STREAMS], &blocks[i]));
    assert_true(cache_stats(test).host_bytes >= with_second + BLOCKS * FEWEST_BYTES_EACH);
    assert_ok(vmm_destroy(second));
    assert_int_equal(cache_stats(test).host_bytes, before);
}

/* ---- Descriptions --------------------------------------------------------------------------- */

static bool name_ends(const vmm_stat_description *stat, const char *end)
{
    size_t length = strlen(stat->name);
    return length >= strlen(end) && strcmp(stat->name + length - strlen(end), end) == 0;
}

/* They tell of every byte of vmm_stats, in order, with names and labels of their own. */
CACHE_TEST(every_statistic_is_described)
{
    const vmm_stat_description *stat;
    size_t offset = offsetof(vmm_stats, requested_bytes);
    unsigned count = 0;
    for (; (stat = vmm_stat_describe(count)) != NULL; count++) {
        assert_int_equal(stat->offset, offset);
        offset += stat->kind == VMM_STAT_OVER_TIME ? sizeof(vmm_stat) : sizeof(uint64_t);
        assert_in_range(strlen(stat->label), 1, 21);
        assert_in_range(strlen(stat->text), 1, 60);
        assert_true(stat->text[0] >= 'A' && stat->text[0] <= 'Z');
        for (unsigned i = 0; i < count; i++)
            assert_string_not_equal(vmm_stat_describe(i)->name, stat->name);
        assert_int_equal(stat->unit == VMM_UNIT_BYTES, name_ends(stat, "_bytes"));
        assert_int_equal(stat->unit == VMM_UNIT_NANOSECONDS, name_ends(stat, "_ns"));
    }
    assert_int_equal(offset, sizeof(vmm_stats));
    assert_null(vmm_stat_describe(UINT_MAX));
    assert_int_equal(cache_stats(test).struct_size, sizeof(vmm_stats));
}

static uint64_t value_of(const vmm_stats *stats, const vmm_stat_description *stat)
{
    return *(const uint64_t *)(const void *)((const char *)stats + stat->offset);
}

/* What only a cache has is 0 of its default pool. What never falls does not. */
CACHE_TEST(statistics_are_of_their_kind)
{
    const vmm_stat_description *stat;
    vmm_stats before = cache_stats(test);
    void *block = block_alloc(test, 20 * MIB, 0);
    block_free(test, block_alloc(test, 1000, 1));
    vmm_stats after = cache_stats(test);
    vmm_stats of_pool = pool_stats(vmm_cache_pool(test->cache));
    assert_true(after.driver_calls > before.driver_calls);
    assert_true(after.driver_calls >= after.create_calls + after.map_calls + after.access_calls);
    block_free(test, block);
    (void)cache_trim(test, 0);
    vmm_stats last = cache_stats(test);
    for (unsigned i = 0; (stat = vmm_stat_describe(i)) != NULL; i++) {
        bool never_falls = stat->kind == VMM_STAT_TOTAL || stat->kind == VMM_STAT_PEAK;
        if (!stat->of_pools && value_of(&of_pool, stat) != 0)
            fail_msg("a pool has %s", stat->name);
        if (never_falls && value_of(&last, stat) < value_of(&after, stat))
            fail_msg("%s has fallen", stat->name);
        if (stat->kind == VMM_STAT_OVER_TIME && value_of(&of_pool, stat) != value_of(&after, stat))
            fail_msg("the only pool has another %s", stat->name);
    }
}

CACHE_TEST(stats_of_a_cache_that_does_not_cache_are_exact)
{
    cache_restart_with(test, .no_caching = 1);
    void *blocks[2] = { block_alloc(test, 16 * MIB, 2), block_alloc(test, 16 * MIB, 3) };
    block_free(test, blocks[0]);
    block_free(test, blocks[1]);
    assert_int_equal(cache_stats(test).allocated_bytes.peak, 32 * MIB);
}

/* A wait that ends in a trim is no change of the pool whose turn it is. */
CACHE_TEST(waiting_blocks_that_a_trim_frees_are_counted)
{
    void *first = block_alloc(test, 16 * MIB, 0);
    void *used = block_alloc(test, 16 * MIB, 1);
    block_use(test, used, 0);
    block_free(test, used);
    block_free(test, first);
    first = block_alloc(test, 16 * MIB, 0);
    work_verify(test);
    (void)cache_trim(test, SIZE_MAX);
    (void)block_alloc(test, 8 * MIB, 0);
    assert_int_equal(cache_stats(test).active_bytes.peak, 32 * MIB);
    assert_int_equal(cache_stats(test).active_bytes.current, 24 * MIB);
}

struct other_thread {
    struct cache_test *test;
    size_t bytes;
    unsigned stream;
    unsigned used_by; /* another stream; the same: none */
    bool keeps;
    void *block;
    vmm_status status;
};

static void *other_main(void *context)
{
    struct other_thread *other = context;
    vmm_cache *cache = other->test->cache;
    other->status =
        vmm_alloc(cache, other->bytes, other->test->streams[other->stream], &other->block);
    if (other->status == VMM_OK && other->used_by != other->stream)
        other->status =
            vmm_record_stream(cache, other->block, other->test->streams[other->used_by]);
    if (other->status == VMM_OK && !other->keeps)
        other->status = vmm_free(cache, other->block);
    return NULL;
}

static void other_ran(struct other_thread *other)
{
    (void)thread_run(other_main, other);
    assert_ok(other->status);
}

/* What the first thread had not posted yet must be known once a second one calls. */
CACHE_TEST(peaks_include_all_threads)
{
    streams_warmed(test, 32 * MIB);
    (void)block_alloc(test, 32 * MIB, 0);
    struct other_thread other = { .test = test, .bytes = 32 * MIB, .stream = 1, .used_by = 1 };
    other_ran(&other);
    vmm_stats stats = cache_stats(test);
    assert_true(stats.allocated_bytes.peak >= 64 * MIB - 2 * COUNTERS_SLACK);
    assert_true(stats.allocated_bytes.peak <= 64 * MIB + 2 * COUNTERS_SLACK);
}

/* Nor may what the second one takes from a stream that is new be unknown. */
CACHE_TEST(a_new_stream_of_a_second_thread_counts_for_peaks)
{
    streams_warmed(test, 16 * MIB);
    struct other_thread other = {
        .test = test, .bytes = 32 * MIB, .stream = 2, .used_by = 2, .keeps = true
    };
    other_ran(&other);
    void *block = block_alloc(test, 16 * MIB, 0);
    block_free(test, block);
    block_free(test, other.block);
    assert_true(cache_stats(test).allocated_bytes.peak >= 48 * MIB - 2 * COUNTERS_SLACK);
}

/* Threads that flush with each call wait for the totals' cache lines: 32 MiB in a loop were 30 times slower on two
 * threads than on one. */
CACHE_TEST(a_pair_in_a_loop_leaves_the_totals_alone)
{
    struct other_thread other = { .test = test, .bytes = 32 * MIB, .stream = 1, .used_by = 1 };
    const _Atomic uint64_t *taken = &test->cache->totals.allocated_bytes.allocated;
    uint64_t before = 0;
    other_ran(&other);
    for (int i = 0; i < 100; i++) {
        block_free(test, block_alloc(test, 32 * MIB, 0));
        before = i == 10 ? atomic_load(taken) : before;
    }
    assert_true(before >= 64 * MIB);
    assert_int_equal(atomic_load(taken), before);
    assert_int_equal(cache_stats(test).allocated_bytes.allocated, 101 * 32 * MIB);
    assert_int_equal(cache_stats(test).allocated_bytes.current, 0);
}

/* A block that waits stays active while the account is posted on the way. */
CACHE_TEST(a_waiting_block_stays_active)
{
    streams_warmed(test, 32 * MIB);
    void *block = block_alloc(test, 512, 0);
    struct other_thread other = { .test = test, .bytes = 32 * MIB, .stream = 1, .used_by = 0 };
    other_ran(&other);
    block_free(test, block);
    block = block_alloc(test, 32 * MIB, 0);
    block_free(test, block);
    vmm_stats stats = cache_stats(test);
    assert_true(stats.active_bytes.peak >= 64 * MIB - 2 * COUNTERS_SLACK);
    assert_true(stats.active_bytes.current <= stats.active_bytes.peak);
}

/* ---- One caller, many streams, against a model ---------------------------------------------- */

enum { MODEL_SLOTS = 40, MODEL_ROUNDS = 6000 };

struct model_stat {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated;
};

struct model {
    struct model_stat requested;
    struct model_stat allocated;
    struct model_stat allocations;
    void *blocks[MODEL_SLOTS];
    size_t bytes[MODEL_SLOTS];
    bool used[MODEL_SLOTS];
};

static void model_add(struct model_stat *figure, uint64_t amount)
{
    figure->current += amount;
    figure->allocated += amount;
    figure->peak = figure->current > figure->peak ? figure->current : figure->peak;
}

/* As documented: tiny blocks in steps of 512 bytes and of 1 KiB, others of 4, 8 and 16 KiB. */
static uint64_t block_bytes(size_t bytes)
{
    uint64_t long_step = bytes < 2 * MIB ? 4096 : bytes < 4 * MIB ? 8192 : 16384;
    uint64_t step = bytes <= 4096 ? 512 : bytes <= 8192 ? 1024 : long_step;
    return (bytes + step - 1) / step * step;
}

static void stat_compared(const vmm_stat *figure, const struct model_stat *model)
{
    assert_int_equal(figure->current, model->current);
    assert_int_equal(figure->peak, model->peak);
    assert_int_equal(figure->allocated, model->allocated);
    assert_int_equal(figure->freed, model->allocated - model->current);
}

static void model_compare(struct cache_test *test, const struct model *model)
{
    vmm_stats stats = cache_stats(test);
    stat_compared(&stats.requested_bytes, &model->requested);
    stat_compared(&stats.allocated_bytes, &model->allocated);
    stat_compared(&stats.allocations, &model->allocations);
    assert_true(stats.active_bytes.peak >= model->allocated.peak);
    assert_true(stats.active_bytes.current >= model->allocated.current);
}

static void model_round(struct cache_test *test, struct model *model, uint64_t *seed, bool has_uses)
{
    unsigned slot = (unsigned)(random_next(seed) % MODEL_SLOTS);
    unsigned stream = (unsigned)(random_next(seed) % CACHE_STREAMS);
    void *block = model->blocks[slot];
    if (block == NULL) {
        size_t bytes = random_bytes(seed, 3 * MIB);
        model->blocks[slot] = block_alloc(test, bytes, stream);
        model->bytes[slot] = bytes;
        model_add(&model->requested, bytes);
        model_add(&model->allocated, block_bytes(bytes));
        model_add(&model->allocations, 1);
        return;
    }
    if (random_next(seed) % 4 == 0)
        assert_ok(vmm_pin(test->cache, block));
    if (has_uses && random_next(seed) % 4 == 0)
        block_use(test, block, stream);
    block_free(test, block);
    model->blocks[slot] = NULL;
    model->requested.current -= model->bytes[slot];
    model->allocated.current -= block_bytes(model->bytes[slot]);
    model->allocations.current--;
}

static void stats_follow_a_model(struct cache_test *test, bool has_uses)
{
    struct model model = { .used = { false } };
    uint64_t seed = has_uses ? 11 : 12;
    for (int round = 0; round < MODEL_ROUNDS; round++) {
        model_round(test, &model, &seed, has_uses);
        if (random_next(&seed) % 200 == 0)
            model_compare(test, &model);
        if (random_next(&seed) % 400 == 0)
            (void)cache_trim(test, 0);
    }
    model_compare(test, &model);
    vmm_stats stats = cache_stats(test);
    if (!has_uses) /* active is allocated then */
        stat_compared(&stats.active_bytes, &model.allocated);
    for (int i = 0; i < MODEL_SLOTS; i++)
        assert_ok(vmm_free(test->cache, model.blocks[i]));
    work_verify(test);
    cache_verify(test);
}

CACHE_TEST(stats_of_one_thread_are_exact)
{
    stats_follow_a_model(test, false);
}

CACHE_TEST(stats_with_uses_are_exact)
{
    stats_follow_a_model(test, true);
}

/* ---- Two callers ---------------------------------------------------------------------------- */

enum { PAIR_SLOTS = 8, PAIR_ROUNDS = 300 };

/* Main and a thread for each call take turns; the second takes from `stream`, main frees all. */
static void two_callers_follow_a_model(struct cache_test *test, unsigned stream, uint64_t bound)
{
    struct model_stat model = { .current = 0 };
    void *blocks[PAIR_SLOTS] = { NULL };
    uint64_t bytes[PAIR_SLOTS];
    uint64_t seed = stream;
    for (int round = 0; round < PAIR_ROUNDS; round++) {
        unsigned slot = (unsigned)(random_next(&seed) % PAIR_SLOTS);
        if (blocks[slot] != NULL) {
            block_free(test, blocks[slot]);
            blocks[slot] = NULL;
            model.current -= bytes[slot];
            continue;
        }
        bytes[slot] = block_bytes(random_bytes(&seed, 12 * MIB));
        struct other_thread other = { .test = test, .bytes = bytes[slot], .keeps = true };
        other.stream = other.used_by = stream;
        if (random_next(&seed) % 2 == 0)
            blocks[slot] = block_alloc(test, bytes[slot], 0);
        else
            other_ran(&other);
        blocks[slot] = blocks[slot] == NULL ? other.block : blocks[slot];
        model_add(&model, bytes[slot]);
    }
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.allocated_bytes.current, model.current);
    assert_int_equal(stats.allocated_bytes.allocated, model.allocated);
    assert_int_equal(stats.requested_bytes.allocated, model.allocated);
    assert_true(stats.allocated_bytes.peak + bound >= model.peak);
    assert_true(stats.allocated_bytes.peak <= model.peak + bound);
    for (int i = 0; i < PAIR_SLOTS; i++)
        assert_ok(vmm_free(test->cache, blocks[i]));
    cache_verify(test);
}

CACHE_TEST(stats_of_threads_on_one_stream_are_exact)
{
    two_callers_follow_a_model(test, 0, 0);
}

CACHE_TEST(stats_of_threads_on_two_streams_are_near)
{
    two_callers_follow_a_model(test, 1, 2 * COUNTERS_SLACK);
}

CACHE_TEST(last_freed_blocks_are_free_for_all_calls)
{
    static const size_t sizes[] = { 64 << 10, 3 * MIB };
    for (int i = 0; i < 2; i++) {
        void *block = block_alloc(test, sizes[i], 1);
        block_free(test, block);
        block = block_alloc(test, sizes[i], 1); /* by the fast path, so that it will be warm */
        block_free(test, block);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_record_stream(test->cache, block, test->streams[2]),
                      VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_pin(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_unpin(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(cache_scan(test).live_blocks, 0);
        assert_ptr_equal(block_alloc(test, sizes[i], 1), block);
        block_free(test, block);
        vmm_stats stats = cache_stats(test);
        assert_int_equal(stats.idle_bytes, stats.reserved_bytes.current);
        assert_ptr_equal(block_alloc(test, sizes[i], 1), block);
        block_free(test, block);
        work_verify(test);
        cache_trim_all(test);
        cache_verify(test);
    }
}

CACHE_MAIN()
