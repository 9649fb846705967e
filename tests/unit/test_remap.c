/* Other memory under the same addresses, and what goes astray: whatever fails, bytes stay. */
#include "support/engine_support.h"

static void filled(struct engine *engine, uint64_t granule, uint64_t count, uint32_t word)
{
    sim_filled(engine->driver, engine_address(engine, granule), count * GRANULE, word, STREAM(1));
}

static void checked(struct engine *engine, uint64_t granule, uint64_t count, uint32_t word)
{
    sim_checked(engine->driver, engine_address(engine, granule), count * GRANULE, word, STREAM(1));
    assert_int_equal(sim_mismatches(engine->driver), 0);
}

enum { PLACE = 16, SCRATCH = 40 };

/* A chunk of 8 granules; copies of its granules 1 and 4 to 5 are elsewhere, in chunks of their own. */
static struct chunk *parts_prepared(struct engine *engine, struct memory_part parts[2])
{
    engine_mapped(engine, PLACE, 8, 8);
    filled(engine, PLACE + 1, 1, 11);
    filled(engine, PLACE + 4, 2, 12);
    engine_mapped(engine, SCRATCH, 1, 1);
    engine_mapped(engine, SCRATCH + 4, 2, 2);
    filled(engine, SCRATCH, 1, 11);
    filled(engine, SCRATCH + 4, 2, 12);
    assert_int_equal(sim_mismatches(engine->driver), 0);
    parts[0] = (struct memory_part){ engine_chunk(engine, SCRATCH), PLACE + 1 };
    parts[1] = (struct memory_part){ engine_chunk(engine, SCRATCH + 4), PLACE + 4 };
    return engine_chunk(engine, PLACE);
}

static void parts_checked(struct engine *engine)
{
    checked(engine, PLACE + 1, 1, 11);
    checked(engine, PLACE + 4, 2, 12);
}

static void parts_take_a_chunk_s_place(void **state)
{
    struct engine *engine = *state;
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepared(engine, parts);
    uint64_t free_granules = engine->memory.arena.free_granules;
    assert_ok(vmm__memory_swap(&engine->memory, chunk, parts, 2));
    engine_checked(engine);
    assert_ptr_equal(engine_chunk(engine, PLACE + 1), parts[0].chunk);
    assert_ptr_equal(engine_chunk(engine, PLACE + 4), parts[1].chunk);
    assert_ptr_equal(engine_chunk(engine, PLACE + 5), parts[1].chunk);
    static const unsigned voids[] = { 0, 2, 3, 6, 7 };
    for (int i = 0; i < 5; i++)
        assert_null(engine_chunk(engine, PLACE + voids[i]));
    assert_int_equal(engine->memory.arena.free_granules, free_granules + 5);
    assert_int_equal(engine_reserved(engine), 11 * GRANULE);
    assert_int_equal(engine->memory.limbo_bytes, 8 * GRANULE);
    assert_int_equal(engine_drained(engine), 8 * GRANULE);
    assert_int_equal(engine->memory.arena.free_granules, free_granules + 8);
    assert_int_equal(engine->driver->mapped_bytes, 3 * GRANULE);
    assert_int_equal(vmm__sim_census(engine->driver).physical_bytes, 3 * GRANULE);
    parts_checked(engine);
}

static void parts_may_fill_the_place(void **state)
{
    struct engine *engine = *state;
    struct memory_part parts[2];
    engine_mapped(engine, PLACE, 4, 4);
    engine_mapped(engine, SCRATCH, 4, 2);
    for (unsigned i = 0; i < 2; i++)
        parts[i] = (struct memory_part){ engine_chunk(engine, SCRATCH + 2 * i), PLACE + 2 * i };
    assert_ok(vmm__memory_swap(&engine->memory, engine_chunk(engine, PLACE), parts, 2));
    assert_int_equal(engine_drained(engine), 4 * GRANULE);
    assert_int_equal(engine_chunk(engine, PLACE + 3)->granules, 2);
    assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES - 4);
}

