/* The reservations of an arena: the first, further ones, and refusals of the driver. */
#include "support/made_support.h"
#include "support/sim_support.h"

#include "api/create_on.h"
#include "vm/arena.h"

#define DEVICE (64 * MIB)
#define FIRST  (4 * DEVICE)

static int driver_setup(void **state)
{
    struct driver_options options = { .device_bytes = DEVICE };
    struct driver *driver;
    assert_ok(vmm__driver_sim_open(&options, &driver));
    *state = driver;
    return 0;
}

static int driver_teardown(void **state)
{
    struct driver *driver = *state;
    sim_assert_clean(driver);
    assert_true(sim_census_is_zero(driver));
    return sim_teardown(state);
}

/* `driver` is a sim driver with a memory of DEVICE. */
#define GROWTH_TEST(name) TEST_WITH(name, driver_setup, driver_teardown, struct driver *driver)

static uint64_t reservations(struct driver *driver)
{
    return vmm__sim_census(driver).reservations;
}

/* ---- The first reservation ---------------------------------------------------------------- */

GROWTH_TEST(large_limits_do_not_enlarge_the_first_reservation)
{
    static const uint64_t limits[] = { FIRST + 1, GIB, UINT64_C(1) << 44, UINT64_MAX };
    for (int i = 0; i < 4; i++) {
        struct arena arena;
        assert_ok(vmm__arena_init(&arena, driver, FIRST, limits[i]));
        assert_int_equal(arena.reserved_bytes, FIRST);
        assert_int_equal(arena.free_granules, FIRST / GRANULE);
        assert_true(arena.limit_bytes >= vmm__min(limits[i], UINT64_C(1) << 47));
        assert_true(arena.bytes >= 2 * vmm__min(arena.limit_bytes, UINT64_C(1) << 46));
        assert_ok(vmm__arena_check(&arena));
        assert_ok(vmm__arena_fini(&arena));
    }
}

GROWTH_TEST(init_respects_a_smaller_limit)
{
    static const uint64_t limits[] = { 1, GRANULE, GRANULE + 1, DEVICE, FIRST };
    for (int i = 0; i < 5; i++) {
        struct arena arena;
        uint64_t bytes = vmm__align_up(limits[i], GRANULE);
        assert_ok(vmm__arena_init(&arena, driver, FIRST, limits[i]));
        assert_int_equal(arena.reserved_bytes, bytes);
        assert_int_equal(arena.bytes, bytes);
        assert_status(vmm__arena_extend(&arena, GRANULE), VMM_ERR_ADDRESS_SPACE);
        assert_ok(vmm__arena_fini(&arena));
    }
}

GROWTH_TEST(refused_first_reservation_is_halved)
{
    struct arena arena;
    vmm__sim_fail_at(driver, 1, VMM_ERR_ADDRESS_SPACE, false);
    assert_ok(vmm__arena_init(&arena, driver, FIRST, TIB));
    assert_int_equal(arena.reserved_bytes, FIRST / 2);
    assert_ok(vmm__arena_fini(&arena));
    vmm__sim_fail_at(driver, 1, VMM_ERR_ADDRESS_SPACE, true);
    uint64_t calls = vmm__driver_calls(driver, DRIVER_CALL_reserve);
    assert_status(vmm__arena_init(&arena, driver, FIRST, TIB), VMM_ERR_ADDRESS_SPACE);
    assert_int_equal(vmm__driver_calls(driver, DRIVER_CALL_reserve) - calls, 3);
    assert_non_null(strstr(vmm_last_error(), "arena_bytes"));
    assert_status(vmm__arena_init(&arena, driver, FIRST, GRANULE), VMM_ERR_ADDRESS_SPACE);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
}

/* ---- Further reservations ----------------------------------------------------------------- */

