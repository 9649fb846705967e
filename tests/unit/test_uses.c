/* Uses of blocks by other streams, and the waits of freed blocks. */
#include "support/engine_support.h"

static const uint64_t ADDRESS = UINT64_C(0x302000000000);

/* Starts a new pass for each call. */
static vmm_status uses_poll(struct uses *uses, unsigned most, uint64_t *address)
{
    struct uses_pass pass;
    vmm__uses_pass_begin(uses, most, &pass);
    return vmm__uses_pass_next(uses, &pass, address);
}

static vmm_status uses_wait(struct uses *uses)
{
    struct timeline *timeline;
    uint64_t epoch;
    if (!vmm__uses_oldest(uses, &timeline, &epoch))
        return VMM__NOTHING;
    return vmm__timeline_wait(timeline, epoch);
}

/* Keeps stream 2 busy until a host wait. */
static void other_start(struct engine *engine)
{
    engine_map(engine, 0, 1, 1);
    engine_make_busy(engine, engine_address(engine, 0), GRANULE, 2);
}

static void other_finish(struct engine *engine)
{
    assert_int_equal(mismatches(engine->driver), 0);
}

/* A freed block waits for stream 2, which is busy. */
static void block_waits(struct engine *engine)
{
    struct uses *uses = &engine->lane->uses;
    other_start(engine);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    assert_status(vmm__uses_end(uses, ADDRESS), VMM__PENDING);
}

ENGINE_TEST(blocks_without_uses_do_not_wait)
{
    struct uses *uses = &engine->lane->uses;
    uint64_t address;
    assert_ok(vmm__uses_end(uses, ADDRESS));
    assert_status(uses_poll(uses, UINT32_MAX, &address), VMM__NOTHING);
    assert_status(uses_wait(uses), VMM__NOTHING);
    assert_int_equal(uses->map.count, 0);
}

ENGINE_TEST(adding_a_use_again_changes_nothing)
{
    struct uses *uses = &engine->lane->uses;
    for (int i = 0; i < 5; i++)
        assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    assert_int_equal(uses->count, 1);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->lane->timeline));
    assert_ok(vmm__uses_add(uses, ADDRESS + 512, &engine->other->timeline));
    assert_int_equal(uses->count, 3);
    assert_status(vmm__uses_end(uses, ADDRESS), VMM__PENDING);
    assert_int_equal(uses->count, 1);
}

ENGINE_TEST(wait_ends_when_the_other_stream_is_done)
{
    struct uses *uses = &engine->lane->uses;
    uint64_t address = 0;
    block_waits(engine);
    assert_status(uses_poll(uses, UINT32_MAX, &address), VMM__NOTHING);
    other_finish(engine);
    assert_ok(uses_poll(uses, UINT32_MAX, &address));
    assert_int_equal(address, ADDRESS);
    assert_status(uses_poll(uses, UINT32_MAX, &address), VMM__NOTHING);
}

/* forget() returns true once all uses that were stamped have passed, even if the stream runs
 * other work since. */
ENGINE_TEST(forget_drops_the_uses_that_have_passed)
{
    struct uses *uses = &engine->lane->uses;
    other_start(engine);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->lane->timeline));
    assert_ok(vmm__uses_add(uses, ADDRESS + 512, &engine->lane->timeline));
    vmm__uses_stamp(uses, ADDRESS);
    assert_false(vmm__uses_forget(uses, ADDRESS));
    assert_int_equal(uses->count, 2);
    other_finish(engine);
    engine_make_busy(engine, engine_address(engine, 0), GRANULE, 2); /* other work */
    assert_true(vmm__uses_forget(uses, ADDRESS));
    assert_int_equal(uses->count, 1);
    assert_true(vmm__uses_forget(uses, ADDRESS));
}

ENGINE_TEST(host_can_wait_for_the_oldest)
{
    struct uses *uses = &engine->lane->uses;
    uint64_t address = 0;
    block_waits(engine);
    assert_ok(uses_wait(uses));
    assert_int_equal(engine->driver->stalls, 1);
    assert_ok(uses_poll(uses, 1, &address));
}

