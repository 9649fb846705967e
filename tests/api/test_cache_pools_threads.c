/* Threads use, create, route and destroy pools of one cache. Also runs under ThreadSanitizer. */
#define _GNU_SOURCE
#include "support/pool_support.h"
#include "support/thread_support.h"

#include <sched.h>
#include <stdatomic.h>

enum { WORKERS = 3, SLOTS = 12, ROUNDS = 2000 };

struct worker {
    struct cache_test *test;
    vmm_pool *pool; /* NULL: the worker has pools of its own, or requests name none */
    pthread_t thread;
    unsigned number;
    void *block;         /* to resize */
    const char *trouble; /* assertions belong to the main thread */
};

static atomic_uint workers_left;

/* The stream of a worker: two workers share one. */
static vmm_stream stream_of(const struct worker *worker)
{
    return worker->test->streams[1 + worker->number % 2];
}

static bool block_turn(const struct worker *worker, vmm_pool *pool, void **slot, uint64_t *seed)
{
    vmm_cache *cache = worker->test->cache;
    if (*slot != NULL && vmm_free(cache, *slot) != VMM_OK)
        return false;
    *slot = NULL;
    size_t bytes = random_bytes(seed, 4 * MIB);
    vmm_status status = pool == NULL ? vmm_alloc(cache, bytes, stream_of(worker), slot)
                                     : vmm_alloc_from(pool, bytes, stream_of(worker), slot);
    return status == VMM_OK || status == VMM_ERR_DEVICE_OOM;
}

static void slots_free(struct worker *worker, void **slots)
{
    for (int i = 0; i < SLOTS; i++) {
        if (vmm_free(worker->test->cache, slots[i]) != VMM_OK)
            worker->trouble = "a block could not be freed in the end";
    }
}

/* Uses the pool that all workers share, or what routes and the thread's pushes choose. */
static void *user_main(void *context)
{
    struct worker *worker = context;
    void *slots[SLOTS] = { NULL };
    uint64_t seed = worker->number;
    for (unsigned round = 0; round < ROUNDS && worker->trouble == NULL; round++) {
        if (!block_turn(worker, worker->pool, &slots[random_next(&seed) % SLOTS], &seed))
            worker->trouble = "a block could not be had or freed";
        if (worker->pool != NULL && round % 128 == 0 &&
            vmm_pool_trim(worker->pool, 8 * MIB, NULL) != VMM_OK)
            worker->trouble = "a trim failed";
    }
    slots_free(worker, slots);
    atomic_fetch_sub(&workers_left, 1);
    return NULL;
}

/* One life of a pool: its blocks outlive it. */
static const char *pool_live(struct worker *worker, void **slots, uint64_t *seed)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    options.user_id.first = worker->number + 1;
    if (vmm_pool_create(worker->test->cache, &options, &pool) != VMM_OK)
        return "a pool could not be created";
    if (vmm_pool_find(worker->test->cache, (vmm_pool_id){ worker->number + 1, 0 }) != pool)
        return "a pool was not found";
    if (vmm_pool_push(pool) != VMM_OK)
        return "a pool could not be pushed";
    for (int i = 0; i < SLOTS; i++) {
        if (!block_turn(worker, i % 2 == 0 ? pool : NULL, &slots[i], seed))
            return "a block could not be had or freed";
    }
    if (vmm_pool_pop(pool) != VMM_OK)
        return "a pool could not be popped";
    return vmm_pool_destroy(pool, 1) == VMM_OK ? NULL : "a pool could not be destroyed";
}

static void *owner_main(void *context)
{
    struct worker *worker = context;
    void *slots[SLOTS] = { NULL };
    uint64_t seed = worker->number;
    for (unsigned round = 0; round < ROUNDS / SLOTS && worker->trouble == NULL; round++)
        worker->trouble = pool_live(worker, slots, &seed);
    slots_free(worker, slots);
    atomic_fetch_sub(&workers_left, 1);
    return NULL;
}

static void workers_start(struct worker *workers, void *(*main)(void *context))
{
    atomic_store(&workers_left, WORKERS);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, main, &workers[i]), 0);
}

static void workers_join(struct worker *workers)
{
    for (unsigned i = 0; i < WORKERS; i++)
        (void)pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < WORKERS; i++) {
        if (workers[i].trouble != NULL)
            fail_msg("%s: %s", workers[i].trouble, vmm_last_error());
    }
}

