/* The checks of a cache that look at more than one lane: that each chunk is booked on the account of the pool whose blocks
 * it holds, and that lanes count their reserved blocks. */
#include "support/sim_support.h"

#include "api/create_on.h"
#include "cache/cache.h"

#include <string.h>

static struct chunk *chunk_of(const vmm_cache *cache, const void *block)
{
    const struct vm *vm = &cache->vm;
    return vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, (uintptr_t)block));
}

/* Two chunks of one size change accounts, so that all sums are right. */
static void accounts_swap(struct chunk *a, struct chunk *b)
{
    struct account *account = a->account;
    a->account = b->account;
    b->account = account;
}

SIM_TEST(a_chunk_of_another_pool_is_found)
{
    vmm_cache *cache;
    vmm_pool *pool;
    void *blocks[2];
    assert_ok(vmm__cache_create_on(NULL, driver, &cache));
    assert_ok(vmm_pool_create(cache, NULL, &pool));
    assert_ok(vmm_alloc(cache, 2 * MIB, NULL, &blocks[0]));
    assert_ok(vmm_alloc_from(pool, 2 * MIB, NULL, &blocks[1]));
    assert_ok(vmm__cache_check(cache));
    accounts_swap(chunk_of(cache, blocks[0]), chunk_of(cache, blocks[1]));
    assert_status(vmm__cache_check(cache), VMM_ERR_INTERNAL);
    assert_non_null(strstr(vmm_last_error(), "is of another pool"));
    accounts_swap(chunk_of(cache, blocks[0]), chunk_of(cache, blocks[1]));
    assert_ok(vmm_destroy(cache));
}

SIM_TEST(a_reserved_block_that_its_lane_does_not_count_is_found)
{
    vmm_cache *cache;
    void *block;
    assert_ok(vmm__cache_create_on(NULL, driver, &cache));
    assert_ok(vmm_reserve(vmm_cache_pool(cache), 2 * MIB, 0, NULL, &block));
    assert_ok(vmm__cache_check(cache));
    cache->lanes.first->reserved_blocks--;
    assert_status(vmm__cache_check(cache), VMM_ERR_INTERNAL);
    assert_non_null(strstr(vmm_last_error(), "lanes miscount"));
    cache->lanes.first->reserved_blocks++;
    assert_ok(vmm_free(cache, block));
    assert_ok(vmm__cache_check(cache));
    assert_ok(vmm_destroy(cache));
}
