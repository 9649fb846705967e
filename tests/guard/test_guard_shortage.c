/* Threads that share the last memory: what is in quarantine is no reason to refuse a request, whoever takes it out. */
#include "guard_support.h"

#include <pthread.h>

enum { THREADS = 4, PAIRS = 1500, BLOCK = 500 << 10, BLOCKS_MOST = 1024 };

struct worker {
    struct cache_test *test;
    pthread_t thread;
    unsigned refused;
};

static void *pairs_do(void *context)
{
    struct worker *worker = context;
    vmm_cache *cache = worker->test->cache;
    for (unsigned i = 0; i < PAIRS; i++) {
        void *block;
        if (vmm_alloc(cache, BLOCK, NULL, &block) == VMM_OK)
            (void)vmm_free(cache, block);
        else
            worker->refused++;
    }
    return NULL;
}

/* Takes all memory but for one block a thread. */
static void room_leave(struct cache_test *test)
{
    static void *blocks[BLOCKS_MOST];
    unsigned count = 0;
    while (count < BLOCKS_MOST && vmm_alloc(test->cache, BLOCK, NULL, &blocks[count]) == VMM_OK)
        count++;
    assert_in_range(count, THREADS, BLOCKS_MOST - 1);
    for (unsigned i = 0; i < THREADS; i++)
        assert_ok(vmm_free(test->cache, blocks[--count]));
    assert_ok(vmm_trim(test->cache, 0, NULL));
}

static void threads_find_what_the_quarantine_of_others_held(void **state)
{
    struct cache_test *test = *state;
    struct worker crew[THREADS];
    guard_begun(test, VMM_GUARD_ON, 0);
    assert_ok(vmm_limit_set(test->cache, UINT64_C(32) << 20));
    room_leave(test);
    for (unsigned i = 0; i < THREADS; i++) {
        crew[i] = (struct worker){ .test = test };
        assert_int_equal(pthread_create(&crew[i].thread, NULL, pairs_do, &crew[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(crew[i].thread, NULL), 0);
        assert_int_equal(crew[i].refused, 0);
    }
    assert_ok(vmm__cache_check(test->cache));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CACHE_TEST(threads_find_what_the_quarantine_of_others_held),
    };
    CACHE_MAIN(tests);
}