static void observe(struct cache_test *test)
{
    vmm_stats stats = pool_stats(vmm_cache_pool(test->cache));
    assert_true(stats.allocated_bytes.current <= CACHE_LIMIT);
    assert_true(stats.reserved_bytes.current <= CACHE_LIMIT);
    assert_ok(vmm__cache_check(test->cache));
}

/* Observes the cache until all workers have ended. */
static void workers_run(struct cache_test *test, struct worker *workers, void *(*main)(void *))
{
    workers_start(workers, main);
    while (atomic_load(&workers_left) > 0)
        observe(test);
    workers_join(workers);
}

static void pool_is_unused(struct cache_test *test, vmm_pool *pool)
{
    work_verify(test);
    cache_verify(test);
    assert_int_equal(pool_stats(pool).allocations.current, 0);
}

CACHE_TEST(threads_share_a_pool)
{
    struct worker workers[WORKERS] = { { .test = NULL } };
    vmm_pool *pool = pool_make(test, .name = "shared", .limit_bytes = 48 * MIB);
    for (unsigned i = 0; i < WORKERS; i++)
        workers[i] = (struct worker){ .test = test, .pool = pool, .number = i };
    workers_run(test, workers, user_main);
    pool_is_unused(test, pool);
    assert_true(pool_stats(pool).reserved_bytes.peak <= 48 * MIB);
}

CACHE_TEST(threads_create_push_and_destroy_pools)
{
    struct worker workers[WORKERS] = { { .test = NULL } };
    for (unsigned i = 0; i < WORKERS; i++)
        workers[i] = (struct worker){ .test = test, .number = i };
    workers_run(test, workers, owner_main);
}

/* A source of addresses without memory, which counts its segments. */
struct counted_source {
    _Atomic uint64_t next;
    _Atomic int segments;
};

static void *counted_alloc(void *context, size_t bytes, vmm_stream stream)
{
    struct counted_source *source = context;
    (void)stream;
    atomic_fetch_add(&source->segments, 1);
    return (void *)(uintptr_t)atomic_fetch_add(&source->next, bytes + 4096);
}

static void counted_free(void *context, void *segment, size_t bytes)
{
    struct counted_source *source = context;
    (void)segment;
    (void)bytes;
    atomic_fetch_sub(&source->segments, 1);
}

/* Requests that a route leads to a pool may be under way when the route ends and the pool is destroyed. */
CACHE_TEST(routes_end_while_threads_allocate)
{
    struct worker workers[WORKERS] = { { .test = NULL } };
    for (unsigned i = 0; i < WORKERS; i++)
        workers[i] = (struct worker){ .test = test, .number = i };
    workers_start(workers, user_main);
    for (uint64_t id = 1; atomic_load(&workers_left) > 0; id++) {
        vmm_pool *pool = pool_make(test, .user_id = { id, 0 });
        assert_ok(vmm_pool_route(pool, id % 2 == 0 ? NULL : graph_filter, &test->streams[1]));
        block_free(test, block_alloc(test, 1000, 0));
        assert_ok(vmm_pool_unroute(pool));
        assert_ok(vmm_pool_destroy(pool, 1));
    }
    workers_join(workers);
}

/* Allocates and frees one block after the other. */
static void *passer_main(void *context)
{
    struct worker *worker = context;
    void *block = NULL;
    uint64_t seed = worker->number;
    for (unsigned round = 0; round < 20 * ROUNDS && worker->trouble == NULL; round++) {
        if (!block_turn(worker, NULL, &block, &seed))
            worker->trouble = "a block could not be had";
        if (vmm_free(worker->test->cache, block) != VMM_OK)
            worker->trouble = "a block could not be freed";
        block = NULL;
    }
    atomic_fetch_sub(&workers_left, 1);
    return NULL;
}