ENGINE_TEST(short_poll_checks_the_oldest_waits)
{
    struct uses *uses = &engine->lane->uses;
    uint64_t address = 0;
    other_start(engine);
    for (uint64_t i = 0; i < 3; i++) {
        struct timeline *timeline = i < 2 ? &engine->other->timeline : &engine->lane->timeline;
        assert_ok(vmm__uses_add(uses, ADDRESS + i * 512, timeline));
        assert_status(vmm__uses_end(uses, ADDRESS + i * 512), VMM__PENDING);
    }
    assert_status(uses_poll(uses, 2, &address), VMM__NOTHING);
    assert_ok(uses_poll(uses, 3, &address));
    assert_int_equal(address, ADDRESS + 1024);
    other_finish(engine);
    assert_ok(uses_poll(uses, 1, &address));
    assert_int_equal(address, ADDRESS);
    assert_ok(vmm__uses_add(uses, ADDRESS + 4096, &engine->other->timeline));
    assert_status(vmm__uses_end(uses, ADDRESS + 4096), VMM__PENDING);
    assert_ok(uses_poll(uses, 2, &address));
    assert_ok(uses_poll(uses, 2, &address));
    assert_null(uses->oldest);
}

/* A pass queries a timeline once, however many blocks wait for it. */
ENGINE_TEST(pass_queries_a_timeline_once)
{
    struct uses *uses = &engine->lane->uses;
    uint64_t address = 0;
    other_start(engine);
    for (uint64_t i = 0; i < 100; i++) {
        assert_ok(vmm__uses_add(uses, ADDRESS + i * 512, &engine->other->timeline));
        assert_status(vmm__uses_end(uses, ADDRESS + i * 512), VMM__PENDING);
    }
    uint64_t queries = vmm__driver_calls(engine->driver, DRIVER_CALL_event_query);
    assert_status(uses_poll(uses, UINT32_MAX, &address), VMM__NOTHING);
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_event_query), queries + 1);
    other_finish(engine);
    struct uses_pass pass;
    vmm__uses_pass_begin(uses, UINT32_MAX, &pass);
    for (uint64_t i = 0; i < 100; i++)
        assert_ok(vmm__uses_pass_next(uses, &pass, &address));
    assert_null(uses->oldest);
}

ENGINE_TEST(failures_leave_the_block_live)
{
    struct uses *uses = &engine->lane->uses;
    (void)vmm__host_fail_at(1);
    assert_status(vmm__uses_add(uses, ADDRESS, &engine->other->timeline), VMM_ERR_HOST_OOM);
    assert_int_equal(uses->count, 0);
    (void)vmm__host_fail_at(0);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    for (uint64_t call = 1; call <= 2; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        assert_status(vmm__uses_end(uses, ADDRESS), VMM_ERR_DRIVER);
        assert_int_equal(uses->count, 1);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    }
    assert_ok(vmm__timeline_record(&engine->other->timeline, 1));
    (void)vmm__host_fail_at(1);
    assert_status(vmm__uses_end(uses, ADDRESS), VMM_ERR_HOST_OOM);
    assert_int_equal(uses->count, 1);
    (void)vmm__host_fail_at(0);
    assert_status(vmm__uses_end(uses, ADDRESS), VMM__PENDING);
    assert_int_equal(uses->count, 0);
}

/* Uses more addresses than buckets. The teardown frees the remaining records in any state. */
ENGINE_TEST(many_uses_stay_separate)
{
    struct uses *uses = &engine->lane->uses;
    enum { MANY = 2000 };
    for (uint64_t i = 0; i < MANY; i++)
        assert_ok(vmm__uses_add(uses, ADDRESS + i * 512, &engine->other->timeline));
    for (uint64_t i = 0; i < MANY; i += 2)
        assert_status(vmm__uses_end(uses, ADDRESS + i * 512), VMM__PENDING);
    assert_int_equal(uses->count, MANY / 2);
    uint64_t address;
    for (uint64_t i = 0; i < MANY; i += 2) {
        assert_ok(uses_poll(uses, 1, &address));
        assert_int_equal(address, ADDRESS + i * 512);
    }
}
