/* A thousand cycles of sleep and wake: no granule stays on the device, no host memory is left, and no live byte
 * changes. The host driver does in 200 what it does in a thousand: to the library it is the same as sim, and each cycle
 * moves tens of MiB. */
#include "support/tenant_support.h"

#include "base/hostmem.h"

enum {
    CYCLES = 1000,
    CYCLES_HOST = 200,
    CYCLES_SLOW = 60,
    HALVES = 2,
    TENANTS = 3,
    SLOTS = 8,
    CHANGES = 3
};
#define LARGEST (3 * MIB)

struct scene {
    struct cache_test *test;
    struct tenant tenants[TENANTS];
    vmm_pool *order[TENANTS]; /* as drawn for the next call */
    uint64_t seed;
    uint64_t checked_bytes;
};

static uint64_t draw(struct scene *scene, uint64_t count)
{
    return random_next(&scene->seed) % count;
}

static void order_draw(struct scene *scene)
{
    for (unsigned i = 0; i < TENANTS; i++) {
        unsigned other = (unsigned)draw(scene, i + 1);
        scene->order[i] = scene->order[other];
        scene->order[other] = scene->tenants[i].pool;
    }
}

static void slot_free(struct scene *scene, struct tenant *tenant, unsigned slot)
{
    if (tenant->blocks[slot] != NULL)
        block_free(scene->test, tenant->blocks[slot]);
    tenant->blocks[slot] = NULL;
}

/* Blocks come and go, with new sizes. */
static void blocks_change(struct scene *scene)
{
    for (unsigned i = 0; i < TENANTS; i++) {
        for (unsigned change = 0; change < CHANGES; change++) {
            unsigned slot = (unsigned)draw(scene, SLOTS);
            slot_free(scene, &scene->tenants[i], slot);
            if (draw(scene, 4) != 0)
                tenant_add(scene->test, &scene->tenants[i], slot,
                           random_bytes(&scene->seed, LARGEST));
        }
    }
}

/* All pools sleep. One of their blocks may be freed, and another pool may use the device. */
static void between(struct scene *scene)
{
    struct cache_test *test = scene->test;
    struct tenant *tenant = &scene->tenants[draw(scene, TENANTS)];
    size_t bytes = random_bytes(&scene->seed, LARGEST);
    assert_int_equal(test->driver->created_bytes, 0);
    assert_int_equal(test->driver->mapped_bytes, 0);
    slot_free(scene, tenant, (unsigned)draw(scene, SLOTS));
    void *block = block_alloc(test, bytes, 3);
    block_fill(test, block, bytes, 7, 3);
    block_check(test, block, bytes, 7, 3);
    block_free(test, block);
}

static void tenants_check(struct scene *scene)
{
    for (unsigned i = 0; i < TENANTS; i++) {
        tenant_check(scene->test, &scene->tenants[i]);
        for (unsigned slot = 0; slot < SLOTS; slot++)
            scene->checked_bytes +=
                scene->tenants[i].blocks[slot] != NULL ? scene->tenants[i].bytes[slot] : 0;
    }
}

static void cycle_run(struct scene *scene)
{
    vmm_ticket *ticket;
    blocks_change(scene);
    order_draw(scene);
    assert_ok(vmm_pool_sleep(scene->order, TENANTS, NULL, NULL));
    cache_trim_all(scene->test); /* what was freed in the default pool */
    between(scene);
    order_draw(scene);
    assert_ok(vmm_pool_wake(scene->order, TENANTS, NULL, &ticket));
    assert_ok(vmm_ticket_wait(ticket));
    tenants_check(scene);
}

/* The host memory of the cache when nothing lives in it. */
static uint64_t rest_bytes(struct scene *scene)
{
    for (unsigned i = 0; i < TENANTS; i++) {
        tenant_free(scene->test, &scene->tenants[i]);
        assert_ok(vmm_backup_drop(scene->tenants[i].pool));
    }
    cache_verify_empty(scene->test);
    assert_int_equal(cache_stats(scene->test).backup_bytes, 0);
    assert_int_equal(scene->test->driver->pinned_bytes, 0);
    return vmm__host_outstanding();
}

CACHE_TEST(a_thousand_cycles_leave_nothing)
{
    uint64_t host_bytes[HALVES];
    struct scene scene = { .test = test, .seed = 7 };
    unsigned cycles = driver_choice_kind() == VMM_DRIVER_HOST ? CYCLES_HOST : CYCLES;
    if (IS_SLOW_BUILD)
        cycles = CYCLES_SLOW;
    cache_restart(test, NULL);
    for (unsigned i = 0; i < TENANTS; i++)
        scene.tenants[i].pool = pool_make(test, VMM_ON_SLEEP_KEEP);
    for (unsigned half = 0; half < HALVES; half++) {
        for (unsigned cycle = 0; cycle < cycles / HALVES; cycle++)
            cycle_run(&scene);
        host_bytes[half] = rest_bytes(&scene);
    }
    print_message(
        "%u cycles: %llu MiB slept and woke; host memory after a half %llu B, after all %llu B\n",
        cycles, (unsigned long long)(scene.checked_bytes / MIB), (unsigned long long)host_bytes[0],
        (unsigned long long)host_bytes[1]);
    assert_true(host_bytes[1] <= host_bytes[0]);
}

CACHE_MAIN()
