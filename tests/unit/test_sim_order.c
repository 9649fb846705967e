/*
 * The order between pieces of work on the sim driver: it detects races, and each way to avoid them
 * works.
 */
#include "support/sim_support.h"

#define A STREAM(0xa)
#define B STREAM(0xb)
#define C STREAM(0xc)

/* A granule that stream A has begun to write. */
static uint64_t memory_written(struct driver *driver)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    memory_fill(driver, address, 4096, 1, A);
    return address;
}

SIM_TEST(work_on_one_stream_is_ordered)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    for (uint32_t word = 1; word < 9; word++) {
        memory_fill(driver, address, 4096, word, A);
        memory_check(driver, address, 4096, word, A);
    }
    assert_int_equal(mismatches(driver), 0);
}

SIM_TEST(a_write_races_with_another_streams_write)
{
    uint64_t address = memory_written(driver);
    memory_fill(driver, address + 512, 512, 2, B);
    sim_assert_violations(driver, 1, "races");
}

SIM_TEST(a_read_races_with_another_streams_write)
{
    uint64_t address = memory_written(driver);
    memory_check(driver, address, 4096, 1, B);
    sim_assert_violations(driver, 1, "with work 1 of stream 0x10a");
}

SIM_TEST(a_write_races_with_another_streams_read)
{
    uint64_t address = memory_written(driver);
    assert_ok(vmm__driver_device_wait(driver));
    memory_check(driver, address + 512, 512, 2, B);
    memory_fill(driver, address + 2048, 512, 2, A);
    sim_assert_clean(driver);
    memory_fill(driver, address, 4096, 3, A);
    sim_assert_violations(driver, 1, "of stream 0x10b");
}

SIM_TEST(reads_on_many_streams_do_not_race)
{
    uint64_t address = memory_written(driver);
    assert_ok(vmm__driver_device_wait(driver));
    for (uint64_t stream = 1; stream < 9; stream++)
        memory_check(driver, address, 4096, 1, STREAM(stream));
}

SIM_TEST(a_write_must_follow_every_reader)
{
    uint64_t address = memory_written(driver);
    assert_ok(vmm__driver_device_wait(driver));
    for (uint64_t stream = 1; stream < 9; stream++)
        memory_check(driver, address, 4096, 1, STREAM(stream));
    for (uint64_t stream = 1; stream < 8; stream++)
        assert_ok(vmm__driver_stream_wait(driver, A, sim_record(driver, STREAM(stream))));
    memory_fill(driver, address + 1024, 512, 2, A);
    sim_assert_violations(driver, 1, "of stream 0x108");
    assert_ok(vmm__driver_stream_wait(driver, A, sim_record(driver, STREAM(8))));
    memory_fill(driver, address, 4096, 2, A);
    sim_assert_violations(driver, 1, "");
}

SIM_TEST(a_stream_wait_avoids_the_race)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    memory_fill(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_stream_wait(driver, B, sim_record(driver, A)));
    memory_check(driver, address, 4096, 1, B);
    assert_ok(vmm__driver_stream_wait(driver, C, sim_record(driver, B)));
    memory_fill(driver, address, 4096, 2, C);
    assert_int_equal(mismatches(driver), 0);
}

SIM_TEST(a_wait_ignores_work_after_the_record)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    void *event = sim_record(driver, A);
    memory_fill(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_stream_wait(driver, B, event));
    memory_fill(driver, address, 4096, 2, B);
    sim_assert_violations(driver, 1, "races");
}

SIM_TEST(a_completed_query_avoids_the_race)
{
    uint64_t address = memory_written(driver);
    assert_ok(vmm__driver_event_query(driver, sim_record(driver, A)));
    memory_fill(driver, address, 4096, 2, B);
}

SIM_TEST(a_pending_query_does_not_avoid_the_race)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    memory_fill(driver, address, 4096, 1, A);
    assert_status(vmm__driver_event_query(driver, sim_record(driver, A)), VMM__PENDING);
    vmm__sim_lag_set(driver, 0);
    memory_fill(driver, address, 4096, 2, B);
    sim_assert_violations(driver, 1, "races");
}

SIM_TEST(host_waits_avoid_the_race)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    memory_fill(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_event_wait(driver, sim_record(driver, A)));
    memory_fill(driver, address, 4096, 2, B);
    assert_ok(vmm__driver_device_wait(driver));
    memory_fill(driver, address, 4096, 3, C);
    assert_int_equal(mismatches(driver), 0);
    memory_fill(driver, address, 4096, 4, A);
}

