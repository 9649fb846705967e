/* The clocks of lanes, which cover one stream: until it ends, moves on, or is gone. */
#include "support/clock_support.h"

static struct clock own; /* of the lane of stream 1 */

static int lane_setup(void **state)
{
    int status = scene_setup(state);
    own_open(*state, &own);
    return status;
}

static int lane_teardown(void **state)
{
    own_close(&own);
    return scene_teardown(state);
}

/* A test in which `own` is open. */
#define LANE_TEST(name) TEST_WITH(name, lane_setup, lane_teardown, struct scene *scene)

LANE_TEST(a_clock_of_a_lane_covers_one_stream)
{
    (void)work_start(scene, STREAM(2));
    assert_ok(vmm__clock_query(&own, vmm__clock_now(&own)));
    (void)work_start(scene, STREAM(1));
    uint64_t epoch = vmm__clock_now(&own);
    assert_status(vmm__clock_query(&own, epoch), VMM__PENDING);
    assert_ok(vmm__clock_follow_check(&own, epoch, STREAM(2)));
    assert_ok(vmm__clock_follow(&own, epoch, STREAM(2)));
    memory_check(scene->driver, work_address(scene, STREAM(1)), WORK_BYTES, 1, STREAM(2));
    assert_ok(vmm__clock_wait(&own, epoch));
    assert_int_equal(records(scene), 0);
    assert_int_equal(ticks(scene), 2);
}

/* More work is under way than the ring has events: another stream can still wait for the latest. */
LANE_TEST(a_full_ring_still_says_what_to_wait_for)
{
    for (int i = 0; i <= CLOCK_EVENTS; i++) {
        (void)work_start(scene, STREAM(1));
        uint64_t epoch = vmm__clock_now(&own);
        assert_ok(vmm__clock_follow(&own, epoch, STREAM(2)));
        assert_ok(vmm__clock_check(&own));
    }
    assert_int_equal(own.count, CLOCK_EVENTS);
    memory_check(scene->driver, work_address(scene, STREAM(1)), WORK_BYTES, 1, STREAM(2));
    assert_int_equal(mismatches(scene->driver), 0);
}

/* Captures of other streams do not matter to it, announced or not; its own do. */
LANE_TEST(a_clock_of_a_lane_pauses_for_its_stream)
{
    assert_ok(announce(scene, STREAM(2)));
    capture_begin(scene, STREAM(2));
    (void)work_start(scene, STREAM(1));
    assert_ok(vmm__clock_wait(&own, vmm__clock_now(&own)));
    capture_end(scene, STREAM(2));
    (void)work_start(scene, STREAM(1));
    uint64_t epoch = vmm__clock_now(&own);
    for (int announces = 1; announces >= 0; announces--) {
        if (announces == 1)
            assert_ok(announce(scene, STREAM(1)));
        capture_begin(scene, STREAM(1));
        assert_status(vmm__clock_query(&own, epoch), VMM__PENDING);
        assert_status(vmm__clock_wait(&own, epoch), VMM__PENDING);
        assert_status(vmm__clock_follow(&own, epoch, STREAM(2)), VMM__PENDING);
        assert_status(own_end(&own), VMM__PENDING);
        assert_false(vmm__clock_move(&own, STREAM(2)));
        capture_end(scene, STREAM(1));
    }
    assert_ok(vmm__clock_wait(&own, epoch));
    assert_int_equal(kind_of(scene), VMM_CLOCK_CONTEXT);
}

/* A stream under capture, or announced, does not follow. */
LANE_TEST(a_captured_stream_does_not_follow)
{
    (void)work_start(scene, STREAM(1));
    uint64_t epoch = vmm__clock_now(&own);
    for (int announces = 0; announces < 2; announces++) {
        if (announces == 1)
            assert_ok(announce(scene, STREAM(2)));
        capture_begin(scene, STREAM(2));
        assert_status(vmm__clock_follow(&own, epoch, STREAM(2)), VMM__PENDING);
        assert_status(vmm__clock_follow_check(&own, epoch, STREAM(2)), VMM__PENDING);
        capture_end(scene, STREAM(2));
    }
    assert_int_equal(calls_of(scene, DRIVER_CALL_stream_wait), 0);
    assert_ok(vmm__clock_follow(&own, epoch, STREAM(2)));
}

/* What is freed later waits for all work, as the stream's own is no longer known. */
LANE_TEST(an_ended_clock_covers_all_work)
{
    (void)work_start(scene, STREAM(1));
    uint64_t before = vmm__clock_now(&own);
    assert_ok(own_end(&own));
    assert_true(vmm__clock_now(&own) > before);
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    (void)work_start(scene, STREAM(7));
    uint64_t after = vmm__clock_now(&own);
    assert_status(vmm__clock_query(&own, after), VMM__PENDING);
    assert_int_equal(records(scene), 1);
    assert_ok(vmm__clock_follow(&own, before, STREAM(2))); /* its event is of the stream */
    assert_status(vmm__clock_follow(&own, after, STREAM(2)), VMM__PENDING);
    assert_status(vmm__clock_follow_check(&own, after, STREAM(2)), VMM__PENDING);
    assert_ok(vmm__clock_wait(&own, before));
    assert_status(vmm__clock_query(&own, after), VMM__PENDING);
    assert_ok(vmm__clock_wait(&own, after));
}

/* The end of the cache's clock is no end of a stream. */
CLOCK_TEST(a_general_clock_does_not_end)
{
    assert_ok(own_end(&scene->clock));
    assert_true(vmm__clock_move(&scene->clock, STREAM(2)));
    assert_int_equal(vmm__clock_now(&scene->clock), 1);
    assert_int_equal(records(scene), 0);
}

