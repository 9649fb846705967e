/* Threads allocate while others capture, end, replay and release. Also runs under ThreadSanitizer. */
#include "support/graph_support.h"
#include "support/pool_calls.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WORKERS = 3, SLOTS = 16, CAPTURES = IS_SLOW_BUILD ? 60 : 150, GRAPH_BLOCKS = 8 };

struct live {
    void *block;
    size_t bytes;
    uint32_t word;
};

struct worker {
    struct cache_test *test;
    pthread_t thread;
    unsigned number;
    const char *trouble; /* the first; assertions belong to the main thread */
    char line[400];      /* the last error then */
};

static void trouble_note(struct worker *worker, const char *trouble)
{
    if (worker->trouble != NULL)
        return;
    worker->trouble = trouble;
    (void)snprintf(worker->line, sizeof worker->line, "%s", vmm_last_error());
}

static atomic_bool workers_go_on;

static bool live_turned(struct worker *worker, struct live *live, vmm_stream stream, uint64_t *seed)
{
    struct cache_test *test = worker->test;
    void *block = live->block;
    if (block != NULL) {
        live->block = NULL;
        return vmm__driver_check(test->driver, (uintptr_t)block, live->bytes, live->word, stream) ==
                   VMM_OK &&
               vmm_record_stream(test->cache, block, test->streams[1]) == VMM_OK &&
               vmm_free(test->cache, block) == VMM_OK;
    }
    live->bytes = random_bytes(seed, 6 * MIB);
    live->word = (uint32_t)(random_next(seed) << 3 | worker->number);
    vmm_status status = vmm_alloc(test->cache, live->bytes, stream, &live->block);
    if (status == VMM_ERR_DEVICE_OOM)
        return true;
    return status == VMM_OK && vmm__driver_fill(test->driver, (uintptr_t)live->block, live->bytes,
                                                live->word, stream) == VMM_OK;
}

/* On streams that are not captured. */
static void *worker_main(void *context)
{
    struct worker *worker = context;
    struct live lives[SLOTS] = { { NULL, 0, 0 } };
    uint64_t seed = worker->number;
    vmm_stream stream = worker->test->streams[worker->number % 2 == 0 ? 2 : 3];
    for (unsigned round = 0; atomic_load(&workers_go_on) && worker->trouble == NULL; round++) {
        if (!live_turned(worker, &lives[random_next(&seed) % SLOTS], stream, &seed))
            trouble_note(worker, "a block could not be had, checked, used or freed");
        if (round % 64 == 0 && vmm_trim(worker->test->cache, 16 * MIB, NULL) != VMM_OK)
            trouble_note(worker, "a trim failed");
        if (round % 16 == 0 && vmm_poll(worker->test->cache) != VMM_OK)
            trouble_note(worker, "a tick failed");
    }
    for (int i = 0; i < SLOTS; i++) {
        if (lives[i].block != NULL && !live_turned(worker, &lives[i], stream, &seed))
            trouble_note(worker, "a block could not be freed in the end");
    }
    return NULL;
}

/* Reports, and pools that no stream is captured for. */
static void *observer_main(void *context)
{
    struct worker *worker = context;
    vmm_cache *cache = worker->test->cache;
    vmm_stream nobody = (vmm_stream)worker;
    uint64_t id = 1;
    while (atomic_load(&workers_go_on) && worker->trouble == NULL) {
        vmm_stats stats = VMM_STATS_INIT;
        vmm_item item = VMM_ITEM_INIT;
        vmm_pool_id pool = { id++, 77 };
        if (vmm_stats_get(cache, &stats) != VMM_OK || vmm__cache_check(cache) != VMM_OK)
            trouble_note(worker, "figures or invariants are wrong");
        if (vmm_find(cache, worker, &item) != VMM_ERR_UNKNOWN_POINTER)
            trouble_note(worker, "a foreign address was found");
        if (graph_pool_begin(cache, pool, graph_filter, &nobody) != VMM_OK ||
            graph_pool_end(cache, pool) != VMM_OK || graph_pool_release(cache, pool) != VMM_OK)
            trouble_note(worker, "a pool could not begin, end or be released");
    }
    return NULL;
}

static void workers_started(struct cache_test *test, struct worker *workers)
{
    atomic_store(&workers_go_on, true);
    for (unsigned i = 0; i <= WORKERS; i++) {
        workers[i] = (struct worker){ .test = test, .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL,
                                        i == WORKERS ? observer_main : worker_main, &workers[i]),
                         0);
    }
}

/* Returns a worker that met trouble, or NULL. */
static const struct worker *workers_join(struct worker *workers)
{
    const struct worker *found = NULL;
    atomic_store(&workers_go_on, false);
    for (unsigned i = 0; i <= WORKERS; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (found == NULL && workers[i].trouble != NULL)
            found = &workers[i];
    }
    return found;
}

/* The graph before the last one is replayed while the next is captured. */
static void graphs_run(struct cache_test *test)
{
    struct graph graphs[3] = { { .count = 0 } };
    uint64_t seed = 21;
    for (unsigned i = 0; i < CAPTURES; i++) {
        struct graph *graph = &graphs[i % 3];
        if (i >= 3) {
            graph_discard(test, graph);
        }
        graph_begin(test, graph, 1 + i / 2, 1);
        for (unsigned j = 0; j < GRAPH_BLOCKS; j++) {
            void *block = graph_try_alloc(test, graph, random_bytes(&seed, 3 * MIB));
            if (block != NULL && j % 3 != 0)
                graph_free(test, graph, block);
        }
        graph_end(test, graph);
        graph_replay(test, graph, 1);
        graph_replay(test, &graphs[(i + 1) % 3], 1);
    }
    for (unsigned i = CAPTURES; i < CAPTURES + 3; i++) {
        graph_discard(test, &graphs[i % 3]);
    }
}

static void threads_allocate_beside_captures(struct cache_test *test, const vmm_config *config)
{
    struct worker workers[WORKERS + 1];
    cache_restart(test, config);
    workers_started(test, workers);
    graphs_run(test);
    const struct worker *found = workers_join(workers);
    if (found != NULL)
        fail_msg("%s: %s", found->trouble, found->line);
    work_verify(test);
    cache_verify(test);
    assert_ok(vmm_wait(test->cache)); /* the end of a graph pool does not */
    assert_int_equal(cache_stats(test).retained_bytes, 0);
    cache_trim_all(test);
}

CACHE_TEST(threads_allocate_beside_captures_under_a_limit)
{
    threads_allocate_beside_captures(test, &CONFIG(.limit_bytes = CACHE_LIMIT));
}

CACHE_TEST(threads_allocate_beside_captures_and_decay)
{
    threads_allocate_beside_captures(
        test, &CONFIG(.reuse = VMM_REUSE_STREAM_WAIT, .decay_ms = 1, .decay_thread = 1));
}

CACHE_MAIN()