/* The same with pools of a source: what a route has led there goes to the pool that is next. */
CACHE_TEST(routes_to_sources_end_while_threads_allocate)
{
    struct worker workers[WORKERS] = { { .test = NULL } };
    struct counted_source source = { .next = UINT64_C(1) << 45 };
    vmm_segment_source of = { .context = &source, .alloc = counted_alloc, .free = counted_free };
    for (unsigned i = 0; i < WORKERS; i++)
        workers[i] = (struct worker){ .test = test, .number = i };
    workers_start(workers, passer_main);
    while (atomic_load(&workers_left) > 0) {
        vmm_pool *pool = pool_make(test, .source = of);
        assert_ok(vmm_pool_route(pool, NULL, NULL));
        sched_yield();
        assert_ok(vmm_pool_unroute(pool));
        while (vmm_pool_destroy(pool, 0) != VMM_OK) /* until its blocks are freed */
            sched_yield();
    }
    workers_join(workers);
    cache_verify_empty(test);
    assert_int_equal(source.segments, 0);
}

/* A resize that copies allocates in the block's pool, which may be destroyed meanwhile. */
static void *resizer_main(void *context)
{
    struct worker *worker = context;
    vmm_cache *cache = worker->test->cache;
    void *block = worker->block;
    for (size_t bytes = 6000; bytes < 60000 && worker->trouble == NULL; bytes += 3000) {
        if (vmm_resize(cache, block, bytes, &block) != VMM_OK)
            worker->trouble = "a block could not be resized";
    }
    if (vmm_free(cache, block) != VMM_OK)
        worker->trouble = "a resized block could not be freed";
    atomic_fetch_sub(&workers_left, 1);
    return NULL;
}

CACHE_TEST(pools_end_while_threads_resize_their_blocks)
{
    enum { LIVES = 100 };
    for (int i = 0; i < LIVES; i++) {
        struct worker workers[WORKERS] = { { .test = NULL } };
        vmm_pool *pool = pool_make(test, .name = "short");
        for (unsigned k = 0; k < WORKERS; k++)
            workers[k] = (struct worker){ .test = test,
                                          .number = k,
                                          .block = pool_alloc(test, pool, 5000, 1 + k % 2) };
        workers_start(workers, resizer_main);
        for (int turn = 0; turn < i % 16; turn++)
            sched_yield();
        assert_ok(vmm_pool_destroy(pool, 1));
        workers_join(workers);
    }
}

/* One thread's pool keeps its memory, and the requests of the others borrow it. */
CACHE_TEST(threads_borrow_from_a_pool_that_is_in_use)
{
    struct worker workers[WORKERS] = { { .test = NULL } };
    for (int is_whole = 0; is_whole <= 1; is_whole++) {
        vmm_pool *pool = pool_make(test, .name = "lender", .use_on_oom = 1, .no_split = is_whole);
        assert_ok(vmm_pool_retain(pool));
        block_free(test, pool_alloc(test, pool, CACHE_LIMIT - 16 * MIB, 1));
        for (unsigned i = 0; i < WORKERS; i++)
            workers[i] = (struct worker){ .test = test, .pool = i == 0 ? pool : NULL, .number = i };
        workers_run(test, workers, user_main);
        pool_is_unused(test, pool);
        assert_ok(vmm_pool_drop(pool));
        assert_ok(vmm_pool_destroy(pool, 0));
    }
}

static void *thread_pop(void *context)
{
    return vmm_pool_pop(context) == VMM_ERR_INVALID_ARGUMENT ? context : NULL;
}

struct request {
    struct cache_test *test;
    vmm_pool *pool; /* result: which pool served it */
};

static void *thread_alloc(void *context)
{
    struct request *request = context;
    void *block;
    vmm_item item = VMM_ITEM_INIT;
    if (vmm_alloc(request->test->cache, 100, request->test->streams[1], &block) != VMM_OK ||
        vmm_find(request->test->cache, block, &item) != VMM_OK)
        return NULL;
    request->pool = item.pool;
    return vmm_free(request->test->cache, block) == VMM_OK ? request : NULL;
}

CACHE_TEST(a_push_is_the_thread_s_own)
{
    vmm_pool *pool = pool_make(test, .name = "mine");
    struct request request = { .test = test };
    assert_ok(vmm_pool_push(pool));
    assert_non_null(thread_run(thread_pop, pool));
    assert_non_null(thread_run(thread_alloc, &request));
    assert_ptr_equal(request.pool, vmm_cache_pool(test->cache));
    assert_non_null(thread_alloc(&request));
    assert_ptr_equal(request.pool, pool);
    assert_ok(vmm_pool_pop(pool));
}

CACHE_MAIN()
