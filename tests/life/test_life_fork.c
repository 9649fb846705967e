/*
 * fork(): every call of the child on its parent's cache fails at once, even if a thread of the parent held a lock. The
 * child may create caches of its own. The parent is not affected.
 */
#define _GNU_SOURCE
#include "base/hostmem.h"
#include "base/sanitizer.h"
#include "cache/cache.h"
#include "life/child.h"
#include "support/cache_support.h"
#include "support/thread_support.h"
#include "support/visit_support.h"
#include "vm/captures.h"

#include <string.h>

/* ThreadSanitizer calls it. A child of fork() ends without the threads that carry out its parent's tickets. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}

/* ThreadSanitizer kills children that start threads: there they start none, and do not use the host driver. */
#ifdef VMM_THREAD_SANITIZER
enum { CHILD_THREADS = 0 };
#else
enum { CHILD_THREADS = 3 };
#endif

enum { CALL_NS = 1000000 };

/* The last is more than any block. */
static const uint64_t asked_bytes[] = { 0, 1, 5000, 100000, 3 * MIB, UINT64_MAX };
enum { ASKED = sizeof asked_bytes / sizeof asked_bytes[0] };

struct scene {
    struct cache_test *test;
    uint64_t block_bytes[ASKED]; /* as the parent gets them */
    vmm_stream stream;           /* the thread takes the fast path of this stream's lane */
    void *live;
    void *used;
};

/* ---- Calls of a child ------------------------------------------------------------------------- */

static void change_ignore(void *context, const vmm_change *change)
{
    (void)context;
    (void)change;
}

/* Requires that the call fails, names itself in the error, and does not wait. The first call may pay for pages that the
 * child gets of its own. */
#define require_refused(call, function)                                                            \
    do {                                                                                           \
        uint64_t took = CALL_NS;                                                                   \
        for (int tried = 0; tried < 3 && took >= CALL_NS; tried++) {                               \
            uint64_t begin = thread_ns();                                                          \
            vmm_status status = (call);                                                            \
            took = thread_ns() - begin;                                                            \
            CHILD_REQUIRES(status == VMM_ERR_FORKED);                                              \
            CHILD_REQUIRES(strstr(vmm_last_error(), function) == vmm_last_error());                \
        }                                                                                          \
        CHILD_REQUIRES(took < CALL_NS);                                                            \
    } while (0)

static void memory_calls_try(const struct scene *scene)
{
    vmm_cache *cache = scene->test->cache;
    void *out = cache;
    size_t released = 7;
    require_refused(vmm_alloc(cache, 512, scene->stream, &out), "vmm_alloc");
    require_refused(vmm_alloc(cache, 512, (vmm_stream)77, &out), "vmm_alloc");
    require_refused(vmm_free(cache, scene->live), "vmm_free");
    require_refused(vmm_free(cache, &out), "vmm_free");
    require_refused(vmm_record_stream(cache, scene->live, (vmm_stream)78), "vmm_record_stream");
    require_refused(vmm_pin(cache, scene->live), "vmm_pin");
    require_refused(vmm_unpin(cache, scene->live), "vmm_unpin");
    require_refused(vmm_trim(cache, 0, &released), "vmm_trim");
    require_refused(vmm_wait(cache), "vmm_wait");
    require_refused(vmm_wait_stream(cache, scene->stream), "vmm_wait_stream");
    require_refused(vmm_poll(cache), "vmm_poll");
    require_refused(vmm_compact(cache, 0, NULL, NULL), "vmm_compact");
    require_refused(vmm_stream_end(cache, scene->stream), "vmm_stream_end");
    require_refused(vmm_limit_set(cache, 1), "vmm_limit_set");
    require_refused(vmm_peers_add(cache, 2), "vmm_peers_add");
    CHILD_REQUIRES(out == cache && released == 7);
}

