/* Faults at each driver call: the ranges that a walk shows always add up to what the statistics count. */
#include "support/sim_support.h"

#include "api/create_on.h"
#include "base/hostmem.h"

struct scene {
    vmm_cache *cache;
    vmm_pool *pool;
    void *block;
    void *reserved;
};

static void scene_begin(struct scene *scene, struct driver *driver)
{
    void *other;
    vmm_config config = CONFIG(.arena_bytes = 4 * GIB, .footprint_permille = 1);
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    assert_ok(vmm__cache_create_on(&config, driver, &scene->cache));
    assert_ok(vmm_pool_create(scene->cache, &options, &scene->pool));
    assert_ok(vmm_alloc_from(scene->pool, 20 * MIB, STREAM(1), &scene->block));
    assert_ok(vmm_alloc_from(scene->pool, 10 * MIB, STREAM(1), &other));
    assert_ok(vmm_free(scene->cache, other));
    assert_ok(vmm_reserve(scene->pool, 16 * MIB, 0, STREAM(1), &scene->reserved));
    assert_ok(vmm_commit(scene->cache, scene->reserved, 0, 8 * MIB));
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Also makes a view of what is free. */
static vmm_status allocate(struct scene *scene)
{
    void *more;
    return vmm_alloc_from(scene->pool, 14 * MIB, STREAM(1), &more);
}

static vmm_status trim(struct scene *scene)
{
    return vmm_trim(scene->cache, 0, NULL);
}

static vmm_status grow(struct scene *scene)
{
    return vmm_resize(scene->cache, scene->block, 50 * MIB, &scene->block);
}

static vmm_status commit(struct scene *scene)
{
    return vmm_commit(scene->cache, scene->reserved, 4 * MIB, 8 * MIB);
}

static vmm_status decommit(struct scene *scene)
{
    vmm_status status = vmm_decommit(scene->cache, scene->reserved, 2 * MIB, 4 * MIB);
    (void)vmm_poll(scene->cache);
    return status;
}

static vmm_status move(struct scene *scene)
{
    return vmm_resize(scene->cache, scene->reserved, GIB, &scene->reserved);
}

static vmm_status put_to_sleep(struct scene *scene)
{
    return vmm_pool_sleep(&scene->pool, 1, NULL, NULL);
}

static vmm_status sleep_and_wake(struct scene *scene)
{
    vmm_status status = put_to_sleep(scene);
    return status == VMM_OK ? vmm_pool_wake(&scene->pool, 1, NULL, NULL) : status;
}

static vmm_status end(struct scene *scene)
{
    vmm_status status = vmm_free(scene->cache, scene->block);
    if (status == VMM_OK)
        status = vmm_free(scene->cache, scene->reserved);
    if (status == VMM_OK)
        status = vmm_pool_destroy(scene->pool, 0);
    if (status == VMM_OK)
        scene->pool = NULL;
    return status == VMM_OK ? vmm_trim(scene->cache, 0, NULL) : status;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

struct sums {
    uint64_t end; /* of the last range */
    uint64_t bytes;
    uint64_t limbo_bytes;
    uint64_t asleep_bytes;
    bool is_wrong;
};

static int range_add(void *context, const vmm_item *item)
{
    struct sums *sums = context;
    if (item->kind != VMM_ITEM_CHUNK)
        return 0;
    sums->is_wrong |= item->address < sums->end;
    sums->end = item->address == 0 ? 0 : item->address + item->bytes;
    if (item->state == VMM_ITEM_ASLEEP)
        sums->asleep_bytes += item->bytes;
    else
        sums->bytes += item->bytes;
    if (item->state == VMM_ITEM_WAITING)
        sums->limbo_bytes += item->bytes;
    return 0;
}

static void sums_verify(const struct scene *scene)
{
    struct sums sums = { .end = 0 };
    vmm_stats stats = VMM_STATS_INIT;
    assert_ok(vmm_walk(scene->cache, range_add, &sums));
    assert_ok(vmm_stats_get(scene->cache, &stats));
    assert_false(sums.is_wrong);
    assert_int_equal(sums.bytes, stats.reserved_bytes.current);
    assert_int_equal(sums.limbo_bytes, stats.limbo_bytes);
    assert_int_equal(sums.asleep_bytes, stats.asleep_bytes);
    if (scene->pool == NULL)
        return;
    sums = (struct sums){ .end = 0 };
    assert_ok(vmm_pool_walk(scene->pool, range_add, &sums));
    assert_ok(vmm_pool_stats_get(scene->pool, &stats));
    assert_int_equal(sums.bytes, stats.reserved_bytes.current);
    assert_int_equal(sums.limbo_bytes, stats.limbo_bytes);
}

typedef vmm_status (*step)(struct scene *scene);

static const step steps[] = { allocate, trim,         grow,           commit, decommit,
                              move,     put_to_sleep, sleep_and_wake, end };

/* Runs a step while call `number` fails, and those after it if is_for_ever. Returns whether there was such a call. */
static bool step_run(struct driver *driver, step run, uint64_t number, bool is_for_ever)
{
    struct scene scene;
    scene_begin(&scene, driver);
    vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, is_for_ever);
    (void)run(&scene);
    sums_verify(&scene);
    bool has_fired = vmm__sim_faults_fired(driver) != 0;
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    sums_verify(&scene);
    (void)vmm_poll(scene.cache);
    sums_verify(&scene);
    assert_ok(vmm__cache_check(scene.cache));
    assert_ok(vmm_destroy(scene.cache));
    return has_fired;
}

static void steps_sweep(struct driver *driver, bool is_for_ever)
{
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        for (uint64_t number = 1; step_run(driver, steps[i], number, is_for_ever); number++)
            continue;
    }
}

SIM_TEST(ranges_add_up_after_one_refused_call)
{
    steps_sweep(driver, false);
}

SIM_TEST(ranges_add_up_while_calls_are_refused)
{
    steps_sweep(driver, true);
}
