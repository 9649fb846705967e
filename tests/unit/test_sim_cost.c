/* The sim driver's clock compared with measurements on an H200; injected faults; threads. */
#include "support/sim_support.h"

#include <pthread.h>
#include <unistd.h>

/* ---- The clock ------------------------------------------------------------------------------- */

/* Asserts that `ns` is within `percent` of the measured time, given in tenths of microseconds. */
static void assert_near(const char *what, uint64_t ns, uint64_t measured_us10, uint64_t percent)
{
    uint64_t measured = measured_us10 * 100;
    uint64_t difference = ns > measured ? ns - measured : measured - ns;
    if (difference * 100 > measured * percent)
        print_error("%s: %llu ns, measured %llu ns\n", what, (unsigned long long)ns,
                    (unsigned long long)measured);
    assert_true(difference * 100 <= measured * percent);
}

/* The time that the call adds to the clock. */
#define cost_of(call)                                                                              \
    (clock_before = vmm__driver_clock(driver), assert_status(call, VMM_OK),                        \
     vmm__driver_clock(driver) - clock_before)

/*
 * Medians of an H200 in tenths of microseconds, and the permitted deviation of the clock in per
 * cent: 15, or more where the straight-line fits deviate more.
 */
struct cost_row {
    uint64_t mib;
    uint64_t create, map, access, unmap, release;
    uint64_t create_percent, release_percent;
};

static const struct cost_row cost_rows[] = {
    { 2, 127, 12, 314, 200, 143, 15, 15 },     { 8, 130, 12, 303, 206, 199, 15, 15 },
    { 32, 140, 12, 312, 214, 408, 15, 15 },    { 64, 158, 11, 317, 217, 700, 15, 21 },
    { 128, 180, 13, 347, 208, 1090, 15, 15 },  { 512, 430, 11, 570, 290, 3360, 35, 15 },
    { 1024, 300, 11, 710, 350, 6660, 46, 15 },
};

SIM_TEST(call_costs_match_an_h200)
{
    uint64_t clock_before;
    for (size_t index = 0; index < sizeof cost_rows / sizeof *cost_rows; index++) {
        const struct cost_row *row = &cost_rows[index];
        uint64_t bytes = row->mib * MIB;
        uint64_t address = address_reserve(driver, bytes);
        uint64_t handle;
        assert_near("create", cost_of(vmm__driver_create(driver, bytes, false, &handle)),
                    row->create, row->create_percent);
        assert_near("map", cost_of(vmm__driver_map(driver, address, bytes, handle)), row->map, 16);
        assert_near("access", cost_of(vmm__driver_access(driver, address, bytes)), row->access, 15);
        assert_near("unmap", cost_of(vmm__driver_unmap(driver, address, bytes)), row->unmap, 15);
        assert_near("release", cost_of(vmm__driver_release(driver, handle, bytes)), row->release,
                    row->release_percent);
    }
}

SIM_TEST(small_call_costs_match_an_h200)
{
    uint64_t clock_before;
    uint64_t address;
    uint64_t free_bytes;
    uint64_t total_bytes;
    void *event;
    assert_int_equal(cost_of(vmm__driver_reserve(driver, TIB, 0, &address)), 2500);
    assert_int_equal(cost_of(vmm__driver_address_free(driver, address, TIB)), 5000);
    assert_int_equal(cost_of(vmm__driver_memory_info(driver, &free_bytes, &total_bytes)), 4700);
    assert_ok(vmm__driver_event_create(driver, &event));
    assert_int_equal(cost_of(vmm__driver_event_record(driver, event, NULL)), 180);
    assert_int_equal(cost_of(vmm__driver_event_query(driver, event)), 180);
    assert_int_equal(cost_of(vmm__driver_stream_wait(driver, NULL, event)), 310);
    assert_ok(vmm__driver_event_destroy(driver, event));
}

static uint64_t map_64_handles(struct driver *driver, uint64_t *handles)
{
    uint64_t address = address_reserve(driver, 64 * GRANULE);
    for (uint64_t place = 0; place < 64; place++) {
        handles[place] = handle_create(driver, GRANULE);
        assert_ok(vmm__driver_map(driver, address + place * GRANULE, GRANULE, handles[place]));
    }
    return address;
}