static void pool_calls_try(vmm_cache *cache, vmm_pool *pool)
{
    vmm_pool *made = NULL;
    void *block = NULL;
    require_refused(vmm_pool_create(cache, NULL, &made), "vmm_pool_create");
    require_refused(vmm_alloc_from(pool, 1, NULL, &block), "vmm_alloc_from");
    require_refused(vmm_pool_push(pool), "vmm_pool_push");
    require_refused(vmm_pool_pop(pool), "vmm_pool_pop");
    require_refused(vmm_pool_route(pool, NULL, NULL), "vmm_pool_route");
    require_refused(vmm_pool_unroute(pool), "vmm_pool_unroute");
    require_refused(vmm_pool_retain(pool), "vmm_pool_retain");
    require_refused(vmm_pool_drop(pool), "vmm_pool_drop");
    require_refused(vmm_pool_trim(pool, 0, NULL), "vmm_pool_trim");
    require_refused(vmm_pool_free_all(pool), "vmm_pool_free_all");
    require_refused(vmm_pool_limit_set(pool, 1), "vmm_pool_limit_set");
    require_refused(vmm_pool_destroy(pool, 1), "vmm_pool_destroy");
}

static int part_stop(void *context, const vmm_part *part)
{
    (void)context;
    return part != NULL;
}

static void growing_calls_try(vmm_cache *cache, vmm_pool *pool)
{
    void *out = NULL;
    require_refused(vmm_alloc_aligned(pool, 1, 4096, NULL, &out), "vmm_alloc_aligned");
    require_refused(vmm_reserve(pool, 1, 0, NULL, &out), "vmm_reserve");
    require_refused(vmm_commit(cache, &out, 0, 0), "vmm_commit");
    require_refused(vmm_decommit(cache, &out, 0, 0), "vmm_decommit");
    require_refused(vmm_resize(cache, &out, 1, &out), "vmm_resize");
    require_refused(vmm_name(cache, &out, "name"), "vmm_name");
    require_refused(vmm_pool_place(pool, &out, 1, NULL), "vmm_pool_place");
    require_refused(vmm_share_export(cache, &out, (vmm_share **)&out), "vmm_share_export");
    require_refused(vmm_share_import(cache, NULL, NULL, &out), "vmm_share_import");
    int fd = -7;
    require_refused(vmm_parts_walk(cache, &out, part_stop, NULL), "vmm_parts_walk");
    require_refused(vmm_dmabuf_export(cache, &out, 0, 4096, &fd), "vmm_dmabuf_export");
    CHILD_REQUIRES(out == NULL && fd == -7);
}

static void sleep_calls_try(vmm_pool *pool)
{
    vmm_pool_phase phase;
    vmm_ticket *ticket;
    void *host = NULL;
    require_refused(vmm_pool_sleep(&pool, 1, NULL, NULL), "vmm_pool_sleep");
    require_refused(vmm_pool_sleep(&pool, 1, NULL, &ticket), "vmm_pool_sleep");
    require_refused(vmm_pool_wake(&pool, 1, NULL, NULL), "vmm_pool_wake");
    require_refused(vmm_pool_state(pool, &phase), "vmm_pool_state");
    require_refused(vmm_backup_find(pool, &host, &host), "vmm_backup_find");
    require_refused(vmm_backup_drop(pool), "vmm_backup_drop");
}

static void report_calls_try(const struct scene *scene)
{
    vmm_cache *cache = scene->test->cache;
    vmm_stats stats = VMM_STATS_INIT;
    vmm_item item = VMM_ITEM_INIT;
    uint64_t bytes = 0;
    pool_calls_try(cache, cache->pool.handle);
    sleep_calls_try(cache->pool.handle);
    growing_calls_try(cache, cache->pool.handle);
    require_refused(vmm_stats_get(cache, &stats), "vmm_stats_get");
    require_refused(vmm_pool_stats_get(cache->pool.handle, &stats), "vmm_pool_stats_get");
    require_refused(vmm_pool_walk(cache->pool.handle, visit_continue, NULL), "vmm_pool_walk");
    require_refused(vmm_stats_reset_peak(cache), "vmm_stats_reset_peak");
    require_refused(vmm_device_memory(cache, &bytes, &bytes), "vmm_device_memory");
    require_refused(vmm_peers_get(cache, &bytes), "vmm_peers_get");
    require_refused(vmm_summary_write(cache, stderr), "vmm_summary_write");
    require_refused(vmm_log_write(cache, "line"), "vmm_log_write");
    require_refused(vmm_walk(cache, visit_continue, NULL), "vmm_walk");
    require_refused(vmm_find(cache, scene->live, &item), "vmm_find");
    require_refused(vmm_listen(cache, change_ignore, NULL), "vmm_listen");
    require_refused(vmm_debug_check(cache), "vmm_debug_check");
    require_refused(vmm_debug_report(cache, stderr), "vmm_debug_report");
}

