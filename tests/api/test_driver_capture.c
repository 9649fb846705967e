/*
 * What every driver promises of streams that are being captured. What breaks a capture is tried where that
 * is written down: a GPU may know more of it.
 */
#include "support/driver_choice.h"
#include "support/driver_steps.h"

#include "base/hostmem.h"
#include "driver/sim.h"

#define CAPTURE_TEST(name) cmocka_unit_test_setup_teardown(name, capture_setup, capture_teardown)

static int capture_setup(void **state)
{
    struct driver *driver = driver_choice_open(128 * MIB);
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        vmm__sim_lag_set(driver, 16);
    *state = driver;
    return 0;
}

static int capture_teardown(void **state)
{
    vmm__driver_close(*state);
    return vmm__host_outstanding() == 0 ? 0 : -1;
}

static bool is_captured(struct driver *driver, vmm_stream stream)
{
    bool is_capturing = false;
    assert_ok(vmm__driver_capturing(driver, stream, &is_capturing));
    return is_capturing;
}

static void a_capture_is_told_from_its_begin_to_its_end(void **state)
{
    struct driver *driver = *state;
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

static void other_streams_work_during_a_capture(void **state)
{
    struct driver *driver = *state;
    struct region region = region_open(driver, 1, 1);
    vmm_stream stream = stream_new(driver);
    vmm_stream other = stream_new(driver);
    void *before = event_new(driver);
    void *event = event_new(driver);
    filled(driver, region.address, region.bytes, 1, stream);
    assert_ok(vmm__driver_event_record(driver, before, stream));
    assert_ok(vmm__driver_capture_begin(driver, stream));
    assert_ok(vmm__driver_stream_wait(driver, other, before)); /* it is no part of the capture */
    checked(driver, region.address, region.bytes, 1, other);
    assert_ok(vmm__driver_event_wait(driver, before));
    assert_ok(vmm__driver_event_query(driver, before));
    filled(driver, region.address, region.bytes, 2, other);
    assert_ok(vmm__driver_event_record(driver, event, other));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_event_query(driver, event));
    uint64_t handle;
    assert_ok(vmm__driver_create(driver, region.each, &handle));
    assert_ok(vmm__driver_release(driver, handle, region.each));
    assert_ok(vmm__driver_capture_end(driver, stream));
    checked(driver, region.address, region.bytes, 2, stream);
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_event_destroy(driver, before));
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_stream_destroy(driver, other));
    region_close(driver, &region);
}

/* ---- What breaks a capture ---------------------------------------------------------------------- */

struct broken {
    struct driver *driver;
    vmm_stream stream; /* that is captured */
    uint64_t address;
    void *event; /* of another stream's work */
};

static vmm_status work_submitted(const struct broken *broken)
{
    return vmm__driver_fill(broken->driver, broken->address, 512, 1, broken->stream);
}

static vmm_status captured_event_asked(const struct broken *broken)
{
    assert_ok(vmm__driver_event_record(broken->driver, broken->event, broken->stream));
    vmm_status status = vmm__driver_event_query(broken->driver, broken->event);
    return status == VMM_NOT_READY ? VMM_OK : status;
}

static vmm_status captured_event_waited_for(const struct broken *broken)
{
    assert_ok(vmm__driver_event_record(broken->driver, broken->event, broken->stream));
    return vmm__driver_event_wait(broken->driver, broken->event);
}

static vmm_status captured_event_followed(const struct broken *broken)
{
    assert_ok(vmm__driver_event_record(broken->driver, broken->event, broken->stream));
    return vmm__driver_stream_wait(broken->driver, NULL, broken->event);
}

static vmm_status stream_made_to_wait(const struct broken *broken)
{
    return vmm__driver_stream_wait(broken->driver, broken->stream, broken->event);
}

static vmm_status device_waited_for(const struct broken *broken)
{
    return vmm__driver_device_wait(broken->driver);
}

typedef vmm_status (*breaker)(const struct broken *broken);

/* The stream is as before afterwards, and the next capture whole. */
static void capture_broken(const struct broken *broken, breaker breaks)
{
    struct driver *driver = broken->driver;
    vmm_stream other = stream_new(driver);
    filled(driver, broken->address, 512, 1, other);
    assert_ok(vmm__driver_event_record(driver, broken->event, other));
    assert_ok(vmm__driver_capture_begin(driver, broken->stream));
    assert_status(breaks(broken), VMM_ERR_DRIVER);
    assert_true(is_captured(driver, broken->stream));
    assert_status(vmm__driver_capture_end(driver, broken->stream), VMM_ERR_DRIVER);
    assert_false(is_captured(driver, broken->stream));
    assert_ok(vmm__driver_capture_begin(driver, broken->stream));
    assert_ok(vmm__driver_capture_end(driver, broken->stream));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(breaks(broken));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_stream_destroy(driver, other));
}

static void a_capture_is_broken_by_what_cuda_forbids(void **state)
{
    static const breaker breakers[] = {
        work_submitted,          captured_event_asked, captured_event_waited_for,
        captured_event_followed, stream_made_to_wait,  device_waited_for
    };
    struct driver *driver = *state;
    bool is_sim = driver_choice_kind() == VMM_DRIVER_SIM;
    struct region region = region_open(driver, 1, 1);
    struct broken broken = { .driver = driver, .address = region.address };
    for (unsigned i = 0; i < 6 && driver_choice_kind() != VMM_DRIVER_CUDA; i++) {
        broken.stream = stream_new(driver);
        broken.event = event_new(driver);
        capture_broken(&broken, breakers[i]);
        if (is_sim)
            assert_int_equal(vmm__sim_violations(driver, NULL), i + 1);
        assert_ok(vmm__driver_event_destroy(driver, broken.event));
        assert_ok(vmm__driver_stream_destroy(driver, broken.stream));
    }
    region_close(driver, &region);
}

/* It is the capture's, which is whole; recorded again, the event is as any other. */
static void a_captured_event_can_be_recorded_again(void **state)
{
    struct driver *driver = *state;
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

int main(int argc, char **argv)
{
    driver_choice_read(argc, argv);
    const struct CMUnitTest tests[] = {
        CAPTURE_TEST(a_capture_is_told_from_its_begin_to_its_end),
        CAPTURE_TEST(other_streams_work_during_a_capture),
        CAPTURE_TEST(a_captured_event_can_be_recorded_again),
        CAPTURE_TEST(a_capture_is_broken_by_what_cuda_forbids),
    };
    return cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
}
