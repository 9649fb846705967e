/* Pinned memory of the sim driver: the contents that save puts there, order, costs, and what is refused. */
#include "support/sim_support.h"

#define A STREAM(0xa)
#define B STREAM(0xb)

/* sim never touches pinned memory: any addresses will do. */
static unsigned char *const host = (unsigned char *)(uintptr_t)TIB;

static vmm_status range_save(struct driver *driver, uint64_t address, uint64_t bytes, void *to,
                             vmm_stream stream)
{
    const struct driver_piece piece = { address, bytes, to };
    return vmm__driver_save(driver, &piece, 1, stream);
}

static vmm_status range_load(struct driver *driver, uint64_t address, uint64_t bytes, void *from,
                             vmm_stream stream)
{
    const struct driver_piece piece = { address, bytes, from };
    return vmm__driver_load(driver, &piece, 1, stream);
}

/* Mapped memory, and one pinned granule. */
static uint64_t map_and_pin(struct driver *driver, uint64_t bytes)
{
    assert_ok(vmm__driver_pin(driver, host, GRANULE));
    return memory_map(driver, bytes, NULL);
}

/* ---- Contents ---------------------------------------------------------------------------------- */

SIM_TEST(contents_travel_with_the_bytes)
{
    uint64_t address = memory_map(driver, 4 * GRANULE, NULL);
    uint64_t other = memory_map(driver, 4 * GRANULE, NULL);
    assert_ok(vmm__driver_pin(driver, host, 4 * GRANULE));
    memory_fill(driver, address + 512, GRANULE, 1, NULL);
    memory_fill(driver, address + 512 + GRANULE, 1024, 2, NULL);
    assert_ok(range_save(driver, address, 4 * GRANULE, host, NULL));
    assert_ok(range_load(driver, other + 2048, 2 * GRANULE, host, NULL));
    memory_check(driver, other + 2048 + 512, GRANULE, 1, NULL);
    memory_check(driver, other + 2048 + 512 + GRANULE, 1024, 2, NULL);
    assert_int_equal(mismatches(driver), 0);
    sim_assert_clean(driver);
    memory_check(driver, other, 512, 1, NULL); /* nothing was loaded there */
    assert_int_equal(mismatches(driver), 1);
}

SIM_TEST(a_block_in_the_wrong_place_is_found)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    memory_fill(driver, address, 4096, 1, NULL);
    assert_ok(range_save(driver, address, 4096, host, NULL));
    assert_ok(range_load(driver, address + 8192, 4096 - 512, host + 512, NULL));
    memory_check(driver, address + 8192, 4096 - 512, 1, NULL);
    assert_int_equal(mismatches(driver), 7);
    assert_non_null(strstr(vmm__sim_mismatch(driver), "but holds place 512 of word 0x1"));
}

SIM_TEST(cleared_contents_travel_too)
{
    unsigned char found[8] = { 0 };
    uint64_t address = memory_map(driver, GRANULE, NULL);
    const struct driver_piece piece = { address, sizeof found, found };
    assert_ok(vmm__driver_pin(driver, host, GRANULE));
    assert_ok(vmm__driver_clear(driver, address, GRANULE, 0xC3, NULL));
    assert_ok(range_save(driver, address, GRANULE, host, NULL));
    memory_fill(driver, address, GRANULE, 1, NULL);
    assert_ok(range_load(driver, address, GRANULE, host, NULL));
    assert_ok(vmm__driver_read(driver, &piece, 1, NULL));
    for (unsigned i = 0; i < sizeof found; i++)
        assert_int_equal(found[i], 0xC3);
}

SIM_TEST(bytes_that_were_never_saved_are_undefined)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    memory_fill(driver, address, GRANULE, 1, NULL);
    assert_ok(range_save(driver, address, 4096, host, NULL));
    assert_ok(range_load(driver, address, 8192, host, NULL));
    memory_check(driver, address, 4096, 1, NULL);
    assert_int_equal(mismatches(driver), 0);
    memory_check(driver, address, 8192, 1, NULL);
    assert_int_equal(mismatches(driver), 8);
    assert_non_null(strstr(vmm__sim_mismatch(driver), "undefined"));
}

