/* Clocks: events are recorded only on demand, no epoch passes too early, and none is held up by later work. Captures:
 * see test_clock_captures. */
#include "support/clock_support.h"
#include "support/host_support.h"

/* ---- Stamps, ticks, queries ------------------------------------------------------------------ */

CLOCK_TEST(stamps_cost_no_event)
{
    for (int i = 0; i < 100; i++)
        (void)work_start(scene, STREAM(1));
    assert_ok(vmm__clock_query(&scene->clock, 0));
    assert_int_equal(records(scene), 0);
    assert_int_equal(calls_of(scene, DRIVER_CALL_event_create), 0);
}

CLOCK_TEST(one_event_serves_its_epoch)
{
    uint64_t epoch = work_start(scene, STREAM(1));
    for (int i = 0; i < 5; i++)
        assert_status(vmm__clock_query(&scene->clock, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 1);
    assert_true(vmm__clock_now(&scene->clock) > epoch);
    assert_true(vmm__clock_passed(&scene->clock) < epoch);
    work_end(scene);
    assert_ok(vmm__clock_query(&scene->clock, epoch));
    assert_ok(vmm__clock_query(&scene->clock, epoch));
    assert_int_equal(vmm__clock_passed(&scene->clock), epoch);
    assert_int_equal(records(scene), 1);
    assert_int_equal(ticks(scene), 1);
    assert_int_equal(calls_of(scene, DRIVER_CALL_event_record), 0);
}

CLOCK_TEST(an_event_does_not_cover_later_work)
{
    uint64_t first = work_start(scene, STREAM(1));
    vmm__clock_tick(&scene->clock);
    uint64_t second = work_start(scene, STREAM(1));
    assert_true(second > first);
    assert_ok(vmm__clock_wait(&scene->clock, first));
    assert_ok(vmm__clock_query(&scene->clock, first));
    assert_status(vmm__clock_query(&scene->clock, second), VMM__PENDING);
    assert_ok(vmm__clock_wait(&scene->clock, second));
    assert_ok(vmm__clock_query(&scene->clock, second));
    assert_int_equal(scene->driver->counts.stalls, 2);
}

/* Only the work of one stream makes progress. */
static uint32_t only_of(void *context, const struct sim_choice *choices, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && choices[i].stream != *(const vmm_stream *)context)
        i++;
    return i;
}

CLOCK_TEST(later_work_does_not_hold_an_epoch_up)
{
    vmm_stream runs = STREAM(1);
    uint64_t epoch = work_start(scene, STREAM(1));
    vmm__clock_tick(&scene->clock);
    (void)work_start(scene, STREAM(2));
    uint64_t later = work_start(scene, STREAM(7)); /* unknown to the cache */
    vmm__sim_order_set(scene->driver, only_of, &runs);
    assert_ok(vmm__clock_query(&scene->clock, epoch));
    assert_status(vmm__clock_query(&scene->clock, later), VMM__PENDING);
}

/* Without a tick in time the event is recorded by the next query, and covers what was submitted until then. */
CLOCK_TEST(an_epoch_without_a_tick_waits_for_more)
{
    vmm_stream runs = STREAM(1);
    uint64_t epoch = work_start(scene, STREAM(1));
    (void)work_start(scene, STREAM(2));
    vmm__sim_order_set(scene->driver, only_of, &runs);
    assert_status(vmm__clock_query(&scene->clock, epoch), VMM__PENDING);
    runs = STREAM(2);
    assert_ok(vmm__clock_query(&scene->clock, epoch));
}

/* Streams that the cache never saw, and streams that were destroyed. */
CLOCK_TEST(events_cover_every_stream)
{
    static const unsigned streams[] = { 0, 1, 2, 3, 7 };
    for (unsigned i = 0; i < sizeof streams / sizeof *streams; i++) {
        for (unsigned destroys = 0; destroys < 2; destroys++) {
            uint64_t epoch = work_start(scene, STREAM(streams[i]));
            if (destroys == 1 && streams[i] > 2)
                assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(streams[i])));
            assert_status(vmm__clock_query(&scene->clock, epoch), VMM__PENDING);
            work_end(scene);
            assert_ok(vmm__clock_query(&scene->clock, epoch));
            work_hold(scene);
        }
    }
    assert_int_equal(scene->driver->counts.stalls, 0);
}

CLOCK_TEST(passed_events_are_used_again)
{
    for (int i = 0; i < 50; i++)
        assert_ok(vmm__clock_wait(&scene->clock, work_start(scene, STREAM(1))));
    assert_int_equal(scene->driver->events, 1);
    assert_int_equal(records(scene), 50);
}

