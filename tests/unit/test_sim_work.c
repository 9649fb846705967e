/*
 * When work on the sim driver finishes: lag and events; and unmapping memory that it uses. Waits: see test_sim_queue.c.
 */
#include "support/sim_support.h"

#define A STREAM(0xa)
#define B STREAM(0xb)
#define C STREAM(0xc)

SIM_TEST(without_lag_work_finishes_immediately)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    memory_fill(driver, address, 512, 1, A);
    assert_ok(vmm__driver_event_query(driver, sim_record(driver, A)));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
}

SIM_TEST(the_lag_delays_completion)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 3);
    memory_fill(driver, address, 512, 1, A);
    void *event = sim_record(driver, A);
    for (int more = 0; more < 3; more++) {
        assert_status(vmm__driver_event_query(driver, event), VMM__PENDING);
        memory_fill(driver, address + 512, 512, 2, B);
    }
    assert_ok(vmm__driver_event_query(driver, event));
    assert_status(vmm__driver_event_query(driver, sim_record(driver, B)), VMM__PENDING);
}

SIM_TEST(an_event_covers_work_before_its_record)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 2);
    void *early = sim_record(driver, A);
    memory_fill(driver, address, 512, 1, A);
    assert_ok(vmm__driver_event_query(driver, early));
    assert_ok(vmm__driver_event_record(driver, early, A));
    assert_status(vmm__driver_event_query(driver, early), VMM__PENDING);
    assert_ok(vmm__driver_event_record(driver, early, B));
    assert_ok(vmm__driver_event_query(driver, early));
}

SIM_TEST(reducing_the_lag_finishes_work)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    memory_fill(driver, address, 512, 1, A);
    vmm__sim_lag_set(driver, UINT64_MAX);
    memory_fill(driver, address, 512, 1, A);
    void *first = sim_record(driver, A);
    for (uint64_t more = 1; more < 600; more++)
        memory_fill(driver, address + more * 512, 512, 2, B);
    void *last = sim_record(driver, B);
    assert_status(vmm__driver_event_query(driver, first), VMM__PENDING);
    vmm__sim_lag_set(driver, 599);
    assert_ok(vmm__driver_event_query(driver, first));
    assert_status(vmm__driver_event_query(driver, last), VMM__PENDING);
    vmm__sim_lag_set(driver, 0);
    assert_ok(vmm__driver_event_query(driver, last));
}

/* ---- Unmap during work ----------------------------------------------------------------------- */

SIM_TEST(unmap_during_work_is_a_violation)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 10);
    memory_fill(driver, address + MIB, 512, 1, A);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_assert_violations(driver, 1, "during work 1 of stream 0x10a");
}

SIM_TEST(unmap_checks_every_stream)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 10);
    for (uint64_t stream = 1; stream <= 4; stream++)
        memory_fill(driver, address + stream * 512, 512, 1, STREAM(stream));
    for (uint64_t stream = 2; stream <= 4; stream++)
        assert_ok(vmm__driver_event_wait(driver, sim_record(driver, STREAM(stream))));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_assert_violations(driver, 1, "work 1 of stream 0x101,");
}

SIM_TEST(unmap_of_an_unused_alias_is_valid)
{
    uint64_t handle;
    uint64_t first = memory_map(driver, GRANULE, &handle);
    uint64_t second = address_reserve(driver, GRANULE);
    handle_map(driver, second, GRANULE, handle);
    vmm__sim_lag_set(driver, 10);
    memory_fill(driver, first, 512, 1, A);
    assert_ok(vmm__driver_unmap(driver, second, GRANULE));
    sim_assert_clean(driver);
    assert_ok(vmm__driver_unmap(driver, first, GRANULE));
    sim_assert_violations(driver, 1, "unmap");
}
