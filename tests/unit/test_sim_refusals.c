/* The sim driver without host memory: whichever allocation of a call fails, the call says so, and a later one succeeds. */
#include "support/sim_support.h"

/* Two places in a row, of different contents by different streams, and two beside them. */
struct scene {
    struct driver *driver;
    uint64_t from;
    uint64_t to;
};

typedef vmm_status (*step)(const struct scene *scene);

static struct scene scene_set(struct driver *driver)
{
    struct scene scene = { .driver = driver };
    scene.from = sim_reserved(driver, 2 * GRANULE);
    scene.to = sim_reserved(driver, 2 * GRANULE);
    for (uint64_t i = 0; i < 2; i++) {
        sim_mapped(driver, scene.from + i * GRANULE, GRANULE, sim_created(driver, GRANULE));
        sim_mapped(driver, scene.to + i * GRANULE, GRANULE, sim_created(driver, GRANULE));
    }
    for (uint64_t i = 0; i < 8; i++)
        sim_filled(driver, scene.from + i * GRANULE / 4, GRANULE / 4, (uint32_t)i, STREAM(1));
    return scene;
}

/* Every allocation of a step fails once. Returns how many there were. */
static unsigned step_swept(step call)
{
    for (uint64_t number = 1; number < 1000; number++) {
        struct driver_options options = { 0 };
        struct scene scene;
        struct driver *driver;
        assert_ok(vmm__driver_sim_open(&options, &driver));
        scene = scene_set(driver);
        (void)vmm__host_fail_at(number);
        vmm_status status = call(&scene);
        (void)vmm__host_fail_at(0);
        bool is_enough = status == VMM_OK;
        if (!is_enough)
            assert_status(status, VMM_ERR_HOST_OOM);
        assert_ok(call(&scene));
        vmm__driver_close(driver);
        assert_int_equal(vmm__host_outstanding(), 0);
        if (is_enough)
            return (unsigned)number - 1;
    }
    fail_msg("a step allocates without end");
    return 0;
}

static vmm_status filled_across(const struct scene *scene)
{
    return vmm__driver_fill(scene->driver, scene->from + GRANULE / 8, GRANULE, 9, STREAM(1));
}

static vmm_status checked_by_many(const struct scene *scene)
{
    vmm_status status = VMM_OK;
    for (unsigned stream = 2; stream < 40 && status == VMM_OK; stream++) {
        void *event = NULL;
        status = vmm__driver_event_create(scene->driver, &event);
        if (status == VMM_OK)
            status = vmm__driver_event_record(scene->driver, event, STREAM(1));
        if (status == VMM_OK)
            status = vmm__driver_stream_wait(scene->driver, STREAM(stream), event);
        if (event != NULL)
            assert_ok(vmm__driver_event_destroy(scene->driver, event));
        if (status == VMM_OK)
            status = vmm__driver_check(scene->driver, scene->from + stream * 512, GRANULE / 8, 0,
                                       STREAM(stream));
    }
    return status;
}

static vmm_status copied_across(const struct scene *scene)
{
    return vmm__driver_copy(scene->driver, scene->to + 512, scene->from, GRANULE + GRANULE / 2,
                            STREAM(1));
}

/* The tables that a copy keeps grow. */
static vmm_status copied_in_pieces(const struct scene *scene)
{
    vmm_status status = VMM_OK;
    for (uint64_t at = 0; at < 128 && status == VMM_OK; at++)
        status = vmm__driver_fill(scene->driver, scene->from + at * 1024, 512, (uint32_t)at + 50,
                                  STREAM(1));
    if (status == VMM_OK)
        status = vmm__driver_copy(scene->driver, scene->to, scene->from, GRANULE, STREAM(1));
    return status;
}

static vmm_status queued_for_long(const struct scene *scene)
{
    vmm_status status = VMM_OK;
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    for (int i = 0; i < 200 && status == VMM_OK; i++)
        status = vmm__driver_delay(scene->driver, 1, STREAM(1));
    return status;
}

static vmm_status captured(const struct scene *scene)
{
    vmm_stream stream = NULL;
    vmm_status status = vmm__driver_stream_create(scene->driver, &stream);
    if (status == VMM_OK)
        status = vmm__driver_capture_begin(scene->driver, STREAM(77));
    if (status == VMM_OK)
        status = vmm__driver_capture_end(scene->driver, STREAM(77));
    return status;
}

static void every_step_says_that_memory_is_missing(void **state)
{
    (void)state;
    assert_true(step_swept(filled_across) > 0);
    assert_true(step_swept(checked_by_many) > 0);
    assert_true(step_swept(copied_across) > 0);
    assert_true(step_swept(copied_in_pieces) > 0);
    assert_true(step_swept(queued_for_long) > 0);
    assert_true(step_swept(captured) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_step_says_that_memory_is_missing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