/* A stamp after an advance is later and costs no event. An earlier stamp keeps its epoch. */
CLOCK_TEST(an_epoch_may_end_without_an_event)
{
    uint64_t first = work_start(scene, STREAM(1));
    assert_int_equal(vmm__clock_advance(&scene->clock), first);
    assert_int_equal(vmm__clock_advance(&scene->clock), first + 1);
    uint64_t second = work_start(scene, STREAM(1));
    assert_int_equal(second, first + 2);
    assert_int_equal(records(scene), 0);
    assert_status(vmm__clock_query(&scene->clock, first), VMM__PENDING);
    uint64_t third = work_start(scene, STREAM(1));
    assert_ok(vmm__clock_wait(&scene->clock, second));
    assert_ok(vmm__clock_query(&scene->clock, first));
    assert_status(vmm__clock_query(&scene->clock, third), VMM__PENDING);
}

/* `now` has moved on when the event is recorded: a stamp that is read after that is later. */
static struct scene *watched;
static uint64_t now_at_record;

static vmm_status record_watch(struct driver *driver, void *event)
{
    now_at_record = vmm__clock_now(&watched->clock);
    return watched->ops->clock_record(driver, event);
}

CLOCK_TEST(the_clock_moves_on_before_it_records)
{
    uint64_t epoch = work_start(scene, STREAM(1));
    watched = scene;
    calls_wrap(scene);
    scene->wrapped.clock_record = record_watch;
    vmm__clock_tick(&scene->clock);
    assert_int_equal(now_at_record, epoch + 1);
    assert_int_equal(scene->clock.ring[scene->clock.oldest].epoch, epoch);
}

/* ---- The ring -------------------------------------------------------------------------------- */

static vmm_status record_if_passed(struct driver *driver, void *event)
{
    assert_ok(watched->ops->event_query(driver, event)); /* true of a new event, too */
    return watched->ops->clock_record(driver, event);
}

/* Epochs beyond the ring pass later, never earlier; the oldest keeps its event, and none is recorded again. */
CLOCK_TEST(a_full_ring_records_nothing)
{
    enum { EPOCHS = 2 * CLOCK_EVENTS };
    struct clock *clock = &scene->clock;
    uint64_t epochs[EPOCHS];
    watched = scene;
    calls_wrap(scene);
    scene->wrapped.clock_record = record_if_passed;
    for (int i = 0; i < EPOCHS; i++) {
        epochs[i] = work_start(scene, STREAM(1 + i % 3));
        if (i % 2 == 0)
            vmm__clock_tick(clock);
        assert_status(vmm__clock_query(clock, epochs[i]), VMM__PENDING);
        assert_ok(vmm__clock_check(clock));
    }
    assert_int_equal(clock->count, CLOCK_EVENTS);
    assert_int_equal(records(scene), CLOCK_EVENTS);
    assert_int_equal(scene->driver->events, CLOCK_EVENTS);
    assert_int_equal(clock->ring[clock->oldest].epoch, epochs[0]);
    assert_int_equal(pauses(scene), 0);
    for (int i = 0; i < EPOCHS; i++) {
        assert_ok(vmm__clock_wait(clock, epochs[i]));
        assert_ok(vmm__clock_query(clock, epochs[i]));
        bool is_last = epochs[i] == epochs[EPOCHS - 1];
        assert_int_equal(vmm__clock_query(clock, epochs[EPOCHS - 1]),
                         is_last ? VMM_OK : VMM__PENDING);
    }
    assert_true(scene->driver->events <= CLOCK_EVENTS);
}

/* Events that have passed make room. */
CLOCK_TEST(a_full_ring_looks_before_it_refuses)
{
    struct clock *clock = &scene->clock;
    for (int i = 0; i < CLOCK_EVENTS; i++) {
        (void)work_start(scene, STREAM(1));
        vmm__clock_tick(clock);
    }
    work_end(scene);
    vmm__clock_tick(clock);
    assert_int_equal(clock->count, 1);
    assert_int_equal(ticks(scene), CLOCK_EVENTS + 1);
}

CLOCK_TEST(check_finds_epochs_out_of_order)
{
    (void)work_start(scene, STREAM(1));
    vmm__clock_tick(&scene->clock);
    scene->clock.ring[scene->clock.oldest].epoch += 7;
    assert_status(vmm__clock_check(&scene->clock), VMM_ERR_INTERNAL);
    scene->clock.ring[scene->clock.oldest].epoch -= 7;
}

/* ---- Ticks ahead ----------------------------------------------------------------------------- */

