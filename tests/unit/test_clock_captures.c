/* Clocks beside captures: announced ones, those that the nets find, and those that nothing sees. */
#define _GNU_SOURCE
#include "support/clock_support.h"
#include "support/thread_support.h"

#include <errno.h>
#include <unistd.h>

static bool any_is_announced(void)
{
    vmm__captures_lock();
    bool any = vmm__captures_any_locked();
    vmm__captures_unlock();
    return any;
}

/* ---- Announced captures ---------------------------------------------------------------------- */

/* No event is recorded and no call waits; what was recorded before still passes. */
CLOCK_TEST(an_announced_capture_pauses_the_clock)
{
    struct clock *clock = &scene->clock;
    uint64_t before = work_start(scene, STREAM(1));
    vmm__clock_tick(clock);
    uint64_t epoch = work_start(scene, STREAM(1));
    assert_ok(announce(scene, STREAM(2)));
    capture_begin(scene, STREAM(2));
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_status(vmm__clock_wait(clock, epoch), VMM__PENDING);
    assert_status(vmm__clock_follow(clock, epoch, STREAM(1)), VMM__PENDING);
    assert_status(vmm__clock_follow_check(clock, epoch, STREAM(1)), VMM__PENDING);
    assert_status(vmm__clock_capture_query(clock), VMM__PENDING);
    vmm__clock_tick(clock);
    assert_int_equal(pauses(scene), 5);
    assert_int_equal(records(scene), 1);
    assert_ok(vmm__clock_wait(clock, before));
    assert_ok(vmm__clock_check(clock));
    capture_end(scene, STREAM(2));
    assert_true(retract(scene, STREAM(2)));
    assert_ok(vmm__clock_capture_query(clock));
    assert_ok(vmm__clock_wait(clock, epoch));
    assert_int_equal(kind_of(scene), VMM_CLOCK_CONTEXT);
    assert_int_equal(scene->lines, 0);
}

/* The stream was captured and no longer is: the next query sees that. */
CLOCK_TEST(an_announcement_ends_when_its_capture_is_seen_to_be_over)
{
    uint64_t epoch = work_start(scene, STREAM(1));
    assert_ok(announce(scene, STREAM(2)));
    capture_begin(scene, STREAM(2));
    assert_status(query(scene, epoch), VMM__PENDING);
    capture_end(scene, STREAM(2));
    vmm__clock_tick(&scene->clock);
    assert_int_equal(records(scene), 1);
    assert_false(retract(scene, STREAM(2)));
}

/* The thread that announced begins the capture before it calls again: it did not begin it. */
CLOCK_TEST(an_announcement_ends_when_its_thread_asks_without_a_capture)
{
    assert_ok(announce(scene, STREAM(2)));
    assert_status(query(scene, work_start(scene, STREAM(1))), VMM__PENDING);
    assert_int_equal(records(scene), 1);
    assert_false(any_is_announced());
}

static void *query_elsewhere(void *context)
{
    struct scene *scene = context;
    vmm__clock_tick(&scene->clock);
    return NULL;
}

/* Other threads cannot tell: the announcement stands until the thread asks or a thread retracts it. */
CLOCK_TEST(an_announcement_without_a_capture_stands_for_other_threads)
{
    assert_ok(announce(scene, STREAM(2)));
    for (int i = 0; i < 3; i++)
        (void)thread_run(query_elsewhere, scene);
    assert_int_equal(records(scene), 0);
    assert_int_equal(pauses(scene), 3);
    assert_true(retract(scene, STREAM(2)));
    (void)thread_run(query_elsewhere, scene);
    assert_int_equal(records(scene), 1);
}

static void *announce_elsewhere(void *context)
{
    struct scene *scene = context;
    assert_ok(announce(scene, STREAM(2)));
    return NULL;
}

/* It is retracted, or its capture begins late and ends. */
CLOCK_TEST(an_announcement_of_another_thread_stands)
{
    struct staying_thread announcer;
    uint64_t epoch = work_start(scene, STREAM(1));
    thread_stay(&announcer, announce_elsewhere, scene);
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 0);
    assert_true(retract(scene, STREAM(2)));
    (void)thread_leave(&announcer);
    thread_stay(&announcer, announce_elsewhere, scene);
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 0);
    capture_begin(scene, STREAM(2));
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 0);
    capture_end(scene, STREAM(2));
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 1);
    (void)thread_leave(&announcer);
}