SIM_TEST(unpinned_memory_forgets)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    memory_fill(driver, address, GRANULE, 1, NULL);
    assert_ok(range_save(driver, address, GRANULE, host, NULL));
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_unpin(driver, host, GRANULE));
    assert_ok(vmm__driver_pin(driver, host, GRANULE));
    assert_ok(range_load(driver, address, GRANULE, host, NULL));
    memory_check(driver, address, 512, 1, NULL);
    assert_int_equal(mismatches(driver), 1);
}

/* ---- Order ------------------------------------------------------------------------------------- */

SIM_TEST(a_load_that_does_not_follow_its_save_races)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    uint64_t other = memory_map(driver, GRANULE, NULL);
    assert_ok(vmm__driver_pin(driver, host, GRANULE));
    assert_ok(range_save(driver, address, GRANULE, host, A));
    assert_ok(range_load(driver, other, GRANULE, host, B));
    sim_assert_violations(driver, 1, "load");
    sim_assert_violations(driver, 1, "races");
}

SIM_TEST(a_save_that_does_not_follow_the_work_there_races)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    memory_fill(driver, address, GRANULE, 1, A);
    assert_ok(range_save(driver, address, GRANULE, host, B));
    sim_assert_violations(driver, 1, "save");
}

SIM_TEST(a_save_over_a_load_in_progress_races)
{
    uint64_t address = map_and_pin(driver, 2 * GRANULE);
    assert_ok(range_load(driver, address, GRANULE, host, A));
    assert_ok(range_save(driver, address + GRANULE, GRANULE, host, B));
    sim_assert_violations(driver, 1, "races");
}

SIM_TEST(unmapping_under_a_copy_is_a_violation)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    assert_ok(range_save(driver, address, GRANULE, host, A));
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_assert_violations(driver, 1, "unmap");
}

SIM_TEST(unpinning_under_a_copy_is_a_violation)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    assert_ok(range_load(driver, address, GRANULE, host, A));
    assert_ok(vmm__driver_unpin(driver, host, GRANULE));
    sim_assert_violations(driver, 1, "unpin");
}

SIM_TEST(unpinning_after_the_copies_is_none)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    assert_ok(range_save(driver, address, GRANULE, host, A));
    assert_ok(range_load(driver, address, GRANULE, host, A));
    assert_ok(vmm__driver_event_wait(driver, sim_record(driver, A)));
    assert_ok(vmm__driver_unpin(driver, host, GRANULE));
}

/* 55.2 GB/s, in either direction, on the stream; the caller does not wait. */
SIM_TEST(a_copy_keeps_its_stream_busy)
{
    uint64_t address = memory_map(driver, GIB, NULL);
    assert_ok(vmm__driver_pin(driver, host, GIB));
    uint64_t before = vmm__driver_clock(driver);
    assert_ok(range_save(driver, address, GIB, host, A));
    assert_ok(range_load(driver, address, GIB, host, A));
    assert_int_equal(vmm__driver_clock(driver) - before, 6000);
    void *event = sim_record(driver, A);
    while (vmm__driver_event_query(driver, event) == VMM__PENDING)
        continue;
    uint64_t ns = vmm__driver_clock(driver) - before;
    uint64_t wanted = 2 * GIB * 10 / 552;
    assert_true(ns >= wanted && ns < wanted + wanted / 100);
}

/* ---- Refusals ---------------------------------------------------------------------------------- */

SIM_TEST(unpinned_memory_is_refused)
{
    uint64_t address = map_and_pin(driver, 4 * GRANULE);
    assert_ok(vmm__driver_pin(driver, host + GRANULE, GRANULE));
    static const struct {
        int64_t first;
        uint64_t bytes;
    } wrong[] = { { -512, 512 },           { -512, 1024 },          { 2 * GRANULE, 512 },
                  { 512, GRANULE },        { GRANULE - 512, 1024 }, { 0, 2 * GRANULE },
                  { GRANULE, GRANULE + 1 } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        unsigned char *at = host + wrong[i].first;
        assert_refused(range_save(driver, address, wrong[i].bytes, at, NULL), VMM_ERR_DRIVER,
                       "not pinned");
        assert_refused(range_load(driver, address, wrong[i].bytes, at, NULL), VMM_ERR_DRIVER,
                       "not pinned");
    }
    assert_ok(range_save(driver, address, GRANULE - 512, host + 512, NULL));
}

