/* Relocation and remap pending chunks: the bytes survive every failure. */
#include "support/engine_support.h"

static void fill(struct engine *engine, uint64_t granule, uint64_t count, uint32_t word)
{
    memory_fill(engine->driver, engine_address(engine, granule), count * GRANULE, word, STREAM(1));
}

static void check(struct engine *engine, uint64_t granule, uint64_t count, uint32_t word)
{
    memory_check(engine->driver, engine_address(engine, granule), count * GRANULE, word, STREAM(1));
    assert_int_equal(mismatches(engine->driver), 0);
}

enum { HOME = 16, SCRATCH = 40, PLACE = 50 };

/* Maps a chunk of 8 granules. Two other chunks hold copies of its granules 1 and 4 to 5. */
static struct chunk *parts_prepare(struct engine *engine, struct memory_part parts[2])
{
    engine_map(engine, HOME, 8, 8);
    fill(engine, HOME + 1, 1, 11);
    fill(engine, HOME + 4, 2, 12);
    engine_map(engine, SCRATCH, 1, 1);
    engine_map(engine, SCRATCH + 4, 2, 2);
    fill(engine, SCRATCH, 1, 11);
    fill(engine, SCRATCH + 4, 2, 12);
    assert_int_equal(mismatches(engine->driver), 0);
    parts[0] = (struct memory_part){ engine_chunk(engine, SCRATCH), HOME + 1 };
    parts[1] = (struct memory_part){ engine_chunk(engine, SCRATCH + 4), HOME + 4 };
    return engine_chunk(engine, HOME);
}

static void parts_check(struct engine *engine)
{
    check(engine, HOME + 1, 1, 11);
    check(engine, HOME + 4, 2, 12);
}

ENGINE_TEST(swap_maps_the_parts_and_frees_the_rest)
{
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepare(engine, parts);
    uint64_t free_granules = engine->memory.arena.free_granules;
    assert_ok(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0));
    engine_check(engine);
    assert_ptr_equal(engine_chunk(engine, HOME + 1), parts[0].chunk);
    assert_ptr_equal(engine_chunk(engine, HOME + 4), parts[1].chunk);
    assert_ptr_equal(engine_chunk(engine, HOME + 5), parts[1].chunk);
    static const unsigned gaps[] = { 0, 2, 3, 6, 7 };
    for (int i = 0; i < 5; i++)
        assert_null(engine_chunk(engine, HOME + gaps[i]));
    assert_int_equal(engine->memory.arena.free_granules, free_granules + 5);
    assert_int_equal(engine_reserved_bytes(engine), 11 * GRANULE);
    assert_int_equal(engine->memory.counts.limbo_bytes, 8 * GRANULE);
    assert_int_equal(engine_drain(engine), 8 * GRANULE);
    assert_int_equal(engine->memory.arena.free_granules, free_granules + 8);
    assert_int_equal(engine->driver->mapped_bytes, 3 * GRANULE);
    assert_int_equal(vmm__sim_census(engine->driver).physical_bytes, 3 * GRANULE);
    parts_check(engine);
}

/* The same chunk with a further place, where the second part is needed. */
static struct chunk *place_prepare(struct engine *engine, struct memory_part parts[3])
{
    struct chunk *chunk = parts_prepare(engine, parts);
    vmm__arena_take(&engine->memory.arena, PLACE, 8);
    assert_ok(vmm__place_map(&engine->memory, chunk, PLACE));
    assert_ok(vmm__vm_access(&engine->memory, PLACE, 8));
    parts[2] = (struct memory_part){ parts[1].chunk, PLACE + 4 };
    return chunk;
}

ENGINE_TEST(swap_maps_the_parts_in_places_too)
{
    struct memory_part parts[3];
    struct chunk *chunk = place_prepare(engine, parts);
    uint64_t free_granules = engine->memory.arena.free_granules;
    assert_ok(vmm__vm_swap(&engine->memory, chunk, parts, 2, 1));
    engine_check(engine);
    for (unsigned i = 0; i < 8; i++)
        assert_ptr_equal(engine_chunk(engine, PLACE + i), i / 2 == 2 ? parts[1].chunk : NULL);
    assert_int_equal(parts[0].chunk->places, 0);
    assert_int_equal(parts[1].chunk->places, 1);
    assert_int_equal(parts[1].chunk->place, PLACE + 4);
    assert_int_equal(engine->memory.arena.free_granules, free_granules + 5 + 6);
    assert_int_equal(engine_drain(engine), 8 * GRANULE);
    assert_int_equal(engine->driver->mapped_bytes, 5 * GRANULE);
    parts_check(engine);
    check(engine, PLACE + 4, 2, 12);
    fill(engine, PLACE + 4, 2, 13); /* the same bytes */
    check(engine, HOME + 4, 2, 13);
}

/* Eight calls: unmap home and place, then map and access for each part. Whether one call fails or all from it on, the
 * chunk is mapped at both again, at the latest by a drain. */
ENGINE_TEST(failed_swap_keeps_home_and_place)
{
    struct memory_part parts[3];
    struct chunk *chunk = place_prepare(engine, parts);
    for (uint64_t call = 1; call <= 16; call++) {
        vmm__sim_fail_at(engine->driver, (call + 1) / 2, VMM_ERR_DRIVER, call % 2 == 0);
        assert_status(vmm__vm_swap(&engine->memory, chunk, parts, 2, 1), VMM_ERR_DRIVER);
        engine_check(engine);
        assert_int_equal(engine->memory.remap_pending, call % 2 == 0 && call > 2 ? 1 : 0);
        if (engine->memory.remap_pending > 0)
            assert_status(vmm__place_unmap(&engine->memory, chunk, PLACE), VMM_ERR_DRIVER);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
        assert_int_equal(engine_drain(engine), 0);
        engine_assert_nothing_remap_pending(engine);
        assert_int_equal(engine->driver->mapped_bytes, 19 * GRANULE);
        assert_int_equal(chunk->places, 1);
        parts_check(engine);
        check(engine, PLACE + 4, 2, 12);
    }
    assert_ok(vmm__vm_swap(&engine->memory, chunk, parts, 2, 1));
    assert_int_equal(engine_drain(engine), 8 * GRANULE);
}

