/* Chunks, the page map and limbo, and that a failure at any call leaves nothing behind. */
#include "support/engine_support.h"

static void limbo_put_all(struct engine *engine, uint64_t granule, uint64_t count,
                          struct clock *clock, uint64_t epoch)
{
    for (uint64_t at = granule; at < granule + count;) {
        struct chunk *chunk = vmm__vm_chunk(&engine->memory, at);
        at += chunk->granules;
        vmm__limbo_put(&engine->memory, chunk, clock, epoch);
    }
}

/* Takes addresses and maps them. A failed map undoes both. */
static vmm_status take_and_map(struct engine *engine, uint64_t granule, uint64_t count)
{
    vmm__arena_take(&engine->memory.arena, granule, count);
    return vmm__vm_map(&engine->memory, &engine->pool.account, granule, count, 4);
}

ENGINE_TEST(mapped_memory_can_be_used)
{
    struct vm *vm = &engine->memory;
    engine_map(engine, 10, 11, 4);
    assert_int_equal(engine_reserved_bytes(engine), 11 * GRANULE);
    assert_int_equal(vmm__stat_now(&vm->chunks), 3);
    assert_int_equal(vmm__vm_chunk(vm, 10)->granules, 4);
    assert_int_equal(vmm__vm_chunk(vm, 20)->granules, 3);
    assert_ptr_equal(vmm__vm_chunk(vm, 18), vmm__vm_chunk(vm, 20));
    assert_null(vmm__vm_chunk(vm, 9));
    assert_null(vmm__vm_chunk(vm, 21));
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_access), 1);
    memory_fill(engine->driver, engine_address(engine, 10), 11 * GRANULE, 5, STREAM(1));
    memory_check(engine->driver, engine_address(engine, 10), 11 * GRANULE, 5, STREAM(1));
}

ENGINE_TEST(limit_covers_all_reserved_memory)
{
    engine->memory.limit_bytes = 8 * GRANULE;
    engine_map(engine, 0, 5, 4);
    assert_status(take_and_map(engine, 5, 4), VMM_ERR_DEVICE_OOM);
    assert_int_equal(engine_reserved_bytes(engine), 5 * GRANULE);
    engine_map(engine, 5, 3, 4);
    limbo_put_all(engine, 0, 5, NULL, 0);
    assert_status(take_and_map(engine, 8, 1), VMM_ERR_DEVICE_OOM);
    (void)engine_drain(engine);
    assert_int_equal(engine_reserved_bytes(engine), 3 * GRANULE);
    engine_map(engine, 8, 5, 4);
}

ENGINE_TEST(map_beyond_the_device_memory_fails_cleanly)
{
    uint64_t most = engine->driver->total_bytes / GRANULE;
    uint64_t handle = handle_create(engine->driver, 6 * GRANULE);
    assert_status(take_and_map(engine, 0, most), VMM_ERR_DEVICE_OOM);
    (void)engine_drain(engine);
    assert_int_equal(engine_reserved_bytes(engine), 0);
    assert_int_equal(engine->driver->handles, 1);
    engine_check(engine);
    assert_ok(vmm__driver_release(engine->driver, handle, 6 * GRANULE));
    engine_map(engine, 0, most, 4);
}

/* Growth by 11 granules in chunks of 4 makes three create and three map calls. */
ENGINE_TEST(failed_call_is_undone)
{
    enum { CALLS = 6 };
    for (uint64_t call = 1; call <= CALLS; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        assert_status(take_and_map(engine, 20, 11), VMM_ERR_DRIVER);
        assert_non_null(strstr(vmm_last_error(), "made to fail"));
        assert_int_equal(engine_reserved_bytes(engine), engine->memory.counts.limbo_bytes);
        (void)engine_drain(engine);
        assert_int_equal(engine_reserved_bytes(engine), 0);
        assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES);
        assert_int_equal(engine->driver->handles, 0);
        assert_int_equal(engine->driver->mapped_bytes, 0);
        engine_check(engine);
    }
    vmm__sim_fail_at(engine->driver, CALLS + 1, VMM_ERR_DRIVER, false);
    assert_ok(take_and_map(engine, 20, 11));
    assert_status(vmm__vm_access(&engine->memory, 20, 11), VMM_ERR_DRIVER);
    engine_check(engine);
    vmm__vm_discard(&engine->memory, 20, 11, NULL, 0);
    assert_int_equal(engine_drain(engine), 11 * GRANULE);
}