SIM_TEST(each_mapping_is_charged)
{
    uint64_t clock_before;
    uint64_t handles[64];
    uint64_t address = map_64_handles(driver, handles);
    assert_near("access of 64", cost_of(vmm__driver_access(driver, address, 64 * GRANULE)), 20180,
                15);
    assert_near("unmap of 64", cost_of(vmm__driver_unmap(driver, address, 64 * GRANULE)), 12790,
                15);
}

SIM_TEST(repeated_access_is_cheap)
{
    uint64_t clock_before;
    uint64_t handles[64];
    uint64_t address = map_64_handles(driver, handles);
    assert_ok(vmm__driver_access(driver, address, 63 * GRANULE));
    assert_near("access of 1 and 63", cost_of(vmm__driver_access(driver, address, 64 * GRANULE)),
                550, 15);
}

SIM_TEST(release_is_charged_at_release)
{
    uint64_t clock_before;
    uint64_t handle;
    uint64_t address = memory_map(driver, 128 * MIB, &handle);
    assert_int_equal(cost_of(vmm__driver_release(driver, handle, 128 * MIB)), 14000 + 128 * 650);
    assert_int_equal(cost_of(vmm__driver_unmap(driver, address, 128 * MIB)), 20000 + 128 * 14);
}

static const struct cost_row exportable_rows[] = {
    { 2, 200, 12, 378, 230, 240, 16, 15 },
    { 64, 150, 11, 289, 180, 620, 20, 15 },
    { 512, 240, 11, 639, 330, 4280, 15, 15 },
};

SIM_TEST(costs_of_exportable_handles_match_an_h200)
{
    uint64_t clock_before;
    static const uint64_t exports[] = { 7060, 7040, 8090 };
    for (size_t index = 0; index < sizeof exportable_rows / sizeof *exportable_rows; index++) {
        const struct cost_row *row = &exportable_rows[index];
        uint64_t bytes = row->mib * MIB;
        uint64_t address = address_reserve(driver, bytes);
        uint64_t handle;
        uint64_t import;
        int descriptor;
        struct driver_fabric fabric;
        assert_near("create", cost_of(vmm__driver_create(driver, bytes, VMM_SHARE_FABRIC, &handle)),
                    row->create, row->create_percent);
        assert_ok(vmm__driver_map(driver, address, bytes, handle));
        assert_near("access", cost_of(vmm__driver_access(driver, address, bytes)), row->access, 28);
        assert_near("export", cost_of(vmm__driver_share_export(driver, handle, &descriptor)),
                    exports[index], 15);
        assert_near("import", cost_of(vmm__driver_share_import(driver, descriptor, bytes, &import)),
                    330, 15);
        assert_int_equal(close(descriptor), 0);
        assert_ok(vmm__driver_share_release(driver, import, bytes));
        assert_near("export", cost_of(vmm__driver_fabric_export(driver, handle, &fabric)),
                    exports[index], 15);
        assert_near("import", cost_of(vmm__driver_fabric_import(driver, &fabric, bytes, &import)),
                    330, 15);
        assert_ok(vmm__driver_share_release(driver, import, bytes));
        assert_near("unmap", cost_of(vmm__driver_unmap(driver, address, bytes)), row->unmap, 21);
        assert_near("release", cost_of(vmm__driver_release(driver, handle, bytes)), row->release,
                    row->release_percent);
    }
}

SIM_TEST(pinning_costs_60_ms_a_gibibyte)
{
    uint64_t clock_before;
    static unsigned char host[64];
    void *range = (void *)(uintptr_t)GIB; /* sim does not touch it */
    assert_near("pin", cost_of(vmm__driver_pin(driver, range, GIB)), 600000, 1);
    assert_int_equal(cost_of(vmm__driver_pin(driver, host, sizeof host)), 0);
}

SIM_TEST(work_adds_no_driver_time)
{
    uint64_t clock_before;
    uint64_t address = memory_map(driver, GRANULE, NULL);
    assert_int_equal(cost_of(vmm__driver_fill(driver, address, MIB, 1, NULL)), 0);
    assert_int_equal(cost_of(vmm__driver_check(driver, address, MIB, 1, NULL)), 0);
}

