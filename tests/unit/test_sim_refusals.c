/*
 * The sim driver without host memory: if any allocation of a call fails, the call reports it and a
 * later call succeeds.
 */
#include "support/sim_support.h"

/*
 * Two adjacent granules with different contents written by different work, and two more as a copy
 * target.
 */
struct fixture {
    struct driver *driver;
    uint64_t from;
    uint64_t to;
};

typedef vmm_status (*step)(const struct fixture *fixture);

static struct fixture fixture_make(struct driver *driver)
{
    struct fixture fixture = { .driver = driver };
    fixture.from = address_reserve(driver, 2 * GRANULE);
    fixture.to = address_reserve(driver, 2 * GRANULE);
    for (uint64_t i = 0; i < 2; i++) {
        handle_map(driver, fixture.from + i * GRANULE, GRANULE, handle_create(driver, GRANULE));
        handle_map(driver, fixture.to + i * GRANULE, GRANULE, handle_create(driver, GRANULE));
    }
    for (uint64_t i = 0; i < 8; i++)
        memory_fill(driver, fixture.from + i * GRANULE / 4, GRANULE / 4, (uint32_t)i, STREAM(1));
    return fixture;
}

/* Fails every allocation of a step in turn. Returns how many it makes. */
static unsigned sweep_step(step call)
{
    for (uint64_t number = 1; number < 1000; number++) {
        struct driver_options options = { 0 };
        struct fixture fixture;
        struct driver *driver;
        assert_ok(vmm__driver_sim_open(&options, &driver));
        fixture = fixture_make(driver);
        (void)vmm__host_fail_at(number);
        vmm_status status = call(&fixture);
        (void)vmm__host_fail_at(0);
        bool is_done = status == VMM_OK;
        if (!is_done)
            assert_status(status, VMM_ERR_HOST_OOM);
        assert_ok(call(&fixture));
        vmm__driver_close(driver);
        assert_int_equal(vmm__host_outstanding(), 0);
        if (is_done)
            return (unsigned)number - 1;
    }
    fail_msg("a step allocates without end");
    return 0;
}

static vmm_status fill_across_handles(const struct fixture *fixture)
{
    return vmm__driver_fill(fixture->driver, fixture->from + GRANULE / 8, GRANULE, 9, STREAM(1));
}

static vmm_status check_on_many_streams(const struct fixture *fixture)
{
    vmm_status status = VMM_OK;
    for (unsigned stream = 2; stream < 40 && status == VMM_OK; stream++) {
        void *event = NULL;
        status = vmm__driver_event_create(fixture->driver, &event);
        if (status == VMM_OK)
            status = vmm__driver_event_record(fixture->driver, event, STREAM(1));
        if (status == VMM_OK)
            status = vmm__driver_stream_wait(fixture->driver, STREAM(stream), event);
        if (event != NULL)
            assert_ok(vmm__driver_event_destroy(fixture->driver, event));
        if (status == VMM_OK)
            status = vmm__driver_check(fixture->driver, fixture->from + stream * 512, GRANULE / 8,
                                       0, STREAM(stream));
    }
    return status;
}

static vmm_status copy_across_handles(const struct fixture *fixture)
{
    return vmm__driver_copy(fixture->driver, fixture->to + 512, fixture->from,
                            GRANULE + GRANULE / 2, STREAM(1));
}

/* The tables that a copy uses grow. */
static vmm_status copy_many_pieces(const struct fixture *fixture)
{
    vmm_status status = VMM_OK;
    for (uint64_t at = 0; at < 128 && status == VMM_OK; at++)
        status = vmm__driver_fill(fixture->driver, fixture->from + at * 1024, 512,
                                  (uint32_t)at + 50, STREAM(1));
    if (status == VMM_OK)
        status = vmm__driver_copy(fixture->driver, fixture->to, fixture->from, GRANULE, STREAM(1));
    return status;
}

static vmm_status queue_much_work(const struct fixture *fixture)
{
    vmm_status status = VMM_OK;
    vmm__sim_lag_set(fixture->driver, UINT64_C(1) << 40);
    for (int i = 0; i < 200 && status == VMM_OK; i++)
        status = vmm__driver_delay(fixture->driver, 1, STREAM(1));
    return status;
}

static vmm_status create_and_capture(const struct fixture *fixture)
{
    vmm_stream stream = NULL;
    vmm_status status = vmm__driver_stream_create(fixture->driver, &stream);
    if (status == VMM_OK)
        status = vmm__driver_capture_begin(fixture->driver, STREAM(77));
    if (status == VMM_OK)
        status = vmm__driver_capture_end(fixture->driver, STREAM(77));
    return status;
}

TEST(every_step_reports_out_of_memory)
{
    assert_true(sweep_step(fill_across_handles) > 0);
    assert_true(sweep_step(check_on_many_streams) > 0);
    assert_true(sweep_step(copy_across_handles) > 0);
    assert_true(sweep_step(copy_many_pieces) > 0);
    assert_true(sweep_step(queue_much_work) > 0);
    assert_true(sweep_step(create_and_capture) > 0);
}
