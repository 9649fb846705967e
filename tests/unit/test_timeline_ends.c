/* Timelines of closed streams and of stale streams. */
#include "support/timeline_support.h"

#include "base/error.h"

/* No more work comes: the newest event covers later stamps, and the driver is not asked again. */
SCENE_TEST(last_event_covers_stamps_after_the_end)
{
    uint64_t epoch = work_start(scene);
    assert_ok(vmm__timeline_record(&scene->timeline, epoch));
    vmm__timeline_end(&scene->timeline);
    for (int i = 0; i < 20; i++) {
        epoch = vmm__timeline_now(&scene->timeline);
        assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
        assert_ok(vmm__timeline_check(&scene->timeline));
    }
    assert_int_equal(records(scene), 1);
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_capturing), 2);
    assert_ok(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)));
    memory_check(scene->driver, scene->address, GRANULE, 1, STREAM(2));
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
    for (int i = 0; i < 20; i++) {
        assert_ok(vmm__timeline_query(&scene->timeline, vmm__timeline_now(&scene->timeline)));
        assert_ok(vmm__timeline_check(&scene->timeline));
        (void)vmm__timeline_advance(&scene->timeline);
    }
    assert_int_equal(records(scene), 1);
    sim_assert_clean(scene->driver);
}

SCENE_TEST(next_stream_waits_for_the_last_event)
{
    assert_ok(vmm__timeline_record(&scene->timeline, work_start(scene)));
    vmm__timeline_end(&scene->timeline);
    vmm__sim_fail_at(scene->driver, 3, VMM_ERR_DRIVER, false); /* the stream wait */
    assert_status(vmm__timeline_resume(&scene->timeline, STREAM(2)), VMM_ERR_DRIVER);
    assert_true(vmm__timeline_has_ended(&scene->timeline));
    assert_ok(vmm__timeline_resume(&scene->timeline, STREAM(2)));
    assert_false(vmm__timeline_has_ended(&scene->timeline));
    memory_fill(scene->driver, scene->address, GRANULE, 2, STREAM(2));
    uint64_t epoch = vmm__timeline_now(&scene->timeline);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
    assert_int_equal(records(scene), 2);
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
    vmm__timeline_end(&scene->timeline);
    assert_ok(vmm__timeline_resume(&scene->timeline, STREAM(3))); /* nothing to wait for */
    assert_int_equal(vmm__driver_calls(scene->driver, DRIVER_CALL_stream_wait), 2);
    sim_assert_clean(scene->driver);
}

SCENE_TEST(capturing_stream_does_not_resume)
{
    assert_ok(vmm__timeline_record(&scene->timeline, work_start(scene)));
    vmm__timeline_end(&scene->timeline);
    assert_ok(vmm__driver_capture_begin(scene->driver, STREAM(2)));
    assert_status(vmm__timeline_resume(&scene->timeline, STREAM(2)), VMM__PENDING);
    assert_true(vmm__timeline_has_ended(&scene->timeline));
    assert_ok(vmm__driver_capture_end(scene->driver, STREAM(2)));
    assert_ok(vmm__timeline_resume(&scene->timeline, STREAM(2)));
}

/* The stream was destroyed without notice: nothing fails and nothing passes until a device wait. */
SCENE_TEST(stale_stream_passes_after_a_device_wait)
{
    uint64_t epoch = work_start(scene);
    (void)vmm__error(VMM_ERR_INVALID_ARGUMENT, "from before");
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    for (int i = 0; i < 3; i++) {
        assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
        assert_status(vmm__timeline_record(&scene->timeline, epoch), VMM__PENDING);
        assert_status(vmm__timeline_wait(&scene->timeline, epoch), VMM__PENDING);
        assert_status(vmm__timeline_follow(&scene->timeline, epoch, STREAM(2)), VMM__PENDING);
        assert_true(vmm__timeline_is_stale(&scene->timeline));
    }
    assert_string_equal(vmm_last_error(), "from before");
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__timeline_wait_stale(&scene->timeline), VMM_ERR_DRIVER);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
    assert_ok(vmm__timeline_wait_stale(&scene->timeline));
    assert_false(vmm__timeline_is_stale(&scene->timeline));
    assert_ok(vmm__timeline_query(&scene->timeline, epoch));
    assert_status(vmm__timeline_query(&scene->timeline, vmm__timeline_now(&scene->timeline)),
                  VMM__PENDING);
    assert_true(vmm__timeline_is_stale(&scene->timeline));
    sim_assert_clean(scene->driver);
}

/* The handle now names a new stream, on which an event can be recorded. */
SCENE_TEST(reused_handle_is_not_stale)
{
    vmm_stream stream;
    uint64_t epoch = work_start(scene);
    assert_ok(vmm__driver_stream_destroy(scene->driver, STREAM(1)));
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
    assert_true(vmm__timeline_is_stale(&scene->timeline));
    assert_ok(vmm__driver_stream_create(scene->driver, &stream));
    assert_ptr_equal(stream, STREAM(1));
    epoch = work_start(scene);
    assert_status(vmm__timeline_query(&scene->timeline, epoch), VMM__PENDING);
    assert_false(vmm__timeline_is_stale(&scene->timeline));
    assert_ok(vmm__timeline_wait(&scene->timeline, epoch));
}
