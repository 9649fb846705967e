/* Places that share one chunk, below policy: whoever comes, leaves or fails, bytes stay. */
#include "support/engine_support.h"

enum { PARTS = 4, PART_BYTES = (int)(GRANULE / PARTS), PLACES = 3 };

static uint64_t part_address(const struct engine *engine, uint64_t granule)
{
    return engine_address(engine, granule) + (granule % PARTS) * PART_BYTES;
}

/* Each place has one live part, its own; in the memory that it is to share it is there already. */
static void part_filled(struct engine *engine, uint64_t granule, uint64_t of)
{
    uint64_t address = engine_address(engine, granule) + (of % PARTS) * PART_BYTES;
    sim_filled(engine->driver, address, PART_BYTES, 100 + (uint32_t)of, STREAM(1));
}

static void parts_live(struct engine *engine, uint64_t first, uint64_t count)
{
    for (uint64_t granule = first; granule < first + count; granule++)
        sim_checked(engine->driver, part_address(engine, granule), PART_BYTES,
                    100 + (uint32_t)granule, STREAM(1));
    assert_int_equal(sim_mismatches(engine->driver), 0);
}

/* Places 8, 9, ... of a granule each, with their parts; the host's memory has all of them. */
static void places_prepared(struct engine *engine, uint64_t host, unsigned places)
{
    engine_mapped(engine, 8, places, 1);
    for (uint64_t granule = 8; granule < 8 + places; granule++) {
        part_filled(engine, granule, granule);
        if (granule != host)
            part_filled(engine, host, granule);
    }
    assert_int_equal(sim_mismatches(engine->driver), 0);
}

static void meshed(struct engine *engine, uint64_t host, uint64_t guest)
{
    assert_ok(
        vmm__memory_mesh(&engine->memory, engine_chunk(engine, host), engine_chunk(engine, guest)));
    engine_checked(engine);
}

static void two_places_share_one_chunk(void **state)
{
    struct engine *engine = *state;
    places_prepared(engine, 8, 2);
    struct chunk *host = engine_chunk(engine, 8);
    struct chunk *guest = engine_chunk(engine, 9);
    meshed(engine, 8, 9);
    assert_ptr_equal(engine_chunk(engine, 9), guest);
    assert_true(guest->is_alias && !host->is_alias);
    assert_int_equal(engine->memory.twins, 1);
    assert_int_equal(engine_reserved(engine), 2 * GRANULE);
    assert_int_equal(engine->memory.limbo_bytes, GRANULE);
    assert_int_equal(engine_drained(engine), GRANULE);
    assert_int_equal(engine_reserved(engine), GRANULE);
    assert_int_equal(engine->driver->mapped_bytes, 2 * GRANULE);
    assert_int_equal(engine->driver->handles, 1);
    parts_live(engine, 8, 2);
    sim_filled(engine->driver, engine_address(engine, 8), GRANULE, 5, STREAM(1));
    sim_checked(engine->driver, engine_address(engine, 9), GRANULE, 5, STREAM(1));
}

static void three_places_share_one_chunk(void **state)
{
    struct engine *engine = *state;
    places_prepared(engine, 8, 3);
    meshed(engine, 8, 9);
    meshed(engine, 8, 10);
    assert_int_equal(engine->memory.twins, 2);
    assert_int_equal(engine_drained(engine), 2 * GRANULE);
    parts_live(engine, 8, 3);
}

