/* Thread slots: threads that have none yet, in callbacks that run with locks held. */
#define _GNU_SOURCE
#include "support/sim_support.h"
#include "support/thread_support.h"

#include "api/create_on.h"
#include "cache/cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { PAIRS = 100 };

/* A thread whose first call runs a callback, which calls the cache. */
struct newcomer {
    vmm_cache *cache, *other; /* other: the callback uses it first; NULL: none */
    void *block;
    uintptr_t ended_identity, identity;
    vmm_status alloc_status, free_status;
};

static void pairs_run(vmm_cache *cache)
{
    void *block;
    for (int i = 0; i < PAIRS; i++) {
        assert_ok(vmm_alloc(cache, 4096, STREAM(1), &block));
        assert_ok(vmm_free(cache, block));
    }
}

static void log_handle(void *context, const char *line)
{
    struct newcomer *newcomer = context;
    void *block;
    if (strcmp(line, "now") != 0)
        return;
    if (newcomer->other != NULL)
        pairs_run(newcomer->other);
    newcomer->alloc_status = vmm_alloc(newcomer->cache, 4096, STREAM(1), &block);
    newcomer->free_status = vmm_free(newcomer->cache, newcomer->block);
}

static void *ended_main(void *context)
{
    struct newcomer *newcomer = context;
    newcomer->ended_identity = vmm__thread_self();
    pairs_run(newcomer->cache);
    return NULL;
}

static void *newcomer_main(void *context)
{
    struct newcomer *newcomer = context;
    newcomer->identity = vmm__thread_self();
    (void)vmm_log_write(newcomer->cache, "now");
    return NULL;
}

static void newcomer_open(struct driver *driver, struct newcomer *newcomer)
{
    vmm_config config = CONFIG(.log = log_handle, .log_context = newcomer);
    assert_ok(vmm__cache_create_on(&config, driver, &newcomer->cache));
    assert_ok(vmm_alloc(newcomer->cache, 4096, STREAM(1), &newcomer->block));
}

/* Both calls were refused, so the block is still live. */
static void newcomer_close(struct newcomer *newcomer)
{
    assert_int_equal(newcomer->alloc_status, VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(newcomer->free_status, VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_free(newcomer->cache, newcomer->block));
    assert_ok(vmm__cache_check(newcomer->cache));
    assert_ok(vmm_destroy(newcomer->cache));
}

SIM_TEST(callback_is_refused_with_an_inherited_slot)
{
    struct newcomer newcomer = { 0 };
    newcomer_open(driver, &newcomer);
    thread_run(ended_main, &newcomer);
    thread_run(newcomer_main, &newcomer);
    assert_int_equal(newcomer.ended_identity, newcomer.identity);
    newcomer_close(&newcomer);
}

SIM_TEST(callback_is_refused_after_use_of_another_cache)
{
    struct newcomer newcomer = { 0 };
    newcomer_open(driver, &newcomer);
    assert_ok(vmm__cache_create_on(NULL, driver, &newcomer.other));
    thread_run(newcomer_main, &newcomer);
    assert_ok(vmm_destroy(newcomer.other));
    newcomer_close(&newcomer);
}

/* ---- More threads than slots ----------------------------------------------------------------- */

enum { CROWD = THREAD_SLOTS + 1, STACK_BYTES = 1 << 18 };

/* Threads that exist at the same time. One that has no slot uses the cache. */
struct crowd {
    struct newcomer newcomer;
    atomic_bool is_served;
    _Atomic unsigned arrived;
    pthread_mutex_t end; /* locked until the threads may end */
};

static void *crowd_main(void *context)
{
    struct crowd *crowd = context;
    if (vmm__thread_slot_mine() == NULL && !atomic_exchange(&crowd->is_served, true)) {
        assert_false(vmm__thread_slot_number() >= 0);
        pairs_run(crowd->newcomer.cache);
        (void)newcomer_main(&crowd->newcomer);
        pairs_run(crowd->newcomer.cache);
    }
    atomic_fetch_add(&crowd->arrived, 1);
    (void)pthread_mutex_lock(&crowd->end);
    (void)pthread_mutex_unlock(&crowd->end);
    return NULL;
}

SIM_TEST(a_thread_without_a_slot_is_served_and_refused_alike)
{
    static pthread_t threads[CROWD];
    struct crowd crowd = { .end = PTHREAD_MUTEX_INITIALIZER };
    pthread_attr_t small;
    newcomer_open(driver, &crowd.newcomer);
    assert_int_equal(pthread_mutex_lock(&crowd.end), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, STACK_BYTES), 0);
    for (unsigned i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], &small, crowd_main, &crowd), 0);
    while (atomic_load(&crowd.arrived) < CROWD)
        (void)usleep(1000);
    assert_true(atomic_load(&crowd.is_served));
    assert_int_equal(pthread_mutex_unlock(&crowd.end), 0);
    for (unsigned i = 0; i < CROWD; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(pthread_attr_destroy(&small), 0);
    newcomer_close(&crowd.newcomer);
}
