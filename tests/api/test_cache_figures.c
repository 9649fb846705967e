/* The figures of what is handed out: exact for one caller, within known bounds for several. */
#include "support/cache_support.h"

#include <pthread.h>
#include <stdatomic.h>

/* What heap/ledger.h allows a stream's account to keep back while several threads call. */
#define ACCOUNT_SLACK (4 * MIB)

/* Two streams that have memory of their own, all of it free. */
static void streams_warmed(struct cache_test *test, size_t bytes)
{
    void *blocks[2];
    for (unsigned i = 0; i < 2; i++)
        blocks[i] = block_taken(test, bytes, i);
    for (unsigned i = 0; i < 2; i++)
        block_given(test, blocks[i]);
    assert_ok(vmm_stats_reset_peak(test->cache));
}

/* The first block of each stream is handed out by the slow path. */
static void first_blocks_count(void **state)
{
    struct cache_test *test = *state;
    streams_warmed(test, 32 * MIB);
    void *blocks[2] = { block_taken(test, 16 * MIB, 2), block_taken(test, 16 * MIB, 3) };
    block_given(test, blocks[0]);
    block_given(test, blocks[1]);
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.allocated_bytes.peak, 32 * MIB);
    assert_int_equal(stats.active_bytes.peak, 32 * MIB);
    assert_int_equal(stats.allocations.peak, 2);
    assert_int_equal(stats.allocated_bytes.current, 0);
}

static void figures_of_a_cache_that_does_not_cache_are_exact(void **state)
{
    struct cache_test *test = *state;
    vmm_config config = VMM_CONFIG_INIT;
    config.no_caching = 1;
    cache_restart(test, &config);
    void *blocks[2] = { block_taken(test, 16 * MIB, 2), block_taken(test, 16 * MIB, 3) };
    block_given(test, blocks[0]);
    block_given(test, blocks[1]);
    assert_int_equal(cache_stats(test).allocated_bytes.peak, 32 * MIB);
}

/* A wait that ends in a trim is no change of the pool whose turn it is. */
static void waits_that_end_in_a_trim_count_then(void **state)
{
    struct cache_test *test = *state;
    void *first = block_taken(test, 16 * MIB, 0);
    void *used = block_taken(test, 16 * MIB, 1);
    block_used(test, used, 0);
    block_given(test, used);
    block_given(test, first);
    first = block_taken(test, 16 * MIB, 0);
    work_verified(test);
    (void)cache_trimmed(test, SIZE_MAX);
    void *second = block_taken(test, 8 * MIB, 0);
    assert_int_equal(cache_stats(test).active_bytes.peak, 32 * MIB);
    assert_int_equal(cache_stats(test).active_bytes.current, 24 * MIB);
    block_given(test, first);
    block_given(test, second);
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
        other->status = vmm_use(cache, other->block, other->test->streams[other->used_by]);
    if (other->status == VMM_OK && !other->keeps)
        other->status = vmm_free(cache, other->block);
    return NULL;
}

static void other_ran(struct other_thread *other)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_main, other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(other->status);
}

/* What the first thread had not posted yet must be known once a second one calls. */
static void a_second_thread_s_peak_has_the_first_one_s_in_it(void **state)
{
    struct cache_test *test = *state;
    streams_warmed(test, 32 * MIB);
    void *block = block_taken(test, 32 * MIB, 0);
    struct other_thread other = { .test = test, .bytes = 32 * MIB, .stream = 1, .used_by = 1 };
    other_ran(&other);
    vmm_stats stats = cache_stats(test);
    assert_true(stats.allocated_bytes.peak >= 64 * MIB - 2 * ACCOUNT_SLACK);
    assert_true(stats.allocated_bytes.peak <= 64 * MIB + 2 * ACCOUNT_SLACK);
    block_given(test, block);
}

/* Nor may what the second one takes from a stream that is new be unknown. */
static void a_second_thread_s_new_stream_is_watched(void **state)
{
    struct cache_test *test = *state;
    streams_warmed(test, 16 * MIB);
    struct other_thread other = {
        .test = test, .bytes = 32 * MIB, .stream = 2, .used_by = 2, .keeps = true
    };
    other_ran(&other);
    void *block = block_taken(test, 16 * MIB, 0);
    block_given(test, block);
    block_given(test, other.block);
    assert_true(cache_stats(test).allocated_bytes.peak >= 48 * MIB - 2 * ACCOUNT_SLACK);
}