/* Every call from number `call` on fails: what cannot be released at once waits in limbo and is
 * released later. */
ENGINE_TEST(failed_undo_is_completed_by_a_drain)
{
    for (uint64_t call = 1; call <= 6; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, true);
        assert_status(take_and_map(engine, 20, 11), VMM_ERR_DRIVER);
        engine_check(engine);
        assert_int_equal(engine_reserved_bytes(engine), engine->memory.counts.limbo_bytes);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
        uint64_t left = engine_reserved_bytes(engine);
        assert_int_equal(engine_drain(engine), left);
        assert_int_equal(engine_reserved_bytes(engine), 0);
        assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES);
        engine_check(engine);
    }
}

ENGINE_TEST(init_without_host_memory_frees_everything)
{
    struct vm vm;
    for (uint64_t number = 1; number <= 6; number++) {
        (void)vmm__host_fail_at(number);
        vmm_status status = vmm__vm_init(&vm, engine->driver, ENGINE_LIMITS);
        if (status == VMM_OK)
            assert_ok(vmm__vm_fini(&vm));
        else
            assert_int_equal(status, VMM_ERR_HOST_OOM);
        assert_int_equal(vmm__sim_census(engine->driver).reservations, 1);
    }
}

/* ---- Limbo -------------------------------------------------------------------------------- */

ENGINE_TEST(limbo_waits_for_its_epoch)
{
    struct clock *clock = engine->lane->clock;
    engine_map(engine, 0, 8, 4);
    engine_make_busy(engine, engine_address(engine, 0), 4 * GRANULE, 1);
    limbo_put_all(engine, 0, 4, clock, vmm__clock_now(clock));
    limbo_put_all(engine, 4, 4, NULL, 0);
    assert_int_equal(engine->memory.counts.limbo_bytes, 8 * GRANULE);
    assert_int_equal(engine_drain(engine), 4 * GRANULE);
    assert_int_equal(engine_drain(engine), 0);
    assert_non_null(vmm__vm_chunk(&engine->memory, 0));
    assert_null(vmm__vm_chunk(&engine->memory, 4));
    assert_int_equal(mismatches(engine->driver), 0);
    assert_int_equal(engine_drain(engine), 4 * GRANULE);
    assert_int_equal(engine->driver->counts.stalls, 0);
}

ENGINE_TEST(host_can_wait_for_limbo)
{
    struct clock *clock = engine->lane->clock;
    uint64_t released = 0;
    assert_status(vmm__limbo_wait(&engine->memory, NULL, &released), VMM__NOTHING);
    engine_map(engine, 0, 4, 4);
    engine_make_busy(engine, engine_address(engine, 0), 4 * GRANULE, 1);
    limbo_put_all(engine, 0, 4, clock, vmm__clock_now(clock));
    assert_ok(vmm__limbo_wait(&engine->memory, NULL, &released));
    assert_int_equal(released, 4 * GRANULE);
    assert_int_equal(engine->driver->counts.stalls, 1);
}

