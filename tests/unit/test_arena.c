/* The arena: reserving, voids, and what is next to what. */
#include "support/sim_support.h"

#include "memory/arena.h"

enum { GRANULES = 64 };

struct ground {
    struct driver *driver;
    struct arena arena;
    bool taken[GRANULES];
};

static int ground_setup(void **state)
{
    static struct ground ground;
    struct driver_options options = { .device_bytes = GRANULES / 2 * GRANULE };
    ground = (struct ground){ .driver = NULL };
    assert_ok(vmm__driver_sim_open(&options, &ground.driver));
    assert_ok(vmm__arena_init(&ground.arena, ground.driver, 1));
    *state = &ground;
    return 0;
}

static int ground_teardown(void **state)
{
    struct ground *ground = *state;
    assert_ok(vmm__arena_fini(&ground->arena));
    assert_true(sim_census_is_zero(ground->driver));
    vmm__driver_close(ground->driver);
    assert_int_equal(vmm__host_outstanding(), 0);
    return 0;
}

static void ground_change(struct ground *ground, uint64_t granule, uint64_t count, bool take)
{
    if (take)
        vmm__arena_take(&ground->arena, granule, count);
    else
        vmm__arena_give(&ground->arena, granule, count);
    for (uint64_t i = granule; i < granule + count; i++)
        ground->taken[i] = take;
    assert_ok(vmm__arena_check(&ground->arena));
}

static void sizes_are_settled(void **state)
{
    struct ground *ground = *state;
    assert_int_equal(ground->arena.bytes, GRANULES * GRANULE);
    assert_int_equal(ground->arena.free_granules, GRANULES);
    assert_true(vmm__arena_contains(&ground->arena, ground->arena.address));
    assert_true(
        vmm__arena_contains(&ground->arena, ground->arena.address + GRANULES * GRANULE - 1));
    assert_false(vmm__arena_contains(&ground->arena, ground->arena.address + GRANULES * GRANULE));
    assert_false(vmm__arena_contains(&ground->arena, ground->arena.address - 1));
    assert_false(vmm__arena_contains(&ground->arena, 0));
    assert_int_equal(vmm__arena_next_taken(&ground->arena, 0), GRANULES);
}

static void refused_sizes_are_halved(void **state)
{
    struct ground *ground = *state;
    static const uint64_t sizes[] = { UINT64_MAX, UINT64_C(1) << 60, (UINT64_C(1) << 52) + 1 };
    for (int i = 0; i < 3; i++) {
        struct arena arena;
        assert_ok(vmm__arena_init(&arena, ground->driver, sizes[i]));
        assert_true(arena.bytes >= UINT64_C(1) << 44);
        assert_ok(vmm__arena_check(&arena));
        assert_ok(vmm__arena_fini(&arena));
    }
}

static void failures_leave_nothing(void **state)
{
    struct ground *ground = *state;
    struct arena arena;
    uint64_t host_bytes = vmm__host_outstanding();
    vmm__sim_fail_at(ground->driver, 1, VMM_ERR_ADDRESS_SPACE, true);
    assert_status(vmm__arena_init(&arena, ground->driver, 1), VMM_ERR_ADDRESS_SPACE);
    vmm__sim_fail_at(ground->driver, 1, VMM_ERR_DRIVER, false);
    assert_status(vmm__arena_init(&arena, ground->driver, 1), VMM_ERR_DRIVER);
    vmm__sim_fail_at(ground->driver, 0, VMM_OK, false);
    for (uint64_t number = 1; number <= 2; number++) {
        (void)vmm__host_fail_at(number);
        assert_status(vmm__arena_init(&arena, ground->driver, 1), VMM_ERR_HOST_OOM);
    }
    (void)vmm__host_fail_at(0);
    assert_int_equal(vmm__sim_census(ground->driver).reservations, 1);
    assert_true(vmm__host_outstanding() <=
                host_bytes + 4096); /* the driver's list may have grown */
}

static uint64_t void_end(const struct ground *ground, uint64_t granule)
{
    while (granule < GRANULES && !ground->taken[granule])
        granule++;
    return granule;
}