ENGINE_TEST(parts_may_cover_the_whole_chunk)
{
    struct memory_part parts[2];
    engine_map(engine, HOME, 4, 4);
    engine_map(engine, SCRATCH, 4, 2);
    for (unsigned i = 0; i < 2; i++)
        parts[i] = (struct memory_part){ engine_chunk(engine, SCRATCH + 2 * i), HOME + 2 * i };
    assert_ok(vmm__vm_swap(&engine->memory, engine_chunk(engine, HOME), parts, 2, 0));
    assert_int_equal(engine_drain(engine), 4 * GRANULE);
    assert_int_equal(engine_chunk(engine, HOME + 3)->granules, 2);
    assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES - 4);
}

/* A swap with two parts makes five calls: unmap, then map and access for each part. */
ENGINE_TEST(failed_swap_changes_nothing)
{
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepare(engine, parts);
    uint64_t handle = chunk->handle;
    for (uint64_t call = 1; call <= 5; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        assert_status(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0), VMM_ERR_DRIVER);
        assert_non_null(strstr(vmm_last_error(), "made to fail"));
        engine_assert_nothing_remap_pending(engine);
        assert_ptr_equal(engine_chunk(engine, HOME), chunk);
        assert_true(chunk->handle == handle && chunk->is_mapped);
        assert_int_equal(engine_chunk(engine, SCRATCH)->first, SCRATCH);
        assert_int_equal(engine->driver->mapped_bytes, 11 * GRANULE);
        assert_int_equal(engine_drain(engine), 0);
        parts_check(engine);
        check(engine, SCRATCH + 4, 2, 12);
    }
    assert_ok(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0));
    assert_int_equal(engine_drain(engine), 8 * GRANULE);
    parts_check(engine);
}

/*
 * Every call from number `call` on fails: the old mapping cannot be restored, and parts that are
 * already mapped, with or without access, may stay. The next drain repairs this.
 */
ENGINE_TEST(drain_maps_remap_pending_chunks)
{
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepare(engine, parts);
    for (uint64_t call = 2; call <= 5; call++) {
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DEVICE_OOM, true);
        assert_status(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0), VMM_ERR_DEVICE_OOM);
        assert_non_null(strstr(vmm_last_error(), call % 2 == 0 ? "map" : "access"));
        assert_int_equal(engine->memory.remap_pending, 1);
        engine_check(engine);
        (void)vmm__limbo_drain(&engine->memory, NULL);
        assert_int_equal(engine->memory.remap_pending, 1);
        engine_check(engine);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
        assert_int_equal(engine_drain(engine), 0);
        engine_assert_nothing_remap_pending(engine);
        assert_int_equal(engine->driver->mapped_bytes, 11 * GRANULE);
        parts_check(engine);
        check(engine, SCRATCH + 4, 2, 12);
    }
}

ENGINE_TEST(remap_pending_chunk_cannot_be_relocated)
{
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepare(engine, parts);
    vmm__sim_fail_at(engine->driver, 2, VMM_ERR_DRIVER, true);
    assert_status(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0), VMM_ERR_DRIVER);
    vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    assert_status(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "remap pending"));
    engine_check(engine);
    assert_int_equal(engine_drain(engine), 0);
    engine_assert_nothing_remap_pending(engine);
    parts_check(engine);
}

/* Relocates and releases chunks while one call of a drain fails: memory and addresses return. The first drain unmaps
 * two old mappings, releases the old chunk, and unmaps and releases both parts. */
ENGINE_TEST(relocated_chunks_are_released)
{
    for (uint64_t call = 1; call <= 7; call++) {
        struct memory_part parts[2];
        struct chunk *chunk = parts_prepare(engine, parts);
        assert_ok(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0));
        for (int i = 0; i < 2; i++)
            vmm__limbo_put(&engine->memory, parts[i].chunk, NULL, 0);
        vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
        uint64_t released = 0;
        assert_status(vmm__limbo_drain(&engine->memory, &released), VMM_ERR_DRIVER);
        engine_check(engine);
        released += engine_drain(engine);
        assert_int_equal(released, 11 * GRANULE);
        assert_int_equal(engine_drain(engine), 0);
        assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES);
        assert_int_equal(vmm__sim_census(engine->driver).physical_bytes, 0);
    }
}

ENGINE_TEST(swap_without_records_changes_nothing)
{
    struct memory_part parts[2];
    struct chunk *chunk = parts_prepare(engine, parts);
    uint64_t limit = engine->memory.record_limit;
    engine->memory.record_limit = engine->memory.record_high + 1; /* one record for two parts */
    assert_status(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0), VMM_ERR_HOST_OOM);
    engine_assert_nothing_remap_pending(engine);
    parts_check(engine);
    engine->memory.record_limit = engine->memory.record_high;
    vmm__chunk_drop(&engine->memory, vmm__chunk_take(&engine->memory));
    assert_status(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0), VMM_ERR_HOST_OOM);
    engine->memory.record_limit = limit;
    assert_ok(vmm__vm_swap(&engine->memory, chunk, parts, 2, 0));
    parts_check(engine);
}
