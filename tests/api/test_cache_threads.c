/* Many threads on one cache: own and shared streams, frees by others, reports and trims between; and one that waits. */
#define _GNU_SOURCE
#include "support/cache_support.h"

#include "base/time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { ATTEMPTS = 4, STALL_NS = 600 * 1000 * 1000 };
enum { WORKERS = 8, SLOTS = 24, ROUNDS = IS_SLOW_BUILD ? 400 : 1200, EXCHANGE = 16 };

struct live {
    void *block;
    size_t bytes;
    uint32_t word;
    unsigned stream;
};

/* Blocks that one thread left for another to free. */
struct exchange {
    pthread_mutex_t mutex;
    struct live lives[EXCHANGE];
};

struct worker {
    struct cache_test *test;
    struct exchange *exchange;
    pthread_t thread;
    unsigned number;
    bool has_one_stream; /* all threads share it, and any thread may free any block */
    uint64_t requested_bytes;
    uint64_t allocations;
    const char *trouble; /* assertions belong to the main thread */
    unsigned refusals;
};

static atomic_bool workers_go_on;

static bool live_begin(struct worker *worker, struct live *live, uint64_t *seed, uint32_t word)
{
    struct cache_test *test = worker->test;
    live->bytes = random_bytes(seed, 6 * MIB);
    live->stream = random_next(seed) % 2 == 0 ? worker->number % CACHE_STREAMS : 0;
    if (worker->has_one_stream)
        live->stream = 1;
    live->word = word << 8 | worker->number;
    vmm_stream stream = test->streams[live->stream];
    vmm_status status = vmm_alloc(test->cache, live->bytes, stream, &live->block);
    if (status == VMM_ERR_DEVICE_OOM) {
        worker->refusals++;
        return true;
    }
    worker->requested_bytes += live->bytes;
    worker->allocations++;
    return status == VMM_OK && vmm__driver_fill(test->driver, (uintptr_t)live->block, live->bytes,
                                                live->word, stream) == VMM_OK;
}

static bool live_end(struct worker *worker, struct live *live)
{
    struct cache_test *test = worker->test;
    void *block = live->block;
    live->block = NULL;
    return vmm__driver_check(test->driver, (uintptr_t)block, live->bytes, live->word,
                             test->streams[live->stream]) == VMM_OK &&
           vmm_free(test->cache, block) == VMM_OK;
}