/* It needs neither the records nor a device. */
static void block_bytes_ask(const struct scene *scene)
{
    (void)vmm_poll(scene->test->cache);
    char line[512];
    (void)snprintf(line, sizeof line, "%s", vmm_last_error());
    for (int i = 0; i < ASKED; i++)
        CHILD_REQUIRES(vmm_block_bytes(scene->test->cache, asked_bytes[i]) ==
                       scene->block_bytes[i]);
    CHILD_REQUIRES(strcmp(vmm_last_error(), line) == 0);
}

static uint64_t driver_calls(const struct driver *driver)
{
    uint64_t calls = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        calls += vmm__driver_calls(driver, (enum driver_call)call);
    return calls;
}

static void calls_try(const struct scene *scene)
{
    uint64_t calls = driver_calls(scene->test->driver);
    memory_calls_try(scene);
    report_calls_try(scene);
    block_bytes_ask(scene);
    require_refused(vmm_destroy(scene->test->cache), "vmm_destroy");
    require_refused(vmm_destroy(scene->test->cache), "vmm_destroy");
    CHILD_REQUIRES(driver_calls(scene->test->driver) == calls);
}

static void all_calls_try(void *context)
{
    uint64_t host_bytes = vmm__host_outstanding();
    calls_try(context);
    CHILD_REQUIRES(vmm__host_outstanding() == host_bytes);
}

/* ---- Parents ----------------------------------------------------------------------------------- */

static struct scene scene_start(struct cache_test *test)
{
    struct scene scene = { .test = test, .stream = test->streams[0] };
    for (int i = 0; i < ASKED; i++)
        scene.block_bytes[i] = vmm_block_bytes(test->cache, asked_bytes[i]);
    assert_true(scene.block_bytes[1] >= 512 && scene.block_bytes[ASKED - 1] == 0);
    scene.used = block_alloc(test, 600, 1);
    block_use(test, scene.used, 2);
    scene.live = block_alloc(test, 3 * MIB, 0);
    block_fill(test, scene.live, 3 * MIB, 5, 0);
    for (int i = 0; i < 100; i++)
        block_free(test, block_alloc(test, 512, 0));
    assert_non_null(test->cache->active_lane); /* the fast path is open */
    assert_ptr_equal(test->cache->active_lane,
                     vmm__lane_table_find(&test->cache->pool.table, scene.stream));
    return scene;
}

static void scene_end(struct scene *scene)
{
    block_check(scene->test, scene->live, 3 * MIB, 5, 0);
    block_free(scene->test, scene->live);
    block_free(scene->test, scene->used);
    for (int i = 0; i < 100; i++)
        block_free(scene->test, block_alloc(scene->test, 512, 0));
    cache_verify(scene->test);
}

CACHE_TEST(calls_of_a_child_fail)
{
    struct scene scene = scene_start(test);
    child_runs(all_calls_try, &scene);
    scene_end(&scene);
}

static void sizes_ask(void *context)
{
    block_bytes_ask(context);
}

CACHE_TEST(a_child_is_told_the_sizes_of_blocks)
{
    const vmm_config configs[] = { CONFIG(.no_caching = VMM_ON), CONFIG(.debug = VMM_DEBUG_ON) };
    for (int i = 0; i < 2; i++) {
        cache_restart(test, &configs[i]);
        struct scene scene = { .test = test };
        for (int asked = 0; asked < ASKED; asked++)
            scene.block_bytes[asked] = vmm_block_bytes(test->cache, asked_bytes[asked]);
        child_runs(sizes_ask, &scene);
    }
}

/* A thread that does not exist in the child holds every lock. */
struct holder {
    vmm_cache *cache;
    pthread_barrier_t holds;
    pthread_barrier_t ends;
};

