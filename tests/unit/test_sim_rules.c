/* CUDA's rules for addresses and physical memory, as the sim driver enforces them. */
#include "support/sim_support.h"

/* ---- The device ------------------------------------------------------------------------------ */

SIM_TEST(opens_as_an_h200)
{
    assert_string_equal(driver->ops->name, "sim");
    assert_string_equal(driver->device_name, "simulated H200");
    assert_int_equal(driver->granule_bytes, 2 * MIB);
    assert_int_equal(driver->total_bytes, 139 * GIB);
    assert_int_equal(vmm__driver_clock(driver), 0);
}

TEST(capacity_is_configurable)
{
    uint64_t sizes[] = { GRANULE, 8 * 141 * GIB, UINT64_C(1) << 50 };
    for (size_t index = 0; index < 3; index++) {
        struct driver_options options = { .device_bytes = sizes[index] };
        struct driver *driver;
        uint64_t free_bytes;
        uint64_t total_bytes;
        assert_ok(vmm__driver_open(VMM_DRIVER_SIM, &options, &driver));
        assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
        assert_int_equal(free_bytes, sizes[index]);
        assert_int_equal(total_bytes, sizes[index]);
        handle_create(driver, sizes[index]);
        vmm__driver_close(driver);
    }
    assert_int_equal(vmm__host_outstanding(), 0);
}

/* ---- Reserve and address free ---------------------------------------------------------------- */

SIM_TEST(reserve_accepts_2_to_46_bytes)
{
    uint64_t address = address_reserve(driver, UINT64_C(1) << 46);
    assert_int_equal(address % GRANULE, 0);
    handle_map(driver, address + (UINT64_C(1) << 46) - GRANULE, GRANULE,
               handle_create(driver, GRANULE));
}

SIM_TEST(reserve_refuses_2_to_47_bytes)
{
    uint64_t address;
    assert_refused(vmm__driver_reserve(driver, UINT64_C(1) << 47, 0, &address),
                   VMM_ERR_ADDRESS_SPACE, "more than the largest reservation");
}

SIM_TEST(reserve_refuses_the_127th_tebibyte)
{
    uint64_t address;
    uint64_t first = address_reserve(driver, TIB);
    for (int count = 1; count < 126; count++)
        address_reserve(driver, TIB);
    assert_refused(vmm__driver_reserve(driver, TIB, 0, &address), VMM_ERR_ADDRESS_SPACE,
                   "no free range");
    assert_ok(vmm__driver_address_free(driver, first, TIB));
    assert_int_equal(address_reserve(driver, TIB), first);
}

SIM_TEST(reserve_refuses_partial_granules)
{
    uint64_t address;
    assert_refused(vmm__driver_reserve(driver, 0, 0, &address), VMM_ERR_DRIVER, "granule");
    assert_refused(vmm__driver_reserve(driver, GRANULE + 512, 0, &address), VMM_ERR_DRIVER,
                   "granule");
}

static uint64_t reservation_bytes(int index)
{
    return (uint64_t)(1 + index % 5) * GRANULE;
}

static void assert_disjoint(const uint64_t *address, int count)
{
    for (int one = 0; one < count; one++) {
        for (int other = 0; other < one; other++)
            assert_true(address[one] + reservation_bytes(one) <= address[other] ||
                        address[other] + reservation_bytes(other) <= address[one]);
    }
}

SIM_TEST(reservations_never_overlap)
{
    uint64_t address[64];
    for (int index = 0; index < 64; index++)
        address[index] = address_reserve(driver, reservation_bytes(index));
    for (int step = 2; step < 6; step++) {
        for (int index = 0; index < 64; index += step)
            assert_ok(vmm__driver_address_free(driver, address[index], reservation_bytes(index)));
        for (int index = 63 / step * step; index >= 0; index -= step)
            address[index] = address_reserve(driver, reservation_bytes(index));
        assert_disjoint(address, 64);
    }
    assert_int_equal(vmm__sim_census(driver).reservations, 64);
}

SIM_TEST(address_free_refuses_while_mapped)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    assert_refused(vmm__driver_address_free(driver, address, GRANULE), VMM_ERR_DRIVER, "mapped");
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_ok(vmm__driver_address_free(driver, address, GRANULE));
}

SIM_TEST(address_free_requires_exactly_one_reservation)
{
    uint64_t address = address_reserve(driver, 4 * GRANULE);
    assert_int_equal(address_reserve(driver, 4 * GRANULE), address + 4 * GRANULE);
    const char *part = "exactly one";
    assert_refused(vmm__driver_address_free(driver, address, 2 * GRANULE), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_address_free(driver, address, 8 * GRANULE), VMM_ERR_DRIVER, part);
    assert_refused(vmm__driver_address_free(driver, address + GRANULE, 3 * GRANULE), VMM_ERR_DRIVER,
                   part);
    assert_refused(vmm__driver_address_free(driver, address + 8 * GRANULE, GRANULE), VMM_ERR_DRIVER,
                   "not reserved");
    assert_ok(vmm__driver_address_free(driver, address, 4 * GRANULE));
    assert_refused(vmm__driver_address_free(driver, address, 4 * GRANULE), VMM_ERR_DRIVER,
                   "not reserved");
}

