/* Uses by other streams, and the waits that they become. */
#include "support/engine_support.h"

static const uint64_t ADDRESS = UINT64_C(0x302000000000);

/* A pass of its own for each question. */
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
        return VMM_NOT_READY;
    return vmm__timeline_wait(timeline, epoch);
}

/* Stream 2 works until somebody waits. */
static void other_busy(struct engine *engine)
{
    engine_mapped(engine, 0, 1, 1);
    engine_busy(engine, engine_address(engine, 0), GRANULE, 2);
}

static void other_idle(struct engine *engine)
{
    assert_int_equal(sim_mismatches(engine->driver), 0);
}

static void without_uses_nothing_waits(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    uint64_t address;
    assert_ok(vmm__uses_end(uses, ADDRESS));
    assert_status(uses_poll(uses, UINT32_MAX, &address), VMM_NOT_READY);
    assert_status(uses_wait(uses), VMM_NOT_READY);
    assert_null(uses->buckets);
}

static void a_use_counts_once(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    for (int i = 0; i < 5; i++)
        assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    assert_int_equal(uses->count, 1);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->pool->timeline));
    assert_ok(vmm__uses_add(uses, ADDRESS + 512, &engine->other->timeline));
    assert_int_equal(uses->count, 3);
    assert_status(vmm__uses_end(uses, ADDRESS), VMM_NOT_READY);
    assert_int_equal(uses->count, 1);
}

static void a_wait_ends_with_the_other_s_work(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    uint64_t address = 0;
    other_busy(engine);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    assert_status(vmm__uses_end(uses, ADDRESS), VMM_NOT_READY);
    assert_status(uses_poll(uses, UINT32_MAX, &address), VMM_NOT_READY);
    other_idle(engine);
    assert_ok(uses_poll(uses, UINT32_MAX, &address));
    assert_int_equal(address, ADDRESS);
    assert_status(uses_poll(uses, UINT32_MAX, &address), VMM_NOT_READY);
}

/* Whoever looks at memory may go on once all others have ended. */
static void uses_are_forgotten_that_have_ended(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    other_busy(engine);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->pool->timeline));
    assert_ok(vmm__uses_add(uses, ADDRESS + 512, &engine->pool->timeline));
    vmm__uses_stamp(uses, ADDRESS);
    assert_false(vmm__uses_forget(uses, ADDRESS));
    assert_int_equal(uses->count, 2);
    other_idle(engine);
    engine_busy(engine, engine_address(engine, 0), GRANULE, 2); /* with something else */
    assert_true(vmm__uses_forget(uses, ADDRESS));
    assert_int_equal(uses->count, 1);
    assert_true(vmm__uses_forget(uses, ADDRESS));
}

static void the_host_can_wait(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    uint64_t address = 0;
    other_busy(engine);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    assert_status(vmm__uses_end(uses, ADDRESS), VMM_NOT_READY);
    assert_ok(uses_wait(uses));
    assert_int_equal(engine->driver->stalls, 1);
    assert_ok(uses_poll(uses, 1, &address));
}

static void a_short_poll_looks_at_the_oldest(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    uint64_t address = 0;
    other_busy(engine);
    for (uint64_t i = 0; i < 3; i++) {
        struct timeline *timeline = i < 2 ? &engine->other->timeline : &engine->pool->timeline;
        assert_ok(vmm__uses_add(uses, ADDRESS + i * 512, timeline));
        assert_status(vmm__uses_end(uses, ADDRESS + i * 512), VMM_NOT_READY);
    }
    assert_status(uses_poll(uses, 2, &address), VMM_NOT_READY);
    assert_ok(uses_poll(uses, 3, &address));
    assert_int_equal(address, ADDRESS + 1024);
    other_idle(engine);
    assert_ok(uses_poll(uses, 1, &address));
    assert_int_equal(address, ADDRESS);
    assert_ok(vmm__uses_add(uses, ADDRESS + 4096, &engine->other->timeline));
    assert_status(vmm__uses_end(uses, ADDRESS + 4096), VMM_NOT_READY);
    assert_ok(uses_poll(uses, 2, &address));
    assert_ok(uses_poll(uses, 2, &address));
    assert_null(uses->oldest);
}

/* However many blocks wait for a stream, a pass asks it once. */
static void a_pass_asks_a_timeline_once(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    uint64_t address = 0;
    other_busy(engine);
    for (uint64_t i = 0; i < 100; i++) {
        assert_ok(vmm__uses_add(uses, ADDRESS + i * 512, &engine->other->timeline));
        assert_status(vmm__uses_end(uses, ADDRESS + i * 512), VMM_NOT_READY);
    }
    uint64_t queries = vmm__driver_calls(engine->driver, DRIVER_CALL_event_query);
    assert_status(uses_poll(uses, UINT32_MAX, &address), VMM_NOT_READY);
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_event_query), queries + 1);
    other_idle(engine);
    struct uses_pass pass;
    vmm__uses_pass_begin(uses, UINT32_MAX, &pass);
    for (uint64_t i = 0; i < 100; i++)
        assert_ok(vmm__uses_pass_next(uses, &pass, &address));
    assert_null(uses->oldest);
}

static void failures_leave_the_block_live(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    for (uint64_t number = 1; number <= 2; number++) {
        (void)vmm__host_fail_at(number);
        assert_status(vmm__uses_add(uses, ADDRESS, &engine->other->timeline), VMM_ERR_HOST_OOM);
        assert_int_equal(uses->count, 0);
    }
    (void)vmm__host_fail_at(0);
    assert_ok(vmm__uses_add(uses, ADDRESS, &engine->other->timeline));
    for (uint64_t call = 1; call <= 2; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        assert_status(vmm__uses_end(uses, ADDRESS), VMM_ERR_DRIVER);
        assert_int_equal(uses->count, 1);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    }
    assert_ok(vmm__timeline_mark(&engine->other->timeline, 1));
    (void)vmm__host_fail_at(1);
    assert_status(vmm__uses_end(uses, ADDRESS), VMM_ERR_HOST_OOM);
    assert_int_equal(uses->count, 1);
    (void)vmm__host_fail_at(0);
    assert_status(vmm__uses_end(uses, ADDRESS), VMM_NOT_READY);
    assert_int_equal(uses->count, 0);
}

/* More addresses than buckets; the end frees what is left in any state. */
static void many_uses_keep_apart(void **state)
{
    struct engine *engine = *state;
    struct uses *uses = &engine->pool->uses;
    enum { MANY = 2000 };
    for (uint64_t i = 0; i < MANY; i++)
        assert_ok(vmm__uses_add(uses, ADDRESS + i * 512, &engine->other->timeline));
    for (uint64_t i = 0; i < MANY; i += 2)
        assert_status(vmm__uses_end(uses, ADDRESS + i * 512), VMM_NOT_READY);
    assert_int_equal(uses->count, MANY / 2);
    uint64_t address;
    for (uint64_t i = 0; i < MANY; i += 2) {
        assert_ok(uses_poll(uses, 1, &address));
        assert_int_equal(address, ADDRESS + i * 512);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENGINE_TEST(without_uses_nothing_waits),         ENGINE_TEST(a_use_counts_once),
        ENGINE_TEST(a_wait_ends_with_the_other_s_work),  ENGINE_TEST(the_host_can_wait),
        ENGINE_TEST(a_short_poll_looks_at_the_oldest),   ENGINE_TEST(a_pass_asks_a_timeline_once),
        ENGINE_TEST(failures_leave_the_block_live),      ENGINE_TEST(many_uses_keep_apart),
        ENGINE_TEST(uses_are_forgotten_that_have_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
