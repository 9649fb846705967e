/* Timelines of streams that end, and of streams that are gone. */
#include "support/timeline_support.h"

#include "base/error.h"

/* No work comes any more: the last mark covers what is stamped later, and the driver is not asked again. */
static void the_last_mark_covers_what_comes_after_the_end(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    assert_ok(vmm__timeline_mark(&scene->timeline, epoch));
    vmm__timeline_end(&scene->timeline);
    for (int i = 0; i < 20; i++) {
        epoch = vmm__timeline_now(&scene->timeline);
        assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
        assert_ok(vmm__timeline_check(&scene->timeline));
    }
    assert_int_equal(records(scene), 1);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_capturing), 2);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
    sim_checked(scene->driver, scene->address, GRANULE, 1, STREAM(2));
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
    for (int i = 0; i < 20; i++) {
        assert_ok(vmm__timeline_query(&scene->timeline, vmm__timeline_now(&scene->timeline)));
        assert_ok(vmm__timeline_check(&scene->timeline));
        (void)vmm__timeline_advance(&scene->timeline);
    }
    assert_int_equal(records(scene), 1);
    sim_assert_clean(scene->driver);
}

static void the_next_stream_waits_for_the_last_mark(void **state)
{
    struct scene *scene = *state;
    assert_ok(vmm__timeline_mark(&scene->timeline, worked(scene)));
    vmm__timeline_end(&scene->timeline);
    vmm__sim_fail_at(scene->driver, 3, VMM_ERR_DRIVER, false); /* the stream wait */
    assert_status(vmm__timeline_resume(&scene->timeline, STREAM(2)), VMM_ERR_DRIVER);
    assert_true(vmm__timeline_has_ended(&scene->timeline));
    assert_ok(vmm__timeline_resume(&scene->timeline, STREAM(2)));
    assert_false(vmm__timeline_has_ended(&scene->timeline));
    sim_filled(scene->driver, scene->address, GRANULE, 2, STREAM(2));
    uint64_t epoch = vmm__timeline_now(&scene->timeline);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
    assert_int_equal(records(scene), 2);
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
    vmm__timeline_end(&scene->timeline);
    assert_ok(vmm__timeline_resume(&scene->timeline, STREAM(3))); /* nothing to wait for */
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 2);
    sim_assert_clean(scene->driver);
}

static void a_captured_stream_does_not_resume(void **state)
{
    struct scene *scene = *state;
    assert_ok(vmm__timeline_mark(&scene->timeline, worked(scene)));
    vmm__timeline_end(&scene->timeline);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(2)));
    assert_status(vmm__timeline_resume(&scene->timeline, STREAM(2)), VMM_NOT_READY);
    assert_true(vmm__timeline_has_ended(&scene->timeline));
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(2)));
    assert_ok(vmm__timeline_resume(&scene->timeline, STREAM(2)));
}

/* Destroyed without a word: nothing fails, nothing passes, until somebody waits for the device. */
static void of_a_stream_that_is_gone_the_device_tells(void **state)
{
    struct scene *scene = *state;
    uint64_t epoch = worked(scene);
    (void)vmm__error(VMM_ERR_INVALID_ARGUMENT, "from before");
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    for (int i = 0; i < 3; i++) {
        assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
        assert_status(vmm__timeline_mark(&scene->timeline, epoch), VMM_NOT_READY);
        assert_status(vmm__timeline_wait(&scene->timeline, epoch), VMM_NOT_READY);
        assert_status(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)), VMM_NOT_READY);
        assert_true(vmm__timeline_is_gone(&scene->timeline));
    }
    assert_string_equal(vmm_last_error(), "from before");
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__timeline_outwait(&scene->timeline), VMM_ERR_DRIVER);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
    assert_ok(vmm__timeline_outwait(&scene->timeline));
    assert_false(vmm__timeline_is_gone(&scene->timeline));
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_status(vmm__timeline_query(&scene->timeline, vmm__timeline_now(&scene->timeline)),
                  VMM_NOT_READY);
    assert_true(vmm__timeline_is_gone(&scene->timeline));
    sim_assert_clean(scene->driver);
}

/* Its handle is another stream's: that one can be marked. */
static void a_handle_that_comes_back_is_not_gone(void **state)
{
    struct scene *scene = *state;
    vmm_stream stream;
    uint64_t epoch = worked(scene);
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
    assert_true(vmm__timeline_is_gone(&scene->timeline));
    assert_ok(vmm__driver_stream_create(scene->driver, &stream));
    assert_ptr_equal(stream, STREAM(1));
    epoch = worked(scene);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM_NOT_READY);
    assert_false(vmm__timeline_is_gone(&scene->timeline));
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SCENE_TEST(the_last_mark_covers_what_comes_after_the_end),
        SCENE_TEST(the_next_stream_waits_for_the_last_mark),
        SCENE_TEST(a_captured_stream_does_not_resume),
        SCENE_TEST(of_a_stream_that_is_gone_the_device_tells),
        SCENE_TEST(a_handle_that_comes_back_is_not_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
