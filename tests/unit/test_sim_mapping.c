/*
 * CUDA's rules for mappings and access: those that the sim driver enforces, and those whose breach
 * it records as a violation.
 */
#include "support/sim_support.h"

/* ---- Map ------------------------------------------------------------------------------------- */

SIM_TEST(map_refuses_part_of_a_handle)
{
    uint64_t address = address_reserve(driver, 8 * GRANULE);
    uint64_t handle = handle_create(driver, 4 * GRANULE);
    assert_refused(vmm__driver_map(driver, address, 2 * GRANULE, handle), VMM_ERR_DRIVER,
                   "whole handle");
    assert_refused(vmm__driver_map(driver, address, 8 * GRANULE, handle), VMM_ERR_DRIVER,
                   "whole handle");
    assert_ok(vmm__driver_map(driver, address, 4 * GRANULE, handle));
}

SIM_TEST(map_refuses_unaligned_ranges)
{
    uint64_t address = address_reserve(driver, 8 * GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    assert_refused(vmm__driver_map(driver, address + MIB, GRANULE, handle), VMM_ERR_DRIVER,
                   "granule");
    assert_refused(vmm__driver_map(driver, address, MIB, handle), VMM_ERR_DRIVER, "granule");
    assert_refused(vmm__driver_map(driver, address, 0, handle), VMM_ERR_DRIVER, "granule");
}

SIM_TEST(map_refuses_a_mapped_range)
{
    uint64_t address = address_reserve(driver, 8 * GRANULE);
    uint64_t handle = handle_create(driver, 4 * GRANULE);
    assert_ok(vmm__driver_map(driver, address + 3 * GRANULE, 4 * GRANULE, handle));
    for (uint64_t shift = 0; shift < 4; shift++)
        assert_refused(vmm__driver_map(driver, address + shift * GRANULE, 4 * GRANULE, handle),
                       VMM_ERR_DRIVER, "already mapped");
}

SIM_TEST(map_refuses_unreserved_addresses)
{
    uint64_t address = address_reserve(driver, 4 * GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    const char *part = "not reserved";
    assert_refused(vmm__driver_map(driver, 0, GRANULE, handle), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_map(driver, address - GRANULE, GRANULE, handle), VMM_ERR_DRIVER,
                   part);
    assert_refused(vmm__driver_map(driver, address + 4 * GRANULE, GRANULE, handle), VMM_ERR_DRIVER,
                   part);
}

SIM_TEST(map_refuses_to_cross_a_reservation_end)
{
    uint64_t address = address_reserve(driver, 4 * GRANULE);
    address_reserve(driver, 4 * GRANULE);
    uint64_t handle = handle_create(driver, 2 * GRANULE);
    assert_refused(vmm__driver_map(driver, address + 3 * GRANULE, 2 * GRANULE, handle),
                   VMM_ERR_DRIVER, "crosses the end");
}

SIM_TEST(map_refuses_released_handles)
{
    uint64_t handle;
    memory_map(driver, GRANULE, &handle);
    uint64_t address = address_reserve(driver, GRANULE);
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    assert_refused(vmm__driver_map(driver, address, GRANULE, handle), VMM_ERR_DRIVER,
                   "not a handle");
    sim_assert_violations(driver, 1, "map of handle");
}

SIM_TEST(one_handle_maps_at_many_addresses)
{
    uint64_t address = address_reserve(driver, 16 * GRANULE);
    uint64_t handle = handle_create(driver, 2 * GRANULE);
    for (uint64_t index = 0; index < 8; index++)
        handle_map(driver, address + index * 2 * GRANULE, 2 * GRANULE, handle);
    assert_int_equal(vmm__sim_census(driver).mappings, 8);
    assert_int_equal(vmm__sim_census(driver).physical_bytes, 2 * GRANULE);
    assert_ok(vmm__driver_unmap(driver, address, 16 * GRANULE));
    assert_int_equal(vmm__sim_census(driver).mappings, 0);
    assert_int_equal(vmm__sim_census(driver).physical_bytes, 2 * GRANULE);
}

/* ---- Unmap and access ------------------------------------------------------------------------ */

/* Mappings of 2, 1 and 2 adjacent granules, then a gap, then one of 2 granules. */
static uint64_t make_four_mappings(struct driver *driver)
{
    uint64_t address = address_reserve(driver, 10 * GRANULE);
    static const uint64_t places[][2] = { { 0, 2 }, { 2, 1 }, { 3, 2 }, { 6, 2 } };
    for (size_t index = 0; index < 4; index++)
        assert_ok(vmm__driver_map(driver, address + places[index][0] * GRANULE,
                                  places[index][1] * GRANULE,
                                  handle_create(driver, places[index][1] * GRANULE)));
    return address;
}

typedef vmm_status (*range_call)(struct driver *driver, uint64_t address, uint64_t bytes);

static void assert_whole_mappings_required(struct driver *driver, range_call call)
{
    uint64_t address = make_four_mappings(driver);
    const char *part = "part of a mapping";
    const char *gap = "not completely mapped";
    assert_refused(call(driver, address, GRANULE), VMM_ERR_DRIVER, part);
    assert_refused(call(driver, address + GRANULE, GRANULE), VMM_ERR_DRIVER, part);
    assert_refused(call(driver, address + GRANULE, 2 * GRANULE), VMM_ERR_DRIVER, part);
    assert_refused(call(driver, address, 4 * GRANULE), VMM_ERR_DRIVER, part);
    assert_refused(call(driver, address, 8 * GRANULE), VMM_ERR_DRIVER, gap);
    assert_refused(call(driver, address, 6 * GRANULE), VMM_ERR_DRIVER, gap);
    assert_refused(call(driver, address + 5 * GRANULE, GRANULE), VMM_ERR_DRIVER, gap);
    assert_refused(call(driver, address + 8 * GRANULE, 2 * GRANULE), VMM_ERR_DRIVER, gap);
    assert_refused(call(driver, address + 8 * GRANULE, 3 * GRANULE), VMM_ERR_DRIVER, "crosses");
    assert_refused(call(driver, address + 10 * GRANULE, GRANULE), VMM_ERR_DRIVER, "not reserved");
    assert_refused(call(driver, address, 2 * GRANULE - 512), VMM_ERR_DRIVER, "granule");
    assert_refused(call(driver, address, 0), VMM_ERR_DRIVER, "granule");
    assert_ok(call(driver, address, 5 * GRANULE));
    assert_ok(call(driver, address + 6 * GRANULE, 2 * GRANULE));
}

/* Measured on an H200 with CUDA 13.0: unknown error (999). */
SIM_TEST(access_after_losing_the_oldest_mapping_blocks_maps)
{
    uint64_t handle = handle_create(driver, GRANULE);
    uint64_t at = address_reserve(driver, 8 * GRANULE);
    for (int i = 0; i < 2; i++) {
        assert_ok(vmm__driver_map(driver, at, GRANULE, handle));
        assert_ok(vmm__driver_map(driver, at + GRANULE, GRANULE, handle));
        assert_ok(vmm__driver_unmap(driver, at, GRANULE));
        if (i == 0) /* a third mapping before the unmapped one's successor gets access avoids it */
            assert_ok(vmm__driver_map(driver, at + 2 * GRANULE, GRANULE, handle));
        assert_ok(vmm__driver_access(driver, at + GRANULE, GRANULE));
        vmm_status status = vmm__driver_map(driver, at + 3 * GRANULE, GRANULE, handle);
        assert_status(status, i == 0 ? VMM_OK : VMM_ERR_DRIVER);
        assert_ok(vmm__driver_unmap(driver, at + GRANULE, GRANULE));
        if (i == 0)
            assert_ok(vmm__driver_unmap(driver, at + 2 * GRANULE, 2 * GRANULE));
    }
    handle_map(driver, at, GRANULE, handle);
    sim_assert_violations(driver, 1, "cannot be mapped again");
}

SIM_TEST(unmap_requires_whole_mappings)
{
    assert_whole_mappings_required(driver, vmm__driver_unmap);
    assert_int_equal(vmm__sim_census(driver).mappings, 0);
}

SIM_TEST(access_requires_whole_mappings)
{
    assert_whole_mappings_required(driver, vmm__driver_access);
}

SIM_TEST(unmap_refuses_an_unmapped_range)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_refused(vmm__driver_unmap(driver, address, GRANULE), VMM_ERR_DRIVER,
                   "not completely mapped");
}

/* ---- Violations: accepted, but recorded ------------------------------------------------------ */

SIM_TEST(use_without_access_is_a_violation)
{
    uint64_t address = address_reserve(driver, GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    assert_ok(vmm__driver_map(driver, address, GRANULE, handle));
    assert_ok(vmm__driver_fill(driver, address, 512, 1, NULL));
    sim_assert_violations(driver, 1, "without access");
}

SIM_TEST(unmap_removes_access)
{
    uint64_t handle;
    uint64_t address = memory_map(driver, GRANULE, &handle);
    assert_ok(vmm__driver_fill(driver, address, 512, 1, NULL));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_ok(vmm__driver_map(driver, address, GRANULE, handle));
    sim_assert_clean(driver);
    assert_ok(vmm__driver_check(driver, address, 512, 1, NULL));
    sim_assert_violations(driver, 1, "without access");
}

SIM_TEST(use_of_unmapped_memory_is_one_violation)
{
    uint64_t address = address_reserve(driver, 4 * GRANULE);
    handle_map(driver, address, GRANULE, handle_create(driver, GRANULE));
    assert_ok(vmm__driver_fill(driver, address, 4 * GRANULE, 1, NULL));
    sim_assert_violations(driver, 1, "not mapped");
    assert_ok(vmm__driver_check(driver, address + 4 * GRANULE - 512, 1024, 1, NULL));
    sim_assert_violations(driver, 2, "not mapped");
    assert_ok(vmm__driver_copy(driver, 0, 512, 512, NULL));
    sim_assert_violations(driver, 3, "not mapped");
}

SIM_TEST(work_beyond_the_address_space_is_refused)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    const char *part = "exceeds the address space";
    assert_refused(vmm__driver_fill(driver, address, UINT64_MAX, 1, NULL), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_check(driver, UINT64_MAX, 2, 1, NULL), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_copy(driver, UINT64_MAX, address, 2, NULL), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_copy(driver, address, UINT64_MAX, 2, NULL), VMM_ERR_DRIVER, part);
}

SIM_TEST(destroyed_events_are_refused_and_recorded)
{
    void *event = sim_record(driver, NULL);
    assert_ok(vmm__driver_event_destroy(driver, event));
    void *next = sim_record(driver, NULL);
    const char *part = "not an event";
    assert_refused(vmm__driver_event_record(driver, event, NULL), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_clock_record(driver, event), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_event_query(driver, event), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_event_wait(driver, event), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_stream_wait(driver, NULL, event), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_event_destroy(driver, event), VMM_ERR_DRIVER, part);
    sim_assert_violations(driver, 6, "event record of event");
    assert_ok(vmm__driver_event_destroy(driver, next));
}

SIM_TEST(the_first_violation_line_is_kept)
{
    assert_status(vmm__driver_release(driver, 99, GRANULE), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_fill(driver, GRANULE, 512, 1, NULL));
    sim_assert_violations(driver, 2, "release of handle 0x63");
    assert_int_equal(vmm__soft_violations(driver, NULL), 2);
}