GROWTH_TEST(arena_grows_up_to_its_limit)
{
    struct arena arena;
    assert_ok(vmm__arena_init(&arena, driver, FIRST, 7 * FIRST));
    assert_ok(vmm__arena_extend(&arena, GRANULE));
    assert_int_equal(arena.reserved_bytes, 2 * FIRST);
    assert_ok(vmm__arena_extend(&arena, GRANULE));
    assert_int_equal(arena.reserved_bytes, 4 * FIRST);
    assert_ok(vmm__arena_extend(&arena, GRANULE));
    assert_int_equal(arena.reserved_bytes, 7 * FIRST);
    assert_status(vmm__arena_extend(&arena, GRANULE), VMM_ERR_ADDRESS_SPACE);
    assert_non_null(strstr(vmm_last_error(), "arena_bytes"));
    assert_int_equal(reservations(driver), 4);
    assert_ok(vmm__arena_check(&arena));
    assert_ok(vmm__arena_fini(&arena));
}

GROWTH_TEST(extend_refuses_more_than_the_device_memory)
{
    struct arena arena;
    assert_ok(vmm__arena_init(&arena, driver, FIRST, TIB));
    assert_ok(vmm__arena_extend(&arena, DEVICE));
    assert_status(vmm__arena_extend(&arena, DEVICE + 1), VMM_ERR_DEVICE_OOM);
    assert_int_equal(reservations(driver), 2);
    assert_ok(vmm__arena_fini(&arena));
}

/* No run crosses from one reservation into another, although these two touch. */
GROWTH_TEST(runs_do_not_cross_reservations)
{
    struct arena arena;
    uint64_t granule;
    assert_ok(vmm__arena_init(&arena, driver, FIRST, TIB));
    assert_ok(vmm__arena_extend(&arena, GRANULE));
    const struct reservation *at = arena.reservations;
    assert_int_equal(at[1].address, at[0].address + at[0].bytes);
    assert_int_equal(arena.free_granules, 2 * FIRST / GRANULE - 2);
    assert_false(vmm__arena_find(&arena, FIRST / GRANULE + 1, &granule));
    assert_true(vmm__arena_find(&arena, FIRST / GRANULE, &granule));
    assert_int_equal(granule, at[0].first);
    assert_ok(vmm__arena_fini(&arena));
}

/* next_taken() visits the taken granules of each reservation in the order of addresses. */
GROWTH_TEST(next_taken_visits_all_reservations)
{
    struct arena arena;
    uint64_t other;
    uint64_t low;
    assert_ok(vmm__driver_reserve(driver, FIRST, 0, &low));
    assert_ok(vmm__arena_init(&arena, driver, FIRST, TIB));
    assert_ok(vmm__driver_reserve(driver, GRANULE, 0, &other)); /* directly after the first */
    assert_ok(vmm__driver_address_free(driver, low, FIRST));
    assert_ok(vmm__arena_extend(&arena, GRANULE));
    const struct reservation *at = arena.reservations;
    assert_int_equal(at[1].address, at[0].address - at[1].bytes);
    assert_int_equal(vmm__arena_next_taken(&arena, 0), arena.granules);
    vmm__arena_take(&arena, at[0].end - 1, 1);
    vmm__arena_take(&arena, at[1].first + 3, 2);
    assert_ok(vmm__arena_check(&arena));
    assert_int_equal(vmm__arena_next_taken(&arena, 0), at[1].first + 3);
    assert_int_equal(vmm__arena_next_taken(&arena, at[1].first + 4), at[1].first + 4);
    assert_int_equal(vmm__arena_next_taken(&arena, at[1].first + 5), at[0].end - 1);
    assert_int_equal(vmm__arena_next_taken(&arena, at[0].end), arena.granules);
    vmm__arena_give(&arena, at[0].end - 1, 1);
    vmm__arena_give(&arena, at[1].first + 3, 2);
    assert_ok(vmm__arena_check(&arena));
    assert_ok(vmm__arena_fini(&arena));
    assert_ok(vmm__driver_address_free(driver, other, GRANULE));
}