/* Calls: unmap, and map and access for each of two parts. */
static void a_swap_that_fails_once_changes_nothing(void **state)
{
    struct engine *engine = *state;
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepared(engine, parts);
    uint64_t handle = chunk->handle;
    for (uint64_t call = 1; call <= 5; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        assert_status(vmm__memory_swap(&engine->memory, chunk, parts, 2), VMM_ERR_DRIVER);
        assert_non_null(strstr(vmm_last_error(), "made to fail"));
        engine_nothing_is_astray(engine);
        assert_ptr_equal(engine_chunk(engine, PLACE), chunk);
        assert_true(chunk->handle == handle && chunk->is_mapped);
        assert_int_equal(engine_chunk(engine, SCRATCH)->first, SCRATCH);
        assert_int_equal(engine->driver->mapped_bytes, 11 * GRANULE);
        assert_int_equal(engine_drained(engine), 0);
        parts_checked(engine);
        checked(engine, SCRATCH + 4, 2, 12);
    }
    assert_ok(vmm__memory_swap(&engine->memory, chunk, parts, 2));
    assert_int_equal(engine_drained(engine), 8 * GRANULE);
    parts_checked(engine);
}

/*
 * From some call on nothing works: the old mapping cannot be had back, and parts that were mapped
 * already, with access or without, may stay in its place. The next drain mends it.
 */
static void what_went_astray_is_mended_by_a_drain(void **state)
{
    struct engine *engine = *state;
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepared(engine, parts);
    for (uint64_t call = 2; call <= 5; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DEVICE_OOM, true);
        assert_status(vmm__memory_swap(&engine->memory, chunk, parts, 2), VMM_ERR_DEVICE_OOM);
        assert_non_null(strstr(vmm_last_error(), call % 2 == 0 ? "map" : "access"));
        assert_int_equal(engine->memory.astray, 1);
        engine_checked(engine);
        (void)vmm__limbo_drain(&engine->memory, NULL);
        assert_int_equal(engine->memory.astray, 1);
        engine_checked(engine);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
        assert_int_equal(engine_drained(engine), 0);
        engine_nothing_is_astray(engine);
        assert_int_equal(engine->driver->mapped_bytes, 11 * GRANULE);
        parts_checked(engine);
        checked(engine, SCRATCH + 4, 2, 12);
    }
}

static void what_is_astray_does_not_move(void **state)
{
    struct engine *engine = *state;
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepared(engine, parts);
    vmm__sim_fail_at(engine->driver, 2, VMM_ERR_DRIVER, true);
    assert_status(vmm__memory_swap(&engine->memory, chunk, parts, 2), VMM_ERR_DRIVER);
    vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    vmm__arena_take(&engine->memory.arena, 0, 8);
    assert_status(vmm__memory_move(&engine->memory, chunk, 0, NULL, 0), VMM_ERR_DRIVER);
    vmm__arena_give(&engine->memory.arena, 0, 8);
    engine_checked(engine);
    assert_int_equal(engine_drained(engine), 0);
    engine_nothing_is_astray(engine);
    parts_checked(engine);
}

static void a_swap_without_records_changes_nothing(void **state)
{
    struct engine *engine = *state;
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepared(engine, parts);
    uint64_t limit = engine->memory.record_limit;
    engine->memory.record_limit = engine->memory.record_high + 1; /* one of the two */
    assert_status(vmm__memory_swap(&engine->memory, chunk, parts, 2), VMM_ERR_HOST_OOM);
    engine_nothing_is_astray(engine);
    parts_checked(engine);
    engine->memory.record_limit = engine->memory.record_high;
    vmm__chunk_drop(&engine->memory, vmm__chunk_take(&engine->memory));
    assert_status(vmm__memory_swap(&engine->memory, chunk, parts, 2), VMM_ERR_HOST_OOM);
    engine->memory.record_limit = limit;
    assert_ok(vmm__memory_swap(&engine->memory, chunk, parts, 2));
    parts_checked(engine);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENGINE_TEST(parts_take_a_chunk_s_place),
        ENGINE_TEST(parts_may_fill_the_place),
        ENGINE_TEST(a_swap_that_fails_once_changes_nothing),
        ENGINE_TEST(what_went_astray_is_mended_by_a_drain),
        ENGINE_TEST(what_is_astray_does_not_move),
        ENGINE_TEST(a_swap_without_records_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