CLOCK_TEST(a_clock_ticks_ahead_only_if_it_is_due)
{
    struct clock *clock = &scene->clock;
    (void)work_start(scene, STREAM(1));
    vmm__clock_tick_due(clock, NULL);
    assert_int_equal(ticks(scene), 0);
    for (uint64_t i = 1; i <= 5; i++) {
        vmm__clock_due(clock);
        assert_true(vmm__clock_is_due(clock));
        vmm__clock_tick_due(clock, NULL);
        assert_false(vmm__clock_is_due(clock));
        vmm__clock_tick_due(clock, NULL);
        assert_int_equal(ticks(scene), i);
    }
}

/* Neither into a full ring, nor beside a capture of the stream that asks: the flag is dropped. */
CLOCK_TEST(a_due_clock_does_not_tick_where_that_is_of_no_use)
{
    struct clock *clock = &scene->clock;
    vmm_stream captured = STREAM(1);
    vmm_stream other = STREAM(2);
    assert_ok(vmm__driver_capture_begin(scene->driver, captured));
    vmm__clock_due(clock);
    vmm__clock_tick_due(clock, &captured);
    assert_false(vmm__clock_is_due(clock));
    assert_int_equal(records(scene), 0);
    assert_ok(vmm__driver_capture_end(scene->driver, captured));
    for (int i = 0; i < CLOCK_EVENTS + 3; i++) {
        (void)work_start(scene, STREAM(1));
        vmm__clock_due(clock);
        vmm__clock_tick_due(clock, &other);
        assert_false(vmm__clock_is_due(clock));
    }
    assert_int_equal(ticks(scene), CLOCK_EVENTS);
    assert_int_equal(clock->count, CLOCK_EVENTS);
}

/* Where questions are answered at once, a tick ahead gains nothing; one that must wait shows that it would. */
CLOCK_TEST(a_prompt_clock_does_not_tick_ahead)
{
    struct clock *clock = &scene->clock;
    work_end(scene);
    for (int i = 0; i < CLOCK_PROMPT; i++)
        assert_ok(vmm__clock_query(clock, work_start(scene, STREAM(1))));
    uint64_t before = ticks(scene);
    vmm__clock_due(clock);
    vmm__clock_tick_due(clock, NULL);
    assert_int_equal(ticks(scene), before);
    work_hold(scene);
    assert_status(vmm__clock_query(clock, work_start(scene, STREAM(1))), VMM__PENDING);
    before = ticks(scene);
    vmm__clock_due(clock);
    vmm__clock_tick_due(clock, NULL);
    assert_int_equal(ticks(scene), before + 1);
}

/* ---- Waits ----------------------------------------------------------------------------------- */

CLOCK_TEST(a_wait_for_all_work_passes_the_clock)
{
    struct clock *clock = &scene->clock;
    (void)work_start(scene, STREAM(1));
    vmm__clock_tick(clock);
    uint64_t epoch = work_start(scene, STREAM(7));
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__clock_wait_all(clock), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_int_equal(vmm__clock_passed(clock), 0);
    epoch = work_start(scene, STREAM(7));
    uint64_t recorded = records(scene);
    assert_ok(vmm__clock_wait_all(clock));
    assert_true(vmm__clock_passed(clock) >= epoch);
    assert_ok(vmm__clock_query(clock, epoch));
    assert_int_equal(records(scene), recorded + 1);
    assert_int_equal(clock->count, 0);
    assert_status(vmm__clock_query(clock, work_start(scene, STREAM(1))), VMM__PENDING);
}

/* The caller reports that it has waited. */
CLOCK_TEST(pass_marks_epochs_as_passed)
{
    struct clock *clock = &scene->clock;
    for (int i = 0; i < 3; i++) {
        (void)work_start(scene, STREAM(1));
        vmm__clock_tick(clock);
    }
    uint64_t epoch = vmm__clock_advance(clock);
    uint64_t later = work_start(scene, STREAM(1));
    uint64_t recorded = records(scene);
    vmm__clock_pass(clock, epoch);
    vmm__clock_pass(clock, 1); /* already passed */
    assert_int_equal(vmm__clock_passed(clock), epoch);
    assert_ok(vmm__clock_query(clock, epoch));
    assert_int_equal(records(scene), recorded);
    assert_status(vmm__clock_query(clock, later), VMM__PENDING);
    assert_ok(vmm__clock_check(clock));
}

