/* Timelines: events are recorded only on demand, and no epoch passes too early. */
#include "support/timeline_support.h"

SCENE_TEST(events_are_recorded_only_on_demand)
{
    for (int i = 0; i < 100; i++)
        (void)work_start(scene);
    assert_int_equal(records(scene), 0);
    assert_ok(vmm__timeline_query(&scene->timeline, 0));
    assert_int_equal(records(scene), 0);
}

SCENE_TEST(one_event_serves_its_epoch)
{
    uint64_t epoch = work_start(scene);
    for (int i = 0; i < 5; i++)
        assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 1);
    assert_true(vmm__timeline_now(&scene->timeline) > epoch);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_int_equal(records(scene), 1);
}

SCENE_TEST(event_does_not_cover_later_work)
{
    uint64_t first = work_start(scene);
    assert_ok(vmm__timeline_record(&scene->timeline, first));
    uint64_t second = work_start(scene);
    assert_true(second > first);
    assert_ok(vmm__timeline_wait(&scene->timeline, first));
    assert_ok(vmm__timeline_query(&scene->timeline, first));
    assert_status(vmm__timeline_query(&scene->timeline, second), VMM__PENDING);
    assert_ok(vmm__timeline_wait(&scene->timeline, second));
    assert_ok(vmm__timeline_query(&scene->timeline, second));
    assert_int_equal(scene->driver->stalls, 2);
}

SCENE_TEST(passed_events_are_reused)
{
    for (int i = 0; i < 50; i++)
        assert_ok(vmm__timeline_wait(&scene->timeline, work_start(scene)));
    assert_true(scene->driver->events <= TIMELINE_EVENTS);
    assert_int_equal(records(scene), 50);
}

/* A stamp after an advance is later and costs no event. An earlier stamp keeps its epoch. */
SCENE_TEST(epoch_may_end_without_an_event)
{
    uint64_t first = work_start(scene);
    assert_int_equal(vmm__timeline_advance(&scene->timeline), first);
    assert_int_equal(vmm__timeline_advance(&scene->timeline), first + 1);
    uint64_t second = work_start(scene);
    assert_int_equal(second, first + 2);
    assert_int_equal(records(scene), 0);
    assert_ok(vmm__timeline_check(&scene->timeline));
    assert_status(vmm__timeline_query(&scene->timeline, first), VMM__PENDING);
    uint64_t third = work_start(scene);
    assert_int_equal(vmm__timeline_advance(&scene->timeline), third);
    assert_ok(vmm__timeline_wait(&scene->timeline, second));
    assert_ok(vmm__timeline_query(&scene->timeline, first));
    assert_status(vmm__timeline_query(&scene->timeline, third), VMM__PENDING);
    assert_ok(vmm__timeline_check(&scene->timeline));
}

/* More epochs than events: epochs whose events were dropped pass later, never earlier. */
SCENE_TEST(full_ring_is_never_too_early)
{
    enum { EPOCHS = 3 * TIMELINE_EVENTS };
    uint64_t epochs[EPOCHS];
    for (int i = 0; i < EPOCHS; i++) {
        epochs[i] = work_start(scene);
        assert_status(vmm__timeline_query(&scene->timeline, epochs[i]), VMM__PENDING);
        assert_ok(vmm__timeline_check(&scene->timeline));
    }
    assert_int_equal(scene->driver->events, TIMELINE_EVENTS);
    int waited = 0;
    for (int i = 0; i < EPOCHS; i++) {
        if (vmm__timeline_query(&scene->timeline, epochs[i]) == VMM_OK)
            continue;
        assert_ok(vmm__timeline_wait(&scene->timeline, epochs[i]));
        assert_ok(vmm__timeline_query(&scene->timeline, epochs[i]));
        bool is_last = i + 1 == EPOCHS;
        assert_true(is_last ||
                    vmm__timeline_query(&scene->timeline, epochs[EPOCHS - 1]) == VMM__PENDING);
        waited++;
    }
    assert_in_range(waited, TIMELINE_EVENTS / 2, TIMELINE_EVENTS);
}