/* Whoever leaves, owner or not, the memory stays with the others, and the last gives it back. */
static void places_leave_in_any_order(void **state)
{
    static const uint64_t orders[][PLACES] = { { 8, 9, 10 }, { 10, 8, 9 }, { 9, 10, 8 },
                                               { 8, 10, 9 }, { 9, 8, 10 }, { 10, 9, 8 } };
    struct engine *engine = *state;
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        places_prepared(engine, 8, PLACES);
        meshed(engine, 8, 9);
        meshed(engine, 8, 10);
        (void)engine_drained(engine);
        bool stays[PLACES] = { true, true, true };
        for (unsigned left = 0; left < PLACES; left++) {
            uint64_t granule = orders[i][left];
            bool is_last = left == PLACES - 1;
            if (is_last)
                vmm__limbo_put(&engine->memory, engine_chunk(engine, granule), NULL, 0);
            else
                vmm__memory_unmesh(&engine->memory, engine_chunk(engine, granule), NULL, 0);
            engine_checked(engine);
            stays[granule - 8] = false;
            assert_int_equal(engine->memory.limbo_bytes, is_last ? GRANULE : 0);
            assert_int_equal(engine_drained(engine), is_last ? GRANULE : 0);
            assert_null(engine_chunk(engine, granule));
            assert_int_equal(engine->driver->mapped_bytes, (2 - left) * GRANULE);
            for (uint64_t at = 8; at < 8 + PLACES; at++) {
                if (stays[at - 8])
                    parts_live(engine, at, 1);
            }
        }
        assert_int_equal(engine->memory.arena.free_granules, ENGINE_GRANULES);
        assert_int_equal(engine_reserved(engine), 0);
    }
}

/* A place that leaves while work runs keeps its mapping until that has ended. */
static void a_place_in_flight_leaves_later(void **state)
{
    struct engine *engine = *state;
    struct timeline *timeline = &engine->pool->timeline;
    places_prepared(engine, 8, 2);
    meshed(engine, 8, 9);
    (void)engine_drained(engine);
    engine_busy(engine, part_address(engine, 9), PART_BYTES, 1);
    vmm__memory_unmesh(&engine->memory, engine_chunk(engine, 9), timeline,
                       vmm__timeline_now(timeline));
    assert_int_equal(engine_drained(engine), 0);
    assert_int_equal(engine->driver->mapped_bytes, 2 * GRANULE);
    assert_int_equal(sim_mismatches(engine->driver), 0);
    (void)engine_drained(engine);
    assert_int_equal(engine->driver->mapped_bytes, GRANULE);
    parts_live(engine, 8, 1);
}

/* Place by place, the owner first. Its memory goes with the last of them. */
static void a_ring_moves_as_a_whole(void **state)
{
    struct engine *engine = *state;
    engine_mapped(engine, 8, 4, 1);
    for (uint64_t of = 8; of < 12; of++) { /* in the ring's memory, and in that of place 11 */
        part_filled(engine, 8, of);
        part_filled(engine, 11, of);
    }
    assert_int_equal(sim_mismatches(engine->driver), 0);
    meshed(engine, 8, 9);
    meshed(engine, 8, 10);
    assert_int_equal(engine_drained(engine), 2 * GRANULE);
    static const uint64_t order[PLACES] = { 8, 9, 10 };
    for (unsigned i = 0; i < PLACES; i++) {
        meshed(engine, 11, order[i]);
        assert_int_equal(engine_drained(engine), i == 2 ? GRANULE : 0);
        parts_live(engine, 8, 4);
    }
    assert_int_equal(engine->memory.twins, 3);
    assert_int_equal(engine_reserved(engine), GRANULE);
    assert_int_equal(engine->driver->mapped_bytes, 4 * GRANULE);
}

/* Calls: unmap, map, access. The guest is alone, an owner with a twin, and a twin. */
static void a_mesh_that_fails_once_changes_nothing(void **state)
{
    struct engine *engine = *state;
    places_prepared(engine, 10, PLACES);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t guest = round == 2 ? 9 : 8;
        if (round == 1) { /* 8 and 9 share the memory of 8 */
            part_filled(engine, 8, 9);
            assert_int_equal(sim_mismatches(engine->driver), 0);
            meshed(engine, 8, 9);
            (void)engine_drained(engine);
        }
        struct chunk *chunk = engine_chunk(engine, guest);
        struct chunk before = *chunk;
        uint64_t bytes = engine_reserved(engine);
        for (uint64_t call = 1; call <= 3; call++) {
            vmm__sim_fail_at(engine->driver, call, VMM_ERR_DRIVER, false);
            assert_status(vmm__memory_mesh(&engine->memory, engine_chunk(engine, 10), chunk),
                          VMM_ERR_DRIVER);
            assert_non_null(strstr(vmm_last_error(), "made to fail"));
            engine_nothing_is_astray(engine);
            assert_memory_equal(chunk, &before, sizeof before);
            assert_int_equal(engine_reserved(engine), bytes);
            parts_live(engine, 8, PLACES);
        }
    }
    meshed(engine, 10, 8);
    meshed(engine, 10, 9);
    (void)engine_drained(engine);
    parts_live(engine, 8, PLACES);
}

