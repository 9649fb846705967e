/* vmm_listen(): the changes describe all mapped memory, its streams and waiting blocks at any time. */
#include "support/listener_support.h"

#include "driver/sim/sim.h"

#include <stdatomic.h>

/* ---- Random operations ------------------------------------------------------------------------- */

/* What one thread does is of no interest to ThreadSanitizer, but for the threads of the driver. */
#ifdef VMM_THREAD_SANITIZER
enum { SLOTS = 200, ROUNDS = 800 };
#else
enum { SLOTS = 200, ROUNDS = 3000 };
#endif

struct slot {
    void *block;
    size_t bytes;
    unsigned stream;
};

static void slot_turned(struct cache_test *test, struct slot *slot, uint64_t *seed)
{
    if (slot->block != NULL) {
        if (random_next(seed) % 3 == 0)
            block_use(test, slot->block, (unsigned)(random_next(seed) % CACHE_STREAMS));
        block_free(test, slot->block);
        slot->block = NULL;
        return;
    }
    slot->bytes = random_bytes(seed, 12 * MIB);
    slot->stream = (unsigned)(random_next(seed) % CACHE_STREAMS);
    vmm_status status =
        vmm_alloc(test->cache, slot->bytes, test->streams[slot->stream], &slot->block);
    if (status == VMM_ERR_DEVICE_OOM)
        return;
    assert_ok(status);
    block_fill(test, slot->block, slot->bytes, 1, slot->stream);
}

struct reached {
    uint64_t moves;
    uint64_t compactions;
};

static struct reached changes_followed(struct cache_test *test, const vmm_config *config,
                                       uint64_t seed)
{
    cache_restart(test, config);
    struct model *model = listen_begin(test);
    if (config->limit_bytes == 0) /* compaction needs chunks of several granules */
        large_chunks_make(test, CACHE_LIMIT / 2, 1);
    assert_ok(vmm_limit_set(test->cache, CACHE_LIMIT));
    struct slot *slots = calloc(SLOTS, sizeof *slots);
    struct reached reached = { .moves = 0 };
    for (unsigned round = 1; round < ROUNDS; round++) {
        slot_turned(test, &slots[random_next(&seed) % SLOTS], &seed);
        if (round % 150 == 0)
            (void)cache_trim(test, random_next(&seed) % 3 * (CACHE_LIMIT / 2));
        if (round % 50 == 0)
            assert_ok(vmm_poll(test->cache));
        if (round % 20 == 0)
            model_verify(test, model);
    }
    vmm_stats stats = cache_stats(test);
    reached.compactions = stats.compactions;
    reached.moves = stats.map_calls - stats.create_calls;
    assert_true(model->changes > ROUNDS / 8);
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[i].block != NULL)
            block_free(test, slots[i].block);
    }
    free(slots);
    listen_end(test, model);
    return reached;
}

CACHE_TEST(every_change_is_reported)
{
    static const uint64_t lags[] = { 0, 7, 400 };
    struct reached all = { .moves = 0 };
    for (unsigned i = 0; i < 9; i++) {
        vmm_config config = VMM_CONFIG_INIT;
        config.limit_bytes = i == 1 || i == 4 ? 0 : CACHE_LIMIT;
        config.reuse = i % 2 == 0 ? VMM_REUSE_ANY_USE : VMM_REUSE_STREAM_WAIT;
        config.compaction = i % 3 == 0 ? VMM_OFF : VMM_ON;
        config.footprint_permille = config.limit_bytes == 0 ? 50 : i % 4 == 0 ? 1 : 0;
        config.no_caching = i == 7;
        config.decay_ms = i == 8;
        config.decay_thread = i == 8 ? VMM_OFF : VMM_DEFAULT; /* the model is of one thread */
        if (driver_choice_kind() == VMM_DRIVER_SIM)
            vmm__sim_lag_set(test->driver, lags[i % 3]);
        struct reached reached = changes_followed(test, &config, 40 + i);
        all.moves += reached.moves;
        all.compactions += reached.compactions;
    }
    assert_true(all.moves > 0 && all.compactions > 0);
}

/* Steals and crossings are what the random operations above must come across. */
CACHE_TEST(moves_are_reported)
{
    cache_restart_with(test, .limit_bytes = 64 * MIB, .compaction = VMM_ON);
    struct model *model = listen_begin(test);
    void *pieces[32];
    for (unsigned i = 0; i < 32; i++)
        pieces[i] = block_alloc(test, 2 * MIB, 1);
    for (unsigned i = 0; i < 32; i += 2)
        block_free(test, pieces[i]);
    work_verify(test);
    uint64_t moves = cache_stats(test).map_calls - cache_stats(test).create_calls;
    void *whole = block_alloc(test, 24 * MIB, 2);
    assert_true(cache_stats(test).map_calls - cache_stats(test).create_calls > moves);
    model_verify(test, model);
    void *crossed = block_alloc(test, 2 * MIB, 3);
    model_verify(test, model);
    block_free(test, whole);
    block_free(test, crossed);
    for (unsigned i = 1; i < 32; i += 2)
        block_free(test, pieces[i]);
    listen_end(test, model);
}