/* Nothing is submitted if one piece is refused. */
SIM_TEST(pieces_are_checked_before_the_first_is_copied)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    assert_ok(vmm__driver_pin(driver, host, 4096));
    memory_fill(driver, address, GRANULE, 1, NULL);
    const struct driver_piece pieces[] = { { address, 4096, host },
                                           { address, 4096, host + 4096 } };
    assert_refused(vmm__driver_load(driver, pieces, 2, NULL), VMM_ERR_DRIVER, "not pinned");
    memory_check(driver, address, GRANULE, 1, NULL);
    assert_int_equal(mismatches(driver), 0);
}

SIM_TEST(pinned_ranges_never_overlap)
{
    assert_ok(vmm__driver_pin(driver, host, 4096));
    static const struct {
        int64_t first;
        uint64_t bytes;
    } wrong[] = { { 0, 4096 }, { 1, 1 }, { -1, 2 }, { 4095, 2 }, { -4096, 12288 } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(vmm__driver_pin(driver, host + wrong[i].first, wrong[i].bytes),
                       VMM_ERR_DRIVER, "overlaps 4096 bytes");
    assert_refused(vmm__driver_pin(driver, host + 4096, 0), VMM_ERR_DRIVER, "not a range");
    assert_refused(vmm__driver_pin(driver, host, UINT64_MAX), VMM_ERR_DRIVER, "not a range");
    assert_ok(vmm__driver_pin(driver, host + 4096, 4096));
    assert_ok(vmm__driver_pin(driver, host - 4096, 4096));
    assert_refused(vmm__driver_unpin(driver, host, 8192), VMM_ERR_DRIVER, "not exactly");
    assert_refused(vmm__driver_unpin(driver, host + 1, 4095), VMM_ERR_DRIVER, "not exactly");
    assert_ok(vmm__driver_unpin(driver, host, 4096));
    assert_int_equal(vmm__sim_census(driver).pinned_bytes, 8192);
}

SIM_TEST(a_stream_under_capture_refuses_copies)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    assert_ok(vmm__driver_capture_begin(driver, A));
    assert_status(range_save(driver, address, GRANULE, host, A), VMM_ERR_DRIVER);
    assert_status(vmm__driver_capture_end(driver, A), VMM_ERR_DRIVER);
    sim_assert_violations(driver, 1, "save during the capture");
}

/* D1: a copy that fails may have been submitted. */
SIM_TEST(a_copy_that_is_made_to_fail_has_been_submitted)
{
    uint64_t address = map_and_pin(driver, GRANULE);
    memory_fill(driver, address, GRANULE, 1, NULL);
    vmm__sim_fail_at(driver, 1, VMM_ERR_DRIVER, false);
    assert_status(range_save(driver, address, GRANULE, host, NULL), VMM_ERR_DRIVER);
    memory_fill(driver, address, GRANULE, 2, NULL);
    vmm__sim_fail_at(driver, 1, VMM_ERR_DRIVER, false);
    assert_status(range_load(driver, address, GRANULE, host, NULL), VMM_ERR_DRIVER);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    memory_check(driver, address, GRANULE, 1, NULL);
    assert_int_equal(mismatches(driver), 0);
}

SIM_TEST(copies_without_host_memory_are_no_violations)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    (void)vmm__host_fail_at(1);
    assert_refused(vmm__driver_pin(driver, host, GRANULE), VMM_ERR_HOST_OOM, "pin");
    (void)vmm__host_fail_at(0);
    assert_ok(vmm__driver_pin(driver, host, GRANULE));
    unsigned refused = 0;
    vmm_status status = VMM_ERR_HOST_OOM;
    for (uint64_t number = 1; status != VMM_OK; number++) {
        (void)vmm__host_fail_at(number);
        status = range_save(driver, address, GRANULE, host, A);
        if (status == VMM_OK)
            status = range_load(driver, address, GRANULE, host, A);
        (void)vmm__host_fail_at(0);
        refused += status == VMM_ERR_HOST_OOM;
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
    }
    assert_true(refused > 2);
}
