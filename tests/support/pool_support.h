/*
 * Pools on the cache of an API test, and steps on them that must succeed.
 */
#ifndef VMM_POOL_SUPPORT_H
#define VMM_POOL_SUPPORT_H

#include "support/graph_support.h"

/* A pool with these options: pool_make(test, .name = "weights", .limit_bytes = MIB). */
#define pool_make(test, ...) pool_in((test)->cache, __VA_ARGS__)

#define assert_in_pool(test, block, pool_wanted)                                                   \
    assert_ptr_equal(block_find(test, block).pool, pool_wanted)

static inline void *pool_alloc(struct cache_test *test, vmm_pool *pool, size_t bytes,
                               unsigned stream)
{
    void *block = block_in_pool(pool, bytes, test->streams[stream]);
    assert_in_pool(test, block, pool);
    return block;
}

static inline uint64_t pool_reserved(vmm_pool *pool)
{
    return pool_stats(pool).reserved_bytes.current;
}

static inline size_t pool_trim(vmm_pool *pool, size_t keep_bytes)
{
    size_t released = SIZE_MAX;
    assert_ok(vmm_pool_trim(pool, keep_bytes, &released));
    assert_int_not_equal(released, SIZE_MAX);
    return released;
}

/* Destroys a pool without live blocks; fails if anything is left in the cache. */
static inline void pool_end(struct cache_test *test, vmm_pool *pool)
{
    assert_ok(vmm_pool_destroy(pool, 0));
    cache_verify_empty(test);
}

/* Whether a call was refused with ERR_INVALID_ARGUMENT and these words. */
#define assert_refused(call, words)                                                                \
    do {                                                                                           \
        assert_status(call, VMM_ERR_INVALID_ARGUMENT);                                             \
        assert_non_null(strstr(vmm_last_error(), words));                                          \
    } while (0)

#endif
