/* Timelines: events only when asked for, and never too early. */
#include "support/timeline_support.h"

static void nothing_is_recorded_unasked(void **state)
{
    struct scene *scene = *state;
    for (int i = 0; i < 100; i++)
        (void)worked(scene);
    assert_int_equal(records(scene), 0);
    assert_ok(vmm__timeline_query(&scene->timeline, 0));
    assert_int_equal(records(scene), 0);
}

static void one_mark_serves_all_of_its_epoch(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    for (int i = 0; i < 5; i++)
        assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
    assert_int_equal(records(scene), 1);
    assert_true(vmm__timeline_now(&scene->timeline) > epoch);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_int_equal(records(scene), 1);
}

static void later_work_is_not_covered(void **state)
{
    struct scene *scene = *state;
    uint64_t first = worked(scene);
    assert_ok(vmm__timeline_mark(&scene->timeline, first));
    uint64_t second = worked(scene);
    assert_true(second > first);
    assert_ok(vmm__timeline_wait(&scene->timeline, first));
    assert_ok(vmm__timeline_query(&scene->timeline, first));
    assert_status(vmm__timeline_query(&scene->timeline, second), VMM_NOT_READY);
    assert_ok(vmm__timeline_wait(&scene->timeline, second));
    assert_ok(vmm__timeline_query(&scene->timeline, second));
    assert_int_equal(scene->driver->stalls, 2);
}

static void events_are_used_again(void **state)
{
    struct scene *scene = *state;
    for (int i = 0; i < 50; i++)
        assert_ok(vmm__timeline_wait(&scene->timeline, worked(scene)));
    assert_true(scene->driver->events <= TIMELINE_MARKS);
    assert_int_equal(records(scene), 50);
}

/* What is stamped after an advance is later, and costs no event; before it nothing has changed. */
static void an_epoch_may_end_without_a_mark(void **state)
{
    struct scene *scene = *state;
    uint64_t first = worked(scene);
    assert_int_equal(vmm__timeline_advance(&scene->timeline), first);
    assert_int_equal(vmm__timeline_advance(&scene->timeline), first + 1);
    uint64_t second = worked(scene);
    assert_int_equal(second, first + 2);
    assert_int_equal(records(scene), 0);
    assert_ok(vmm__timeline_check(&scene->timeline));
    assert_status(vmm__timeline_query(&scene->timeline, first), VMM_NOT_READY);
    uint64_t third = worked(scene);
    assert_int_equal(vmm__timeline_advance(&scene->timeline), third);
    assert_ok(vmm__timeline_wait(&scene->timeline, second));
    assert_ok(vmm__timeline_query(&scene->timeline, first));
    assert_status(vmm__timeline_query(&scene->timeline, third), VMM_NOT_READY);
    assert_ok(vmm__timeline_check(&scene->timeline));
}

/* More moments than marks: those that share the newest one pass later, never earlier. */
static void a_full_ring_is_never_too_early(void **state)
{
    struct scene *scene = *state;
    uint64_t epochs[3 * TIMELINE_MARKS];
    for (int i = 0; i < 3 * TIMELINE_MARKS; i++) {
        epochs[i] = worked(scene);
        assert_status(vmm__timeline_query(&scene->timeline, epochs[i]), VMM_NOT_READY);
        assert_ok(vmm__timeline_check(&scene->timeline));
    }
    assert_int_equal(scene->driver->events, TIMELINE_MARKS);
    assert_ok(vmm__timeline_wait(&scene->timeline, epochs[0]));
    assert_ok(vmm__timeline_query(&scene->timeline, epochs[0]));
    assert_status(vmm__timeline_query(&scene->timeline, epochs[1]), VMM_NOT_READY);
    assert_ok(vmm__timeline_wait(&scene->timeline, epochs[TIMELINE_MARKS]));
    for (int i = 0; i < 3 * TIMELINE_MARKS; i++)
        assert_ok(vmm__timeline_query(&scene->timeline, epochs[i]));
}

static void other_streams_follow_on_the_device(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
    sim_checked(scene->driver, scene->address, GRANULE, 1, STREAM(2));
    assert_int_equal(scene->driver->stalls, 0);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(3)));
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 1);
}

/* Call number k fails: the epoch has not passed by that, and the next try succeeds. */
static void failures_are_told_and_tried_again(void **state)
{
    struct scene *scene = *state;
    for (uint64_t call = 1; call <= 3; call++) {
        uint64_t epoch = worked(scene);
        vmm__sim_fail_at(scene->driver, call, VMM_ERR_DRIVER, false);
        vmm_status status = vmm__timeline_query(&scene->timeline, epoch);
        vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
        assert_true(status == VMM_ERR_DRIVER || (call == 3 && status == VMM_NOT_READY));
        assert_ok(vmm__timeline_check(&scene->timeline));
        assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
        assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
        assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    }
}

