/*
 * A timeline of stream 1 on a sim driver whose work ends only when the host waits, for each test.
 *
 * Use SCENE_TEST(name), in which `scene` is that.
 */
#ifndef VMM_TIMELINE_SUPPORT_H
#define VMM_TIMELINE_SUPPORT_H

#include "support/sim_support.h"

#include "vm/timeline.h"

#define SCENE_TEST(name) TEST_WITH(name, scene_setup, scene_teardown, struct scene *scene)

struct scene {
    struct driver *driver;
    struct timeline timeline;
    uint64_t address;
};

static inline int scene_setup(void **state)
{
    static struct scene scene;
    void *driver = NULL;
    assert_int_equal(sim_setup(&driver), 0);
    scene = (struct scene){ .driver = driver };
    vmm__timeline_init(&scene.timeline, driver, STREAM(1));
    scene.address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, UINT64_C(1) << 40);
    *state = &scene;
    return 0;
}

static inline int scene_teardown(void **state)
{
    struct scene *scene = *state;
    void *driver = scene->driver;
    assert_ok(vmm__timeline_check(&scene->timeline));
    vmm__timeline_fini(&scene->timeline);
    assert_int_equal(scene->driver->events, 0);
    return sim_teardown(&driver);
}

/* Submits work and returns the epoch of a block that is freed after it. */
static inline uint64_t work_start(struct scene *scene)
{
    memory_fill(scene->driver, scene->address, GRANULE, 1, STREAM(1));
    return vmm__timeline_now(&scene->timeline);
}

static inline uint64_t records(const struct scene *scene)
{
    return vmm__driver_calls(scene->driver, DRIVER_CALL_event_record);
}

#endif
