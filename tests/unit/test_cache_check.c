/* The checks of src/cache find every broken invariant. */
#include "support/break_support.h"
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "base/handle.h"
#include "cache/cache.h"
#include "cache/pool/backup.h"
#include "cache/reserve/reserve.h"

/* A pool with a live block of two granules. */
struct scene {
    vmm_cache *cache;
    vmm_pool *handle;
    struct pool *pool;
    struct lane *lane;
    char *block;
};

static struct scene scene_make(struct driver *driver, bool is_shareable)
{
    struct scene scene;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    options.shareable = is_shareable;
    assert_ok(vmm__cache_create_on(NULL, driver, &scene.cache));
    assert_ok(vmm_pool_create(scene.cache, &options, &scene.handle));
    void *block = block_in_pool(scene.handle, 4 * MIB, NULL);
    scene.block = block;
    scene.pool = vmm__handle_find(HANDLE_POOL, scene.handle);
    scene.lane = scene.cache->lanes.first;
    assert_ok(vmm__cache_check(scene.cache));
    return scene;
}

static void scene_end(const struct scene *scene)
{
    assert_ok(vmm__cache_check(scene->cache));
    assert_ok(vmm_destroy(scene->cache));
}

static struct chunk *chunk_of(const vmm_cache *cache, const void *block)
{
    const struct vm *vm = &cache->vm;
    return vmm__vm_chunk(vm, vmm__arena_granule(&vm->arena, (uintptr_t)block));
}

/* Two chunks of one size change accounts, so that all sums are right. */
static void accounts_swap(vmm_cache *cache, void *const blocks[2])
{
    struct chunk *a = chunk_of(cache, blocks[0]);
    struct chunk *b = chunk_of(cache, blocks[1]);
    struct account *account = a->account;
    vmm__account_leave(&cache->vm, a);
    vmm__account_enter(&cache->vm, a, b->account);
    vmm__account_leave(&cache->vm, b);
    vmm__account_enter(&cache->vm, b, account);
}

SIM_TEST(a_chunk_of_another_pool_is_found)
{
    void *blocks[2];
    vmm_cache *cache = cache_on_with(driver, NULL);
    vmm_pool *pool = pool_in_with(cache, NULL);
    assert_ok(vmm_alloc(cache, 2 * MIB, NULL, &blocks[0]));
    assert_ok(vmm_alloc_from(pool, 2 * MIB, NULL, &blocks[1]));
    assert_ok(vmm__cache_check(cache));
    accounts_swap(cache, blocks);
    assert_status(vmm__cache_check(cache), VMM_ERR_INTERNAL);
    assert_non_null(strstr(vmm_last_error(), "is of another pool"));
    accounts_swap(cache, blocks);
    assert_ok(vmm_destroy(cache));
}

SIM_TEST(finds_pools_and_lanes_that_do_not_match)
{
    struct scene scene = scene_make(driver, false);
    vmm_cache *cache = scene.cache;
    assert_found(vmm__cache_check(cache), scene.pool->handle, NULL, "pools: invariant 1");
    assert_found(vmm__cache_check(cache), scene.lane->owner.is_pooled, false, "pools: invariant 2");
    assert_found(vmm__cache_check(cache), scene.lane->pool_link, &scene.lane->next_of_pool,
                 "pools: invariant 2");
    assert_found(vmm__cache_check(cache), cache->pools.leaving, 1, "pools: invariant 3");
    assert_found(vmm__cache_check(cache), cache->pools.keeping, 1, "pools: invariant 4");
    assert_found(vmm__cache_check(cache), scene.pool->is_keeping, true, "pools: invariant 4");
    assert_found(vmm__cache_check(cache), scene.lane->owner.is_imported, true,
                 "import: invariant 1");
    (void)block_in(cache, 4 * MIB, NULL);
    assert_found(vmm__cache_check(cache), cache->lanes.last->is_detached, true,
                 "streams: invariant 1");
    scene_end(&scene);
}

/* The lane of a pool with memory, and one of the default pool without. */
SIM_TEST(finds_lanes_in_other_lists)
{
    struct scene scene = scene_make(driver, false);
    vmm_cache *cache = scene.cache;
    void *out;
    assert_status(vmm_alloc(cache, SIZE_MAX / 4, NULL, &out), VMM_ERR_ADDRESS_SPACE);
    struct lane *vacant = cache->lanes.last;
    assert_null(vacant->list);
    assert_found(vmm__cache_check(cache), scene.lane->list, NULL, "lanes: invariant 1");
    assert_found(vmm__cache_check(cache), vacant->list, &cache->lanes.vacant_pooled,
                 "lanes: invariant 2");
    assert_found(vmm__cache_check(cache), cache->lanes.pooled_streams.only, NULL,
                 "lanes: invariant 3");
    scene_end(&scene);
}

