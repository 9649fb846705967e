/* What work on the sim driver is ordered after: races found, and each way to avoid them. */
#include "support/sim_support.h"

#define A STREAM(0xa)
#define B STREAM(0xb)
#define C STREAM(0xc)

static void one_stream_is_in_order(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    for (uint32_t word = 1; word < 9; word++) {
        sim_filled(driver, address, 4096, word, A);
        sim_checked(driver, address, 4096, word, A);
    }
    assert_int_equal(sim_mismatches(driver), 0);
    sim_assert_clean(driver);
}

static void a_write_after_a_write_elsewhere_races(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 4096, 1, A);
    sim_filled(driver, address + 512, 512, 2, B);
    sim_assert_violations(driver, 1, "races");
}

static void a_read_after_a_write_elsewhere_races(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 4096, 1, A);
    sim_checked(driver, address, 4096, 1, B);
    sim_assert_violations(driver, 1, "with work 1 of stream 0xa");
}

static void a_write_after_a_read_elsewhere_races(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_device_wait(driver));
    sim_checked(driver, address + 512, 512, 2, B);
    sim_filled(driver, address + 2048, 512, 2, A);
    sim_assert_clean(driver);
    sim_filled(driver, address, 4096, 3, A);
    sim_assert_violations(driver, 1, "of stream 0xb");
}

static void reads_on_many_streams_do_not_race(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_device_wait(driver));
    for (uint64_t stream = 1; stream < 9; stream++)
        sim_checked(driver, address, 4096, 1, STREAM(stream));
    sim_assert_clean(driver);
}

static void every_reader_must_come_before_a_write(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_device_wait(driver));
    for (uint64_t stream = 1; stream < 9; stream++)
        sim_checked(driver, address, 4096, 1, STREAM(stream));
    for (uint64_t stream = 1; stream < 8; stream++)
        assert_ok(vmm__driver_stream_wait(driver, A, sim_recorded(driver, STREAM(stream))));
    sim_filled(driver, address + 1024, 512, 2, A);
    sim_assert_violations(driver, 1, "of stream 0x8");
    assert_ok(vmm__driver_stream_wait(driver, A, sim_recorded(driver, STREAM(8))));
    sim_filled(driver, address, 4096, 2, A);
    sim_assert_violations(driver, 1, "");
}

static void a_stream_wait_avoids_the_race(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    sim_filled(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_stream_wait(driver, B, sim_recorded(driver, A)));
    sim_checked(driver, address, 4096, 1, B);
    assert_ok(vmm__driver_stream_wait(driver, C, sim_recorded(driver, B)));
    sim_filled(driver, address, 4096, 2, C);
    assert_int_equal(sim_mismatches(driver), 0);
    sim_assert_clean(driver);
}

static void work_after_the_record_is_not_waited_for(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    void *event = sim_recorded(driver, A);
    sim_filled(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_stream_wait(driver, B, event));
    sim_filled(driver, address, 4096, 2, B);
    sim_assert_violations(driver, 1, "races");
}

static void a_query_that_was_ok_avoids_the_race(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    sim_filled(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_event_query(driver, sim_recorded(driver, A)));
    sim_filled(driver, address, 4096, 2, B);
    sim_assert_clean(driver);
}

static void a_query_that_was_not_ready_does_not(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    sim_filled(driver, address, 4096, 1, A);
    assert_status(vmm__driver_event_query(driver, sim_recorded(driver, A)), VMM_NOT_READY);
    vmm__sim_lag_set(driver, 0);
    sim_filled(driver, address, 4096, 2, B);
    sim_assert_violations(driver, 1, "races");
}

static void waits_of_the_host_avoid_the_race(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 100);
    sim_filled(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_event_wait(driver, sim_recorded(driver, A)));
    sim_filled(driver, address, 4096, 2, B);
    assert_ok(vmm__driver_device_wait(driver));
    sim_filled(driver, address, 4096, 3, C);
    assert_int_equal(sim_mismatches(driver), 0);
    sim_filled(driver, address, 4096, 4, A);
    sim_assert_clean(driver);
}

static void a_race_under_another_address_is_seen(void **state)
{
    struct driver *driver = *state;
    uint64_t handle;
    uint64_t first = sim_memory(driver, GRANULE, &handle);
    uint64_t second = sim_reserved(driver, GRANULE);
    sim_mapped(driver, second, GRANULE, handle);
    sim_filled(driver, first, 4096, 1, A);
    sim_filled(driver, second + 4096, 4096, 2, B);
    sim_assert_clean(driver);
    sim_filled(driver, second, 512, 2, B);
    sim_assert_violations(driver, 1, "races");
}

/* Its handle comes back as another stream's, which is not ordered after it. */
static void a_destroyed_stream_still_counts(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm_stream streams[2];
    assert_ok(vmm__driver_stream_create(driver, &streams[0]));
    sim_filled(driver, address, 4096, 1, streams[0]);
    assert_ok(vmm__driver_stream_destroy(driver, streams[0]));
    assert_status(vmm__driver_stream_destroy(driver, streams[0]), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_stream_create(driver, &streams[1]));
    assert_ptr_equal(streams[0], streams[1]);
    sim_filled(driver, address, 4096, 2, streams[1]);
    sim_assert_violations(driver, 1, "races");
}

static void a_new_stream_knows_nothing_of_an_old_one(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm_stream stream;
    sim_filled(driver, address, 4096, 1, A);
    assert_ok(vmm__driver_stream_create(driver, &stream));
    assert_ok(vmm__driver_stream_wait(driver, stream, sim_recorded(driver, A)));
    assert_ok(vmm__driver_stream_destroy(driver, stream));
    assert_ok(vmm__driver_stream_create(driver, &stream));
    sim_filled(driver, address, 4096, 2, stream);
    sim_assert_violations(driver, 1, "races");
}

static void streams_come_and_go_without_end(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    vmm_stream stream;
    for (uint32_t round = 0; round < 2000; round++) {
        assert_ok(vmm__driver_stream_create(driver, &stream));
        sim_filled(driver, address, 4096, round, stream);
        assert_ok(vmm__driver_stream_destroy(driver, stream));
        if (round % 200 == 199)
            assert_ok(vmm__driver_device_wait(driver));
    }
    for (uint64_t name = 1; name <= 256; name++)
        sim_filled(driver, address, 512, 1, STREAM(name));
    assert_status(vmm__driver_fill(driver, address, 512, 1, STREAM(257)), VMM_ERR_DRIVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(one_stream_is_in_order),
        SIM_TEST(a_write_after_a_write_elsewhere_races),
        SIM_TEST(a_read_after_a_write_elsewhere_races),
        SIM_TEST(a_write_after_a_read_elsewhere_races),
        SIM_TEST(reads_on_many_streams_do_not_race),
        SIM_TEST(every_reader_must_come_before_a_write),
        SIM_TEST(a_stream_wait_avoids_the_race),
        SIM_TEST(work_after_the_record_is_not_waited_for),
        SIM_TEST(a_query_that_was_ok_avoids_the_race),
        SIM_TEST(a_query_that_was_not_ready_does_not),
        SIM_TEST(waits_of_the_host_avoid_the_race),
        SIM_TEST(a_race_under_another_address_is_seen),
        SIM_TEST(a_destroyed_stream_still_counts),
        SIM_TEST(a_new_stream_knows_nothing_of_an_old_one),
        SIM_TEST(streams_come_and_go_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
