/* Blocks that grow: steps on them that must succeed. */
#ifndef VMM_GROWING_SUPPORT_H
#define VMM_GROWING_SUPPORT_H

#include "support/cache_support.h"

static inline vmm_pool *pool_of(struct cache_test *test)
{
    return vmm_cache_pool(test->cache);
}

static inline void *block_reserve(struct cache_test *test, size_t bytes, size_t unit,
                                  unsigned stream)
{
    void *block = NULL;
    assert_ok(vmm_reserve(pool_of(test), bytes, unit, test->streams[stream], &block));
    return block;
}

static inline void *block_resize(struct cache_test *test, void *block, size_t bytes)
{
    assert_ok(vmm_resize(test->cache, block, bytes, &block));
    return block;
}

/* Fills the addresses behind a reserved block, so that it must move. */
static inline void *block_enclose(struct cache_test *test, size_t bytes)
{
    void *block = block_reserve(test, bytes, 0, 1);
    void *first = block;
    assert_ok(vmm_resize(test->cache, block, bytes + 2 * MIB, &block));
    assert_ptr_equal(first, block);
    for (int i = 0; i < 64; i++)
        (void)block_reserve(test, 2 * MIB, 0, 2);
    return block;
}

/* Frees the only block. */
static inline void block_end(struct cache_test *test, void *block)
{
    block_free(test, block);
    cache_verify_empty(test);
}

static inline void *at(void *block, size_t offset)
{
    return (char *)block + offset;
}

#endif