static void live_exchange(struct exchange *exchange, struct live *live, uint64_t *seed)
{
    struct live *other = &exchange->lives[random_next(seed) % EXCHANGE];
    (void)pthread_mutex_lock(&exchange->mutex);
    struct live mine = *live;
    *live = *other;
    *other = mine;
    (void)pthread_mutex_unlock(&exchange->mutex);
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    struct live lives[SLOTS] = { { NULL, 0, 0, 0 } };
    uint64_t seed = worker->number;
    for (uint32_t round = 0; round < ROUNDS && worker->trouble == NULL; round++) {
        struct live *live = &lives[random_next(&seed) % SLOTS];
        if (live->block != NULL && (worker->has_one_stream || random_next(&seed) % 4 == 0))
            live_exchange(worker->exchange, live, &seed);
        if (live->block == NULL) {
            if (!live_begin(worker, live, &seed, round))
                worker->trouble = "a block could not be had";
        } else if (!live_end(worker, live)) {
            worker->trouble = "a block could not be checked or freed";
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        if (lives[i].block != NULL && !live_end(worker, &lives[i]))
            worker->trouble = "a block could not be freed in the end";
    }
    return NULL;
}

static int item_looked_at(void *context, const vmm_item *item)
{
    uint64_t *last = context;
    bool rises = item->address >= *last;
    *last = item->address;
    return rises ? 0 : 1;
}

static const char *stats_trouble(const vmm_stats *stats)
{
#define STAT_LOOKED_AT(name, unit, kind, of, label, text)                                          \
    if (stats->name.freed > stats->name.allocated || stats->name.current > stats->name.peak)       \
        return "figures contradict each other: " #name;
    VMM_STAT_MAP(STAT_LOOKED_AT)
#undef STAT_LOOKED_AT
    return NULL;
}

/* Reads and trims while the others work. */
static void *observer_main(void *context)
{
    struct worker *worker = context;
    vmm_cache *cache = worker->test->cache;
    uint64_t seed = 99;
    while (atomic_load(&workers_go_on) && worker->trouble == NULL) {
        vmm_stats stats = { .struct_size = sizeof stats };
        uint64_t last = 0;
        if (vmm_stats_get(cache, &stats) != VMM_OK ||
            vmm_walk(cache, item_looked_at, &last) != VMM_OK)
            worker->trouble = "a report failed";
        else
            worker->trouble = stats_trouble(&stats);
        if (vmm__cache_check(cache) != VMM_OK)
            worker->trouble = "an invariant is broken";
        size_t keep = random_next(&seed) % CACHE_LIMIT;
        if (random_next(&seed) % 4 == 0 && vmm_trim(cache, keep, NULL) != VMM_OK)
            worker->trouble = "a trim failed";
        if (random_next(&seed) % 4 == 0 && vmm_stats_reset_peak(cache) != VMM_OK)
            worker->trouble = "a reset failed";
    }
    return NULL;
}

/* The sums are exact when no call is under way. */
static void sums_compare(struct cache_test *test, const struct worker *workers)
{
    uint64_t requested_bytes = 0;
    uint64_t allocations = 0;
    for (unsigned i = 0; i < WORKERS; i++) {
        requested_bytes += workers[i].requested_bytes;
        allocations += workers[i].allocations;
    }
    vmm_stats stats = cache_stats(test);
    assert_int_equal(stats.requested_bytes.allocated, requested_bytes);
    assert_int_equal(stats.allocations.allocated, allocations);
}

static void workers_run(struct cache_test *test, struct exchange *exchange, bool has_one_stream)
{
    struct worker workers[WORKERS];
    struct worker observer = { .test = test };
    atomic_store(&workers_go_on, true);
    assert_int_equal(pthread_create(&observer.thread, NULL, observer_main, &observer), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){
            .test = test, .exchange = exchange, .number = i, .has_one_stream = has_one_stream
        };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    const char *trouble = NULL;
    for (unsigned i = 0; i < WORKERS; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        trouble = trouble == NULL ? workers[i].trouble : trouble;
    }
    atomic_store(&workers_go_on, false);
    (void)pthread_join(observer.thread, NULL);
    trouble = trouble == NULL ? observer.trouble : trouble;
    if (trouble != NULL)
        fail_msg("%s", trouble);
    sums_compare(test, workers);
}

static void exchange_emptied(struct cache_test *test, struct exchange *exchange)
{
    struct worker last = { .test = test };
    for (int i = 0; i < EXCHANGE; i++) {
        if (exchange->lives[i].block != NULL)
            assert_true(live_end(&last, &exchange->lives[i]));
    }
}

static void threads_share(struct cache_test *test, bool has_one_stream)
{
    struct exchange exchange = { .mutex = PTHREAD_MUTEX_INITIALIZER };
    workers_run(test, &exchange, has_one_stream);
    exchange_emptied(test, &exchange);
    work_verify(test);
    cache_verify(test);
    assert_int_equal(cache_stats(test).allocations.current, 0);
    cache_trim_all(test);
}

CACHE_TEST(threads_share_a_cache)
{
    threads_share(test, false);
}

CACHE_TEST(threads_share_a_stream)
{
    threads_share(test, true);
}

CACHE_TEST(threads_share_a_cache_that_does_not_cache)
{
    if (driver_choice_kind() == VMM_DRIVER_CUDA)
        return; /* some 10 000 mappings: seconds there, and nothing that the others do not show */
    cache_restart_with(test, .no_caching = 1, .limit_bytes = 2 * CACHE_LIMIT);
    threads_share(test, false);
}

/* The library's own thread is one more that takes memory away. */
CACHE_TEST(threads_share_a_cache_that_decays)
{
    cache_restart_with(test, .limit_bytes = CACHE_LIMIT, .decay_ms = 1, .decay_thread = 1);
    threads_share(test, false);
}

static int item_count(void *context, const vmm_item *item)
{
    *(uint64_t *)context += item->kind == VMM_ITEM_BLOCK || item->kind == VMM_ITEM_CHUNK ? 1 : 0;
    return 0;
}

struct waiter {
    vmm_cache *cache;
    vmm_status status;
};

static void *waiter_main(void *context)
{
    struct waiter *waiter = context;
    waiter->status = vmm_wait(waiter->cache);
    return NULL;
}

/* While one thread waits for a stream that stands still, this one trims, which asks about that stream, and grows. */
static bool goes_on_beside_a_wait(struct cache_test *test)
{
    struct waiter waiter = { .cache = test->cache };
    pthread_t thread;
    void *pending = block_alloc(test, 3 * MIB, 1);
    assert_ok(vmm__driver_delay(test->driver, STALL_NS, test->streams[1]));
    block_free(test, pending);
    assert_int_equal(pthread_create(&thread, NULL, waiter_main, &waiter), 0);
    (void)usleep(150 * 1000); /* it waits by now */
    uint64_t begin_ns = vmm__time_ns();
    (void)cache_trim(test, 0);
    void *other = block_alloc(test, 5 * MIB, 2);
    uint64_t took_ns = vmm__time_ns() - begin_ns;
    block_free(test, other);
    (void)pthread_join(thread, NULL);
    assert_ok(waiter.status);
    return took_ns < STALL_NS / 4;
}

/* One attempt says it: the others are for machines that have no time for this thread. sim's work takes none. */
CACHE_TEST(a_wait_blocks_no_other_thread)
{
    bool went_on = driver_choice_kind() == VMM_DRIVER_SIM;
    for (int i = 0; i < ATTEMPTS && !went_on; i++)
        went_on = goes_on_beside_a_wait(test);
    assert_true(went_on);
}

enum { STREAMS = 100 };

/* ThreadSanitizer, with which programs are built, ends a process in which a thread holds more than 64 mutexes. */
CACHE_TEST(calls_lock_many_streams)
{
    vmm_stream streams[STREAMS];
    void *blocks[STREAMS];
    void *other;
    uint64_t items = 0;
    cache_restart_with(test, .limit_bytes = 4 * CACHE_LIMIT);
    for (int i = 0; i < STREAMS; i++) {
        assert_ok(vmm__driver_stream_create(test->driver, &streams[i]));
        assert_ok(vmm_alloc(test->cache, 2 * MIB, streams[i], &blocks[i]));
    }
    for (int i = 0; i < STREAMS; i += 2)
        assert_ok(vmm_free(test->cache, blocks[i]));
    assert_ok(vmm_walk(test->cache, item_count, &items));
    assert_true(items >= STREAMS + STREAMS / 2);
    assert_ok(vmm_listen(test->cache, NULL, NULL));
    assert_ok(vmm_alloc(test->cache, 3 * CACHE_LIMIT, NULL, &other)); /* searches all of them */
    assert_ok(vmm_free(test->cache, other));
    for (int i = 1; i < STREAMS; i += 2)
        assert_ok(vmm_free(test->cache, blocks[i]));
    for (int i = 0; i < STREAMS; i++) {
        assert_ok(vmm_stream_end(test->cache, streams[i]));
        assert_ok(vmm__driver_stream_end(test->driver, streams[i]));
    }
}

static int group_setup(void **state)
{
    int status = cache_group_setup(state);
    cache_streams_warm(*state, STREAMS);
    return status;
}

DRIVER_MAIN(group_setup, cache_group_teardown)
