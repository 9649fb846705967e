/* Chunks, the page map and limbo; above all that whatever fails leaves nothing. */
#include "support/engine_support.h"

static void limbo_put_all(struct engine *engine, uint64_t granule, uint64_t count,
                          struct timeline *timeline, uint64_t epoch)
{
    for (uint64_t at = granule; at < granule + count;) {
        struct chunk *chunk = vmm__memory_chunk(&engine->memory, at);
        at += chunk->granules;
        vmm__limbo_put(&engine->memory, chunk, timeline, epoch);
    }
}

/* Takes addresses and maps; on failure both are undone. */
static vmm_status taken_and_mapped(struct engine *engine, uint64_t granule, uint64_t count)
{
    vmm__arena_take(&engine->memory.arena, granule, count);
    return vmm__memory_map(&engine->memory, granule, count, 4);
}

static void mapped_memory_can_be_used(void **state)
{
    struct engine *engine = *state;
    struct memory *memory = &engine->memory;
    engine_mapped(engine, 10, 11, 4);
    assert_int_equal(engine_reserved(engine), 11 * GRANULE);
    assert_int_equal(vmm__figure_now(&memory->chunks), 3);
    assert_int_equal(vmm__memory_chunk(memory, 10)->granules, 4);
    assert_int_equal(vmm__memory_chunk(memory, 20)->granules, 3);
    assert_ptr_equal(vmm__memory_chunk(memory, 18), vmm__memory_chunk(memory, 20));
    assert_null(vmm__memory_chunk(memory, 9));
    assert_null(vmm__memory_chunk(memory, 21));
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_access), 1);
    sim_filled(engine->driver, engine_address(engine, 10), 11 * GRANULE, 5, STREAM(1));
    sim_checked(engine->driver, engine_address(engine, 10), 11 * GRANULE, 5, STREAM(1));
    engine_checked(engine);
}

static void the_limit_is_for_all_that_is_reserved(void **state)
{
    struct engine *engine = *state;
    engine->memory.limit_bytes = 8 * GRANULE;
    engine_mapped(engine, 0, 5, 4);
    assert_status(taken_and_mapped(engine, 5, 4), VMM_ERR_DEVICE_OOM);
    assert_int_equal(engine_reserved(engine), 5 * GRANULE);
    engine_mapped(engine, 5, 3, 4);
    limbo_put_all(engine, 0, 5, NULL, 0);
    assert_status(taken_and_mapped(engine, 8, 1), VMM_ERR_DEVICE_OOM);
    (void)engine_drained(engine);
    assert_int_equal(engine_reserved(engine), 3 * GRANULE);
    engine_mapped(engine, 8, 5, 4);
    engine_checked(engine);
}

static void the_device_s_end_is_told_and_undone(void **state)
{
    struct engine *engine = *state;
    uint64_t most = engine->driver->total_bytes / GRANULE;
    uint64_t hog = sim_created(engine->driver, 6 * GRANULE);
    assert_status(taken_and_mapped(engine, 0, most), VMM_ERR_DEVICE_OOM);
    (void)engine_drained(engine);
    assert_int_equal(engine_reserved(engine), 0);
    assert_int_equal(engine->driver->handles, 1);
    engine_checked(engine);
    assert_ok(vmm__driver_release(engine->driver, hog, 6 * GRANULE));
    engine_mapped(engine, 0, most, 4);
}

/* Growth by 11 granules in chunks of 4: create and map three times each. */
static void a_failed_call_is_undone(void **state)
{
    struct engine *engine = *state;
    enum { CALLS = 6 };
    for (uint64_t call = 1; call <= CALLS; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        assert_status(taken_and_mapped(engine, 20, 11), VMM_ERR_DRIVER);
        assert_non_null(strstr(vmm_last_error(), "made to fail"));
        assert_int_equal(engine_reserved(engine), engine->memory.limbo_bytes);
        (void)engine_drained(engine);
        assert_int_equal(engine_reserved(engine), 0);
        assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES);
        assert_int_equal(engine->driver->handles, 0);
        assert_int_equal(engine->driver->mapped_bytes, 0);
        engine_checked(engine);
    }
    vmm__sim_fail_at(engine->driver, CALLS + 1, VMM_ERR_DRIVER, false);
    assert_ok(taken_and_mapped(engine, 20, 11));
    assert_status(vmm__memory_access(&engine->memory, 20, 11), VMM_ERR_DRIVER);
    engine_checked(engine);
    vmm__memory_discard(&engine->memory, 20, 11, NULL, 0);
    assert_int_equal(engine_drained(engine), 11 * GRANULE);
    engine_checked(engine);
}

