/* Delays: work of a known duration, on the driver that the first argument names. */
#include "support/driver_choice.h"
#include "support/driver_steps.h"

#define DELAY_TEST(name) TEST_WITH(name, delay_setup, driver_choice_teardown, struct driver *driver)
#define CAPACITY         (64 * MIB)
#define MS               UINT64_C(1000000)

/* The clocks of the host and the device do not agree exactly. */
#define NEARLY(ns) ((ns) / 50 * 49)

static int delay_setup(void **state)
{
    struct driver *driver = driver_choice_open(CAPACITY);
    assert_ok(vmm__driver_delay(driver, 0, NULL)); /* loads the kernels */
    assert_ok(vmm__driver_device_wait(driver));
    *state = driver;
    return 0;
}

/* Queries the event until it is complete; returns the elapsed time on the driver's clock. */
static uint64_t poll_event(struct driver *driver, void *event, uint64_t since)
{
    vmm_status status = vmm__driver_event_query(driver, event);
    while (status == VMM__PENDING)
        status = vmm__driver_event_query(driver, event);
    assert_ok(status);
    return vmm__driver_clock(driver) - since;
}

/* An event after a delay that began at `since` is complete only if the delay may have ended: on a busy machine this
 * thread may have waited for so long. */
static void pending_check(struct driver *driver, void *event, uint64_t since, uint64_t ns)
{
    vmm_status status = vmm__driver_event_query(driver, event);
    assert_true(status == VMM__PENDING || status == VMM_OK);
    assert_true(status == VMM__PENDING || vmm__driver_clock(driver) - since >= NEARLY(ns));
}

DELAY_TEST(a_delay_takes_its_duration)
{
    void *event = event_new(driver);
    vmm_stream stream = stream_new(driver);
    for (uint64_t ns = 2 * MS; ns <= 32 * MS; ns *= 4) {
        uint64_t start = vmm__driver_clock(driver);
        assert_ok(vmm__driver_delay(driver, ns, stream));
        assert_ok(vmm__driver_event_record(driver, event, stream));
        pending_check(driver, event, start, ns);
        assert_true(poll_event(driver, event, start) >= NEARLY(ns));
    }
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_event_destroy(driver, event));
}

DELAY_TEST(delays_of_a_stream_add_up)
{
    void *event = event_new(driver);
    uint64_t start = vmm__driver_clock(driver);
    for (int i = 0; i < 4; i++)
        assert_ok(vmm__driver_delay(driver, 5 * MS, NULL));
    assert_ok(vmm__driver_event_record(driver, event, NULL));
    assert_true(poll_event(driver, event, start) >= NEARLY(20 * MS));
    assert_ok(vmm__driver_event_destroy(driver, event));
}

DELAY_TEST(work_after_a_delay_waits_for_it)
{
    struct region region = region_open(driver, 1, 2);
    vmm_stream delayed = stream_new(driver);
    vmm_stream follower = stream_new(driver);
    void *event = event_new(driver);
    memory_fill(driver, region.address, region.bytes, 1, delayed);
    uint64_t start = vmm__driver_clock(driver);
    assert_ok(vmm__driver_delay(driver, 10 * MS, delayed));
    memory_fill(driver, region.address, region.bytes, 2, delayed);
    stream_order_after(driver, follower, delayed, event);
    memory_check(driver, region.address, region.bytes, 2, follower);
    pending_check(driver, event, start, 10 * MS);
    assert_int_equal(mismatches(driver), 0);
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_stream_destroy(driver, delayed));
    assert_ok(vmm__driver_stream_destroy(driver, follower));
    region_close(driver, &region);
}

/* The rest of an ended delay does not extend the next one. */
DELAY_TEST(a_host_wait_finishes_a_delay)
{
    void *event = event_new(driver);
    for (int round = 0; round < 3; round++) {
        assert_ok(vmm__driver_delay(driver, 10 * MS, NULL));
        assert_ok(vmm__driver_event_record(driver, event, NULL));
        assert_ok(vmm__driver_event_wait(driver, event));
        assert_ok(vmm__driver_event_query(driver, event));
    }
    assert_ok(vmm__driver_delay(driver, 10 * MS, NULL));
    assert_ok(vmm__driver_event_record(driver, event, NULL));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_event_query(driver, event));
    uint64_t start = vmm__driver_clock(driver);
    assert_ok(vmm__driver_delay(driver, MS, NULL));
    assert_ok(vmm__driver_event_record(driver, event, NULL));
    uint64_t taken = poll_event(driver, event, start);
    assert_true(taken >= NEARLY(MS));
    if (driver_choice_kind() == VMM_DRIVER_SIM)
        assert_true(taken < 2 * MS);
    assert_ok(vmm__driver_event_destroy(driver, event));
}

DELAY_TEST(delays_are_not_counted)
{
    uint64_t clock_ns = vmm__driver_clock_ns(driver);
    uint64_t stalls = driver->counts.stalls;
    assert_ok(vmm__driver_delay(driver, MS, NULL));
    assert_int_equal(vmm__driver_clock_ns(driver), clock_ns);
    assert_int_equal(driver->counts.stalls, stalls);
    assert_ok(vmm__driver_device_wait(driver));
}

DRIVER_MAIN(NULL, NULL)