/* It cannot begin the capture any more. The system lets go of a thread a moment after the join. */
CLOCK_TEST(an_announcement_of_a_thread_that_has_ended_does_not)
{
    struct staying_thread announcer;
    thread_stay(&announcer, announce_elsewhere, scene);
    errno = EDOM;
    assert_true(any_is_announced());
    assert_int_equal(errno, EDOM);
    (void)thread_leave(&announcer);
    for (int i = 0; i < 1000 && any_is_announced(); i++)
        (void)usleep(1000);
    assert_false(retract(scene, STREAM(2)));
}

/* Each capture has its announcement, also two of one stream. */
CLOCK_TEST(announcements_are_counted)
{
    assert_ok(announce(scene, STREAM(2)));
    assert_ok(announce(scene, STREAM(2)));
    capture_begin(scene, STREAM(2));
    assert_true(any_is_announced());
    assert_true(retract(scene, STREAM(2)));
    assert_true(any_is_announced());
    assert_false(retract(scene, STREAM(1)));
    assert_true(retract(scene, STREAM(2)));
    assert_false(retract(scene, STREAM(2)));
    assert_false(any_is_announced());
    capture_end(scene, STREAM(2));
}

/* The handle means a stream of each thread: only the one that announced may ask about it, or retract it. */
static void *retract_per_thread(void *context)
{
    assert_false(retract(context, STREAM_PER_THREAD));
    assert_true(any_is_announced());
    return NULL;
}

CLOCK_TEST(the_per_thread_stream_is_a_stream_of_its_thread)
{
    assert_ok(announce(scene, STREAM_PER_THREAD));
    (void)thread_run(retract_per_thread, scene);
    uint64_t asked = calls_of(scene, DRIVER_CALL_capturing);
    (void)thread_run(query_elsewhere, scene);
    assert_int_equal(calls_of(scene, DRIVER_CALL_capturing), asked);
    assert_true(retract(scene, STREAM_PER_THREAD));
    assert_ok(announce(scene, STREAM_PER_THREAD));
    assert_false(any_is_announced()); /* this thread asks, and captures nothing */
}

/* The driver does not answer: the capture may be under way. */
CLOCK_TEST(a_capture_of_which_the_driver_is_silent_stands)
{
    assert_ok(announce(scene, STREAM(2)));
    (void)vmm__error(VMM_ERR_DRIVER, "an earlier failure");
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_true(any_is_announced());
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_string_equal(vmm_last_error(), "an earlier failure");
    assert_false(any_is_announced());
}