/* The oldest epoch keeps its event, however many follow: a stream that never rests passes its epochs. */
SCENE_TEST(full_ring_keeps_its_oldest_event)
{
    uint64_t oldest = work_start(scene);
    assert_ok(vmm__timeline_record(&scene->timeline, oldest));
    void *event = scene->timeline.events[scene->timeline.oldest].event;
    for (int i = 0; i < 3 * TIMELINE_EVENTS; i++)
        assert_ok(vmm__timeline_record(&scene->timeline, work_start(scene)));
    assert_ptr_equal(scene->timeline.events[scene->timeline.oldest].event, event);
    assert_int_equal(scene->timeline.events[scene->timeline.oldest].epoch, oldest);
    assert_ok(vmm__timeline_wait(&scene->timeline, oldest));
    assert_ok(vmm__timeline_query(&scene->timeline, oldest));
}

/* Another thread waits for the second event: it stays in the ring, though others there go, and it is not destroyed. */
SCENE_TEST(awaited_events_are_neither_dropped_nor_destroyed)
{
    struct timeline *timeline = &scene->timeline;
    assert_ok(vmm__timeline_record(timeline, work_start(scene)));
    uint64_t epoch = work_start(scene);
    assert_ok(vmm__timeline_record(timeline, epoch));
    void *event = timeline->events[1].event;
    timeline->waiters[1] = 1;
    for (int i = 0; i < 3 * TIMELINE_EVENTS; i++)
        assert_ok(vmm__timeline_record(timeline, work_start(scene)));
    assert_ptr_equal(timeline->events[1].event, event);
    assert_int_equal(timeline->events[1].epoch, epoch);
    assert_ok(vmm__timeline_wait(timeline, vmm__timeline_now(timeline)));
    vmm__timeline_shrink(timeline);
    assert_int_equal(scene->driver->events, 1);
    for (int i = 0; i < 3 * TIMELINE_EVENTS; i++)
        assert_ok(vmm__timeline_wait(timeline, work_start(scene)));
    unsigned slot = 0;
    while (timeline->events[slot].event != event)
        slot++;
    assert_int_equal(timeline->waiters[slot], 1);
    assert_int_equal(timeline->events[slot].epoch, epoch); /* not recorded again */
    timeline->waiters[slot] = 0;
    vmm__timeline_shrink(timeline);
    assert_int_equal(scene->driver->events, 0);
}

SCENE_TEST(other_streams_follow_on_the_device)
{
    uint64_t epoch = work_start(scene);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
    memory_check(scene->driver, scene->address, GRANULE, 1, STREAM(2));
    assert_int_equal(scene->driver->stalls, 0);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(3)));
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 1);
}

/* If call number `call` fails, the epoch stays pending, and the next call succeeds. */
SCENE_TEST(failures_are_returned_and_retried)
{
    for (uint64_t call = 1; call <= 3; call++) {
        uint64_t epoch = work_start(scene);
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm__timeline_query(&scene->timeline, epoch);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_true(status == VMM_ERR_DRIVER || (call == 3 && status == VMM__PENDING));
        assert_ok(vmm__timeline_check(&scene->timeline));
        assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
        assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
        assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    }
}

SCENE_TEST(check_finds_epochs_out_of_order)
{
    uint64_t epoch = work_start(scene);
    assert_ok(vmm__timeline_record(&scene->timeline, epoch));
    scene->timeline.events[scene->timeline.oldest].epoch += 7;
    assert_status(vmm__timeline_check(&scene->timeline), VMM_ERR_INTERNAL);
    scene->timeline.events[scene->timeline.oldest].epoch -= 7;
}

/* ---- Captures ----------------------------------------------------------------------------- */

SCENE_TEST(capturing_stream_records_no_event)
{
    uint64_t epoch = work_start(scene);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(1)));
    assert_status(vmm__timeline_record(&scene->timeline, epoch), VMM__PENDING);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
    assert_status(vmm__timeline_wait(&scene->timeline, epoch), VMM__PENDING);
    assert_status(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)), VMM__PENDING);
    assert_int_equal(records(scene), 0);
    assert_int_equal(scene->driver->events, 0);
    assert_int_equal(vmm__timeline_now(&scene->timeline), epoch);
    assert_ok(vmm__timeline_query(&scene->timeline, 0));
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(1)));
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
    sim_assert_clean(scene->driver);
}