SIM_TEST(a_race_through_an_alias_is_detected)
{
    uint64_t handle;
    uint64_t first = memory_map(driver, GRANULE, &handle);
    uint64_t second = address_reserve(driver, GRANULE);
    handle_map(driver, second, GRANULE, handle);
    memory_fill(driver, first, 4096, 1, A);
    memory_fill(driver, second + 4096, 4096, 2, B);
    sim_assert_clean(driver);
    memory_fill(driver, second, 512, 2, B);
    sim_assert_violations(driver, 1, "races");
}

/* A new stream reuses the handle of the destroyed one, but is not ordered after it. */
SIM_TEST(work_of_a_destroyed_stream_still_races)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm_stream streams[2];
    assert_ok(vmm__driver_stream_create(driver, &streams[0]));
    memory_fill(driver, address, 4096, 1, streams[0]);
    assert_ok(vmm__driver_stream_destroy(driver, streams[0]));
    assert_status(vmm__driver_stream_destroy(driver, streams[0]), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm__driver_stream_create(driver, &streams[1]));
    assert_ptr_equal(streams[0], streams[1]);
    memory_fill(driver, address, 4096, 2, streams[1]);
    sim_assert_violations(driver, 1, "races");
}

SIM_TEST(a_new_stream_does_not_inherit_order)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm_stream stream;
    memory_fill(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_stream_create(driver, &stream));
    assert_ok(vmm__driver_stream_wait(driver, stream, sim_record(driver, A)));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_stream_create(driver, &stream));
    memory_fill(driver, address, 4096, 2, stream);
    sim_assert_violations(driver, 1, "races");
}

SIM_TEST(stream_slots_are_reused)
{
    sim_violations_allow();
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm_stream stream;
    for (uint32_t round = 0; round < 2000; round++) {
        assert_ok(vmm__driver_stream_create(driver, &stream));
        memory_fill(driver, address, 4096, round, stream);
        assert_ok(vmm__driver_stream_destroy(driver, stream));
        if (round % 200 == 199)
            assert_ok(vmm__driver_device_wait(driver));
    }
}

/*
 * No stream is destroyed. Each loses its record once the host has observed the end of its work, and
 * gets another with its next work.
 */
SIM_TEST(the_number_of_streams_is_unlimited)
{
    enum { NAMES = 5000 };
    uint64_t address = memory_map(driver, GRANULE, NULL);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint64_t name = 1; name <= NAMES; name++) {
            memory_fill(driver, address, 512, (uint32_t)name, STREAM(name));
            assert_ok(vmm__driver_device_wait(driver));
        }
    }
    sim_assert_clean(driver);
    for (uint64_t name = 1; name <= NAMES; name++)
        assert_ok(vmm__driver_stream_destroy(driver, STREAM(name)));
    assert_status(vmm__driver_stream_destroy(driver, STREAM(1)), VMM_ERR_INVALID_ARGUMENT);
    assert_status(vmm__driver_fill(driver, address, 512, 1, STREAM(1)), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "stream 0x101 was destroyed"));
}

/*
 * A stream keeps its record while its next work follows work that the host has not observed to end.
 */
SIM_TEST(a_stream_keeps_its_pending_wait)
{
    enum { NAMES = 3000 };
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, UINT64_MAX);
    memory_fill(driver, address, 4096, 1, A);
    void *event = sim_record(driver, A);
    assert_ok(vmm__driver_stream_wait(driver, B, event));
    for (uint64_t name = 1; name <= NAMES; name++)
        assert_ok(vmm__driver_event_record(driver, event, STREAM(0x100 + name)));
    memory_fill(driver, address, 4096, 2, B);
    sim_assert_clean(driver);
    memory_fill(driver, address, 4096, 3, C);
    sim_assert_violations(driver, 1, "races");
    assert_ok(vmm__driver_event_destroy(driver, event));
}

SIM_TEST(too_many_busy_streams_are_refused)
{
    enum { NAMES = 1024 };
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, UINT64_MAX);
    for (uint64_t name = 1; name <= NAMES; name++)
        memory_fill(driver, address + 512 * name, 512, 1, STREAM(name));
    assert_status(vmm__driver_fill(driver, address, 512, 1, STREAM(NAMES + 1)), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "1024 other streams have work in progress"));
    vmm_stream created;
    assert_status(vmm__driver_stream_create(driver, &created), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_device_wait(driver));
    memory_fill(driver, address, 512, 1, STREAM(NAMES + 1));
    assert_ok(vmm__driver_stream_create(driver, &created));
}