CACHE_TEST(graph_pools_are_named)
{
    struct model *model = listen_begin(test);
    struct graph graph;
    graph_begin(test, &graph, 6, 1);
    for (int i = 0; i < MIXED; i++) {
        (void)graph_alloc(test, &graph, mixed_sizes[i]);
        (void)block_alloc(test, mixed_sizes[i], 2);
    }
    uint64_t named_bytes = 0;
    for (size_t i = 0; i < model->mapped.count; i++) {
        const struct owned_range *range = &model->mapped.items[i];
        named_bytes += pool_id_is(range->pool, 6, 1) ? range->end - range->address : 0;
    }
    assert_true(named_bytes > 8 * MIB && named_bytes < ranges_bytes(&model->mapped));
    model_verify(test, model);
    graph_end(test, &graph);
    graph_discard(test, &graph);
    (void)cache_trim(test, 0);
    model_verify(test, model);
}

CACHE_TEST(waiting_blocks_are_reported)
{
    struct model *model = listen_begin(test);
    for (int i = 0; i < MIXED; i++) {
        void *block = block_alloc(test, mixed_sizes[i], 1);
        block_use(test, block, 2);
        uint64_t bytes = vmm_block_bytes(test->cache, mixed_sizes[i]);
        bool is_sure = flight_begin(test, block, mixed_sizes[i], 2);
        block_free(test, block);
        assert_int_equal(model->waits, 1);
        assert_int_equal(model->waiting[0], (uintptr_t)block);
        assert_int_equal(model->waiting_bytes, bytes);
        if (is_sure)
            (void)cache_trim(test, SIZE_MAX);
        flight_end(test);
        (void)cache_trim(test, SIZE_MAX);
        assert_int_equal(model->waits, 0);
        assert_int_equal(model->waiting_bytes, 0);
    }
    listen_end(test, model);
}

CACHE_TEST(a_new_listener_replaces_the_old_one)
{
    static struct model second;
    struct model *first = listen_begin(test);
    void *block = block_alloc(test, 8 * MIB, 1);
    uint64_t changes = first->changes;
    assert_true(changes > 0);
    second = (struct model){ .lock = PTHREAD_MUTEX_INITIALIZER };
    assert_ok(vmm_listen(test->cache, change_note, &second));
    void *other = block_alloc(test, 8 * MIB, 2);
    assert_true(second.changes > 0);
    assert_int_equal(first->changes, changes);
    assert_ok(vmm_listen(test->cache, NULL, NULL));
    ranges_free(&second.mapped);
    block_free(test, block);
    block_free(test, other);
    assert_status(vmm_listen(NULL, change_note, &second), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm_listen(NULL, NULL, NULL), VMM_ERR_INVALID_ARGUMENT);
}

/* ---- Threads ----------------------------------------------------------------------------------- */

struct worker {
    struct cache_test *test;
    unsigned number;
    pthread_t thread;
    struct model *model; /* of who compares */
    bool is_troubled;
};

static atomic_bool workers_go_on;

static void *worker_main(void *context)
{
    struct worker *worker = context;
    vmm_cache *cache = worker->test->cache;
    uint64_t seed = worker->number;
    void *blocks[16] = { NULL };
    for (int round = 0; round < 4000; round++) {
        void **block = &blocks[random_next(&seed) % 16];
        vmm_stream stream = worker->test->streams[random_next(&seed) % CACHE_STREAMS];
        if (*block == NULL &&
            vmm_alloc(cache, random_bytes(&seed, 4 * MIB), stream, block) != VMM_OK)
            continue; /* others have it all */
        if (round % 2 == 0)
            continue;
        if (vmm_record_stream(cache, *block, stream) != VMM_OK || vmm_free(cache, *block) != VMM_OK)
            worker->is_troubled = true;
        else
            *block = NULL;
        if (round % 200 == 0 && vmm_trim(cache, 32 * MIB, NULL) != VMM_OK)
            worker->is_troubled = true;
    }
    for (int i = 0; i < 16; i++)
        (void)vmm_free(cache, blocks[i]);
    return NULL;
}

static void *comparer_main(void *context)
{
    struct worker *worker = context;
    while (atomic_load(&workers_go_on) && !worker->is_troubled)
        worker->is_troubled = model_compare(worker->test, worker->model) != NULL;
    return NULL;
}

CACHE_TEST(changes_of_threads_are_reported)
{
    enum { WORKERS = 4 };
    static struct worker workers[WORKERS + 1];
    struct model *model = listen_begin(test);
    struct worker *comparer = &workers[WORKERS];
    *comparer = (struct worker){ .test = test, .model = model };
    atomic_store(&workers_go_on, true);
    assert_int_equal(pthread_create(&comparer->thread, NULL, comparer_main, comparer), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){ .test = test, .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        (void)pthread_join(workers[i].thread, NULL);
    atomic_store(&workers_go_on, false);
    (void)pthread_join(comparer->thread, NULL);
    for (unsigned i = 0; i <= WORKERS; i++)
        assert_false(workers[i].is_troubled);
    listen_end(test, model);
}

CACHE_MAIN()