/* The window has 1 TiB. Other reservations around the arena leave no address in it. */
GROWTH_TEST(addresses_outside_the_window_are_freed)
{
    struct arena arena;
    uint64_t others;
    assert_ok(vmm__arena_init(&arena, driver, FIRST, GIB));
    assert_ok(vmm__driver_reserve(driver, TIB, 0, &others));
    assert_status(vmm__arena_extend(&arena, GRANULE), VMM_ERR_ADDRESS_SPACE);
    assert_non_null(strstr(vmm_last_error(), "too far"));
    assert_int_equal(reservations(driver), 2);
    assert_int_equal(arena.reserved_bytes, FIRST);
    assert_ok(vmm__driver_address_free(driver, others, TIB));
    assert_ok(vmm__arena_extend(&arena, GRANULE));
    assert_ok(vmm__arena_fini(&arena));
}

/* All that is free lies before the window. */
GROWTH_TEST(addresses_before_the_window_are_freed)
{
    struct arena arena;
    uint64_t others[3];
    assert_ok(vmm__driver_reserve(driver, TIB, 0, &others[0]));
    assert_ok(vmm__driver_reserve(driver, TIB, 0, &others[1]));
    assert_ok(vmm__arena_init(&arena, driver, FIRST, GIB));
    assert_ok(vmm__driver_reserve(driver, TIB, 0, &others[2]));
    assert_ok(vmm__driver_address_free(driver, others[0], TIB));
    assert_status(vmm__arena_extend(&arena, GRANULE), VMM_ERR_ADDRESS_SPACE);
    assert_non_null(strstr(vmm_last_error(), "too far"));
    assert_int_equal(reservations(driver), 3);
    for (int i = 1; i < 3; i++)
        assert_ok(vmm__driver_address_free(driver, others[i], TIB));
    assert_ok(vmm__arena_fini(&arena));
}

GROWTH_TEST(reservations_are_limited_in_number)
{
    struct arena arena;
    assert_ok(vmm__arena_init(&arena, driver, FIRST, TIB));
    arena.reservation_count = ARENA_RESERVATIONS; /* as if the driver had refused large ones */
    assert_status(vmm__arena_extend(&arena, GRANULE), VMM_ERR_ADDRESS_SPACE);
    assert_int_equal(reservations(driver), 1);
    arena.reservation_count = 1;
    assert_ok(vmm__arena_extend(&arena, GRANULE));
    assert_ok(vmm__arena_fini(&arena));
}

GROWTH_TEST(find_extends_a_full_arena)
{
    struct arena arena;
    uint64_t granule = 0;
    assert_ok(vmm__arena_init(&arena, driver, FIRST, TIB));
    const struct reservation *at = arena.reservations;
    vmm__arena_take(&arena, at[0].first, FIRST / GRANULE);
    vmm__sim_fail_at(driver, 1, VMM_ERR_ADDRESS_SPACE, true);
    assert_status(vmm__arena_find_or_extend(&arena, 3, &granule), VMM_ERR_ADDRESS_SPACE);
    assert_int_equal(granule, 0);
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    assert_ok(vmm__arena_find_or_extend(&arena, 3, &granule));
    assert_in_range(granule, at[1].first, at[1].end - 3);
    uint64_t other = 0;
    assert_ok(vmm__arena_find_or_extend(&arena, 3, &other));
    assert_int_equal(other, granule); /* found, not extended again */
    assert_int_equal(reservations(driver), 2);
    vmm__arena_give(&arena, at[0].first, FIRST / GRANULE);
    assert_ok(vmm__arena_fini(&arena));
}