/* As another thread: it finds the work finished, and records a new event, while this one waits without the lock. */
static vmm_status event_wait_late(struct driver *driver, void *event)
{
    struct clock *clock = &watched->clock;
    const struct event *awaited = clock->ring[clock->oldest].event;
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__clock_query(clock, clock->ring[clock->oldest].epoch));
    uint64_t epoch = work_start(watched, STREAM(2));
    assert_status(vmm__clock_query(clock, epoch), VMM__PENDING);
    assert_ptr_not_equal(clock->ring[clock->oldest].event, awaited);
    return watched->ops->event_wait(driver, event);
}

CLOCK_TEST(an_event_that_a_thread_waits_for_is_not_recorded_again)
{
    uint64_t epoch = work_start(scene, STREAM(1));
    watched = scene;
    calls_wrap(scene);
    scene->wrapped.event_wait = event_wait_late;
    assert_ok(vmm__clock_wait(&scene->clock, epoch));
    assert_int_equal(scene->driver->events, 2);
    assert_non_null(scene->events.idle);
}

/* ---- Followers ------------------------------------------------------------------------------- */

CLOCK_TEST(other_streams_follow_on_the_device)
{
    uint64_t epoch = work_start(scene, STREAM(1));
    assert_ok(vmm__clock_follow_check(&scene->clock, epoch, STREAM(2)));
    assert_int_equal(calls_of(scene, DRIVER_CALL_stream_wait), 0);
    assert_ok(vmm__clock_follow(&scene->clock, epoch, STREAM(2)));
    memory_check(scene->driver, work_address(scene, STREAM(1)), WORK_BYTES, 1, STREAM(2));
    assert_int_equal(scene->driver->counts.stalls, 0);
    assert_int_equal(mismatches(scene->driver), 0);
    assert_ok(vmm__clock_follow(&scene->clock, epoch, STREAM(3))); /* it has passed */
    assert_int_equal(calls_of(scene, DRIVER_CALL_stream_wait), 1);
}

/* A stream's event, without any epoch: what a use records. */
CLOCK_TEST(marks_cover_one_stream)
{
    struct event *event;
    (void)work_start(scene, STREAM(1));
    assert_ok(vmm__clock_mark(&scene->clock, STREAM(1), NULL, 0, &event));
    assert_ok(vmm__clock_event_follow(&scene->clock, event, STREAM(2)));
    memory_check(scene->driver, work_address(scene, STREAM(1)), WORK_BYTES, 1, STREAM(2));
    assert_status(vmm__driver_event_query(scene->driver, event->handle), VMM__PENDING);
    assert_ok(vmm__clock_event_wait(&scene->clock, event));
    assert_ok(vmm__driver_event_query(scene->driver, event->handle));
    vmm__event_drop(&scene->events, event);
    (void)work_start(scene, STREAM(2));
    assert_ok(vmm__clock_stream_wait(&scene->clock, STREAM(2)));
    assert_int_equal(ticks(scene), 0);
}