static void disorder_is_found(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    assert_ok(vmm__timeline_mark(&scene->timeline, epoch));
    scene->timeline.marks[scene->timeline.oldest].epoch += 7;
    assert_status(vmm__timeline_check(&scene->timeline), VMM_ERR_INTERNAL);
    scene->timeline.marks[scene->timeline.oldest].epoch -= 7;
}

/* ---- Captures --------------------------------------------------------------------------------- */

static void a_captured_stream_takes_no_marks(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(1)));
    assert_status(vmm__timeline_mark(&scene->timeline, epoch), VMM_NOT_READY);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
    assert_status(vmm__timeline_wait(&scene->timeline, epoch), VMM_NOT_READY);
    assert_status(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)), VMM_NOT_READY);
    assert_int_equal(records(scene), 0);
    assert_int_equal(scene->driver->events, 0);
    assert_int_equal(vmm__timeline_now(&scene->timeline), epoch);
    assert_ok(vmm__timeline_query(&scene->timeline, 0));
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(1)));
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
    sim_assert_clean(scene->driver);
}

static void marks_made_before_a_capture_are_of_use(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    assert_ok(vmm__timeline_mark(&scene->timeline, epoch));
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(1)));
    uint64_t later = vmm__timeline_now(&scene->timeline);
    assert_ok(vmm__timeline_mark(&scene->timeline, epoch));
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_status(vmm__timeline_query(&scene->timeline, later), VMM_NOT_READY);
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(1)));
    assert_ok(vmm__timeline_query(&scene->timeline, later));
    sim_assert_clean(scene->driver);
}

/* A full ring would record its newest mark again. */
static void a_full_ring_takes_no_mark_of_a_captured_stream(void **state)
{
    struct scene *scene = *state;
    uint64_t newest = 0;
    for (int i = 0; i < 2 * TIMELINE_MARKS; i++) {
        newest = worked(scene);
        assert_ok(vmm__timeline_mark(&scene->timeline, newest));
    }
    uint64_t later = worked(scene);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(1)));
    assert_status(vmm__timeline_wait(&scene->timeline, later), VMM_NOT_READY);
    assert_ok(vmm__timeline_wait(&scene->timeline, newest));
    assert_status(vmm__timeline_query(&scene->timeline, later), VMM_NOT_READY);
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(1)));
    assert_ok(vmm__timeline_wait(&scene->timeline, later));
    sim_assert_clean(scene->driver);
}

static void a_captured_stream_does_not_follow(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(2)));
    assert_status(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)), VMM_NOT_READY);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 0);
    assert_int_equal(sim_mismatches(scene->driver), 0);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(2)));
    sim_assert_clean(scene->driver);
}

static void a_failed_question_changes_nothing(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__timeline_mark(&scene->timeline, epoch), VMM_ERR_DRIVER);
    assert_int_equal(vmm__timeline_now(&scene->timeline), epoch);
    assert_int_equal(records(scene), 0);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
    vmm__sim_fail_at(scene->driver, 2, VMM_ERR_DRIVER, false); /* behind a query */
    assert_status(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)), VMM_ERR_DRIVER);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
}

/* Whoever waited for the device says so. */
static void what_passed_with_the_device_has_passed(void **state)
{
    struct scene *scene = *state;
    for (int i = 0; i < 3; i++)
        assert_ok(vmm__timeline_mark(&scene->timeline, worked(scene)));
    uint64_t epoch = vmm__timeline_advance(&scene->timeline);
    uint64_t later = worked(scene);
    uint64_t recorded = records(scene);
    assert_int_equal(later, epoch + 1);
    vmm__timeline_pass(&scene->timeline, epoch);
    vmm__timeline_pass(&scene->timeline, 1); /* which passed before */
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_int_equal(records(scene), recorded);
    assert_status(vmm__timeline_query(&scene->timeline, later), VMM_NOT_READY);
    assert_ok(vmm__timeline_check(&scene->timeline));
    assert_ok(vmm__timeline_wait(&scene->timeline, later));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SCENE_TEST(nothing_is_recorded_unasked),
        SCENE_TEST(one_mark_serves_all_of_its_epoch),
        SCENE_TEST(later_work_is_not_covered),
        SCENE_TEST(events_are_used_again),
        SCENE_TEST(an_epoch_may_end_without_a_mark),
        SCENE_TEST(a_full_ring_is_never_too_early),
        SCENE_TEST(other_streams_follow_on_the_device),
        SCENE_TEST(failures_are_told_and_tried_again),
        SCENE_TEST(a_captured_stream_takes_no_marks),
        SCENE_TEST(marks_made_before_a_capture_are_of_use),
        SCENE_TEST(a_full_ring_takes_no_mark_of_a_captured_stream),
        SCENE_TEST(a_captured_stream_does_not_follow),
        SCENE_TEST(a_failed_question_changes_nothing),
        SCENE_TEST(what_passed_with_the_device_has_passed),
        SCENE_TEST(disorder_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