/* A block that waits stays active while the account is posted on the way. */
static void a_waiting_block_stays_active(void **state)
{
    struct cache_test *test = *state;
    streams_warmed(test, 32 * MIB);
    void *block = block_taken(test, 512, 0);
    struct other_thread other = { .test = test, .bytes = 32 * MIB, .stream = 1, .used_by = 0 };
    other_ran(&other);
    block_given(test, block);
    block = block_taken(test, 32 * MIB, 0);
    block_given(test, block);
    vmm_stats stats = cache_stats(test);
    assert_true(stats.active_bytes.peak >= 64 * MIB - 2 * ACCOUNT_SLACK);
    assert_true(stats.active_bytes.current <= stats.active_bytes.peak);
    work_verified(test);
}

/* ---- One caller, many streams, against a model ---------------------------------------------- */

enum { MODEL_SLOTS = 40, MODEL_ROUNDS = 6000 };

struct model_figure {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated;
};

struct model {
    struct model_figure requested;
    struct model_figure allocated;
    struct model_figure allocations;
    void *blocks[MODEL_SLOTS];
    size_t bytes[MODEL_SLOTS];
    bool used[MODEL_SLOTS];
};

static void model_taken(struct model_figure *figure, uint64_t amount)
{
    figure->current += amount;
    figure->allocated += amount;
    figure->peak = figure->current > figure->peak ? figure->current : figure->peak;
}

/* As documented: tiny blocks in steps of 512 bytes and of 1 KiB, small of 4 KiB, large of 512. */
static uint64_t block_bytes(size_t bytes)
{
    uint64_t step = bytes <= 4096 ? 512 : bytes <= 8192 ? 1024 : bytes <= MIB ? 4096 : 512;
    return (bytes + step - 1) / step * step;
}

static void figure_compared(const vmm_figure *figure, const struct model_figure *model)
{
    assert_int_equal(figure->current, model->current);
    assert_int_equal(figure->peak, model->peak);
    assert_int_equal(figure->allocated, model->allocated);
    assert_int_equal(figure->freed, model->allocated - model->current);
}

static void model_compared(struct cache_test *test, const struct model *model)
{
    vmm_stats stats = cache_stats(test);
    figure_compared(&stats.requested_bytes, &model->requested);
    figure_compared(&stats.allocated_bytes, &model->allocated);
    figure_compared(&stats.allocations, &model->allocations);
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
        model->blocks[slot] = block_taken(test, bytes, stream);
        model->bytes[slot] = bytes;
        model_taken(&model->requested, bytes);
        model_taken(&model->allocated, block_bytes(bytes));
        model_taken(&model->allocations, 1);
        return;
    }
    if (random_next(seed) % 4 == 0)
        assert_ok(vmm_pin(test->cache, block));
    if (has_uses && random_next(seed) % 4 == 0)
        block_used(test, block, stream);
    block_given(test, block);
    model->blocks[slot] = NULL;
    model->requested.current -= model->bytes[slot];
    model->allocated.current -= block_bytes(model->bytes[slot]);
    model->allocations.current--;
}

static void figures_follow_a_model(struct cache_test *test, bool has_uses)
{
    struct model model = { .used = { false } };
    uint64_t seed = has_uses ? 11 : 12;
    for (int round = 0; round < MODEL_ROUNDS; round++) {
        model_round(test, &model, &seed, has_uses);
        if (random_next(&seed) % 200 == 0)
            model_compared(test, &model);
        if (random_next(&seed) % 400 == 0)
            (void)cache_trimmed(test, 0);
    }
    model_compared(test, &model);
    vmm_stats stats = cache_stats(test);
    if (!has_uses) /* active is allocated then */
        figure_compared(&stats.active_bytes, &model.allocated);
    for (int i = 0; i < MODEL_SLOTS; i++)
        assert_ok(vmm_free(test->cache, model.blocks[i]));
    work_verified(test);
    cache_verified(test);
}

static void figures_of_one_thread_are_exact(void **state)
{
    figures_follow_a_model(*state, false);
}

