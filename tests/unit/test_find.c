/* Questions about blocks wait for no request: a request may hold the grow lock while it waits for the device. */
#define _GNU_SOURCE
#include "support/find_support.h"
#include "support/policy_support.h"

#include "base/callback.h"

#include <pthread.h>
#include <time.h>

enum { BLOCKS = 4, WAIT_S = 20 };

struct asker {
    vmm_cache *cache;
    char *blocks[BLOCKS];
    char *freed;
    char *reserved; /* NULL: there is none */
    unsigned found;
    unsigned missed;
};

static void *asker_main(void *context)
{
    struct asker *asker = context;
    struct owned_block owned;
    vmm_item item = VMM_ITEM_INIT;
    for (int i = 0; i < BLOCKS; i++) { /* starts and insides */
        const char *block = asker->blocks[i];
        asker->found += vmm_find(asker->cache, block, &item) == VMM_OK;
        asker->found += vmm_find(asker->cache, block + 99, &item) == VMM_OK;
        asker->found += vmm__find_owned(asker->cache, block, &owned) == VMM_OK;
        asker->found += vmm__find_owned(asker->cache, block + 99, &owned) == VMM_OK;
    }
    asker->found +=
        asker->reserved != NULL && vmm_find(asker->cache, asker->reserved + 99, &item) == VMM_OK;
    const void *misses[] = { asker->freed, asker, NULL };
    for (int i = 0; i < 3; i++) {
        asker->missed += vmm_find(asker->cache, misses[i], &item) == VMM_ERR_UNKNOWN_POINTER;
        asker->missed += vmm__find_owned(asker->cache, misses[i], &owned) == VMM__NOT_FOUND;
    }
    return NULL;
}

/* False: it waits for the lock. */
static bool answers_under_lock(struct asker *asker)
{
    pthread_t thread;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    vmm__fair_lock(&asker->cache->grow_lock);
    assert_int_equal(pthread_create(&thread, NULL, asker_main, asker), 0);
    bool answers = pthread_timedjoin_np(thread, NULL, &until) == 0;
    vmm__fair_unlock(&asker->cache->grow_lock);
    if (!answers)
        (void)pthread_join(thread, NULL);
    return answers;
}

static void *block_make(struct scene *scene, size_t bytes, unsigned stream)
{
    return block_in(scene->cache, bytes, STREAM(stream));
}

POLICY_TEST(a_question_does_not_wait_for_the_grow_lock)
{
    struct asker asker = { .cache = scene->cache };
    const size_t sizes[BLOCKS] = { 100, 20000, 3 << 20, 100 };
    for (int i = 0; i < BLOCKS; i++)
        asker.blocks[i] = block_make(scene, sizes[i], i % 2 == 0 ? 1 : 2);
    asker.freed = block_make(scene, 20000, 1);
    assert_ok(vmm_free(scene->cache, asker.freed));
    void *reserved = NULL;
    vmm_pool *pool = pool_in_with(scene->cache, NULL);
    for (int i = 0; i < 2; i++) { /* without reserved blocks, and with one */
        asker.found = asker.missed = 0;
        assert_true(answers_under_lock(&asker));
        assert_int_equal(asker.found, 4 * BLOCKS + i);
        assert_int_equal(asker.missed, 6);
        if (i == 0)
            assert_ok(vmm_reserve(pool, 4 << 20, 0, STREAM(1), &reserved));
        asker.reserved = reserved;
    }
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(both_find(scene->cache, reserved, &item));
    assert_ok(both_find(scene->cache, (char *)reserved + 99, &item));
    assert_int_equal(item.address, (uintptr_t)reserved);
    assert_int_equal(item.is_reserved, 1);
    assert_ok(vmm_free(scene->cache, reserved));
    assert_status(both_find(scene->cache, reserved, &item), VMM_ERR_UNKNOWN_POINTER);
    for (int i = 0; i < BLOCKS; i++)
        assert_ok(vmm_free(scene->cache, asker.blocks[i]));
    assert_ok(vmm_pool_destroy(pool, 0));
}

/* A thread that may not call the cache, or a cache that is gone, gets vmm_find()'s refusal. */
POLICY_TEST(a_question_is_refused_as_a_call_is)
{
    struct owned_block owned;
    struct callback callback;
    void *block = block_make(scene, 20000, 1);
    vmm__callback_begin(&callback, scene->cache, true);
    assert_status(vmm__find_owned(scene->cache, block, &owned), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "vmm_find: called from a callback"));
    vmm__callback_end(&callback);
    assert_ok(vmm__find_owned(scene->cache, block, &owned));
    assert_ok(vmm_free(scene->cache, block));
}