SIM_TEST(tallies_sum_to_the_clock)
{
    uint64_t handles[64];
    uint64_t address = map_64_handles(driver, handles);
    assert_ok(vmm__driver_access(driver, address, 64 * GRANULE));
    assert_ok(vmm__driver_unmap(driver, address, 64 * GRANULE));
    assert_int_equal(vmm__driver_clock_ns(driver), vmm__driver_clock(driver));
    assert_int_equal(vmm__driver_calls(driver, DRIVER_CALL_map), 64);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

enum { ALL_CALLS = 28 };

static int faults_seen;

/* A call that may get an injected fault: it must then change nothing, and succeed when repeated. */
#define step(call)                                                                                 \
    do {                                                                                           \
        struct sim_census before = vmm__sim_census(driver);                                        \
        uint64_t clock = vmm__driver_clock(driver);                                                \
        vmm_status status = (call);                                                                \
        if (status == VMM_OK)                                                                      \
            break;                                                                                 \
        struct sim_census after = vmm__sim_census(driver);                                         \
        assert_int_equal(status, VMM_ERR_DRIVER);                                                  \
        assert_non_null(strstr(vmm_last_error(), "made to fail as call"));                         \
        assert_memory_equal(&before, &after, sizeof before);                                       \
        assert_int_equal(vmm__driver_clock(driver), clock);                                        \
        faults_seen++;                                                                             \
        assert_ok(call);                                                                           \
    } while (0)

/* Makes one call of every numbered kind without an effect when it fails. */
static void make_all_calls(struct driver *driver)
{
    uint64_t address;
    uint64_t handle;
    uint64_t free_bytes;
    uint64_t total_bytes;
    uint64_t import;
    int descriptor;
    struct driver_fabric fabric;
    void *event;
    vmm_stream stream;
    step(vmm__driver_reserve(driver, 4 * GRANULE, 0, &address));
    step(vmm__driver_create(driver, 2 * GRANULE, VMM_SHARE_FABRIC, &handle));
    step(vmm__driver_share_export(driver, handle, &descriptor));
    step(vmm__driver_share_import(driver, descriptor, 2 * GRANULE, &import));
    assert_int_equal(close(descriptor), 0);
    step(vmm__driver_share_release(driver, import, 2 * GRANULE));
    step(vmm__driver_fabric_check(driver));
    step(vmm__driver_fabric_export(driver, handle, &fabric));
    step(vmm__driver_fabric_import(driver, &fabric, 2 * GRANULE, &import));
    step(vmm__driver_share_release(driver, import, 2 * GRANULE));
    step(vmm__driver_pin(driver, &free_bytes, sizeof free_bytes));
    step(vmm__driver_unpin(driver, &free_bytes, sizeof free_bytes));
    step(vmm__driver_stream_create(driver, &stream));
    step(vmm__driver_stream_destroy(driver, stream));
    step(vmm__driver_map(driver, address, 2 * GRANULE, handle));
    step(vmm__driver_map(driver, address + 2 * GRANULE, 2 * GRANULE, handle));
    step(vmm__driver_access(driver, address, 4 * GRANULE));
    step(vmm__driver_memory_info(driver, &free_bytes, &total_bytes));
    step(vmm__driver_event_create(driver, &event));
    step(vmm__driver_copy(driver, address, address + 3 * GRANULE, GRANULE, NULL));
    step(vmm__driver_event_record(driver, event, NULL));
    step(vmm__driver_event_query(driver, event));
    step(vmm__driver_event_wait(driver, event));
    step(vmm__driver_stream_wait(driver, NULL, event));
    step(vmm__driver_device_wait(driver));
    step(vmm__driver_event_destroy(driver, event));
    step(vmm__driver_unmap(driver, address, 4 * GRANULE));
    step(vmm__driver_release(driver, handle, 2 * GRANULE));
    step(vmm__driver_address_free(driver, address, 4 * GRANULE));
}

SIM_TEST(every_call_is_numbered_and_can_fail_once)
{
    make_all_calls(driver);
    assert_int_equal(vmm__sim_calls(driver), ALL_CALLS);
    for (uint64_t number = 1; number <= ALL_CALLS; number++) {
        faults_seen = 0;
        vmm__sim_fail_at(driver, number, VMM_ERR_DRIVER, false);
        make_all_calls(driver);
        assert_int_equal(faults_seen, 1);
        assert_int_equal(vmm__sim_faults_fired(driver), 1);
        assert_int_equal(vmm__sim_calls(driver), ALL_CALLS + 1);
        assert_true(sim_census_is_zero(driver));
    }
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    faults_seen = 0;
    make_all_calls(driver);
    assert_int_equal(faults_seen, 0);
}

SIM_TEST(a_fault_hits_the_numbered_call)
{
    uint64_t address;
    uint64_t handle = 7;
    vmm__sim_fail_at(driver, 2, VMM_ERR_DEVICE_OOM, false);
    assert_ok(vmm__driver_reserve(driver, GRANULE, 0, &address));
    assert_status(vmm__driver_create(driver, GRANULE, false, &handle), VMM_ERR_DEVICE_OOM);
    assert_string_equal(vmm_last_error(), "sim: create: made to fail as call 2");
    assert_int_equal(handle, 7);
    assert_ok(vmm__driver_create(driver, GRANULE, false, &handle));
}

SIM_TEST(permanent_faults_persist)
{
    uint64_t address;
    vmm__sim_fail_at(driver, 3, VMM_ERR_DRIVER, true);
    for (int call = 1; call <= 20; call++)
        assert_status(vmm__driver_reserve(driver, GRANULE, 0, &address),
                      call < 3 ? VMM_OK : VMM_ERR_DRIVER);
    assert_int_equal(vmm__sim_calls(driver), 20);
    assert_int_equal(vmm__sim_faults_fired(driver), 18);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    assert_ok(vmm__driver_reserve(driver, GRANULE, 0, &address));
    assert_int_equal(vmm__sim_calls(driver), 1);
    assert_int_equal(vmm__sim_faults_fired(driver), 0);
}

SIM_TEST(work_for_tests_is_not_numbered)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    vmm__sim_fail_at(driver, 1, VMM_ERR_DRIVER, true);
    assert_ok(vmm__driver_fill(driver, address, 512, 1, STREAM(1)));
    assert_ok(vmm__driver_check(driver, address, 512, 1, STREAM(1)));
    assert_int_equal(mismatches(driver), 0);
    assert_int_equal(vmm__sim_calls(driver), 0);
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, THREAD_ROUNDS = 2000 };

