/* The arena: gaps and their neighbours. Reservations: test_arena_growth.c. */
#include "support/sim_support.h"

#include "vm/arena.h"

enum { GRANULES = 64 };

struct fixture {
    struct driver *driver;
    struct arena arena;
    bool taken[GRANULES];
};

static int fixture_setup(void **state)
{
    static struct fixture fixture;
    struct driver_options options = { .device_bytes = GRANULES / 2 * GRANULE };
    fixture = (struct fixture){ .driver = NULL };
    assert_ok(vmm__driver_sim_open(&options, &fixture.driver));
    assert_ok(
        vmm__arena_init(&fixture.arena, fixture.driver, GRANULES * GRANULE, GRANULES * GRANULE));
    *state = &fixture;
    return 0;
}

static int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    assert_ok(vmm__arena_fini(&fixture->arena));
    assert_true(sim_census_is_zero(fixture->driver));
    vmm__driver_close(fixture->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    return 0;
}

#define ARENA_TEST(name) TEST_WITH(name, fixture_setup, fixture_teardown, struct fixture *fixture)

static void fixture_change(struct fixture *fixture, uint64_t granule, uint64_t count, bool take)
{
    if (take)
        vmm__arena_take(&fixture->arena, granule, count);
    else
        vmm__arena_give(&fixture->arena, granule, count);
    for (uint64_t i = granule; i < granule + count; i++)
        fixture->taken[i] = take;
    assert_ok(vmm__arena_check(&fixture->arena));
}

ARENA_TEST(init_sets_the_sizes)
{
    assert_int_equal(fixture->arena.bytes, GRANULES * GRANULE);
    assert_int_equal(fixture->arena.free_granules, GRANULES);
    assert_true(vmm__arena_contains(&fixture->arena, fixture->arena.address));
    assert_true(
        vmm__arena_contains(&fixture->arena, fixture->arena.address + GRANULES * GRANULE - 1));
    assert_false(vmm__arena_contains(&fixture->arena, fixture->arena.address + GRANULES * GRANULE));
    assert_false(vmm__arena_contains(&fixture->arena, fixture->arena.address - 1));
    assert_false(vmm__arena_contains(&fixture->arena, 0));
    assert_int_equal(vmm__arena_next_taken(&fixture->arena, 0), GRANULES);
}

ARENA_TEST(failed_init_frees_everything)
{
    struct arena arena;
    uint64_t host_bytes = vmm__host_outstanding();
    vmm__sim_fail_at(fixture->driver, 1, VMM_ERR_ADDRESS_SPACE, true);
    assert_status(vmm__arena_init(&arena, fixture->driver, TIB, TIB), VMM_ERR_ADDRESS_SPACE);
    vmm__sim_fail_at(fixture->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__arena_init(&arena, fixture->driver, TIB, TIB), VMM_ERR_DRIVER);
    vmm__sim_fail_at(fixture->driver, 0, VMM_OK, false);
    for (uint64_t number = 1; number <= 2; number++) {
        (void)vmm__host_fail_at(number);
        assert_status(vmm__arena_init(&arena, fixture->driver, TIB, TIB), VMM_ERR_HOST_OOM);
    }
    (void)vmm__host_fail_at(0);
    assert_int_equal(vmm__sim_census(fixture->driver).reservations, 1);
    assert_true(vmm__host_outstanding() <=
                host_bytes + 4096); /* the sim driver's list may have grown */
}

static uint64_t gap_end(const struct fixture *fixture, uint64_t granule)
{
    while (granule < GRANULES && !fixture->taken[granule])
        granule++;
    return granule;
}

static uint64_t gap_start(const struct fixture *fixture, uint64_t granule)
{
    while (granule > 0 && !fixture->taken[granule - 1])
        granule--;
    return granule;
}

/* Compares all queries at all granules with the plain list. */
static void fixture_verify(const struct fixture *fixture)
{
    const struct arena *arena = &fixture->arena;
    for (uint64_t granule = 0; granule <= GRANULES; granule++) {
        bool is_free = granule < GRANULES && !fixture->taken[granule];
        bool starts = is_free && gap_start(fixture, granule) == granule;
        bool ends = granule > 0 && !fixture->taken[granule - 1] && !is_free;
        uint64_t first = 0;
        uint64_t count = 0;
        assert_int_equal(vmm__arena_gap(arena, granule, &first, &count), is_free);
        if (is_free) {
            assert_int_equal(first, gap_start(fixture, granule));
            assert_int_equal(first + count, gap_end(fixture, granule));
        }
        if (starts || !is_free)
            assert_int_equal(vmm__arena_room_after(arena, granule),
                             gap_end(fixture, granule) - granule);
        if (ends)
            assert_int_equal(vmm__arena_room_before(arena, granule),
                             granule - gap_start(fixture, granule));
        if (granule > 0 && fixture->taken[granule - 1])
            assert_int_equal(vmm__arena_room_before(arena, granule), 0);
        if (granule < GRANULES && (starts || !is_free))
            assert_int_equal(vmm__arena_next_taken(arena, granule), gap_end(fixture, granule));
    }
}

/* From the last granule of a gap, only that granule is free. */
ARENA_TEST(last_granule_of_a_gap_has_room_for_one)
{
    fixture_change(fixture, 20, 4, true);
    assert_int_equal(vmm__arena_room_after(&fixture->arena, 19), 1);
    assert_int_equal(vmm__arena_room_before(&fixture->arena, 1), 1);
    fixture_change(fixture, 20, 4, false);
}

ARENA_TEST(take_and_give_agree_with_a_plain_list)
{
    uint64_t seed = 1;
    for (int round = 0; round < 5000; round++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        uint64_t granule = (seed >> 33) % GRANULES;
        bool take = !fixture->taken[granule];
        uint64_t count = 1;
        while (granule + count < GRANULES && fixture->taken[granule + count] == !take &&
               count < (seed >> 50) % 12)
            count++;
        fixture_change(fixture, granule, count, take);
        if (round % 7 == 0)
            fixture_verify(fixture);
    }
    for (uint64_t granule = 0; granule < GRANULES; granule++) {
        if (fixture->taken[granule])
            fixture_change(fixture, granule, 1, false);
    }
    assert_int_equal(fixture->arena.free_granules, GRANULES);
}

ARENA_TEST(find_leaves_room_on_both_sides)
{
    uint64_t granule;
    assert_true(vmm__arena_find(&fixture->arena, 4, &granule));
    assert_int_equal(granule, 30);
    fixture_change(fixture, granule, 4, true);
    assert_true(vmm__arena_find(&fixture->arena, 30, &granule));
    assert_true(granule == 0 || granule == 34);
    assert_false(vmm__arena_find(&fixture->arena, 31, &granule));
    assert_true(vmm__arena_find(&fixture->arena, 1, &granule));
    assert_true(granule == 14 || granule == 48);
    fixture_change(fixture, 30, 4, false);
    assert_true(vmm__arena_find(&fixture->arena, GRANULES, &granule));
    assert_int_equal(granule, 0);
    assert_false(vmm__arena_find(&fixture->arena, GRANULES + 1, &granule));
}
