/* Long calls under the grow lock: a request that waits for it has its turn before the call has ended. */
#define _GNU_SOURCE
#include "support/thread_support.h"

#include "cache/cache.h"

#include <sched.h>

#define CHUNK_BYTES (UINT64_C(2) << 20)
enum { CHUNKS = 200 };

/* A long call, and a request beside it that needs the grow lock. */
struct turns {
    vmm_cache *cache;
    vmm_pool *pool; /* each of its blocks has a chunk of its own */
    void *blocks[CHUNKS];
    size_t request_bytes;
    pthread_t thread;
    bool has_begun;
    unsigned unmaps;        /* so far; the grow lock guards both */
    unsigned unmaps_before; /* the request's memory was mapped; 0: it was not yet */
};

static void *request_main(void *context)
{
    struct turns *turns = context;
    void *block = NULL;
    vmm_status status = vmm_alloc(turns->cache, turns->request_bytes, NULL, &block);
    return status == VMM_OK ? block : NULL;
}

static bool has_waiter(struct fair_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    bool is = lock->first != NULL;
    (void)pthread_mutex_unlock(&lock->mutex);
    return is;
}

/* Called with the grow lock held. Until the request has its memory, an unmapping goes on once it waits for the lock. */
static void change_hear(void *context, const vmm_change *change)
{
    struct turns *turns = context;
    if (change->kind == VMM_CHANGE_MAP)
        turns->unmaps_before = turns->unmaps;
    if (change->kind != VMM_CHANGE_UNMAP)
        return;
    turns->unmaps++;
    if (!turns->has_begun)
        assert_int_equal(pthread_create(&turns->thread, NULL, request_main, turns), 0);
    turns->has_begun = true;
    while (turns->unmaps_before == 0 && !has_waiter(&turns->cache->grow_lock))
        (void)sched_yield();
}

static void turns_begin(struct turns *turns)
{
    vmm_config config = VMM_CONFIG_INIT;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    *turns = (struct turns){ .has_begun = false };
    config.driver = VMM_DRIVER_SIM;
    config.device_bytes = 1000 * CHUNK_BYTES;
    options.shareable = 1;
    assert_ok(vmm_create(&config, &turns->cache));
    assert_ok(vmm_pool_create(turns->cache, &options, &turns->pool));
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_ok(vmm_alloc_from(turns->pool, CHUNK_BYTES, NULL, &turns->blocks[i]));
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_ok(vmm_free(turns->cache, turns->blocks[i]));
    /* The first call of a second thread waits for all lanes' locks. */
    turns->request_bytes = 1;
    assert_ok(vmm_free(turns->cache, thread_run(request_main, turns)));
    turns->request_bytes = 64 * CHUNK_BYTES;
    assert_ok(vmm_listen(turns->cache, change_hear, turns));
}

/* The request was served before the last chunks were released, and all were. */
static void turns_end(struct turns *turns, size_t released)
{
    void *block = NULL;
    assert_true(turns->has_begun);
    assert_int_equal(pthread_join(turns->thread, &block), 0);
    assert_non_null(block);
    assert_in_range(turns->unmaps_before, 1, CHUNKS - 1);
    assert_true(turns->unmaps >= CHUNKS);
    assert_true(released >= CHUNKS * CHUNK_BYTES);
    assert_ok(vmm_listen(turns->cache, NULL, NULL));
    assert_ok(vmm_free(turns->cache, block));
    assert_ok(vmm_destroy(turns->cache));
}

TEST(a_trim_lets_requests_have_their_turn)
{
    struct turns turns;
    size_t released = 0;
    turns_begin(&turns);
    assert_ok(vmm_trim(turns.cache, 0, &released));
    turns_end(&turns, released);
}

TEST(a_trim_of_a_pool_lets_requests_have_their_turn)
{
    struct turns turns;
    size_t released = 0;
    turns_begin(&turns);
    assert_ok(vmm_pool_trim(turns.pool, 0, &released));
    turns_end(&turns, released);
}