static void *locks_hold(void *context)
{
    struct holder *holder = context;
    vmm_cache *cache = holder->cache;
    vmm__fair_lock(&cache->grow_lock);
    vmm__cache_lanes_lock(cache, NULL);
    vmm__mutex_lock(&cache->routes.lock);
    (void)pthread_barrier_wait(&holder->holds);
    (void)pthread_barrier_wait(&holder->ends);
    vmm__mutex_unlock(&cache->routes.lock);
    vmm__cache_lanes_unlock(cache, NULL);
    vmm__fair_unlock(&cache->grow_lock);
    return NULL;
}

/* The other leaf: one thread holds one leaf at most. */
static void *lost_lock_hold(void *context)
{
    struct holder *holder = context;
    vmm__mutex_lock(&holder->cache->driver->lost.lock);
    (void)pthread_barrier_wait(&holder->holds);
    (void)pthread_barrier_wait(&holder->ends);
    vmm__mutex_unlock(&holder->cache->driver->lost.lock);
    return NULL;
}

CACHE_TEST(child_does_not_wait_for_locks)
{
    struct scene scene = scene_start(test);
    struct holder holder = { .cache = scene.test->cache };
    pthread_t thread, leaf_thread;
    assert_int_equal(pthread_barrier_init(&holder.holds, NULL, 3), 0);
    assert_int_equal(pthread_barrier_init(&holder.ends, NULL, 3), 0);
    assert_int_equal(pthread_create(&thread, NULL, locks_hold, &holder), 0);
    assert_int_equal(pthread_create(&leaf_thread, NULL, lost_lock_hold, &holder), 0);
    (void)pthread_barrier_wait(&holder.holds);
    child_runs(all_calls_try, &scene);
    (void)pthread_barrier_wait(&holder.ends);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_join(leaf_thread, NULL), 0);
    (void)pthread_barrier_destroy(&holder.holds);
    (void)pthread_barrier_destroy(&holder.ends);
    scene_end(&scene);
}

/* ---- Caches of children ------------------------------------------------------------------------ */

static void *blocks_cycle(void *cache)
{
    void *blocks[8] = { NULL };
    for (int i = 0; i < 4000; i++) {
        void **block = &blocks[i % 8];
        CHILD_REQUIRES(vmm_free(cache, *block) == VMM_OK);
        CHILD_REQUIRES(vmm_alloc(cache, (size_t)(i % 8 + 1) * 700, NULL, block) == VMM_OK);
    }
    for (int i = 0; i < 8; i++)
        CHILD_REQUIRES(vmm_free(cache, blocks[i]) == VMM_OK);
    return NULL;
}

/* AddressSanitizer's allocator stays locked in a child if another thread was in it, so a cache of a process that forks
 * has no thread there. */
#ifdef __SANITIZE_ADDRESS__
enum { FORKS_WITH_THREADS = 0 };
#else
enum { FORKS_WITH_THREADS = 1 };
#endif

static vmm_cache *own_cache_create(bool forks)
{
    bool has_thread = CHILD_THREADS > 0 && (!forks || FORKS_WITH_THREADS);
    vmm_config config = CONFIG(.driver = CHILD_THREADS > 0 ? driver_choice_kind() : VMM_DRIVER_SIM,
                               .device_bytes = 64 * MIB, .decay_ms = 1,
                               .decay_thread = has_thread ? VMM_ON : VMM_OFF);
    vmm_cache *cache = NULL;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    return cache;
}

static void own_cache_use(void *context)
{
    vmm_cache *cache = own_cache_create(false);
    (void)blocks_cycle(cache);
    pthread_t threads[CHILD_THREADS + 1];
    for (int i = 0; i < CHILD_THREADS; i++)
        CHILD_REQUIRES(pthread_create(&threads[i], NULL, blocks_cycle, cache) == 0);
    calls_try(context);
    for (int i = 0; i < CHILD_THREADS; i++)
        CHILD_REQUIRES(pthread_join(threads[i], NULL) == 0);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    all_calls_try(context);
}

/* ---- Tickets ----------------------------------------------------------------------------------- */

struct ticket_scene {
    vmm_pool *pool;
    vmm_ticket *ticket;
};