/* More work of stream 1 is under way than the ring has events. */
static void ring_fill(struct scene *scene)
{
    for (int i = 0; i < CLOCK_EVENTS; i++) {
        (void)work_start(scene, STREAM(1));
        vmm__clock_tick(&own);
    }
    (void)work_start(scene, STREAM(1));
}

/* An event of the new stream does not say that the work of the one before has finished. */
LANE_TEST(a_full_ring_keeps_what_covers_the_stream_before)
{
    ring_fill(scene);
    uint64_t before = vmm__clock_now(&own);
    assert_ok(own_end(&own));
    assert_true(vmm__clock_move(&own, STREAM(3)));
    assert_int_equal(own.count, CLOCK_EVENTS);
    assert_status(vmm__clock_follow(&own, before, STREAM(2)), VMM__PENDING);
    (void)work_start(scene, STREAM(3));
    assert_ok(vmm__clock_follow(&own, vmm__clock_now(&own), STREAM(2)));
    assert_int_equal(own.count, CLOCK_EVENTS);
    assert_status(vmm__clock_follow(&own, before, STREAM(2)), VMM__PENDING);
}

LANE_TEST(a_moved_clock_covers_the_other_stream)
{
    (void)work_start(scene, STREAM(1));
    uint64_t before = vmm__clock_now(&own);
    assert_ok(own_end(&own));
    assert_true(vmm__clock_move(&own, STREAM(2)));
    (void)work_start(scene, STREAM(1)); /* another stream's */
    (void)work_start(scene, STREAM(2));
    uint64_t after = vmm__clock_now(&own);
    vmm__clock_tick(&own);
    assert_ok(vmm__clock_wait(&own, before));
    assert_status(vmm__clock_query(&own, after), VMM__PENDING);
    assert_ok(vmm__clock_wait(&own, after));
}

/* The event of the end replaces the newest one. */
CLOCK_TEST(a_clock_with_a_full_ring_can_end)
{
    own_open(scene, &own);
    ring_fill(scene);
    uint64_t epoch = vmm__clock_now(&own);
    assert_ok(own_end(&own));
    assert_int_equal(own.count, CLOCK_EVENTS);
    assert_ok(vmm__clock_check(&own));
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_status(vmm__clock_query(&own, epoch), VMM__PENDING);
    assert_ok(vmm__clock_wait(&own, epoch));
    own_close(&own);
    assert_true(scene->driver->events <= CLOCK_EVENTS + 1);
}

/* A clock whose end or move fails is as before, and both succeed later. */
LANE_TEST(a_failed_end_changes_nothing)
{
    static const char earlier[] = "an earlier failure";
    for (uint64_t call = 1;; call++) {
        (void)work_start(scene, STREAM(1));
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = own_end(&own);
        bool has_fired = vmm__sim_faults_fired(scene->driver) > 0;
        assert_int_equal(status, has_fired ? VMM_ERR_DRIVER : VMM_OK);
        assert_int_equal(atomic_load(&own.covers_all), !has_fired);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_ok(vmm__clock_check(&own));
        if (!has_fired)
            break;
    }
    (void)vmm__error(VMM_ERR_DRIVER, earlier);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_false(vmm__clock_move(&own, STREAM(2)));
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_string_equal(vmm_last_error(), earlier);
    assert_ptr_equal(atomic_load(&own.stream), STREAM(1));
    assert_true(atomic_load(&own.covers_all));
    assert_true(vmm__clock_move(&own, STREAM(2)));
}

/* The stream was destroyed without notice: its clock asks for all work, which includes the stream's. */
LANE_TEST(a_clock_of_a_gone_stream_covers_all_work)
{
    static const char earlier[] = "an earlier failure";
    (void)work_start(scene, STREAM(1));
    uint64_t epoch = vmm__clock_now(&own);
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    (void)vmm__error(VMM_ERR_DRIVER, earlier);
    assert_status(vmm__clock_query(&own, epoch), VMM__PENDING);
    assert_string_equal(vmm_last_error(), earlier);
    assert_int_equal(records(scene), 1);
    assert_status(vmm__clock_follow(&own, epoch, STREAM(2)), VMM__PENDING);
    work_end(scene);
    assert_ok(vmm__clock_query(&own, epoch));
    assert_int_equal(scene->driver->counts.stalls, 0);
}

/* A capture elsewhere is no obstacle: what was freed before needs an event of all work, which can come later. */
LANE_TEST(a_clock_of_a_gone_stream_ends_beside_a_capture)
{
    (void)work_start(scene, STREAM(1));
    uint64_t epoch = vmm__clock_now(&own);
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_ok(announce(scene, STREAM(2)));
    capture_begin(scene, STREAM(2));
    assert_ok(own_end(&own));
    assert_status(vmm__clock_query(&own, epoch), VMM__PENDING);
    capture_end(scene, STREAM(2));
    assert_status(vmm__clock_query(&own, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 1);
    work_end(scene);
    assert_ok(vmm__clock_query(&own, epoch));
}

/* With events of known streams it is blind, as the cache's is; one wait for the device passes what it asks about. */
CLOCK_TEST(a_clock_of_a_gone_stream_may_be_blind)
{
    scene_rekind(scene, VMM_CLOCK_STREAMS);
    vmm__clock_tick(&scene->clock);
    own_open(scene, &own);
    (void)work_start(scene, STREAM(1));
    uint64_t epoch = vmm__clock_now(&own);
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_status(vmm__clock_query(&own, epoch), VMM__PENDING);
    assert_true(scene->clock.is_blind);
    assert_ok(vmm__clock_wait(&own, epoch));
    assert_int_equal(calls_of(scene, DRIVER_CALL_device_wait), 1);
    own_close(&own);
}