SIM_TEST(finds_routes_that_do_not_match)
{
    struct scene scene = scene_make(driver, false);
    vmm_cache *cache = scene.cache;
    assert_found(vmm__cache_check(cache), scene.pool->routes, 1, "route: invariant 1");
    assert_ok(vmm_pool_route(scene.handle, NULL, NULL));
    assert_ok(vmm_pool_push(scene.handle));
    assert_found(vmm__cache_check(cache), scene.pool->routes, 0, "route: invariant 1");
    assert_found(vmm__cache_check(cache), cache->routes.pushes, 2, "route: invariant 1");
    assert_found(vmm__cache_check(cache), cache->slow_path, 0, "route: invariant 2");
    assert_ok(vmm_pool_pop(scene.handle));
    assert_found(vmm__cache_check(cache), cache->slow_path, 0, "route: invariant 2");
    scene_end(&scene);
}

SIM_TEST(finds_a_sleep_that_does_not_match)
{
    struct scene scene = scene_make(driver, false);
    vmm_cache *cache = scene.cache;
    struct chunk *chunk = chunk_of(cache, scene.block);
    (void)block_in_pool(scene.handle, 2 * MIB, NULL);
    assert_found(vmm__cache_check(cache), scene.lane->is_asleep, true, "sleep: invariant 1");
    assert_found(vmm__cache_check(cache), chunk->unmapped, 1, "sleep: invariant 2");
    assert_ok(vmm_pool_sleep(&scene.handle, 1, NULL, NULL));
    assert_ok(vmm__cache_check(cache));
    struct backup *backup = scene.pool->backup;
    assert_found(vmm__cache_check(cache), scene.lane->is_asleep, false, "sleep: invariant 1");
    assert_found(vmm__cache_check(cache), scene.lane->is_in_table, true, "sleep: invariant 1");
    assert_found(vmm__cache_check(cache), backup->pinned_bytes, MIB, "backup: invariant 2");
    assert_found(vmm__cache_check(cache), backup->entries[1].offset, MIB, "backup: invariant 1");
    assert_found(vmm__cache_check(cache), backup->entries[1].address, 0, "backup: invariant 1");
    assert_ok(vmm_pool_wake(&scene.handle, 1, NULL, NULL));
    scene_end(&scene);
}

SIM_TEST(finds_reserved_blocks_that_do_not_match)
{
    struct scene scene = scene_make(driver, false);
    vmm_cache *cache = scene.cache;
    void *block;
    assert_ok(vmm_reserve(scene.handle, 6 * MIB, 0, NULL, &block));
    assert_ok(vmm_commit(cache, block, 2 * MIB, 2 * MIB));
    struct reserved *reserved = cache->reserves;
    assert_ok(vmm__cache_check(cache));
    assert_found(vmm__cache_check(cache), scene.lane->reserved->is_reserved, false,
                 "reserve: invariant 1");
    assert_found(vmm__cache_check(cache), reserved->committed_granules, 2, "reserve: invariant 2");
    assert_found(vmm__cache_check(cache), reserved->block.node.size, 2 * MIB,
                 "reserve: invariant 3");
    assert_found(vmm__cache_check(cache), scene.lane->reserved->bytes, 0, "reserve: invariant 3");
    assert_found(vmm__cache_check(cache), reserved->block.state, BLOCK_RETAINED,
                 "reserve: invariant 4");
    assert_ok(vmm_pool_retain(scene.handle));
    assert_ok(vmm_free(cache, block));
    assert_ok(vmm__cache_check(cache));
    assert_found(vmm__cache_check(cache), scene.pool->uses, 0, "reserve: invariant 4");
    assert_ok(vmm_pool_drop(scene.handle));
    scene_end(&scene);
}

SIM_TEST(finds_exports_that_do_not_match)
{
    struct scene scene = scene_make(driver, true);
    vmm_cache *cache = scene.cache;
    struct chunk *chunk = chunk_of(cache, scene.block);
    struct chunk_export record = { .shares = 1 };
    vmm_share *handle;
    assert_found(vmm__cache_check(cache), scene.lane->exports, 1, "export: invariant 1");
    assert_found(vmm__cache_check(cache), chunk->exported, &record, "export: invariant 2");
    assert_ok(vmm_share_export(cache, scene.block, &handle));
    assert_ok(vmm__cache_check(cache));
    assert_found(vmm__cache_check(cache), scene.lane->exports, 0, "export: invariant 1");
    assert_ok(vmm_share_close(handle, 0));
    scene_end(&scene);
}
