/* A device that is lost at each step of a sleep and a wake: the call fails, blocks can be freed, and vmm_destroy()
 * leaves nothing on the host. */
#define _GNU_SOURCE
#include "support/cache_support.h"
#include "support/sim_support.h"

#include "base/hostmem.h"

enum { BLOCKS = 12 };

struct scene {
    struct driver *driver;
    vmm_cache *cache;
    vmm_pool *pool;
    void *blocks[BLOCKS];
};

static void scene_open(struct scene *scene)
{
    struct driver_options options = { .device_bytes = 256 * MIB };
    vmm_config config = VMM_CONFIG_INIT;
    assert_ok(vmm__driver_sim_open(&options, &scene->driver));
    assert_ok(vmm__cache_create_on(&config, scene->driver, &scene->cache));
    assert_ok(vmm_pool_create(scene->cache, NULL, &scene->pool));
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = i % 2 == 0 ? 600 * (i + 1) : 3 * MIB;
        assert_ok(vmm_alloc_from(scene->pool, bytes, STREAM(i % 3), &scene->blocks[i]));
        assert_ok(
            vmm__driver_fill(scene->driver, (uintptr_t)scene->blocks[i], bytes, i, STREAM(i % 3)));
        assert_ok(vmm_record_stream(scene->cache, scene->blocks[i], STREAM(i % 5)));
    }
}

static void scene_close(struct scene *scene, bool is_lost)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_ok(vmm_free(scene->cache, scene->blocks[i]));
    vmm_status status = vmm_destroy(scene->cache);
    if (status != VMM_ERR_LOST || !is_lost)
        assert_status(status, VMM_OK);
    vmm__driver_close(scene->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
}

/* Returns whether the device was lost, which call `call` of the order detects. */
static bool order_lose(struct scene *scene, bool is_wake, bool has_ticket, uint64_t call)
{
    vmm_ticket *ticket;
    vmm_ticket **tickets = has_ticket ? &ticket : NULL;
    if (is_wake)
        assert_ok(vmm_pool_sleep(&scene->pool, 1, NULL, NULL));
    vmm__sim_fail_at(scene->driver, call, VMM_ERR_LOST, false);
    vmm_status status = is_wake ? vmm_pool_wake(&scene->pool, 1, NULL, tickets)
                                : vmm_pool_sleep(&scene->pool, 1, NULL, tickets);
    if (has_ticket && status == VMM_OK)
        status = vmm_ticket_wait(ticket);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    bool is_lost = vmm__driver_is_lost(scene->driver);
    assert_int_equal(status, is_lost ? VMM_ERR_LOST : VMM_OK);
    if (is_lost) {
        assert_status(vmm_pool_sleep(&scene->pool, 1, NULL, NULL), VMM_ERR_LOST);
        assert_status(vmm_pool_wake(&scene->pool, 1, NULL, NULL), VMM_ERR_LOST);
    }
    return is_lost;
}

TEST(a_device_may_be_lost_at_each_step_of_a_sleep)
{
    for (unsigned kind = 0; kind < 4; kind++) {
        bool is_lost = true;
        for (uint64_t call = 1; is_lost; call++) {
            struct scene scene;
            scene_open(&scene);
            is_lost = order_lose(&scene, kind / 2 == 1, kind % 2 == 1, call);
            scene_close(&scene, is_lost);
        }
    }
}

/* What a sleeping pool has saved can still be read, and host memory goes back. */
TEST(backups_outlive_the_device)
{
    struct scene scene;
    void *host = NULL;
    scene_open(&scene);
    vmm_pool *other = pool_in_with(scene.cache, NULL);
    void *block = block_in_pool(other, 3 * MIB, NULL);
    assert_ok(vmm_pool_sleep(&other, 1, NULL, NULL));
    assert_ok(vmm_pool_wake(&other, 1, NULL, NULL));
    assert_ok(vmm_pool_sleep(&scene.pool, 1, NULL, NULL));
    assert_status(vmm_free(scene.cache, &scene), VMM_ERR_UNKNOWN_POINTER);
    vmm__sim_fail_at(scene.driver, 1, VMM_ERR_LOST, false);
    assert_ok(vmm_backup_drop(other)); /* its call to the driver detects the loss */
    assert_true(vmm__driver_is_lost(scene.driver));
    assert_non_null(strstr(vmm_last_error(), "vmm_free"));
    assert_ok(vmm_backup_find(scene.pool, scene.blocks[1], &host));
    assert_non_null(host);
    assert_status(vmm_pool_wake(&scene.pool, 1, NULL, NULL), VMM_ERR_LOST);
    assert_ok(vmm_free(scene.cache, block));
    scene_close(&scene, true);
}

/* vmm_destroy() waits for the thread of a ticket. */
TEST(a_cache_may_end_while_a_ticket_runs)
{
    for (unsigned round = 0; round < 20; round++) {
        struct scene scene;
        vmm_ticket *ticket;
        scene_open(&scene);
        assert_ok(vmm_pool_sleep(&scene.pool, 1, NULL, &ticket));
        scene_close(&scene, false);
        assert_status(vmm_ticket_wait(ticket), VMM_ERR_INVALID_ARGUMENT);
    }
}