static uint64_t void_start(const struct ground *ground, uint64_t granule)
{
    while (granule > 0 && !ground->taken[granule - 1])
        granule--;
    return granule;
}

/* All questions at all granules, against what is known to be taken. */
static void ground_verified(const struct ground *ground)
{
    const struct arena *arena = &ground->arena;
    for (uint64_t granule = 0; granule <= GRANULES; granule++) {
        bool is_free = granule < GRANULES && !ground->taken[granule];
        bool starts = is_free && void_start(ground, granule) == granule;
        bool ends = granule > 0 && !ground->taken[granule - 1] && !is_free;
        uint64_t first = 0;
        uint64_t count = 0;
        assert_int_equal(vmm__arena_void(arena, granule, &first, &count), is_free);
        if (is_free) {
            assert_int_equal(first, void_start(ground, granule));
            assert_int_equal(first + count, void_end(ground, granule));
        }
        if (starts || !is_free)
            assert_int_equal(vmm__arena_room_after(arena, granule),
                             void_end(ground, granule) - granule);
        if (ends)
            assert_int_equal(vmm__arena_room_before(arena, granule),
                             granule - void_start(ground, granule));
        if (granule > 0 && ground->taken[granule - 1])
            assert_int_equal(vmm__arena_room_before(arena, granule), 0);
        if (granule < GRANULES && (starts || !is_free))
            assert_int_equal(vmm__arena_next_taken(arena, granule), void_end(ground, granule));
    }
}

/* The last granule of a void is not the first: there is room for one after its start only. */
static void a_void_s_last_granule_has_room_for_one(void **state)
{
    struct ground *ground = *state;
    ground_change(ground, 20, 4, true);
    assert_int_equal(vmm__arena_room_after(&ground->arena, 19), 1);
    assert_int_equal(vmm__arena_room_before(&ground->arena, 1), 1);
    ground_change(ground, 20, 4, false);
}

static void taking_and_giving_agree_with_a_plain_list(void **state)
{
    struct ground *ground = *state;
    uint64_t seed = 1;
    for (int round = 0; round < 5000; round++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        uint64_t granule = (seed >> 33) % GRANULES;
        bool take = !ground->taken[granule];
        uint64_t count = 1;
        while (granule + count < GRANULES && ground->taken[granule + count] == !take &&
               count < (seed >> 50) % 12)
            count++;
        ground_change(ground, granule, count, take);
        if (round % 7 == 0)
            ground_verified(ground);
    }
    for (uint64_t granule = 0; granule < GRANULES; granule++) {
        if (ground->taken[granule])
            ground_change(ground, granule, 1, false);
    }
    assert_int_equal(ground->arena.free_granules, GRANULES);
}

static void finding_leaves_room_on_both_sides(void **state)
{
    struct ground *ground = *state;
    uint64_t granule;
    assert_true(vmm__arena_find(&ground->arena, 4, &granule));
    assert_int_equal(granule, 30);
    ground_change(ground, granule, 4, true);
    assert_true(vmm__arena_find(&ground->arena, 30, &granule));
    assert_true(granule == 0 || granule == 34);
    assert_false(vmm__arena_find(&ground->arena, 31, &granule));
    assert_true(vmm__arena_find(&ground->arena, 1, &granule));
    assert_true(granule == 14 || granule == 48);
    ground_change(ground, 30, 4, false);
    assert_true(vmm__arena_find(&ground->arena, GRANULES, &granule));
    assert_int_equal(granule, 0);
    assert_false(vmm__arena_find(&ground->arena, GRANULES + 1, &granule));
}

int main(void)
{
#define GROUND_TEST(name) cmocka_unit_test_setup_teardown(name, ground_setup, ground_teardown)
    static const struct CMUnitTest tests[] = {
        GROUND_TEST(sizes_are_settled),
        GROUND_TEST(refused_sizes_are_halved),
        GROUND_TEST(failures_leave_nothing),
        GROUND_TEST(a_void_s_last_granule_has_room_for_one),
        GROUND_TEST(taking_and_giving_agree_with_a_plain_list),
        GROUND_TEST(finding_leaves_room_on_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