/* From call k on nothing works: what could not be given back waits in limbo and goes later. */
static void what_cannot_be_undone_at_once_goes_later(void **state)
{
    struct engine *engine = *state;
    for (uint64_t call = 1; call <= 6; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, true);
        assert_status(taken_and_mapped(engine, 20, 11), VMM_ERR_DRIVER);
        engine_checked(engine);
        assert_int_equal(engine_reserved(engine), engine->memory.limbo_bytes);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
        uint64_t left = engine_reserved(engine);
        assert_int_equal(engine_drained(engine), left);
        assert_int_equal(engine_reserved(engine), 0);
        assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES);
        engine_checked(engine);
    }
}

static void host_memory_that_lacks_is_told(void **state)
{
    struct engine *engine = *state;
    struct memory memory;
    for (uint64_t number = 1; number <= 6; number++) {
        (void)vmm__host_fail_at(number);
        vmm_status status = vmm__memory_init(&memory, engine->driver, GRANULE, 0);
        if (status == VMM_OK)
            assert_ok(vmm__memory_fini(&memory));
        else
            assert_int_equal(status, VMM_ERR_HOST_OOM);
        assert_int_equal(vmm__sim_census(engine->driver).reservations, 1);
    }
}

/* ---- Limbo ------------------------------------------------------------------------------------
 */

static void limbo_waits_for_its_epoch(void **state)
{
    struct engine *engine = *state;
    struct timeline *timeline = &engine->pool->timeline;
    engine_mapped(engine, 0, 8, 4);
    engine_busy(engine, engine_address(engine, 0), 4 * GRANULE, 1);
    limbo_put_all(engine, 0, 4, timeline, vmm__timeline_now(timeline));
    limbo_put_all(engine, 4, 4, NULL, 0);
    assert_int_equal(engine->memory.limbo_bytes, 8 * GRANULE);
    assert_int_equal(engine_drained(engine), 4 * GRANULE);
    assert_int_equal(engine_drained(engine), 0);
    assert_non_null(vmm__memory_chunk(&engine->memory, 0));
    assert_null(vmm__memory_chunk(&engine->memory, 4));
    assert_int_equal(sim_mismatches(engine->driver), 0);
    assert_int_equal(engine_drained(engine), 4 * GRANULE);
    assert_int_equal(engine->driver->stalls, 0);
    engine_checked(engine);
}

static void limbo_can_be_waited_for(void **state)
{
    struct engine *engine = *state;
    struct timeline *timeline = &engine->pool->timeline;
    uint64_t released = 0;
    assert_status(vmm__limbo_wait(&engine->memory, &released), VMM_NOT_READY);
    engine_mapped(engine, 0, 4, 4);
    engine_busy(engine, engine_address(engine, 0), 4 * GRANULE, 1);
    limbo_put_all(engine, 0, 4, timeline, vmm__timeline_now(timeline));
    assert_ok(vmm__limbo_wait(&engine->memory, &released));
    assert_int_equal(released, 4 * GRANULE);
    assert_int_equal(engine->driver->stalls, 1);
}

/* Chunks of a captured stream are passed over, but for what was marked before. */
static void limbo_waits_for_no_captured_stream(void **state)
{
    struct engine *engine = *state;
    struct timeline *timeline = &engine->pool->timeline;
    struct timeline *other = &engine->other->timeline;
    uint64_t released = 0;
    engine_mapped(engine, 0, 6, 2);
    engine_busy(engine, engine_address(engine, 0), 2 * GRANULE, 1);
    uint64_t marked = vmm__timeline_now(timeline);
    assert_ok(vmm__timeline_mark(timeline, marked));
    engine_busy(engine, engine_address(engine, 2), 2 * GRANULE, 1);
    engine_busy(engine, engine_address(engine, 4), 2 * GRANULE, 2);
    assert_ok(vmm__driver_capture_begin(engine->driver, STREAM(1)));
    limbo_put_all(engine, 2, 2, timeline, vmm__timeline_now(timeline));
    limbo_put_all(engine, 0, 2, timeline, marked);
    limbo_put_all(engine, 4, 2, other, vmm__timeline_now(other));
    for (uint64_t waits = 1; waits <= 2; waits++) {
        assert_ok(vmm__limbo_wait(&engine->memory, &released));
        assert_int_equal(released, waits * 2 * GRANULE);
    }
    assert_status(vmm__limbo_wait(&engine->memory, &released), VMM_NOT_READY);
    assert_ok(vmm__driver_capture_end(engine->driver, STREAM(1)));
    assert_ok(vmm__limbo_wait(&engine->memory, &released));
    assert_int_equal(released, 6 * GRANULE);
}

