/* When work on the sim driver finishes: lag, events, waits, and unmapping under it. */
#include "support/sim_support.h"

#define A STREAM(0xa)
#define B STREAM(0xb)
#define C STREAM(0xc)

static void without_lag_work_is_finished_at_once(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 512, 1, A);
    assert_ok(vmm__driver_event_query(driver, sim_recorded(driver, A)));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_assert_clean(driver);
}

static void work_finishes_after_as_much_other_work(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 3);
    sim_filled(driver, address, 512, 1, A);
    void *event = sim_recorded(driver, A);
    for (int more = 0; more < 3; more++) {
        assert_status(vmm__driver_event_query(driver, event), VMM_NOT_READY);
        sim_filled(driver, address + 512, 512, 2, B);
    }
    assert_ok(vmm__driver_event_query(driver, event));
    assert_status(vmm__driver_event_query(driver, sim_recorded(driver, B)), VMM_NOT_READY);
    sim_assert_clean(driver);
}

static void an_event_is_about_work_before_its_record(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 2);
    void *early = sim_recorded(driver, A);
    sim_filled(driver, address, 512, 1, A);
    assert_ok(vmm__driver_event_query(driver, early));
    assert_ok(vmm__driver_event_record(driver, early, A));
    assert_status(vmm__driver_event_query(driver, early), VMM_NOT_READY);
    assert_ok(vmm__driver_event_record(driver, early, B));
    assert_ok(vmm__driver_event_query(driver, early));
}

static void an_event_never_recorded_has_passed(void **state)
{
    struct driver *driver = *state;
    void *event;
    vmm__sim_lag_set(driver, 9);
    assert_ok(vmm__driver_event_create(driver, &event));
    assert_ok(vmm__driver_event_query(driver, event));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_stream_wait(driver, A, event));
    assert_ok(vmm__driver_event_destroy(driver, event));
}

static void less_lag_finishes_what_is_due(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 512, 1, A);
    vmm__sim_lag_set(driver, UINT64_MAX);
    sim_filled(driver, address, 512, 1, A);
    void *first = sim_recorded(driver, A);
    for (uint64_t more = 1; more < 600; more++)
        sim_filled(driver, address + more * 512, 512, 2, B);
    void *last = sim_recorded(driver, B);
    assert_status(vmm__driver_event_query(driver, first), VMM_NOT_READY);
    vmm__sim_lag_set(driver, 599);
    assert_ok(vmm__driver_event_query(driver, first));
    assert_status(vmm__driver_event_query(driver, last), VMM_NOT_READY);
    vmm__sim_lag_set(driver, 0);
    assert_ok(vmm__driver_event_query(driver, last));
}

static void waits_of_the_host_finish_what_they_wait_for(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 1000);
    sim_filled(driver, address, 512, 1, A);
    void *a = sim_recorded(driver, A);
    sim_filled(driver, address + 512, 512, 2, B);
    void *b = sim_recorded(driver, B);
    assert_ok(vmm__driver_event_wait(driver, a));
    assert_ok(vmm__driver_event_query(driver, a));
    assert_status(vmm__driver_event_query(driver, b), VMM_NOT_READY);
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_event_query(driver, b));
    sim_filled(driver, address, 512, 3, A);
    assert_ok(vmm__driver_event_record(driver, a, A));
    assert_int_equal(sim_mismatches(driver), 0);
    assert_ok(vmm__driver_event_query(driver, a));
    sim_assert_clean(driver);
}

static void a_stream_that_waits_finishes_no_sooner(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 1000);
    sim_filled(driver, address, 512, 1, A);
    void *a = sim_recorded(driver, A);
    assert_ok(vmm__driver_stream_wait(driver, B, a));
    void *b = sim_recorded(driver, B);
    assert_status(vmm__driver_event_query(driver, b), VMM_NOT_READY);
    assert_ok(vmm__driver_event_wait(driver, b));
    assert_ok(vmm__driver_event_query(driver, a));
}

/* ---- Unmap under work ------------------------------------------------------------------------ */

static void unmap_under_work_is_told(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 10);
    sim_filled(driver, address + MIB, 512, 1, A);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_assert_violations(driver, 1, "under work 1 of stream 0xa");
}

static void unmap_after_the_event_is_fine(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 10);
    sim_filled(driver, address, 512, 1, A);
    sim_checked(driver, address, 512, 1, A);
    assert_ok(vmm__driver_event_wait(driver, sim_recorded(driver, A)));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_assert_clean(driver);
}

static void unmap_sees_every_stream_that_used_the_memory(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 10);
    for (uint64_t stream = 1; stream <= 4; stream++)
        sim_filled(driver, address + stream * 512, 512, 1, STREAM(stream));
    for (uint64_t stream = 2; stream <= 4; stream++)
        assert_ok(vmm__driver_event_wait(driver, sim_recorded(driver, STREAM(stream))));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_assert_violations(driver, 1, "work 1 of stream 0x1,");
}

static void unmap_of_the_other_address_is_fine(void **state)
{
    struct driver *driver = *state;
    uint64_t handle;
    uint64_t first = sim_memory(driver, GRANULE, &handle);
    uint64_t second = sim_reserved(driver, GRANULE);
    sim_mapped(driver, second, GRANULE, handle);
    vmm__sim_lag_set(driver, 10);
    sim_filled(driver, first, 512, 1, A);
    assert_ok(vmm__driver_unmap(driver, second, GRANULE));
    sim_assert_clean(driver);
    assert_ok(vmm__driver_unmap(driver, first, GRANULE));
    sim_assert_violations(driver, 1, "unmap");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(without_lag_work_is_finished_at_once),
        SIM_TEST(work_finishes_after_as_much_other_work),
        SIM_TEST(an_event_is_about_work_before_its_record),
        SIM_TEST(an_event_never_recorded_has_passed),
        SIM_TEST(less_lag_finishes_what_is_due),
        SIM_TEST(waits_of_the_host_finish_what_they_wait_for),
        SIM_TEST(a_stream_that_waits_finishes_no_sooner),
        SIM_TEST(unmap_under_work_is_told),
        SIM_TEST(unmap_after_the_event_is_fine),
        SIM_TEST(unmap_sees_every_stream_that_used_the_memory),
        SIM_TEST(unmap_of_the_other_address_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