CLOCK_TEST(an_announcement_needs_host_memory)
{
    (void)vmm__host_fail_at(1);
    assert_status(announce(scene, STREAM(2)), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_false(retract(scene, STREAM(2)));
}

/* ---- Captures in the whole process ----------------------------------------------------------- */

/* A capture on one driver forbids events on another one; the end of a cache takes only its own announcements. */
CLOCK_TEST(announcements_count_for_all_caches)
{
    static struct scene other;
    void *driver = NULL;
    assert_int_equal(sim_setup(&driver), 0);
    scene_open(&other, driver, VMM_CLOCK_CONTEXT);
    vmm_stream stream = stream_new(driver);
    assert_ok(announce(&other, stream));
    capture_begin(&other, stream);
    assert_status(query(scene, work_start(scene, STREAM(1))), VMM__PENDING);
    assert_int_equal(records(scene), 0);
    assert_false(retract(scene, stream)); /* of the other driver */
    assert_ok(announce(scene, STREAM(2)));
    capture_begin(scene, STREAM(2));
    vmm__captures_forget(scene->driver);
    assert_true(any_is_announced());
    vmm__captures_forget(driver);
    assert_false(any_is_announced());
    capture_end(scene, STREAM(2));
    capture_end(&other, stream);
    assert_ok(vmm__clock_fini(&other.clock));
    assert_ok(vmm__events_fini(&other.events));
    sim_assert_clean(scene->driver);
    sim_assert_clean(other.driver);
    vmm__driver_close(driver);
}

/* ---- Captures that were not announced -------------------------------------------------------- */

/* Nothing is spoiled, but the next such capture could be: the kind changes for good, and the log says so once. */
static void assert_found_in_time(struct scene *scene, vmm_stream captured)
{
    for (int i = 0; i < 3; i++) {
        assert_status(query(scene, work_start(scene, STREAM(2))), VMM__PENDING);
        assert_int_equal(kind_of(scene), VMM_CLOCK_STREAMS);
    }
    assert_int_equal(records(scene), 0);
    assert_int_equal(scene->lines, 1);
    assert_non_null(strstr(scene->line, "not announced"));
    assert_true(pauses(scene) > 0);
    assert_ok(vmm__clock_check(&scene->clock));
    capture_end(scene, captured);
    sim_assert_clean(scene->driver);
    vmm__clock_tick(&scene->clock);
    assert_int_equal(kind_of(scene), VMM_CLOCK_STREAMS);
    assert_int_equal(records(scene), 0);
    assert_int_equal(scene->lines, 1);
}

/* In CUDA that reveals the capture of any stream that waits for the default stream. */
CLOCK_TEST(a_capture_seen_on_the_default_stream_changes_the_kind)
{
    capture_begin(scene, NULL);
    assert_found_in_time(scene, NULL);
}

CLOCK_TEST(a_capture_of_a_stream_with_live_blocks_changes_the_kind)
{
    scene->known[0].is_live = true;
    capture_begin(scene, STREAM(1));
    assert_found_in_time(scene, STREAM(1));
}

/* A question about captures finds it, too, but spoils nothing yet. */
CLOCK_TEST(a_question_about_captures_changes_nothing)
{
    scene->known[0].is_live = true;
    capture_begin(scene, STREAM(1));
    assert_status(vmm__clock_capture_query(&scene->clock), VMM__PENDING);
    assert_int_equal(kind_of(scene), VMM_CLOCK_CONTEXT);
    capture_end(scene, STREAM(1));
    assert_ok(vmm__clock_capture_query(&scene->clock));
}

/* No net holds the capture of a stream that the cache does not know: it is spoiled, once. */
CLOCK_TEST(an_unseen_capture_is_spoiled_and_changes_the_kind)
{
    vmm_stream unknown = STREAM(7);
    capture_begin(scene, unknown);
    uint64_t epoch = work_start(scene, STREAM(2));
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_int_equal(kind_of(scene), VMM_CLOCK_STREAMS);
    assert_int_equal(scene->lines, 1);
    sim_assert_violations(scene->driver, 1, "clock record during the capture");
    assert_status(vmm__driver_capture_end(scene->driver, unknown), VMM_ERR_DRIVER);
    assert_ok(vmm__clock_check(&scene->clock));
    capture_begin(scene, unknown);
    vmm__clock_tick(&scene->clock);
    capture_end(scene, unknown); /* the next one is not */
    assert_int_equal(scene->lines, 1);
    sim_assert_violations(scene->driver, 1, "clock record during the capture");
}

/* A driver that does not say whether a stream is captured: no event, and no other kind. */
CLOCK_TEST(a_failed_net_changes_nothing)
{
    scene->known[0].is_live = true;
    struct event *event;
    assert_ok(vmm__event_take(&scene->events, &event));
    vmm__event_drop(&scene->events, event);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(query(scene, work_start(scene, STREAM(1))), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__clock_capture_query(&scene->clock), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_int_equal(records(scene), 0);
    assert_int_equal(kind_of(scene), VMM_CLOCK_CONTEXT);
    assert_int_equal(scene->lines, 0);
}

/* A stream that has ended is not passed to the driver: its handle may be another one's. */
CLOCK_TEST(a_stream_that_ended_gets_no_event)
{
    struct event *event;
    _Atomic uint64_t ends = 3;
    uint64_t recorded = calls_of(scene, DRIVER_CALL_event_record);
    assert_status(vmm__clock_mark(&scene->clock, STREAM(1), &ends, 2, &event),
                  VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(calls_of(scene, DRIVER_CALL_event_record), recorded);
    assert_ok(vmm__clock_mark(&scene->clock, STREAM(1), &ends, 3, &event));
    vmm__event_drop(&scene->events, event);
}

/* A stream with live blocks that the driver does not know is not captured. */
CLOCK_TEST(a_destroyed_stream_is_no_capture)
{
    scene->known[0].is_live = true;
    uint64_t epoch = work_start(scene, STREAM(1));
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 1);
    assert_ok(vmm__clock_wait(&scene->clock, epoch));
}

/* What was freed before the change may wait for streams that the cache does not know: only a wait for the device tells
 * when they are done. */
CLOCK_TEST(after_the_change_the_clock_is_blind_until_a_wait_for_the_device)
{
    struct clock *clock = &scene->clock;
    uint64_t covered = work_start(scene, STREAM(7));
    vmm__clock_tick(clock);
    uint64_t epoch = work_start(scene, STREAM(7));
    capture_begin(scene, NULL);
    vmm__clock_tick(clock);
    capture_end(scene, NULL);
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_true(clock->is_blind);
    assert_ok(vmm__clock_wait(clock, covered)); /* its event is of all work */
    assert_status(query(scene, epoch), VMM__PENDING);
    assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), 0);
    assert_ok(vmm__clock_wait(clock, epoch));
    assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), 1);
    assert_false(clock->is_blind);
    epoch = work_start(scene, STREAM(1));
    assert_ok(vmm__clock_wait(clock, epoch));
    assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), 1);
}