SCENE_TEST(events_from_before_a_capture_stay_valid)
{
    uint64_t epoch = work_start(scene);
    assert_ok(vmm__timeline_record(&scene->timeline, epoch));
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(1)));
    uint64_t later = vmm__timeline_now(&scene->timeline);
    assert_ok(vmm__timeline_record(&scene->timeline, epoch));
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_status(vmm__timeline_query(&scene->timeline, later), VMM__PENDING);
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(1)));
    assert_ok(vmm__timeline_query(&scene->timeline, later));
    sim_assert_clean(scene->driver);
}

/* A full ring drops no event for one that it cannot record. */
SCENE_TEST(full_ring_records_no_event_of_a_capturing_stream)
{
    uint64_t newest = 0;
    for (int i = 0; i < 2 * TIMELINE_EVENTS; i++) {
        newest = work_start(scene);
        assert_ok(vmm__timeline_record(&scene->timeline, newest));
    }
    uint64_t later = work_start(scene);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(1)));
    assert_status(vmm__timeline_wait(&scene->timeline, later), VMM__PENDING);
    assert_ok(vmm__timeline_wait(&scene->timeline, newest));
    assert_status(vmm__timeline_query(&scene->timeline, later), VMM__PENDING);
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(1)));
    assert_ok(vmm__timeline_wait(&scene->timeline, later));
    sim_assert_clean(scene->driver);
}

SCENE_TEST(capturing_stream_does_not_follow)
{
    uint64_t epoch = work_start(scene);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(2)));
    assert_status(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)), VMM__PENDING);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 0);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(2)));
    sim_assert_clean(scene->driver);
}

SCENE_TEST(failed_capture_query_changes_nothing)
{
    uint64_t epoch = work_start(scene);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__timeline_record(&scene->timeline, epoch), VMM_ERR_DRIVER);
    assert_int_equal(vmm__timeline_now(&scene->timeline), epoch);
    assert_int_equal(records(scene), 0);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
    vmm__sim_fail_at(scene->driver, 2, VMM_ERR_DRIVER, false); /* after a query */
    assert_status(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
}

/* The caller reports that it has waited for the device. */
SCENE_TEST(pass_marks_epochs_as_passed)
{
    for (int i = 0; i < 3; i++)
        assert_ok(vmm__timeline_record(&scene->timeline, work_start(scene)));
    uint64_t epoch = vmm__timeline_advance(&scene->timeline);
    uint64_t later = work_start(scene);
    uint64_t recorded = records(scene);
    assert_int_equal(later, epoch + 1);
    vmm__timeline_pass(&scene->timeline, epoch);
    vmm__timeline_pass(&scene->timeline, 1); /* already passed */
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_int_equal(records(scene), recorded);
    assert_status(vmm__timeline_query(&scene->timeline, later), VMM__PENDING);
    assert_ok(vmm__timeline_check(&scene->timeline));
    assert_ok(vmm__timeline_wait(&scene->timeline, later));
}

/* ---- Another thread shrinks while one waits ---------------------------------------------------- */

static struct timeline *waited;
static vmm_status (*driver_event_wait)(struct driver *driver, void *event);

/* Between the release of the timeline's lock and the wait, the work ends and another thread notices. */
static vmm_status event_wait_late(struct driver *driver, void *event)
{
    assert_ok(vmm__driver_device_wait(driver));
    vmm__timeline_shrink(waited);
    return driver_event_wait(driver, event);
}

SCENE_TEST(an_event_that_a_thread_waits_for_is_not_destroyed)
{
    const struct driver_ops *ops = scene->driver->ops;
    struct driver_ops late = *ops;
    waited = &scene->timeline;
    driver_event_wait = ops->event_wait;
    late.event_wait = event_wait_late;
    uint64_t epoch = work_start(scene);
    scene->driver->ops = &late;
    vmm_status status = vmm__timeline_wait(&scene->timeline, epoch);
    scene->driver->ops = ops;
    assert_ok(status);
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_int_equal(scene->driver->events, 1);
    vmm__timeline_shrink(&scene->timeline);
    assert_int_equal(scene->driver->events, 0);
}
