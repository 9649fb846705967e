/* What the host driver refuses: invalid calls, and every call that runs out of host memory. */
#define _GNU_SOURCE
#include "support/host_support.h"

#include "driver/host/host.h"
#include "driver/sim/sim.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Invalid calls --------------------------------------------------------------------------- */

HOST_TEST(work_requires_accessible_memory)
{
    uint64_t good = memory_map(driver, GRANULE, NULL);
    uint64_t bad = address_reserve(driver, GRANULE);
    assert_status(vmm__driver_copy(driver, good, bad, GRANULE, STREAM(1)), VMM_ERR_DRIVER);
    assert_status(vmm__driver_copy(driver, bad, good, GRANULE, STREAM(1)), VMM_ERR_DRIVER);
    assert_ok(vmm__driver_copy(driver, good, good, GRANULE, STREAM(1)));
    assert_status(vmm__driver_fill(driver, bad, GRANULE, 1, STREAM(1)), VMM_ERR_DRIVER);
    assert_status(vmm__driver_check(driver, bad, GRANULE, 1, STREAM(1)), VMM_ERR_DRIVER);
}

/* Such as that of a source, which the driver has not created. */
HOST_TEST(work_may_use_memory_of_the_program)
{
    uint64_t memory = memory_map(driver, GRANULE, NULL);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t hole = 32 * GRANULE; /* what is mapped meanwhile by others lies at its end */
    void *mapped =
        mmap(NULL, 2 * page + hole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    uint64_t own = (uint64_t)(uintptr_t)mapped;
    assert_int_equal(munmap((char *)mapped + 2 * page, hole), 0);
    memory_fill(driver, memory, page, 5, STREAM(1));
    assert_ok(vmm__driver_copy(driver, own + 512, memory, page, STREAM(1)));
    memory_check(driver, own + 512, page, 5, STREAM(1));
    assert_int_equal(mismatches(driver), 0);
    assert_status(vmm__driver_fill(driver, own + page, page + 512, 1, STREAM(1)), VMM_ERR_DRIVER);
    assert_status(vmm__driver_fill(driver, own, UINT64_MAX, 1, STREAM(1)), VMM_ERR_DRIVER);
    assert_int_equal(munmap(mapped, 2 * page), 0);
    assert_status(vmm__driver_fill(driver, own, page, 1, STREAM(1)), VMM_ERR_DRIVER);
}

HOST_TEST(captures_begin_and_end_once)
{
    struct driver_options options = { 0 };
    struct driver *sim;
    assert_ok(vmm__driver_sim_open(&options, &sim));
    struct driver *const drivers[] = { driver, sim };
    for (int i = 0; i < 2; i++) {
        struct driver *each = drivers[i];
        assert_status(vmm__driver_capture_end(each, STREAM(9)), VMM_ERR_DRIVER);
        assert_ok(vmm__driver_capture_begin(each, STREAM(9)));
        assert_status(vmm__driver_capture_begin(each, STREAM(9)), VMM_ERR_DRIVER);
        assert_ok(vmm__driver_capture_end(each, STREAM(9)));
        assert_status(vmm__driver_capture_end(each, STREAM(9)), VMM_ERR_DRIVER);
        assert_status(vmm__driver_stream_destroy(each, STREAM(10)), VMM_ERR_DRIVER);
    }
    vmm__driver_close(sim);
}

/* The next stream gets the name, and perhaps the record, of the one whose capture the event belongs to. */
HOST_TEST(an_event_of_an_old_capture_breaks_no_other)
{
    struct driver_options options = { 0 };
    struct driver *sim;
    assert_ok(vmm__driver_sim_open(&options, &sim));
    struct driver *const drivers[] = { driver, sim };
    for (int i = 0; i < 2; i++) {
        struct driver *each = drivers[i];
        void *event = event_new(each);
        vmm_stream stream = stream_new(each);
        assert_ok(vmm__driver_capture_begin(each, stream));
        assert_ok(vmm__driver_event_record(each, event, stream));
        assert_ok(vmm__driver_capture_end(each, stream));
        assert_ok(vmm__driver_stream_destroy(each, stream));
        stream = stream_new(each);
        assert_ok(vmm__driver_capture_begin(each, stream));
        assert_status(vmm__driver_event_query(each, event), VMM_ERR_DRIVER);
        assert_ok(vmm__driver_capture_end(each, stream));
    }
    vmm__driver_close(sim);
}

/* The capture of a destroyed stream ends with it: an event of all work waits for it no longer. */
HOST_TEST(captures_end_with_their_stream)
{
    void *event;
    assert_ok(vmm__driver_event_create(driver, &event));
    assert_ok(vmm__driver_delay(driver, 50 * 1000 * 1000, STREAM(9)));
    assert_ok(vmm__driver_capture_begin(driver, STREAM(9)));
    assert_ok(vmm__driver_stream_destroy(driver, STREAM(9)));
    assert_ok(vmm__driver_clock_record(driver, event));
    assert_ok(vmm__driver_event_wait(driver, event));
    assert_ok(vmm__driver_event_destroy(driver, event));
}

TEST(unknown_kinds_are_refused)
{
    struct driver_options options = { .device_bytes = 4 * GRANULE };
    struct driver *driver = NULL;
    static const int wrong[] = { -1, VMM_DRIVER_SIM + 1, 1000 };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(vmm_has_driver((vmm_driver_kind)wrong[i]), 0);
        assert_status(vmm__driver_open((vmm_driver_kind)wrong[i], &options, &driver),
                      VMM_ERR_INVALID_ARGUMENT);
    }
    assert_int_equal(vmm_has_driver(VMM_DRIVER_DEFAULT), 1);
    assert_int_equal(vmm_has_driver(VMM_DRIVER_HOST), 1);
    assert_int_equal(vmm_has_driver(VMM_DRIVER_SIM), 1);
    vmm__driver_close(NULL);
    assert_null(driver);
}

