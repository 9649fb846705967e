/* The pool of events of a cache. */
#include "support/clock_support.h"

CLOCK_TEST(an_event_goes_back_when_its_last_holder_drops_it)
{
    struct events *events = &scene->events;
    struct event *first;
    struct event *second;
    assert_ok(vmm__event_take(events, &first));
    vmm__event_hold(events, first);
    vmm__event_drop(events, first);
    assert_null(events->idle);
    assert_ok(vmm__event_take(events, &second));
    assert_ptr_not_equal(first, second);
    vmm__event_drop(events, first);
    assert_ptr_equal(events->idle, first);
    assert_ok(vmm__event_take(events, &first));
    assert_int_equal(first->holders, 1);
    vmm__event_drop(events, NULL);
    vmm__event_drop(events, second);
    vmm__event_drop(events, first);
    assert_int_equal(scene->driver->events, 2);
}

CLOCK_TEST(an_event_that_cannot_be_made_leaves_nothing)
{
    struct event *event = NULL;
    uint64_t host_bytes = vmm__host_outstanding();
    (void)vmm__host_fail_at(1);
    assert_status(vmm__event_take(&scene->events, &event), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__event_take(&scene->events, &event), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_null(event);
    assert_null(scene->events.newest);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
}

/* Also events with holders and pending work; one refusal of the driver is tried again. */
CLOCK_TEST(the_end_destroys_all_events)
{
    struct events events;
    struct event *each[3];
    for (int failures = 0; failures < 2; failures++) {
        vmm__events_init(&events, scene->driver);
        for (int i = 0; i < 3; i++)
            assert_ok(vmm__event_take(&events, &each[i]));
        memory_fill(scene->driver, scene->address, GRANULE, 1, STREAM(1));
        assert_ok(vmm__driver_clock_record(scene->driver, each[0]->handle));
        vmm__event_drop(&events, each[1]);
        if (failures == 1)
            vmm__sim_fail_at(scene->driver, 2, VMM_ERR_DRIVER, false);
        assert_ok(vmm__events_fini(&events));
        assert_int_equal(vmm__sim_faults_fired(scene->driver), failures);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_int_equal(scene->driver->events, 0);
    }
}

CLOCK_TEST(the_end_returns_the_first_error)
{
    struct events events;
    struct event *event;
    vmm__events_init(&events, scene->driver);
    assert_ok(vmm__event_take(&events, &event));
    void *handle = event->handle;
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_status(vmm__events_fini(&events), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__driver_event_destroy(scene->driver, handle));
}

/* Each cache has events of its own. */
CLOCK_TEST(pools_of_events_are_apart)
{
    struct scene other;
    void *driver = NULL;
    struct event *events[2];
    assert_int_equal(sim_setup(&driver), 0);
    scene_open(&other, driver, VMM_CLOCK_CONTEXT);
    assert_ok(vmm__event_take(&scene->events, &events[0]));
    assert_ok(vmm__event_take(&other.events, &events[1]));
    vmm__event_drop(&scene->events, events[0]);
    vmm__event_drop(&other.events, events[1]);
    assert_ptr_equal(scene->events.idle, events[0]);
    assert_ptr_equal(other.events.idle, events[1]);
    assert_int_equal(other.driver->events, 1);
    assert_int_equal(vmm__clock_fini(&other.clock), VMM_OK);
    assert_ok(vmm__events_fini(&other.events));
    assert_int_equal(other.driver->events, 0);
    assert_int_equal(scene->driver->events, 1);
    vmm__driver_close(driver);
}
