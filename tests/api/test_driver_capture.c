/*
 * Guarantees of every driver about stream captures, on the driver that the first argument names.
 * Operations that break a capture run on host and sim only.
 */
#include "support/driver_choice.h"
#include "support/driver_steps.h"

#include "base/hostmem.h"
#include "driver/sim/sim.h"

#define CAPTURE_TEST(name)                                                                         \
    TEST_WITH(name, driver_choice_setup, capture_teardown, struct driver *driver)

/* Without the census: on sim, a broken capture is a violation. */
static int capture_teardown(void **state)
{
    vmm__driver_close(*state);
    return vmm__host_outstanding() == 0 ? 0 : -1;
}

static bool is_captured(struct driver *driver, vmm_stream stream)
{
    bool is_capturing = false;
    assert_ok(vmm__driver_stream_capturing(driver, stream, &is_capturing));
    return is_capturing;
}

CAPTURE_TEST(a_capture_is_reported_while_active)
{
    vmm_stream stream = stream_new(driver);
    vmm_stream other = stream_new(driver);
    assert_false(is_captured(driver, NULL));
    for (int round = 0; round < 3; round++) {
        assert_false(is_captured(driver, stream));
        assert_ok(vmm__driver_capture_begin(driver, stream));
        assert_true(is_captured(driver, stream));
        assert_false(is_captured(driver, other));
        assert_status(vmm__driver_capture_begin(driver, stream), VMM_ERR_DRIVER);
        assert_true(is_captured(driver, stream));
        assert_ok(vmm__driver_capture_end(driver, stream));
    }
    assert_status(vmm__driver_capture_end(driver, stream), VMM_ERR_DRIVER);
    assert_false(is_captured(driver, stream));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_stream_destroy(driver, other));
}

/* Many are asked about at once: a captured one counts more than one that the driver does not know. */
CAPTURE_TEST(a_capture_among_others_is_reported)
{
    vmm_stream streams[] = { NULL, stream_new(driver), stream_new(driver), stream_new(driver) };
    bool is_capturing = true;
    assert_ok(vmm__driver_capturing(driver, streams, 4, &is_capturing));
    assert_false(is_capturing);
    assert_ok(vmm__driver_capture_begin(driver, streams[2]));
    assert_ok(vmm__driver_capturing(driver, streams, 4, &is_capturing));
    assert_true(is_capturing);
    assert_ok(vmm__driver_capturing(driver, streams, 2, &is_capturing));
    assert_false(is_capturing);
    assert_ok(vmm__driver_stream_destroy(driver, streams[1]));
    if (driver_choice_kind() != VMM_DRIVER_CUDA) { /* which crashes */
        assert_ok(vmm__driver_capturing(driver, streams, 4, &is_capturing));
        assert_true(is_capturing);
        assert_status(vmm__driver_capturing(driver, streams, 2, &is_capturing),
                      VMM_ERR_INVALID_ARGUMENT);
    }
    assert_ok(vmm__driver_capture_end(driver, streams[2]));
    assert_ok(vmm__driver_stream_destroy(driver, streams[2]));
    assert_ok(vmm__driver_stream_destroy(driver, streams[3]));
}

CAPTURE_TEST(other_streams_work_during_a_capture)
{
    struct region region = region_open(driver, 1, 1);
    vmm_stream stream = stream_new(driver);
    vmm_stream other = stream_new(driver);
    void *before = event_new(driver);
    void *event = event_new(driver);
    memory_fill(driver, region.address, region.bytes, 1, stream);
    assert_ok(vmm__driver_event_record(driver, before, stream));
    assert_ok(vmm__driver_capture_begin(driver, stream));
    assert_ok(vmm__driver_stream_wait(driver, other, before)); /* is not part of the capture */
    memory_check(driver, region.address, region.bytes, 1, other);
    assert_ok(vmm__driver_event_wait(driver, before));
    assert_ok(vmm__driver_event_query(driver, before));
    memory_fill(driver, region.address, region.bytes, 2, other);
    assert_ok(vmm__driver_event_record(driver, event, other));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_event_query(driver, event));
    uint64_t handle;
    assert_ok(vmm__driver_create(driver, region.each, false, &handle));
    assert_ok(vmm__driver_release(driver, handle, region.each));
    assert_ok(vmm__driver_capture_end(driver, stream));
    memory_check(driver, region.address, region.bytes, 2, stream);
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_event_destroy(driver, before));
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_stream_destroy(driver, other));
    region_close(driver, &region);
}

