/*
 * fork(): the child is refused whatever it asks of its parent's cache, at once and whoever held what lock;
 * it may make caches of its own; the parent notices nothing.
 */
#define _GNU_SOURCE
#include "base/hostmem.h"
#include "base/sanitizer.h"
#include "life/child.h"
#include "policy/cache.h"
#include "support/cache_support.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* ThreadSanitizer ends children that start threads: there they do without, and without the host driver. */
#ifdef VMM_THREAD_SANITIZER
enum { CHILD_THREADS = 0 };
#else
enum { CHILD_THREADS = 3 };
#endif

enum { CALL_NS = 1000000 };

struct scene {
    struct cache_test *test;
    vmm_stream stream; /* whose pool the thread enters the fast way */
    void *live;
    void *used;
};

/* ---- What a child is told -------------------------------------------------------------------- */

static uint64_t thread_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int nothing_visited(void *context, const vmm_item *item)
{
    (void)context;
    (void)item;
    return 0;
}

static void nothing_told(void *context, const vmm_change *change)
{
    (void)context;
    (void)change;
}

/* The call is refused, says so, and takes its time from nobody. */
#define refused(call, function)                                                                    \
    do {                                                                                           \
        uint64_t begin = thread_ns();                                                              \
        vmm_status status = (call);                                                                \
        uint64_t took = thread_ns() - begin;                                                       \
        CHILD_REQUIRES(status == VMM_ERR_FORKED);                                                  \
        CHILD_REQUIRES(strstr(vmm_last_error(), function) == vmm_last_error());                    \
        CHILD_REQUIRES(took < CALL_NS);                                                            \
    } while (0)

static void memory_refused(const struct scene *scene)
{
    vmm_cache *cache = scene->test->cache;
    void *out = cache;
    size_t released = 7;
    refused(vmm_alloc(cache, 512, scene->stream, &out), "vmm_alloc");
    refused(vmm_alloc(cache, 512, (vmm_stream)77, &out), "vmm_alloc");
    refused(vmm_free(cache, scene->live), "vmm_free");
    refused(vmm_free(cache, &out), "vmm_free");
    refused(vmm_use(cache, scene->live, (vmm_stream)78), "vmm_use");
    refused(vmm_pin(cache, scene->live), "vmm_pin");
    refused(vmm_unpin(cache, scene->live), "vmm_unpin");
    refused(vmm_trim(cache, 0, &released), "vmm_trim");
    refused(vmm_wait(cache), "vmm_wait");
    refused(vmm_tick(cache), "vmm_tick");
    refused(vmm_stream_end(cache, scene->stream), "vmm_stream_end");
    refused(vmm_limit_set(cache, 1), "vmm_limit_set");
    CHILD_REQUIRES(out == cache && released == 7);
}

static void reports_refused(const struct scene *scene)
{
    vmm_cache *cache = scene->test->cache;
    vmm_stats stats = VMM_STATS_INIT;
    vmm_item item = VMM_ITEM_INIT;
    uint64_t bytes = 0;
    vmm_pool_id id = { 1, 2 };
    refused(vmm_pool_begin(cache, id, NULL, NULL), "vmm_pool_begin");
    refused(vmm_pool_end(cache, id), "vmm_pool_end");
    refused(vmm_pool_release(cache, id), "vmm_pool_release");
    refused(vmm_stats_get(cache, &stats), "vmm_stats_get");
    refused(vmm_stats_reset_peak(cache), "vmm_stats_reset_peak");
    refused(vmm_device_memory(cache, &bytes, &bytes), "vmm_device_memory");
    refused(vmm_summary_write(cache, stderr), "vmm_summary_write");
    refused(vmm_log_write(cache, "line"), "vmm_log_write");
    refused(vmm_walk(cache, nothing_visited, NULL), "vmm_walk");
    refused(vmm_find(cache, scene->live, &item), "vmm_find");
    refused(vmm_watch(cache, nothing_told, NULL), "vmm_watch");
    refused(vmm_guard_check(cache), "vmm_guard_check");
    refused(vmm_misuse_write(cache, stderr), "vmm_misuse_write");
}

static uint64_t driver_calls(const struct driver *driver)
{
    uint64_t calls = 0;
    for (int call = 0; call < DRIVER_CALL_COUNT; call++)
        calls += vmm__driver_calls(driver, (enum driver_call)call);
    return calls;
}

static void calls_refused(const struct scene *scene)
{
    uint64_t calls = driver_calls(scene->test->driver);
    memory_refused(scene);
    reports_refused(scene);
    refused(vmm_destroy(scene->test->cache), "vmm_destroy");
    refused(vmm_destroy(scene->test->cache), "vmm_destroy");
    CHILD_REQUIRES(driver_calls(scene->test->driver) == calls);
}

static void everything_refused(void *context)
{
    uint64_t host_bytes = vmm__host_outstanding();
    calls_refused(context);
    CHILD_REQUIRES(vmm__host_outstanding() == host_bytes);
}

/* ---- Parents ----------------------------------------------------------------------------------- */

static struct scene scene_begun(struct cache_test *test)
{
    struct scene scene = { .test = test, .stream = test->streams[0] };
    scene.used = block_taken(test, 600, 1);
    block_used(test, scene.used, 2);
    scene.live = block_taken(test, 3 * MIB, 0);
    block_filled(test, scene.live, 3 * MIB, 5, 0);
    for (int i = 0; i < 100; i++)
        block_given(test, block_taken(test, 512, 0));
    assert_non_null(test->cache->turn); /* the fast way is open */
    assert_ptr_equal(test->cache->turn, vmm__pools_find(&test->cache->pools, scene.stream));
    return scene;
}

