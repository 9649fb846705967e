/* Clocks that join events of the streams that the cache knows: where the driver has no events of all work, or after a
 * capture that was not announced. And which answers are about all work. */
#include "support/clock_support.h"

CLOCK_TEST(known_streams_are_joined)
{
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    for (unsigned stream = 1; stream <= 2; stream++) {
        uint64_t epoch = work_start(scene, STREAM(stream));
        assert_status(query(scene, epoch), VMM__PENDING);
        assert_ok(vmm__clock_wait(&scene->clock, epoch));
    }
    uint64_t epoch = work_start(scene, STREAM(7)); /* not known */
    assert_ok(query(scene, epoch));
    assert_int_equal(records(scene), 0);
    assert_int_equal(calls_of(scene, DRIVER_CALL_stream_create), 1);
    assert_int_equal(pauses(scene), 0);
}

/* A driver without events of all work. */
CLOCK_TEST(a_driver_without_events_of_all_work_joins_streams)
{
    struct clock clock;
    scene->driver->has_clock = false;
    vmm__clock_init(&clock, scene->driver, &scene->events, NULL, VMM_CLOCK_CONTEXT);
    assert_int_equal(clock.kind, VMM_CLOCK_STREAMS);
    assert_ok(vmm__clock_query(&clock, vmm__clock_now(&clock))); /* it knows no stream */
    assert_ok(vmm__clock_fini(&clock));
    assert_int_equal(calls_of(scene, DRIVER_CALL_stream_destroy), 1);
    assert_int_equal(records(scene), 0);
}

/* A capture of a known stream pauses the clock, announced or not; one of another stream does not matter. */
CLOCK_TEST(a_captured_known_stream_pauses_a_clock_of_streams)
{
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    for (int announces = 0; announces < 2; announces++) {
        uint64_t paused = pauses(scene);
        if (announces == 1)
            assert_ok(announce(scene, STREAM(2)));
        capture_begin(scene, STREAM(2));
        uint64_t epoch = work_start(scene, STREAM(1));
        assert_status(query(scene, epoch), VMM__PENDING);
        assert_status(vmm__clock_wait(&scene->clock, epoch), VMM__PENDING);
        assert_status(vmm__clock_capture_query(&scene->clock), VMM__PENDING);
        assert_int_equal(pauses(scene), paused + 2);
        capture_end(scene, STREAM(2));
        assert_ok(vmm__clock_wait(&scene->clock, epoch));
    }
    capture_begin(scene, STREAM(7));
    assert_ok(vmm__clock_wait(&scene->clock, work_start(scene, STREAM(1))));
    capture_end(scene, STREAM(7));
    assert_int_equal(scene->lines, 0);
}

CLOCK_TEST(a_destroyed_stream_makes_a_clock_of_streams_blind)
{
    static const char earlier[] = "an earlier failure";
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    struct clock *clock = &scene->clock;
    vmm__clock_tick(clock); /* the joining stream gets a handle of its own */
    uint64_t epoch = work_start(scene, STREAM(1));
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    (void)vmm__error(VMM_ERR_DRIVER, earlier);
    for (int i = 0; i < 3; i++)
        assert_status(query(scene, epoch), VMM__PENDING);
    assert_string_equal(vmm_last_error(), earlier);
    assert_true(clock->is_blind && atomic_load(&scene->known[0].is_gone));
    work_end(scene);
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_ok(vmm__clock_wait_all(clock));
    assert_ok(query(scene, epoch));
    work_hold(scene);
    epoch = work_start(scene, STREAM(2)); /* the other one is known to be gone */
    assert_status(query(scene, epoch), VMM__PENDING);
    work_end(scene);
    assert_ok(query(scene, epoch));
    assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), 1);
}

/* A new stream has the handle. */
CLOCK_TEST(a_known_stream_may_come_back)
{
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    vmm__clock_tick(&scene->clock);
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    vmm__clock_tick(&scene->clock);
    assert_ok(vmm__clock_wait_all(&scene->clock));
    assert_ptr_equal(stream_new(scene->driver), STREAM(1));
    uint64_t epoch = work_start(scene, STREAM(1));
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_false(atomic_load(&scene->known[0].is_gone));
    assert_ok(vmm__clock_wait(&scene->clock, epoch));
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_status(query(scene, vmm__clock_now(&scene->clock)), VMM__PENDING);
    assert_true(scene->clock.is_blind);
}

/* The joining stream may get the handle of a destroyed stream. */
CLOCK_TEST(the_joining_stream_is_no_known_stream)
{
    struct event *event = NULL;
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    uint64_t epoch = work_start(scene, STREAM(1));
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_ptr_equal(scene->clock.join, STREAM(1));
    assert_true(scene->clock.is_blind);
    assert_status(vmm__clock_mark(&scene->clock, STREAM(1), NULL, 0, &event),
                  VMM_ERR_INVALID_ARGUMENT);
    assert_status(query(scene, epoch), VMM__PENDING);
}

static struct scene *watched;

/* As another thread: while this one waits, a known stream submits work and is destroyed, and a tick finds that. */
static vmm_status device_wait_late(struct driver *driver)
{
    vmm_status status = watched->ops->device_wait(driver);
    (void)work_start(watched, STREAM(2));
    assert_ok(vmm__driver_stream_destroy(driver, STREAM(2)));
    vmm__clock_tick(&watched->clock);
    return status;
}