/* ---- What breaks a capture ------------------------------------------------------------------- */

struct capture {
    struct driver *driver;
    vmm_stream stream; /* under capture */
    uint64_t address;
    void *event; /* recorded on another stream */
};

static vmm_status submit_work(const struct capture *capture)
{
    return vmm__driver_fill(capture->driver, capture->address, 512, 1, capture->stream);
}

static vmm_status query_captured_event(const struct capture *capture)
{
    assert_ok(vmm__driver_event_record(capture->driver, capture->event, capture->stream));
    vmm_status status = vmm__driver_event_query(capture->driver, capture->event);
    return status == VMM__PENDING ? VMM_OK : status;
}

static vmm_status wait_for_captured_event(const struct capture *capture)
{
    assert_ok(vmm__driver_event_record(capture->driver, capture->event, capture->stream));
    return vmm__driver_event_wait(capture->driver, capture->event);
}

static vmm_status order_after_captured_event(const struct capture *capture)
{
    assert_ok(vmm__driver_event_record(capture->driver, capture->event, capture->stream));
    return vmm__driver_stream_wait(capture->driver, NULL, capture->event);
}

static vmm_status make_stream_wait(const struct capture *capture)
{
    return vmm__driver_stream_wait(capture->driver, capture->stream, capture->event);
}

static vmm_status wait_for_device(const struct capture *capture)
{
    return vmm__driver_device_wait(capture->driver);
}

typedef vmm_status (*breaker)(const struct capture *capture);

/* Afterwards the stream works as before, and its next capture is valid. */
static void assert_capture_breaks(const struct capture *capture, breaker breaks)
{
    struct driver *driver = capture->driver;
    vmm_stream other = stream_new(driver);
    memory_fill(driver, capture->address, 512, 1, other);
    assert_ok(vmm__driver_event_record(driver, capture->event, other));
    assert_ok(vmm__driver_capture_begin(driver, capture->stream));
    assert_status(breaks(capture), VMM_ERR_DRIVER);
    assert_true(is_captured(driver, capture->stream));
    assert_status(vmm__driver_capture_end(driver, capture->stream), VMM_ERR_DRIVER);
    assert_false(is_captured(driver, capture->stream));
    assert_ok(vmm__driver_capture_begin(driver, capture->stream));
    assert_ok(vmm__driver_capture_end(driver, capture->stream));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(breaks(capture));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_stream_destroy(driver, other));
}

CAPTURE_TEST(forbidden_operations_break_a_capture)
{
    static const breaker breakers[] = {
        submit_work,      query_captured_event, wait_for_captured_event, order_after_captured_event,
        make_stream_wait, wait_for_device
    };
    struct region region = region_open(driver, 1, 1);
    struct capture capture = { .driver = driver, .address = region.address };
    for (unsigned i = 0; i < 6 && driver_choice_kind() != VMM_DRIVER_CUDA; i++) {
        capture.stream = stream_new(driver);
        capture.event = event_new(driver);
        assert_capture_breaks(&capture, breakers[i]);
        assert_int_equal(vmm__soft_violations(driver, NULL), i + 1);
        assert_ok(vmm__driver_event_destroy(driver, capture.event));
        assert_ok(vmm__driver_stream_destroy(driver, capture.stream));
    }
    region_close(driver, &region);
}

/* The event belongs to a valid capture; recorded again, it is an ordinary event. */
CAPTURE_TEST(a_captured_event_can_be_recorded_again)
{
    vmm_stream stream = stream_new(driver);
    void *event = event_new(driver);
    void *dropped = event_new(driver);
    assert_ok(vmm__driver_capture_begin(driver, stream));
    assert_ok(vmm__driver_event_record(driver, event, stream));
    assert_ok(vmm__driver_event_record(driver, dropped, stream));
    assert_ok(vmm__driver_event_destroy(driver, dropped));
    assert_ok(vmm__driver_capture_end(driver, stream));
    assert_ok(vmm__driver_event_record(driver, event, stream));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
}

DRIVER_MAIN(NULL, NULL)