struct thread_task {
    struct driver *driver;
    vmm_stream stream;
    vmm_status status;
};

static vmm_status thread_round(struct driver *driver, vmm_stream stream, void *event)
{
    uint64_t address = 0;
    uint64_t handle = 0;
    vmm_status status = vmm__driver_reserve(driver, GRANULE, 0, &address);
    status = status ? status : vmm__driver_create(driver, GRANULE, false, &handle);
    status = status ? status : vmm__driver_map(driver, address, GRANULE, handle);
    status = status ? status : vmm__driver_access(driver, address, GRANULE);
    status = status ? status : vmm__driver_fill(driver, address, MIB, 1, stream);
    status = status ? status : vmm__driver_check(driver, address, MIB, 1, stream);
    status = status ? status : vmm__driver_event_record(driver, event, stream);
    status = status ? status : vmm__driver_event_wait(driver, event);
    status = status ? status : vmm__driver_unmap(driver, address, GRANULE);
    status = status ? status : vmm__driver_release(driver, handle, GRANULE);
    return status ? status : vmm__driver_address_free(driver, address, GRANULE);
}

static void *thread_main(void *context)
{
    struct thread_task *task = context;
    void *event = NULL;
    task->status = vmm__driver_event_create(task->driver, &event);
    for (int round = 0; round < THREAD_ROUNDS && task->status == VMM_OK; round++)
        task->status = thread_round(task->driver, task->stream, event);
    if (task->status == VMM_OK)
        task->status = vmm__driver_event_destroy(task->driver, event);
    return NULL;
}

SIM_TEST(threads_share_one_driver)
{
    pthread_t threads[THREADS];
    struct thread_task tasks[THREADS];
    vmm__sim_lag_set(driver, 20);
    for (uint64_t index = 0; index < THREADS; index++) {
        tasks[index] = (struct thread_task){ .driver = driver, .stream = STREAM(index) };
        assert_int_equal(pthread_create(&threads[index], NULL, thread_main, &tasks[index]), 0);
    }
    for (int index = 0; index < THREADS; index++) {
        assert_int_equal(pthread_join(threads[index], NULL), 0);
        assert_ok(tasks[index].status);
    }
    assert_int_equal(mismatches(driver), 0);
    assert_true(sim_census_is_zero(driver));
}