/* ---- Without host memory --------------------------------------------------------------------- */

typedef vmm_status (*step)(struct driver *driver);

/* Fails every allocation of a step in turn: the step reports it, and a repeated step succeeds. */
static void sweep_step(struct driver *driver, step call)
{
    for (uint64_t number = 1; number < 100; number++) {
        (void)vmm__host_fail_at(number);
        vmm_status status = call(driver);
        (void)vmm__host_fail_at(0);
        if (status == VMM_OK) {
            assert_true(number > 1); /* the step does allocate */
            return;
        }
        assert_status(status, VMM_ERR_HOST_OOM);
    }
    fail_msg("a step allocates without end");
}

static vmm_status reserve_step(struct driver *driver)
{
    uint64_t address = 5;
    vmm_status status = vmm__driver_reserve(driver, GRANULE, 0, &address);
    assert_true((status == VMM_OK) == (address != 5));
    return status;
}

static vmm_status create_step(struct driver *driver)
{
    uint64_t handle = 5;
    vmm_status status = vmm__driver_create(driver, GRANULE, false, &handle);
    assert_true((status == VMM_OK) == (handle != 5));
    return status;
}

static vmm_status event_step(struct driver *driver)
{
    void *event = driver;
    vmm_status status = vmm__driver_event_create(driver, &event);
    assert_true((status == VMM_OK) == (event != driver));
    return status;
}

static vmm_status stream_step(struct driver *driver)
{
    vmm_stream stream = (vmm_stream)driver;
    vmm_status status = vmm__driver_stream_create(driver, &stream);
    assert_true((status == VMM_OK) == (stream != (vmm_stream)driver));
    return status;
}

static vmm_status capture_step(struct driver *driver)
{
    return vmm__driver_capture_begin(driver, STREAM(21));
}

/* Uses new stream names; the queue of one stream grows. */
static vmm_status work_step(struct driver *driver)
{
    vmm_status status = VMM_OK;
    for (int i = 0; i < 100 && status == VMM_OK; i++)
        status = vmm__driver_delay(driver, i == 0 ? 2000000 : 0, STREAM(22));
    return status;
}

HOST_TEST(every_step_reports_out_of_memory)
{
    static const step steps[] = { reserve_step, create_step, event_step,
                                  stream_step,  work_step,   capture_step };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        sweep_step(driver, steps[i]);
    assert_ok(vmm__driver_capture_end(driver, STREAM(21)));
    assert_ok(vmm__driver_device_wait(driver));
}

HOST_TEST(a_failed_map_leaves_no_mapping)
{
    uint64_t address = address_reserve(driver, GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__driver_map(driver, address, GRANULE, handle), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_status(vmm__driver_unmap(driver, address, GRANULE), VMM_ERR_DRIVER);
    handle_map(driver, address, GRANULE, handle);
}

TEST(open_fails_without_host_memory)
{
    uint64_t number = 0;
    vmm_status status = VMM_ERR_HOST_OOM;
    while (status == VMM_ERR_HOST_OOM && number < 100) {
        struct driver_options options = { .device_bytes = 4 * GRANULE };
        struct driver *driver = NULL;
        uint64_t before = vmm__host_outstanding();
        (void)vmm__host_fail_at(++number);
        status = vmm__driver_host_open(&options, &driver);
        (void)vmm__host_fail_at(0);
        assert_true((status == VMM_OK) == (driver != NULL));
        vmm__driver_close(driver);
        assert_int_equal(vmm__host_outstanding(), before);
    }
    assert_int_equal(status, VMM_OK);
    assert_true(number > 2); /* the driver and its table of granules */
}