GROWTH_TEST(refused_extension_changes_nothing)
{
    struct arena arena;
    assert_ok(vmm__arena_init(&arena, driver, FIRST, TIB));
    vmm__sim_fail_at(driver, 1, VMM_ERR_ADDRESS_SPACE, true);
    assert_status(vmm__arena_extend(&arena, GRANULE), VMM_ERR_ADDRESS_SPACE);
    assert_non_null(strstr(vmm_last_error(), "arena_bytes"));
    vmm__sim_fail_at(driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__arena_extend(&arena, GRANULE), VMM_ERR_DRIVER);
    assert_int_equal(reservations(driver), 1);
    assert_int_equal(arena.reserved_bytes, FIRST);
    assert_int_equal(arena.free_granules, FIRST / GRANULE);
    vmm__sim_fail_at(driver, 3, VMM_ERR_ADDRESS_SPACE,
                     false); /* not reached: the first attempt succeeds */
    assert_ok(vmm__arena_extend(&arena, GRANULE));
    vmm__sim_fail_at(driver, 0, VMM_OK, false);
    assert_ok(vmm__arena_fini(&arena));
}

/* ---- Caches ------------------------------------------------------------------------------- */

enum { STREAMS = 16 };

struct fixture {
    struct driver *driver;
    vmm_cache *cache;
    void *blocks[STREAMS];
};

/* One granule for each of 16 streams splits the first 128 granules into runs of at most 8. */
static struct fixture fixture_open(struct driver *driver)
{
    struct fixture fixture = { .driver = driver };
    assert_ok(vmm__cache_create_on(NULL, driver, &fixture.cache));
    for (int i = 0; i < STREAMS; i++)
        assert_ok(vmm_alloc(fixture.cache, 2000, STREAM(i + 1), &fixture.blocks[i]));
    assert_int_equal(reservations(fixture.driver), 1);
    return fixture;
}

static void fixture_close(const struct fixture *fixture)
{
    for (int i = 0; i < STREAMS; i++)
        assert_ok(vmm_free(fixture->cache, fixture->blocks[i]));
    assert_ok(vmm__cache_check(fixture->cache));
    assert_ok(vmm_destroy(fixture->cache));
}

GROWTH_TEST(request_without_addresses_extends_the_arena)
{
    struct fixture fixture = fixture_open(driver);
    void *block = block_in(fixture.cache, 24 * MIB, STREAM(1));
    assert_int_equal(reservations(fixture.driver), 2);
    memory_fill(fixture.driver, (uintptr_t)block, 24 * MIB, 7, STREAM(1));
    memory_check(fixture.driver, (uintptr_t)block, 24 * MIB, 7, STREAM(1));
    assert_ok(vmm__cache_check(fixture.cache));
    assert_ok(vmm_free(fixture.cache, block));
    assert_status(vmm_free(fixture.cache, block), VMM_ERR_UNKNOWN_POINTER);
    assert_ok(vmm_alloc(fixture.cache, 24 * MIB, STREAM(1), &block));
    assert_int_equal(reservations(fixture.driver), 2);
    assert_ok(vmm_free(fixture.cache, block));
    fixture_close(&fixture);
}

GROWTH_TEST(request_after_a_refused_reservation_succeeds)
{
    struct fixture fixture = fixture_open(driver);
    void *block = &fixture;
    vmm_stats stats = { .struct_size = sizeof stats };
    vmm__sim_fail_at(fixture.driver, 1, VMM_ERR_ADDRESS_SPACE, true);
    assert_status(vmm_alloc(fixture.cache, 24 * MIB, STREAM(1), &block), VMM_ERR_ADDRESS_SPACE);
    assert_ptr_equal(block, &fixture);
    assert_non_null(strstr(vmm_last_error(), "256 MiB are reserved, arena_bytes allows"));
    assert_non_null(strstr(vmm_last_error(), "the driver refuses more"));
    vmm__sim_fail_at(fixture.driver, 0, VMM_OK, false);
    assert_ok(vmm_stats_get(fixture.cache, &stats));
    assert_int_equal(stats.active_bytes.current, STREAMS * vmm_block_bytes(fixture.cache, 2000));
    assert_ok(vmm__cache_check(fixture.cache));
    assert_ok(vmm_alloc(fixture.cache, 24 * MIB, STREAM(1), &block));
    assert_ok(vmm_free(fixture.cache, block));
    fixture_close(&fixture);
}