/* The thread of the ticket is not in the child, and may have held any lock. */
static void ticket_calls_try(void *context)
{
    const struct ticket_scene *scene = context;
    int done = 7;
    require_refused(vmm_ticket_poll(scene->ticket, &done), "vmm_ticket_poll");
    require_refused(vmm_ticket_wait(scene->ticket), "vmm_ticket_wait");
    sleep_calls_try(scene->pool);
    CHILD_REQUIRES(done == 7);
}

CACHE_TEST(children_leave_tickets_alone)
{
    enum { FORKS = IS_SLOW_BUILD ? 10 : 40 };
    struct ticket_scene scene = { .pool = vmm_cache_pool(test->cache) };
    void *block = block_alloc(test, 40 * MIB, 1);
    block_fill(test, block, 40 * MIB, 3, 1);
    for (int round = 0; round < FORKS; round++) {
        assert_ok(round % 2 == 0 ? vmm_pool_sleep(&scene.pool, 1, NULL, &scene.ticket)
                                 : vmm_pool_wake(&scene.pool, 1, NULL, &scene.ticket));
        child_runs(ticket_calls_try, &scene);
        assert_ok(vmm_ticket_wait(scene.ticket));
    }
    block_check(test, block, 40 * MIB, 3, 1);
    work_verify(test);
    block_free(test, block);
}

static void *captures_hold(void *context)
{
    struct holder *holder = context;
    vmm__captures_lock();
    (void)pthread_barrier_wait(&holder->holds);
    (void)pthread_barrier_wait(&holder->ends);
    vmm__captures_unlock();
    return NULL;
}

/* Each event of a clock takes that lock, and the parent has announced no capture. */
CACHE_TEST(child_does_not_wait_for_the_lock_of_captures)
{
    struct scene scene = scene_start(test);
    struct holder holder = { .cache = scene.test->cache };
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&holder.holds, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&holder.ends, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, captures_hold, &holder), 0);
    (void)pthread_barrier_wait(&holder.holds);
    child_runs(own_cache_use, &scene);
    (void)pthread_barrier_wait(&holder.ends);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_barrier_destroy(&holder.holds);
    (void)pthread_barrier_destroy(&holder.ends);
    scene_end(&scene);
}

CACHE_TEST(child_creates_its_own_cache)
{
    struct scene scene = scene_start(test);
    child_runs(own_cache_use, &scene);
    scene_end(&scene);
}

struct generations {
    struct scene *scene;
    int left;
};

/* Each generation's calls on all caches made before it fail. */
static void generation_run(void *context)
{
    struct generations *generations = context;
    all_calls_try(generations->scene);
    vmm_cache *cache = own_cache_create(true);
    (void)blocks_cycle(cache);
    if (generations->left-- > 0)
        CHILD_REQUIRES(child_ended(child_begun(generation_run, context), 0));
    (void)blocks_cycle(cache);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

CACHE_TEST(grandchildren_create_their_own_caches)
{
    struct scene scene = scene_start(test);
    struct generations generations = { .scene = &scene, .left = 3 };
    child_runs(generation_run, &generations);
    scene_end(&scene);
}

/* A thread started after the fork may get the id of a thread that does not exist in the child. */
static void *bias_owner_become(void *cache)
{
    for (int i = 0; i < 64; i++) {
        void *block = block_in(cache, 512, (vmm_stream)9);
        assert_ok(vmm_free(cache, block));
    }
    return NULL;
}

static void *thread_try_calls(void *scene)
{
    memory_calls_try(scene);
    return NULL;
}

static void threads_try_calls(void *scene)
{
    for (int i = 0; i < CHILD_THREADS; i++) {
        pthread_t thread;
        CHILD_REQUIRES(pthread_create(&thread, NULL, thread_try_calls, scene) == 0);
        CHILD_REQUIRES(pthread_join(thread, NULL) == 0);
    }
}

CACHE_TEST(threads_of_a_child_are_not_bias_owners)
{
    struct scene scene = scene_start(test);
    scene.stream = (vmm_stream)9;
    for (int i = 0; i < 4; i++)
        (void)thread_run(bias_owner_become, test->cache);
    child_runs(threads_try_calls, &scene);
    scene_end(&scene);
}

CACHE_MAIN()