CLOCK_TEST(a_clock_that_becomes_blind_during_a_wait_stays_so)
{
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    vmm__clock_tick(&scene->clock);
    (void)work_start(scene, STREAM(2));
    watched = scene;
    calls_wrap(scene);
    scene->wrapped.device_wait = device_wait_late;
    assert_ok(vmm__clock_wait_all(&scene->clock));
    scene->driver->ops = scene->ops;
    assert_true(scene->clock.is_blind);
    uint64_t epoch = vmm__clock_now(&scene->clock);
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_ok(vmm__clock_wait_all(&scene->clock));
    assert_ok(query(scene, epoch));
}

/* The wait for the device would spoil a capture, also one that need not be announced. */
CLOCK_TEST(a_blind_clock_does_not_wait_beside_a_capture)
{
    for (int announces = 0; announces < 2; announces++) {
        scene_rekind(scene, VMM_CLOCK_STREAMS);
        vmm__clock_tick(&scene->clock);
        uint64_t epoch = work_start(scene, STREAM(1));
        assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
        assert_status(query(scene, epoch), VMM__PENDING);
        if (announces == 1)
            assert_ok(announce(scene, STREAM(2)));
        capture_begin(scene, STREAM(2));
        assert_status(vmm__clock_wait(&scene->clock, epoch), VMM__PENDING);
        capture_end(scene, STREAM(2));
        assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), 0);
        assert_ok(vmm__clock_wait(&scene->clock, epoch));
        assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), 1);
        sim_assert_clean(scene->driver);
    }
}

/* An ended stream is no longer known, but its work is. */
CLOCK_TEST(the_end_of_a_stream_joins_its_work)
{
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    uint64_t epoch = work_start(scene, STREAM(2));
    vmm__clock_stream_end(&scene->clock, STREAM(2));
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(2)));
    scene->known_count = 1;
    assert_status(query(scene, epoch), VMM__PENDING);
    uint64_t later = vmm__clock_now(&scene->clock);
    assert_status(query(scene, later), VMM__PENDING);
    assert_false(scene->clock.is_blind);
    work_end(scene);
    assert_ok(query(scene, later));
    assert_int_equal(scene->driver->counts.stalls, 0);
}

/* If that cannot be recorded, only a wait for the device tells its end. */
CLOCK_TEST(the_end_of_a_stream_may_blind_a_clock)
{
    static const char earlier[] = "an earlier failure";
    for (uint64_t call = 1;; call++) {
        scene_rekind(scene, VMM_CLOCK_STREAMS);
        uint64_t epoch = work_start(scene, STREAM(2));
        (void)vmm__error(VMM_ERR_DRIVER, earlier);
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm__clock_stream_end(&scene->clock, STREAM(2));
        bool has_fired = vmm__sim_faults_fired(scene->driver) > 0;
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_string_equal(vmm_last_error(), earlier);
        assert_int_equal(scene->clock.is_blind, has_fired);
        scene->known_count = 1;
        assert_status(query(scene, epoch), VMM__PENDING);
        assert_ok(vmm__clock_wait(&scene->clock, epoch));
        assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), has_fired);
        if (!has_fired)
            break;
    }
}

/* With events of all work there is nothing to do. */
CLOCK_TEST(the_end_of_a_stream_costs_no_call)
{
    (void)work_start(scene, STREAM(2));
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    vmm__clock_stream_end(&scene->clock, STREAM(2));
    assert_int_equal(vmm__sim_calls(scene->driver), 0);
    assert_false(scene->clock.is_blind);
}

/* ---- All work -------------------------------------------------------------------------------- */

/* In one kind each event is of all work; in the other one only waits for the device are. */
CLOCK_TEST(only_some_answers_are_about_all_work)
{
    struct clock *clock = &scene->clock;
    uint64_t epoch = work_start(scene, STREAM(7));
    assert_status(vmm__clock_query_all(clock, epoch), VMM__PENDING);
    work_end(scene);
    assert_ok(vmm__clock_query_all(clock, epoch));
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    epoch = work_start(scene, STREAM(7));
    assert_ok(query(scene, epoch));
    assert_status(vmm__clock_query_all(clock, epoch), VMM__PENDING);
    assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), 0);
    assert_ok(vmm__clock_wait_all(clock));
    assert_ok(vmm__clock_query_all(clock, epoch));
    assert_status(vmm__clock_query_all(clock, vmm__clock_now(clock)), VMM__PENDING);
}

/* As another thread: it meets a capture between the question's look at the kind and its end. */
static vmm_status event_query_late(struct driver *driver, void *event)
{
    atomic_store(&watched->clock.kind, VMM_CLOCK_STREAMS);
    return watched->ops->event_query(driver, event);
}

CLOCK_TEST(an_answer_during_the_change_is_not_about_all_work)
{
    uint64_t epoch = work_start(scene, STREAM(7));
    work_end(scene);
    watched = scene;
    calls_wrap(scene);
    scene->wrapped.event_query = event_query_late;
    assert_status(vmm__clock_query_all(&scene->clock, epoch), VMM__PENDING);
    assert_ok(query(scene, epoch));
}

CLOCK_TEST(a_failed_question_about_all_work_is_returned)
{
    uint64_t epoch = work_start(scene, STREAM(7));
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__clock_query_all(&scene->clock, epoch), VMM_ERR_DRIVER);
}