/* One query for each timeline, not for each chunk. */
static void limbo_asks_once_for_a_timeline(void **state)
{
    struct engine *engine = *state;
    struct timeline *timeline = &engine->pool->timeline;
    engine_mapped(engine, 0, 16, 1);
    engine_busy(engine, engine_address(engine, 0), 16 * GRANULE, 1);
    limbo_put_all(engine, 0, 16, timeline, vmm__timeline_now(timeline));
    assert_int_equal(engine_drained(engine), 0);
    uint64_t queries = vmm__driver_calls(engine->driver, DRIVER_CALL_event_query);
    assert_int_equal(engine_drained(engine), 0);
    assert_int_equal(vmm__driver_calls(engine->driver, DRIVER_CALL_event_query), queries + 1);
}

/* Unmap or release of one chunk fails: the others go, and this one with the next drain. */
static void a_chunk_that_cannot_go_is_tried_again(void **state)
{
    struct engine *engine = *state;
    for (uint64_t call = 1; call <= 6; call++) {
        engine_mapped(engine, 8, 12, 4);
        limbo_put_all(engine, 8, 12, NULL, 0);
        uint64_t released = 0;
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        assert_status(vmm__limbo_drain(&engine->memory, &released), VMM_ERR_DRIVER);
        assert_int_equal(released, 8 * GRANULE);
        assert_int_equal(engine->memory.limbo_bytes, 4 * GRANULE);
        engine_checked(engine);
        assert_int_equal(engine_drained(engine), 4 * GRANULE);
        engine_checked(engine);
    }
}

/* ---- Hand-over --------------------------------------------------------------------------------
 */

/* Moves the chunk at a granule of stream 1's busy memory. */
static vmm_status chunk_moved(struct engine *engine, uint64_t from, uint64_t to)
{
    struct timeline *timeline = &engine->pool->timeline;
    struct chunk *chunk = vmm__memory_chunk(&engine->memory, from);
    uint64_t granules = chunk->granules;
    vmm__arena_take(&engine->memory.arena, to, granules);
    vmm_status status =
        vmm__memory_move(&engine->memory, chunk, to, timeline, vmm__timeline_now(timeline));
    if (status != VMM_OK)
        vmm__arena_give(&engine->memory.arena, to, granules);
    return status;
}

static void a_chunk_moves_while_work_runs(void **state)
{
    struct engine *engine = *state;
    engine_mapped(engine, 8, 4, 4);
    engine_busy(engine, engine_address(engine, 8), 4 * GRANULE, 1);
    assert_ok(chunk_moved(engine, 8, 30));
    assert_ok(vmm__memory_access(&engine->memory, 30, 4));
    assert_int_equal(vmm__memory_chunk(&engine->memory, 30)->first, 30);
    assert_int_equal(engine_reserved(engine), 4 * GRANULE);
    assert_int_equal(engine->memory.limbo_bytes, 0);
    assert_int_equal(engine->driver->mapped_bytes, 8 * GRANULE);
    engine_checked(engine);
    sim_filled(engine->driver, engine_address(engine, 30), 4 * GRANULE, 2, STREAM(1));
    assert_int_equal(engine_drained(engine), 0);
    assert_int_equal(engine->driver->mapped_bytes, 8 * GRANULE);
    assert_int_equal(sim_mismatches(engine->driver), 0);
    assert_int_equal(engine_drained(engine), 0);
    assert_int_equal(engine->driver->mapped_bytes, 4 * GRANULE);
    assert_null(vmm__memory_chunk(&engine->memory, 8));
    sim_checked(engine->driver, engine_address(engine, 30), 4 * GRANULE, 2, STREAM(1));
    engine_checked(engine);
}