/* Skips chunks of a capturing stream, except those whose event was recorded before the capture. */
ENGINE_TEST(limbo_skips_capturing_streams)
{
    struct clock *clock = engine->lane->clock;
    struct clock *other = engine->other->clock;
    uint64_t released = 0;
    engine_map(engine, 0, 6, 2);
    engine_make_busy(engine, engine_address(engine, 0), 2 * GRANULE, 1);
    uint64_t recorded = vmm__clock_now(clock);
    vmm__clock_tick(clock);
    engine_make_busy(engine, engine_address(engine, 2), 2 * GRANULE, 1);
    engine_make_busy(engine, engine_address(engine, 4), 2 * GRANULE, 2);
    assert_ok(vmm__driver_capture_begin(engine->driver, STREAM(1)));
    limbo_put_all(engine, 2, 2, clock, vmm__clock_now(clock));
    limbo_put_all(engine, 0, 2, clock, recorded);
    limbo_put_all(engine, 4, 2, other, vmm__clock_now(other));
    for (uint64_t waits = 1; waits <= 2; waits++) {
        assert_ok(vmm__limbo_wait(&engine->memory, NULL, &released));
        assert_int_equal(released, waits * 2 * GRANULE);
    }
    assert_status(vmm__limbo_wait(&engine->memory, NULL, &released), VMM__NOTHING);
    assert_ok(vmm__driver_capture_end(engine->driver, STREAM(1)));
    assert_ok(vmm__limbo_wait(&engine->memory, NULL, &released));
    assert_int_equal(released, 6 * GRANULE);
}

/* Queries once for each clock, not for each chunk. */
ENGINE_TEST(limbo_queries_a_clock_once)
{
    struct clock *clock = engine->lane->clock;
    engine_map(engine, 0, 16, 1);
    engine_make_busy(engine, engine_address(engine, 0), 16 * GRANULE, 1);
    limbo_put_all(engine, 0, 16, clock, vmm__clock_now(clock));
    assert_int_equal(engine_drain(engine), 0);
    uint64_t queries = vmm__driver_calls(engine->driver, DRIVER_CALL_event_query);
    assert_int_equal(engine_drain(engine), 0);
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_event_query), queries + 1);
}

/* If the unmap or release of one chunk fails, the drain releases the others, and the next drain
 * that one. */
ENGINE_TEST(drain_retries_a_failed_release)
{
    for (uint64_t call = 1; call <= 6; call++) {
        engine_map(engine, 8, 12, 4);
        limbo_put_all(engine, 8, 12, NULL, 0);
        uint64_t released = 0;
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        assert_status(vmm__limbo_drain(&engine->memory, &released), VMM_ERR_DRIVER);
        assert_int_equal(released, 8 * GRANULE);
        assert_int_equal(engine->memory.counts.limbo_bytes, 4 * GRANULE);
        engine_check(engine);
        assert_int_equal(engine_drain(engine), 4 * GRANULE);
        engine_check(engine);
    }
}

/* ---- End and checks ------------------------------------------------------------------------ */

ENGINE_TEST(fini_releases_chunks_in_any_state)
{
    struct clock *clock = engine->lane->clock;
    engine_map(engine, 0, 12, 4);
    limbo_put_all(engine, 4, 4, clock, vmm__clock_now(clock));
    limbo_put_all(engine, 8, 4, NULL, 0);
    vmm__sim_fail_at(engine->driver, 2, VMM_ERR_DRIVER,
                     true); /* the unmap succeeds, the release fails */
    uint64_t released = 0;
    assert_status(vmm__limbo_drain(&engine->memory, &released), VMM_ERR_DRIVER);
}

ENGINE_TEST(check_finds_damage)
{
    struct vm *vm = &engine->memory;
    engine_map(engine, 3, 5, 4);
    vm->pages[4] = 0;
    assert_status(vmm__vm_check(vm), VMM_ERR_INTERNAL);
    vm->pages[4] = vm->pages[3];
    assert_ok(vmm__vm_check(vm));
    vmm__stat_add(&vm->reserved_bytes, 1);
    assert_status(vmm__vm_check(vm), VMM_ERR_INTERNAL);
    vmm__stat_subtract(&vm->reserved_bytes, 1);
    vmm__arena_take(&vm->arena, 40, 1);
    assert_status(vmm__vm_check(vm), VMM_ERR_INTERNAL);
    vmm__arena_give(&vm->arena, 40, 1);
}