static void scene_ended(struct scene *scene)
{
    block_checked(scene->test, scene->live, 3 * MIB, 5, 0);
    block_given(scene->test, scene->live);
    block_given(scene->test, scene->used);
    for (int i = 0; i < 100; i++)
        block_given(scene->test, block_taken(scene->test, 512, 0));
    cache_verified(scene->test);
}

static void a_child_is_refused_everything(void **state)
{
    struct scene scene = scene_begun(*state);
    child_runs(everything_refused, &scene);
    scene_ended(&scene);
}

/* Held by a thread that is not in the child: each lock that there is. */
struct holder {
    vmm_cache *cache;
    pthread_barrier_t holds;
    pthread_barrier_t ends;
};

static void *locks_held(void *context)
{
    struct holder *holder = context;
    vmm_cache *cache = holder->cache;
    vmm__fair_take(&cache->grow_lock);
    vmm__cache_pools_lock(cache, NULL);
    vmm__lock_take(&cache->privates.lock);
    vmm__lock_take(&cache->driver->lost.lock);
    (void)pthread_barrier_wait(&holder->holds);
    (void)pthread_barrier_wait(&holder->ends);
    vmm__lock_drop(&cache->driver->lost.lock);
    vmm__lock_drop(&cache->privates.lock);
    vmm__cache_pools_unlock(cache, NULL);
    vmm__fair_drop(&cache->grow_lock);
    return NULL;
}

static void locks_of_other_threads_are_not_waited_for(void **state)
{
    struct scene scene = scene_begun(*state);
    struct holder holder = { .cache = scene.test->cache };
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&holder.holds, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&holder.ends, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, locks_held, &holder), 0);
    (void)pthread_barrier_wait(&holder.holds);
    child_runs(everything_refused, &scene);
    (void)pthread_barrier_wait(&holder.ends);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_barrier_destroy(&holder.holds);
    (void)pthread_barrier_destroy(&holder.ends);
    scene_ended(&scene);
}

/* ---- Caches of children ------------------------------------------------------------------------ */

static void *blocks_had(void *cache)
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

static vmm_cache *own_cache(void)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.driver = CHILD_THREADS > 0 ? driver_choice_kind() : VMM_DRIVER_SIM;
    config.device_bytes = 64 * MIB;
    config.decay_ms = 1;
    config.decay_thread = CHILD_THREADS > 0;
    vmm_cache *cache = NULL;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    return cache;
}

static void own_cache_is_used(void *context)
{
    vmm_cache *cache = own_cache();
    (void)blocks_had(cache);
    pthread_t threads[CHILD_THREADS + 1];
    for (int i = 0; i < CHILD_THREADS; i++)
        CHILD_REQUIRES(pthread_create(&threads[i], NULL, blocks_had, cache) == 0);
    calls_refused(context);
    for (int i = 0; i < CHILD_THREADS; i++)
        CHILD_REQUIRES(pthread_join(threads[i], NULL) == 0);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    everything_refused(context);
}

static void a_child_makes_its_own(void **state)
{
    struct scene scene = scene_begun(*state);
    child_runs(own_cache_is_used, &scene);
    scene_ended(&scene);
}

struct generations {
    struct scene *scene;
    int left;
};

/* Each is refused what all before it made. */
static void generation_lives(void *context)
{
    struct generations *generations = context;
    everything_refused(generations->scene);
    vmm_cache *cache = own_cache();
    (void)blocks_had(cache);
    if (generations->left-- > 0)
        CHILD_REQUIRES(child_ended(child_begun(generation_lives, context), 0));
    (void)blocks_had(cache);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

static void so_does_a_child_of_a_child(void **state)
{
    struct scene scene = scene_begun(*state);
    struct generations generations = { .scene = &scene, .left = 3 };
    child_runs(generation_lives, &generations);
    scene_ended(&scene);
}

/* A thread that comes after the fork may get the identity of one that the child has not. */
static void *favourite_became(void *cache)
{
    for (int i = 0; i < 64; i++) {
        void *block;
        assert_ok(vmm_alloc(cache, 512, (vmm_stream)9, &block));
        assert_ok(vmm_free(cache, block));
    }
    return NULL;
}

static void *thread_refused(void *scene)
{
    memory_refused(scene);
    return NULL;
}

static void threads_refused(void *scene)
{
    for (int i = 0; i < CHILD_THREADS; i++) {
        pthread_t thread;
        CHILD_REQUIRES(pthread_create(&thread, NULL, thread_refused, scene) == 0);
        CHILD_REQUIRES(pthread_join(thread, NULL) == 0);
    }
}

static void threads_of_a_child_are_strangers(void **state)
{
    struct cache_test *test = *state;
    struct scene scene = scene_begun(test);
    scene.stream = (vmm_stream)9;
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, favourite_became, test->cache), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    child_runs(threads_refused, &scene);
    scene_ended(&scene);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(a_child_is_refused_everything),
        CACHE_TEST(locks_of_other_threads_are_not_waited_for),
        CACHE_TEST(a_child_makes_its_own),
        CACHE_TEST(so_does_a_child_of_a_child),
        CACHE_TEST(threads_of_a_child_are_strangers),
    };
    CACHE_MAIN(tests);
}