static void a_chunk_that_cannot_move_stays(void **state)
{
    struct engine *engine = *state;
    engine_mapped(engine, 8, 4, 4);
    vmm__sim_fail_at(engine->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(chunk_moved(engine, 8, 30), VMM_ERR_DRIVER);
    assert_int_equal(vmm__memory_chunk(&engine->memory, 8)->first, 8);
    assert_null(vmm__memory_chunk(&engine->memory, 30));
    engine_checked(engine);
    assert_ok(chunk_moved(engine, 8, 30));
    assert_ok(chunk_moved(engine, 30, 40));
    engine_checked(engine);
    assert_int_equal(engine_reserved(engine), 4 * GRANULE);
}

/* Moved, then given back, with every call of that failing once: memory and addresses return. */
static void moved_chunks_go_back(void **state)
{
    struct engine *engine = *state;
    for (uint64_t call = 1; call <= 4; call++) {
        engine_mapped(engine, 8, 4, 4);
        assert_ok(chunk_moved(engine, 8, 30));
        vmm__memory_discard(&engine->memory, 30, 4, NULL, 0);
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        uint64_t released = 0;
        (void)vmm__limbo_drain(&engine->memory, &released);
        engine_checked(engine);
        released += engine_drained(engine);
        assert_int_equal(released, 4 * GRANULE);
        assert_int_equal(engine_drained(engine), 0);
        assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES);
        assert_int_equal(vmm__sim_census(engine->driver).physical_bytes, 0);
    }
}

static void the_end_takes_chunks_in_any_state(void **state)
{
    struct engine *engine = *state;
    struct timeline *timeline = &engine->pool->timeline;
    engine_mapped(engine, 0, 12, 4);
    limbo_put_all(engine, 4, 4, timeline, vmm__timeline_now(timeline));
    limbo_put_all(engine, 8, 4, NULL, 0);
    vmm__sim_fail_at(engine->driver, 2, VMM_ERR_DRIVER, true); /* unmapped, not released */
    uint64_t released = 0;
    assert_status(vmm__limbo_drain(&engine->memory, &released), VMM_ERR_DRIVER);
    engine_checked(engine);
}

static void damage_is_found(void **state)
{
    struct engine *engine = *state;
    struct memory *memory = &engine->memory;
    engine_mapped(engine, 3, 5, 4);
    memory->pages[4] = 0;
    assert_status(vmm__memory_check(memory), VMM_ERR_INTERNAL);
    memory->pages[4] = memory->pages[3];
    assert_ok(vmm__memory_check(memory));
    vmm__figure_add(&memory->reserved_bytes, 1);
    assert_status(vmm__memory_check(memory), VMM_ERR_INTERNAL);
    vmm__figure_subtract(&memory->reserved_bytes, 1);
    vmm__arena_take(&memory->arena, 40, 1);
    assert_status(vmm__memory_check(memory), VMM_ERR_INTERNAL);
    vmm__arena_give(&memory->arena, 40, 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENGINE_TEST(mapped_memory_can_be_used),
        ENGINE_TEST(the_limit_is_for_all_that_is_reserved),
        ENGINE_TEST(the_device_s_end_is_told_and_undone),
        ENGINE_TEST(a_failed_call_is_undone),
        ENGINE_TEST(what_cannot_be_undone_at_once_goes_later),
        ENGINE_TEST(host_memory_that_lacks_is_told),
        ENGINE_TEST(limbo_waits_for_its_epoch),
        ENGINE_TEST(limbo_can_be_waited_for),
        ENGINE_TEST(limbo_waits_for_no_captured_stream),
        ENGINE_TEST(limbo_asks_once_for_a_timeline),
        ENGINE_TEST(a_chunk_that_cannot_go_is_tried_again),
        ENGINE_TEST(a_chunk_moves_while_work_runs),
        ENGINE_TEST(a_chunk_that_cannot_move_stays),
        ENGINE_TEST(moved_chunks_go_back),
        ENGINE_TEST(the_end_takes_chunks_in_any_state),
        ENGINE_TEST(damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
