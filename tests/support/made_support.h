/*
 * Calls that must succeed, and return what they make or read. A test names the fields that it wants:
 *
 *   vmm_cache *cache = cache_on(driver, .limit_bytes = 8 * MIB);
 *   vmm_pool *pool = pool_in(cache, .name = "weights");
 *   void *block = block_in_pool(pool, 3 * MIB, NULL);
 */
#ifndef VMM_MADE_SUPPORT_H
#define VMM_MADE_SUPPORT_H

#include "support/test_support.h"

#include "api/create_on.h"

#define cache_with(...)       cache_with_config(&CONFIG(__VA_ARGS__))
#define cache_on(driver, ...) cache_on_with(driver, &CONFIG(__VA_ARGS__))

static inline vmm_cache *cache_with_config(const vmm_config *config)
{
    vmm_cache *cache;
    assert_ok(vmm_create(config, &cache));
    return cache;
}

static inline vmm_cache *cache_on_with(struct driver *driver, const vmm_config *config)
{
    vmm_cache *cache;
    assert_ok(vmm__cache_create_on(config, driver, &cache));
    return cache;
}

#define POOL_OPTIONS(...)                                                                          \
    ((vmm_pool_options){ .struct_size = sizeof(vmm_pool_options), __VA_ARGS__ })
#define pool_in(cache, ...) pool_in_with(cache, &POOL_OPTIONS(__VA_ARGS__))

static inline vmm_pool *pool_in_with(vmm_cache *cache, const vmm_pool_options *options)
{
    vmm_pool *pool = NULL;
    assert_ok(vmm_pool_create(cache, options, &pool));
    assert_non_null(pool);
    return pool;
}

static inline void *block_in(vmm_cache *cache, size_t bytes, vmm_stream stream)
{
    void *block;
    assert_ok(vmm_alloc(cache, bytes, stream, &block));
    return block;
}

static inline void *block_in_pool(vmm_pool *pool, size_t bytes, vmm_stream stream)
{
    void *block;
    assert_ok(vmm_alloc_from(pool, bytes, stream, &block));
    return block;
}

static inline vmm_stats stats_of(vmm_cache *cache)
{
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_stats_get(cache, &stats));
    return stats;
}

static inline vmm_stats pool_stats(vmm_pool *pool)
{
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_pool_stats_get(pool, &stats));
    return stats;
}

#endif