/* ---- Create and release ---------------------------------------------------------------------- */

SIM_TEST(create_refuses_partial_granules)
{
    uint64_t handle;
    assert_refused(vmm__driver_create(driver, 0, false, &handle), VMM_ERR_DRIVER, "granule");
    assert_refused(vmm__driver_create(driver, MIB, false, &handle), VMM_ERR_DRIVER, "granule");
}

SIM_TEST(create_stops_at_capacity)
{
    uint64_t handle = 7;
    uint64_t most = handle_create(driver, 138 * GIB);
    assert_status(vmm__driver_create(driver, GIB + GRANULE, false, &handle), VMM_ERR_DEVICE_OOM);
    assert_int_equal(handle, 7);
    assert_int_equal(vmm__sim_census(driver).physical_bytes, 138 * GIB);
    handle_create(driver, GIB);
    assert_status(vmm__driver_create(driver, GRANULE, false, &handle), VMM_ERR_DEVICE_OOM);
    assert_ok(vmm__driver_release(driver, most, 138 * GIB));
    handle_create(driver, 138 * GIB);
}

SIM_TEST(released_memory_counts_until_its_last_unmap)
{
    uint64_t handle;
    uint64_t address = memory_map(driver, 100 * GIB, &handle);
    uint64_t alias = address_reserve(driver, 100 * GIB);
    handle_map(driver, alias, 100 * GIB, handle);
    assert_ok(vmm__driver_release(driver, handle, 100 * GIB));
    assert_int_equal(vmm__sim_census(driver).handles, 0);
    assert_ok(vmm__driver_unmap(driver, address, 100 * GIB));
    uint64_t free_bytes;
    uint64_t total_bytes;
    assert_ok(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    assert_int_equal(free_bytes, 39 * GIB);
    assert_status(vmm__driver_create(driver, 40 * GIB, false, &handle), VMM_ERR_DEVICE_OOM);
    assert_ok(vmm__driver_fill(driver, alias, 100 * GIB, 1, NULL));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_unmap(driver, alias, 100 * GIB));
    assert_int_equal(vmm__sim_census(driver).physical_bytes, 0);
    handle_create(driver, 139 * GIB);
}

SIM_TEST(release_refuses_unknown_handles)
{
    assert_refused(vmm__driver_release(driver, 0, GRANULE), VMM_ERR_DRIVER, "not a handle");
    assert_refused(vmm__driver_release(driver, 12345, GRANULE), VMM_ERR_DRIVER, "not a handle");
    sim_assert_violations(driver, 2, "release of handle");
}

SIM_TEST(release_refuses_released_handles)
{
    uint64_t handle = handle_create(driver, GRANULE);
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    assert_refused(vmm__driver_release(driver, handle, GRANULE), VMM_ERR_DRIVER, "not a handle");
    uint64_t next = handle_create(driver, GRANULE);
    assert_refused(vmm__driver_release(driver, handle, GRANULE), VMM_ERR_DRIVER, "not a handle");
    assert_ok(vmm__driver_release(driver, next, GRANULE));
    sim_assert_violations(driver, 2, "released or never");
}

SIM_TEST(release_refuses_a_wrong_size)
{
    uint64_t handle = handle_create(driver, 2 * GRANULE);
    assert_refused(vmm__driver_release(driver, handle, GRANULE), VMM_ERR_DRIVER, "created with");
}

/* ---- Life ------------------------------------------------------------------------------------ */

SIM_TEST(close_frees_everything)
{
    sim_violations_allow();
    uint64_t handle;
    uint64_t address = memory_map(driver, 64 * GRANULE, &handle);
    vmm__sim_lag_set(driver, 1000);
    for (uint64_t stream = 0; stream < 5; stream++) {
        assert_ok(vmm__driver_fill(driver, address, 64 * GRANULE, 1, STREAM(stream)));
        for (uint64_t place = 0; place < 50; place++)
            assert_ok(vmm__driver_check(driver, address + place * 512, 512, 1, STREAM(stream)));
    }
    assert_ok(vmm__driver_release(driver, handle, 64 * GRANULE));
    handle_create(driver, GRANULE);
    sim_record(driver, NULL);
}

SIM_TEST(the_census_is_zero_after_releasing_everything)
{
    uint64_t handle;
    uint64_t address = memory_map(driver, 4 * GRANULE, &handle);
    void *event = sim_record(driver, NULL);
    struct sim_census census = vmm__sim_census(driver);
    assert_int_equal(census.reservations, 1);
    assert_int_equal(census.mappings, 1);
    assert_int_equal(census.handles, 1);
    assert_int_equal(census.physical_bytes, 4 * GRANULE);
    assert_int_equal(census.events, 1);
    assert_ok(vmm__driver_event_destroy(driver, event));
    assert_ok(vmm__driver_unmap(driver, address, 4 * GRANULE));
    assert_ok(vmm__driver_release(driver, handle, 4 * GRANULE));
    assert_ok(vmm__driver_address_free(driver, address, 4 * GRANULE));
    assert_true(sim_census_is_zero(driver));
}