static void figures_with_uses_are_exact(void **state)
{
    figures_follow_a_model(*state, true);
}

/* ---- Two callers ---------------------------------------------------------------------------- */

enum { PAIR_SLOTS = 8, PAIR_ROUNDS = 300 };

/* Main and a thread for each call take turns; the second takes from `stream`, main frees all. */
static void two_callers_follow_a_model(struct cache_test *test, unsigned stream, uint64_t bound)
{
    struct model_figure model = { .current = 0 };
    void *blocks[PAIR_SLOTS] = { NULL };
    uint64_t bytes[PAIR_SLOTS];
    uint64_t seed = stream;
    for (int round = 0; round < PAIR_ROUNDS; round++) {
        unsigned slot = (unsigned)(random_next(&seed) % PAIR_SLOTS);
        if (blocks[slot] != NULL) {
            block_given(test, blocks[slot]);
            blocks[slot] = NULL;
            model.current -= bytes[slot];
            continue;
        }
        bytes[slot] = block_bytes(random_bytes(&seed, 12 * MIB));
        struct other_thread other = { .test = test, .bytes = bytes[slot], .keeps = true };
        other.stream = other.used_by = stream;
        if (random_next(&seed) % 2 == 0)
            blocks[slot] = block_taken(test, bytes[slot], 0);
        else
            other_ran(&other);
        blocks[slot] = blocks[slot] == NULL ? other.block : blocks[slot];
        model_taken(&model, bytes[slot]);
    }
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.allocated_bytes.current, model.current);
    assert_int_equal(stats.allocated_bytes.allocated, model.allocated);
    assert_int_equal(stats.requested_bytes.allocated, model.allocated);
    assert_true(stats.allocated_bytes.peak + bound >= model.peak);
    assert_true(stats.allocated_bytes.peak <= model.peak + bound);
    for (int i = 0; i < PAIR_SLOTS; i++)
        assert_ok(vmm_free(test->cache, blocks[i]));
    cache_verified(test);
}

static void figures_of_threads_on_one_stream_are_exact(void **state)
{
    two_callers_follow_a_model(*state, 0, 0);
}

static void figures_of_threads_on_two_streams_are_near(void **state)
{
    two_callers_follow_a_model(*state, 1, 2 * ACCOUNT_SLACK);
}

static void a_warm_block_is_free_for_everybody(void **state)
{
    struct cache_test *test = *state;
    static const size_t sizes[] = { 64 << 10, 3 * MIB };
    for (int i = 0; i < 2; i++) {
        void *block = block_taken(test, sizes[i], 1);
        block_given(test, block);
        block = block_taken(test, sizes[i], 1); /* by the fast path, so that it will be warm */
        block_given(test, block);
        assert_status(vmm_free(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_use(test->cache, block, test->streams[2]), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_pin(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_status(vmm_unpin(test->cache, block), VMM_ERR_UNKNOWN_POINTER);
        assert_int_equal(cache_survey(test).live_blocks, 0);
        assert_ptr_equal(block_taken(test, sizes[i], 1), block);
        block_given(test, block);
        vmm_stats stats = cache_stats(test);
        assert_int_equal(stats.idle_bytes, stats.reserved_bytes.current);
        assert_ptr_equal(block_taken(test, sizes[i], 1), block);
        block_given(test, block);
        work_verified(test);
        (void)cache_trimmed(test, 0);
        assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
        cache_verified(test);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(first_blocks_count),
        CACHE_TEST(figures_of_a_cache_that_does_not_cache_are_exact),
        CACHE_TEST(waits_that_end_in_a_trim_count_then),
        CACHE_TEST(a_second_thread_s_peak_has_the_first_one_s_in_it),
        CACHE_TEST(a_second_thread_s_new_stream_is_watched),
        CACHE_TEST(a_waiting_block_stays_active),
        CACHE_TEST(figures_of_one_thread_are_exact),
        CACHE_TEST(figures_with_uses_are_exact),
        CACHE_TEST(figures_of_threads_on_one_stream_are_exact),
        CACHE_TEST(figures_of_threads_on_two_streams_are_near),
        CACHE_TEST(a_warm_block_is_free_for_everybody),
    };
    CACHE_MAIN(tests);
}