CLOCK_TEST(a_destroyed_stream_has_no_mark)
{
    struct event *event = NULL;
    (void)work_start(scene, STREAM(1));
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_status(vmm__clock_mark(&scene->clock, STREAM(1), NULL, 0, &event),
                  VMM_ERR_INVALID_ARGUMENT);
    assert_null(event);
    assert_status(vmm__clock_stream_wait(&scene->clock, STREAM(1)), VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(scene->driver->events, 1); /* it went back to the pool */
    assert_non_null(scene->events.idle);
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* Each call fails in turn: the error is returned, the epoch stays pending, and the next query goes on. */
static void queries_fail(struct scene *scene, vmm_stream stream, unsigned least)
{
    struct clock *clock = &scene->clock;
    unsigned fired = 0;
    for (uint64_t call = 1;; call++) {
        uint64_t epoch = work_start(scene, stream);
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm__clock_query(clock, epoch);
        bool has_fired = vmm__sim_faults_fired(scene->driver) > 0;
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_int_equal(status, has_fired ? VMM_ERR_DRIVER : VMM__PENDING);
        assert_ok(vmm__clock_check(clock));
        if (!has_fired)
            break;
        fired++;
        assert_non_null(strstr(vmm_last_error(), "made to fail"));
        assert_status(vmm__clock_query(clock, epoch), VMM__PENDING);
        assert_ok(vmm__clock_wait(clock, epoch));
        assert_int_equal(clock->count, 0);
    }
    assert_int_equal(kind_of(scene), clock->kind);
    assert_true(fired >= least);
}

CLOCK_TEST(a_failed_query_is_returned_and_retried)
{
    queries_fail(scene, STREAM(1), 3); /* capturing or create, record, query */
    assert_int_equal(kind_of(scene), VMM_CLOCK_CONTEXT);
    assert_int_equal(scene->lines, 0);
}

CLOCK_TEST(a_failed_query_of_streams_is_returned_and_retried)
{
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    queries_fail(scene, STREAM(1), 10); /* four for each stream, record, query */
    assert_false(scene->clock.is_blind);
}

/* A tick drops the failure, and leaves the line of an earlier one. */
CLOCK_TEST(a_failed_tick_is_silent)
{
    static const char earlier[] = "an earlier failure";
    struct clock *clock = &scene->clock;
    (void)vmm__error(VMM_ERR_DRIVER, earlier);
    for (uint64_t call = 1; call <= 3; call++) {
        (void)work_start(scene, STREAM(1));
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm__clock_due(clock);
        vmm__clock_tick_due(clock, NULL);
        uint64_t fired = vmm__sim_faults_fired(scene->driver);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_int_equal(fired, call == 3 ? 0 : 1); /* create; capturing or record */
        assert_string_equal(vmm_last_error(), earlier);
        assert_ok(vmm__clock_check(clock));
    }
    assert_int_equal(clock->count, 1);
}

CLOCK_TEST(without_host_memory_nothing_passes)
{
    struct clock *clock = &scene->clock;
    uint64_t epoch = work_start(scene, STREAM(1));
    (void)vmm__host_fail_at(1);
    assert_status(vmm__clock_query(clock, epoch), VMM_ERR_HOST_OOM);
    assert_string_equal(vmm_last_error(), "clock: no host memory for its events");
    (void)vmm__host_fail_at(2);
    assert_status(vmm__clock_query(clock, epoch), VMM_ERR_HOST_OOM);
    assert_string_equal(vmm_last_error(), "event: no host memory for its record");
    (void)vmm__host_fail_at(1);
    assert_status(vmm__clock_wait(clock, epoch), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__clock_follow(clock, epoch, STREAM(2)), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_ok(vmm__clock_check(clock));
    assert_int_equal(records(scene), 0);
    assert_ok(vmm__clock_wait(clock, epoch));
}

/* A follower's failures: the epoch has its event, and the next call uses it. */
CLOCK_TEST(a_failed_follow_is_retried)
{
    struct clock *clock = &scene->clock;
    uint64_t epoch = work_start(scene, STREAM(1));
    vmm__clock_tick(clock);
    for (uint64_t call = 1; call <= 3; call++) { /* query, capturing, stream_wait */
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        assert_status(vmm__clock_follow(clock, epoch, STREAM(2)), VMM_ERR_DRIVER);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    }
    assert_ok(vmm__clock_follow(clock, epoch, STREAM(2)));
    memory_check(scene->driver, work_address(scene, STREAM(1)), WORK_BYTES, 1, STREAM(2));
    assert_int_equal(mismatches(scene->driver), 0);
}

/* The wait itself fails: the epoch is pending still. */
CLOCK_TEST(a_failed_wait_is_returned)
{
    struct clock *clock = &scene->clock;
    uint64_t epoch = work_start(scene, STREAM(1));
    vmm__clock_tick(clock);
    vmm__sim_fail_at(scene->driver, 2, VMM_ERR_DRIVER, false); /* after a query */
    assert_status(vmm__clock_wait(clock, epoch), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_status(vmm__clock_query(clock, epoch), VMM__PENDING);
    assert_ok(vmm__clock_wait(clock, epoch));
}

/* ---- On real time ---------------------------------------------------------------------------- */

enum { NS_PER_MS = 1000000 };

HOST_TEST(host_work_of_a_destroyed_stream_is_covered)
{
    static struct scene scene;
    vmm_stream stream = stream_new(driver);
    scene_open(&scene, driver, VMM_CLOCK_CONTEXT);
    assert_ok(vmm__driver_delay(driver, 100 * NS_PER_MS, stream));
    uint64_t epoch = vmm__clock_now(&scene.clock);
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_status(vmm__clock_query(&scene.clock, epoch), VMM__PENDING);
    assert_ok(vmm__driver_delay(driver, 2000 * NS_PER_MS, STREAM(1))); /* later work */
    assert_ok(vmm__clock_wait(&scene.clock, epoch));
    assert_ok(vmm__clock_query(&scene.clock, epoch));
    assert_status(vmm__clock_query(&scene.clock, vmm__clock_now(&scene.clock)), VMM__PENDING);
    assert_int_equal(scene.lines, 0);
    assert_ok(vmm__clock_wait(&scene.clock, vmm__clock_now(&scene.clock))); /* more than a second */
    assert_int_equal(scene.lines, 1);
    assert_non_null(strstr(scene.line, "has waited for a second"));
    assert_ok(vmm__clock_fini(&scene.clock));
    assert_ok(vmm__events_fini(&scene.events));
}