static void a_guest_astray_is_mended_by_a_drain(void **state)
{
    struct engine *engine = *state;
    places_prepared(engine, 10, PLACES);
    part_filled(engine, 8, 9);
    assert_int_equal(sim_mismatches(engine->driver), 0);
    meshed(engine, 8, 9);
    (void)engine_drained(engine);
    for (uint64_t i = 0; i < 4;
         i++) { /* an owner and a twin, without a mapping or without access */
        uint64_t guest = 8 + i % 2;
        vmm__sim_fail_at(engine->driver, 2 + i / 2, VMM_ERR_DRIVER, true);
        assert_status(vmm__memory_mesh(&engine->memory, engine_chunk(engine, 10),
                                       engine_chunk(engine, guest)),
                      VMM_ERR_DRIVER);
        assert_int_equal(engine->memory.astray, 1);
        engine_checked(engine);
        vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
        (void)engine_drained(engine);
        engine_nothing_is_astray(engine);
        parts_live(engine, 8, PLACES);
    }
}

static void a_mesh_without_records_changes_nothing(void **state)
{
    struct engine *engine = *state;
    uint64_t limit = engine->memory.record_limit;
    places_prepared(engine, 8, 2);
    engine->memory.record_limit = engine->memory.record_high;
    assert_status(
        vmm__memory_mesh(&engine->memory, engine_chunk(engine, 8), engine_chunk(engine, 9)),
        VMM_ERR_HOST_OOM);
    engine->memory.record_limit = limit;
    engine_nothing_is_astray(engine);
    parts_live(engine, 8, 2);
}

/* The end of the cache, with a ring, something astray and something in limbo. */
static void the_end_takes_rings_and_what_is_astray(void **state)
{
    struct engine *engine = *state;
    places_prepared(engine, 8, PLACES);
    meshed(engine, 8, 9);
    vmm__sim_fail_at(engine->driver, 3, VMM_ERR_DRIVER, true);
    assert_status(
        vmm__memory_mesh(&engine->memory, engine_chunk(engine, 8), engine_chunk(engine, 10)),
        VMM_ERR_DRIVER);
    vmm__sim_fail_at(engine->driver, 0, VMM_OK, false);
    assert_int_equal(engine->memory.astray, 1);
    engine_checked(engine);
}

static void damage_is_found(void **state)
{
    struct engine *engine = *state;
    struct memory *memory = &engine->memory;
    places_prepared(engine, 8, PLACES);
    meshed(engine, 8, 9);
    meshed(engine, 8, 10);
    struct chunk *twin = engine_chunk(engine, 9);
    struct chunk before = *twin;
    twin->is_alias = false; /* two owners */
    assert_status(vmm__memory_check(memory), VMM_ERR_INTERNAL);
    *twin = before;
    twin->twin = 0; /* the ring breaks */
    assert_status(vmm__memory_check(memory), VMM_ERR_INTERNAL);
    *twin = before;
    twin->twin = vmm__chunk_id(memory, twin); /* a ring of one, and one that never ends */
    assert_status(vmm__memory_check(memory), VMM_ERR_INTERNAL);
    *twin = before;
    twin->is_mapped = false;
    assert_status(vmm__memory_check(memory), VMM_ERR_INTERNAL);
    *twin = before;
    memory->twins++;
    assert_status(vmm__memory_check(memory), VMM_ERR_INTERNAL);
    memory->twins--;
    engine_nothing_is_astray(engine);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENGINE_TEST(two_places_share_one_chunk),
        ENGINE_TEST(three_places_share_one_chunk),
        ENGINE_TEST(places_leave_in_any_order),
        ENGINE_TEST(a_place_in_flight_leaves_later),
        ENGINE_TEST(a_ring_moves_as_a_whole),
        ENGINE_TEST(a_mesh_that_fails_once_changes_nothing),
        ENGINE_TEST(a_guest_astray_is_mended_by_a_drain),
        ENGINE_TEST(a_mesh_without_records_changes_nothing),
        ENGINE_TEST(the_end_takes_rings_and_what_is_astray),
        ENGINE_TEST(damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