static void capture_ended(void *context, const char *line)
{
    struct scene *scene = context;
    assert_non_null(line);
    assert_status(vmm__driver_capture_end(scene->driver, STREAM(7)), VMM_ERR_DRIVER);
}

/* The wait for an event meets a capture, and then an error; the wait for the device, which follows, has neither. */
CLOCK_TEST(a_wait_that_succeeds_at_last_leaves_no_line)
{
    struct event *event;
    assert_ok(vmm__event_take(&scene->events, &event));
    vmm__event_drop(&scene->events, event);
    capture_begin(scene, STREAM(7));
    (void)work_start(scene, STREAM(2));
    scene->clock.watch.tell = capture_ended;
    (void)vmm__error(VMM_ERR_DRIVER, "before");
    vmm__sim_fail_at(scene->driver, 3, VMM_ERR_DRIVER,
                     false); /* of two questions, and a record between them */
    assert_ok(vmm__clock_wait_all(&scene->clock));
    assert_int_equal(vmm__sim_faults_fired(scene->driver), 1);
    assert_string_equal(vmm_last_error(), "before");
    assert_int_equal(kind_of(scene), VMM_CLOCK_STREAMS);
    sim_assert_violations(scene->driver, 1, "clock record during the capture");
}

/* ---- Marks ----------------------------------------------------------------------------------- */

/* A mark on a stream that is captured, or about to be, would belong to the capture. */
CLOCK_TEST(a_captured_stream_has_no_mark)
{
    struct event *event = NULL;
    assert_ok(announce(scene, STREAM(1)));
    capture_begin(scene, STREAM(1));
    assert_status(vmm__clock_mark(&scene->clock, STREAM(1), NULL, 0, &event), VMM__PENDING);
    assert_status(vmm__clock_stream_wait(&scene->clock, STREAM(1)), VMM__PENDING);
    assert_ok(vmm__clock_mark(&scene->clock, STREAM(2), NULL, 0, &event));
    vmm__event_drop(&scene->events, event);
    capture_end(scene, STREAM(1));
    capture_begin(scene, STREAM(2)); /* not announced */
    assert_status(vmm__clock_mark(&scene->clock, STREAM(2), NULL, 0, &event), VMM__PENDING);
    capture_end(scene, STREAM(2));
    assert_int_equal(calls_of(scene, DRIVER_CALL_event_record), 1);
}

static struct scene *watched;

/* A capture that begins between the look and the record captures the event: it is not used. */
static vmm_status event_record_late(struct driver *driver, void *event, vmm_stream stream)
{
    if (stream == STREAM(1))
        assert_ok(watched->ops->capture_begin(driver, STREAM(1)));
    return watched->ops->event_record(driver, event, stream);
}

CLOCK_TEST(a_captured_mark_is_dropped)
{
    struct event *event = NULL;
    watched = scene;
    calls_wrap(scene);
    scene->wrapped.event_record = event_record_late;
    assert_status(vmm__clock_mark(&scene->clock, STREAM(1), NULL, 0, &event), VMM__PENDING);
    assert_null(event);
    capture_end(scene, STREAM(1));
    assert_ok(vmm__clock_mark(&scene->clock, STREAM(2), NULL, 0, &event)); /* the same event */
    assert_ok(vmm__clock_event_wait(&scene->clock, event));
    vmm__event_drop(&scene->events, event);
}
