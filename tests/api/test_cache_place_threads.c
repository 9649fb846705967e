/* Blocks that threads place at once: each restores its own blocks, and of two that want one address one gets it. */
#define _GNU_SOURCE
#include "support/pool_support.h"

#include <pthread.h>

enum { THREADS = 4, BLOCKS = 12, ROUNDS = 60 };

struct placer {
    struct cache_test *test;
    vmm_pool *pool;
    pthread_t thread;
    unsigned number;
    void *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    unsigned placed;
    unsigned wrong; /* statuses, which only the main thread may assert */
};

static vmm_pool *graph_pool_make(struct cache_test *test)
{
    return pool_in(test->cache, .kind = VMM_POOL_GRAPH);
}

static void placers_run(struct placer *placers, void *(*function)(void *context))
{
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&placers[i].thread, NULL, function, &placers[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(placers[i].thread, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(placers[i].wrong, 0);
}

/* Frees its blocks and places them again, the last one first. */
static void *blocks_restore(void *context)
{
    struct placer *placer = context;
    vmm_stream stream = placer->test->streams[placer->number % CACHE_STREAMS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++)
            placer->wrong += vmm_free(placer->test->cache, placer->blocks[i]) != VMM_OK;
        for (int i = BLOCKS - 1; i >= 0; i--)
            placer->wrong +=
                vmm_pool_place(placer->pool, placer->blocks[i], placer->bytes[i], stream) != VMM_OK;
    }
    return NULL;
}

CACHE_TEST(threads_restore_their_blocks_at_once)
{
    struct placer placers[THREADS];
    vmm_pool *pool = graph_pool_make(test);
    for (unsigned i = 0; i < THREADS; i++) {
        placers[i] = (struct placer){ .test = test, .pool = pool, .number = i };
        for (int k = 0; k < BLOCKS; k++) {
            placers[i].bytes[k] = k % 3 == 0 ? 700 : k % 3 == 1 ? 40000 : 2 * MIB;
            assert_ok(vmm_alloc_from(pool, placers[i].bytes[k], test->streams[i % CACHE_STREAMS],
                                     &placers[i].blocks[k]));
        }
    }
    placers_run(placers, blocks_restore);
    cache_verify(test);
    for (unsigned i = 0; i < THREADS; i++) {
        for (int k = 0; k < BLOCKS; k++) {
            vmm_item item = VMM_ITEM_INIT;
            assert_ok(vmm_find(test->cache, placers[i].blocks[k], &item));
            assert_int_equal(item.address, (uintptr_t)placers[i].blocks[k]);
            assert_int_equal(item.requested_bytes, placers[i].bytes[k]);
            block_free(test, placers[i].blocks[k]);
        }
    }
}

/* All want the same blocks of one stream. */
static void *blocks_claim(void *context)
{
    struct placer *placer = context;
    for (int i = 0; i < BLOCKS; i++) {
        vmm_status status = vmm_pool_place(placer->pool, placer->blocks[i], placer->bytes[i],
                                           placer->test->streams[0]);
        placer->placed += status == VMM_OK;
        placer->wrong += status != VMM_OK && status != VMM_ERR_INVALID_ARGUMENT;
    }
    return NULL;
}

CACHE_TEST(one_of_several_threads_gets_an_address)
{
    struct placer placers[THREADS] = { { .test = test, .pool = graph_pool_make(test) } };
    for (int k = 0; k < BLOCKS; k++) {
        placers[0].bytes[k] = k % 3 == 0 ? 700 : k % 3 == 1 ? 40000 : 2 * MIB;
        assert_ok(vmm_alloc_from(placers[0].pool, placers[0].bytes[k], test->streams[0],
                                 &placers[0].blocks[k]));
    }
    for (int round = 0; round < ROUNDS; round++) {
        unsigned placed = 0;
        for (int k = 0; k < BLOCKS; k++)
            block_free(test, placers[0].blocks[k]);
        for (unsigned i = 0; i < THREADS; i++) {
            placers[i] = placers[0];
            placers[i].placed = 0;
        }
        placers_run(placers, blocks_claim);
        for (unsigned i = 0; i < THREADS; i++)
            placed += placers[i].placed;
        assert_int_equal(placed, BLOCKS);
        assert_int_equal(cache_stats(test).allocations.current, BLOCKS);
    }
}

CACHE_MAIN()
