/* Chunks that sleep, with a home and two places: what a call that fails leaves. The rest: ../api/test_cache_sleep.c. */
#include "support/engine_support.h"

enum { HOME = 2, PLACES = 2, GRANULES = 4 };

static const uint64_t places[PLACES] = { 20, 40 };

static struct chunk *chunk_prepare(struct engine *engine)
{
    struct vm *vm = &engine->memory;
    engine_map(engine, HOME, GRANULES, GRANULES);
    struct chunk *chunk = vmm__vm_chunk(vm, HOME);
    for (unsigned i = 0; i < PLACES; i++) {
        vmm__arena_take(&vm->arena, places[i], GRANULES);
        assert_ok(vmm__place_map(vm, chunk, places[i]));
        assert_ok(vmm__vm_access(vm, places[i], GRANULES));
    }
    return chunk;
}

/* Fills the chunk at its home, and checks it there and at its places. */
static void chunk_use(struct engine *engine, uint32_t word)
{
    uint64_t bytes = GRANULES * GRANULE;
    memory_fill(engine->driver, engine_address(engine, HOME), bytes, word, STREAM(1));
    memory_check(engine->driver, engine_address(engine, HOME), bytes, word, STREAM(1));
    for (unsigned i = 0; i < PLACES; i++)
        memory_check(engine->driver, engine_address(engine, places[i]), bytes, word, STREAM(1));
    assert_int_equal(mismatches(engine->driver), 0);
}

static void work_finish(struct engine *engine)
{
    assert_ok(vmm__driver_device_wait(engine->driver));
}

/* What a failure leaves can be continued either way: the mappings are all there, or the next wake maps what is not. */
static void step_fail(struct engine *engine, struct chunk *chunk, uint64_t call, bool lasts)
{
    struct vm *vm = &engine->memory;
    bool is_wake = chunk->is_asleep;
    vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, lasts);
    vmm_status status = is_wake ? vmm__chunk_wake(vm, chunk) : vmm__chunk_sleep(vm, chunk);
    uint64_t failures = vmm__sim_faults_fired(engine->driver);
    vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    assert_int_equal(status, failures > 0 ? VMM_ERR_DRIVER : VMM_OK);
    engine_check(engine);
    if (!is_wake && failures > 0)
        assert_false(chunk->is_asleep);
    if (!is_wake && failures == 1)
        assert_int_equal(chunk->unmapped, 0); /* the sleep has undone its part */
}

ENGINE_TEST(each_call_of_a_sleep_may_fail)
{
    enum { CALLS = 5 }; /* three mappings, the memory, and one call beyond */
    struct chunk *chunk = chunk_prepare(engine);
    for (uint64_t call = 1; call <= CALLS; call++) {
        for (int lasts = 0; lasts < 2; lasts++) {
            chunk_use(engine, (uint32_t)call);
            work_finish(engine);
            step_fail(engine, chunk, call, lasts != 0);
            assert_ok(vmm__chunk_wake(&engine->memory, chunk));
            if (!chunk->has_slept)
                memory_check(engine->driver, engine_address(engine, HOME), GRANULES * GRANULE,
                             (uint32_t)call, STREAM(1));
            chunk->has_slept = false;
            engine_check(engine);
        }
    }
}

/* The chunk can be released in every state that a failure leaves. */
ENGINE_TEST(a_chunk_can_be_released_in_every_state)
{
    enum { CALLS = 8 };
    for (uint64_t call = 1; call <= 2 * CALLS; call++) {
        struct vm *vm = &engine->memory;
        struct chunk *chunk = chunk_prepare(engine);
        if (call > CALLS)
            assert_ok(vmm__chunk_sleep(vm, chunk));
        step_fail(engine, chunk, (call - 1) % CALLS + 1, true);
        vmm__vm_discard(vm, HOME, GRANULES, NULL, 0);
        (void)engine_drain(engine);
        engine_check(engine);
        assert_int_equal(engine->driver->mapped_bytes, 0);
        assert_int_equal(engine->driver->created_bytes, 0);
        assert_int_equal(vm->counts.asleep_bytes, 0);
    }
}
