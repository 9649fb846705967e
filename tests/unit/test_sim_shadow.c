/* What memory on the sim driver holds: overwritten, moved, stale, copied and shared contents. */
#include "support/sim_support.h"

#include <stdlib.h>

#define A STREAM(0xa)

static void fill(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word)
{
    assert_ok(vmm__driver_fill(driver, address, bytes, word, A));
}

/* Places that a check finds different. */
static uint64_t differ(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word)
{
    uint64_t before = sim_mismatches(driver);
    assert_ok(vmm__driver_check(driver, address, bytes, word, A));
    return sim_mismatches(driver) - before;
}

static void finds_what_was_filled(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    fill(driver, address + 512, 4096, 7);
    assert_int_equal(differ(driver, address + 512, 4096, 7), 0);
    assert_int_equal(differ(driver, address + 512, 1000, 7), 0);
    assert_int_equal(differ(driver, address + 512, 4096, 7), 0);
    assert_string_equal(vmm__sim_mismatch(driver), "");
    sim_assert_clean(driver);
}

static void odd_sizes_are_blocks_too(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    fill(driver, address + 512, 1, 7);
    fill(driver, address + 1024, 1001, 8);
    fill(driver, address, 0, 9);
    assert_int_equal(differ(driver, address + 512, 1, 7), 0);
    assert_int_equal(differ(driver, address + 1024, 1001, 8), 0);
    assert_int_equal(differ(driver, address, 0, 5), 0);
}

static void fresh_memory_is_undefined(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    assert_int_equal(differ(driver, address, 1024, 0), 2);
    assert_non_null(strstr(vmm__sim_mismatch(driver), "undefined"));
    fill(driver, address + 512, 512, 7);
    assert_int_equal(differ(driver, address, 1536, 7), 3);
    sim_assert_clean(driver);
}

static void another_word_is_found(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    fill(driver, address, 4096, 7);
    assert_int_equal(differ(driver, address, 4096, 8), 8);
    assert_non_null(strstr(vmm__sim_mismatch(driver), "word 0x8 and holds place 0 of word 0x7"));
}

static void another_place_is_found(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    fill(driver, address, 4096, 7);
    assert_int_equal(differ(driver, address + 512, 1024, 7), 2);
}

static void partly_overwritten_blocks_are_found(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_memory(driver, GRANULE, NULL);
    fill(driver, address, 4096, 7);
    fill(driver, address + 1024, 512, 8);
    assert_int_equal(differ(driver, address, 4096, 7), 1);
    assert_int_equal(differ(driver, address, 1024, 7), 0);
    assert_int_equal(differ(driver, address + 1024, 512, 8), 0);
    fill(driver, address, 4096, 7);
    assert_int_equal(differ(driver, address, 4096, 7), 0);
    fill(driver, address + 4095, 2, 9);
    assert_int_equal(differ(driver, address, 4096, 7), 1);
    fill(driver, address, 8192, 10);
    assert_int_equal(differ(driver, address, 8192, 10), 0);
}

static void blocks_reach_over_handles(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_reserved(driver, 8 * GRANULE);
    for (uint64_t place = 0; place < 8; place += 2)
        sim_mapped(driver, address + place * GRANULE, 2 * GRANULE,
                   sim_created(driver, 2 * GRANULE));
    fill(driver, address + MIB, 14 * MIB, 7);
    assert_int_equal(differ(driver, address + MIB, 14 * MIB, 7), 0);
    fill(driver, address + 6 * MIB, 512, 8);
    assert_int_equal(differ(driver, address + MIB, 14 * MIB, 7), 1);
    sim_assert_clean(driver);
}

static void memory_that_moved_without_a_copy_is_found(void **state)
{
    struct driver *driver = *state;
    uint64_t handle;
    uint64_t address = sim_memory(driver, GRANULE, &handle);
    fill(driver, address, 4096, 7);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    uint64_t other = sim_created(driver, GRANULE);
    sim_mapped(driver, address, GRANULE, other);
    assert_int_equal(differ(driver, address, 4096, 7), 8);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    sim_mapped(driver, address, GRANULE, handle);
    assert_int_equal(differ(driver, address, 4096, 7), 0);
}

static void released_memory_forgets(void **state)
{
    struct driver *driver = *state;
    uint64_t handle;
    uint64_t address = sim_memory(driver, GRANULE, &handle);
    fill(driver, address, 4096, 7);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    sim_mapped(driver, address, GRANULE, sim_created(driver, GRANULE));
    assert_int_equal(differ(driver, address, 4096, 7), 8);
}

static void one_handle_at_two_addresses_is_the_same_memory(void **state)
{
    struct driver *driver = *state;
    uint64_t handle;
    uint64_t first = sim_memory(driver, GRANULE, &handle);
    uint64_t second = sim_reserved(driver, GRANULE);
    sim_mapped(driver, second, GRANULE, handle);
    fill(driver, first, 4096, 7);
    assert_int_equal(differ(driver, second, 4096, 7), 0);
    fill(driver, second + 512, 512, 8);
    assert_int_equal(differ(driver, first, 4096, 7), 1);
    sim_assert_clean(driver);
}

static void writing_through_both_addresses_at_once_is_told(void **state)
{
    struct driver *driver = *state;
    uint64_t address = sim_reserved(driver, 2 * GRANULE);
    uint64_t handle = sim_created(driver, GRANULE);
    sim_mapped(driver, address, GRANULE, handle);
    sim_mapped(driver, address + GRANULE, GRANULE, handle);
    fill(driver, address, 2 * GRANULE, 7);
    sim_assert_violations(driver, 1, "overwrites");
}

/* ---- Copy ------------------------------------------------------------------------------------ */

static void a_copy_carries_contents(void **state)
{
    struct driver *driver = *state;
    uint64_t from = sim_memory(driver, 2 * GRANULE, NULL);
    uint64_t to = sim_reserved(driver, 2 * GRANULE);
    sim_mapped(driver, to, GRANULE, sim_created(driver, GRANULE));
    sim_mapped(driver, to + GRANULE, GRANULE, sim_created(driver, GRANULE));
    fill(driver, from + MIB, 2 * MIB, 7);
    fill(driver, from + 3 * MIB, 512, 8);
    assert_ok(vmm__driver_copy(driver, to, from, 2 * GRANULE, A));
    assert_int_equal(differ(driver, to + MIB, 2 * MIB, 7), 0);
    assert_int_equal(differ(driver, to + 3 * MIB, 512, 8), 0);
    assert_int_equal(differ(driver, from + MIB, 2 * MIB, 7), 0);
    assert_int_equal(differ(driver, to, MIB, 7), MIB / 512);
    sim_assert_clean(driver);
}

static void a_copy_of_part_keeps_places(void **state)
{
    struct driver *driver = *state;
    uint64_t from = sim_memory(driver, GRANULE, NULL);
    uint64_t to = sim_memory(driver, GRANULE, NULL);
    fill(driver, from, 4096, 7);
    fill(driver, to, 4096, 7);
    fill(driver, to + 1024, 1024, 9);
    assert_int_equal(differ(driver, to, 4096, 7), 2);
    assert_ok(vmm__driver_copy(driver, to + 1024, from + 1024, 1024, A));
    assert_int_equal(differ(driver, to, 4096, 7), 0);
}

static void a_copy_onto_itself_is_told(void **state)
{
    struct driver *driver = *state;
    uint64_t handle;
    uint64_t address = sim_memory(driver, GRANULE, &handle);
    uint64_t alias = sim_reserved(driver, GRANULE);
    sim_mapped(driver, alias, GRANULE, handle);
    fill(driver, address, 4096, 7);
    assert_ok(vmm__driver_copy(driver, address + 4096, address, 4096, A));
    sim_assert_clean(driver);
    assert_ok(vmm__driver_copy(driver, alias + 512, address, 4096, A));
    sim_assert_violations(driver, 1, "overwrites");
}

static void a_copy_races_like_any_work(void **state)
{
    struct driver *driver = *state;
    uint64_t from = sim_memory(driver, GRANULE, NULL);
    uint64_t to = sim_memory(driver, GRANULE, NULL);
    fill(driver, from, 4096, 7);
    assert_ok(vmm__driver_copy(driver, to, from, 4096, STREAM(0xb)));
    sim_assert_violations(driver, 1, "copy");
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_copy(driver, to, from, 4096, STREAM(0xb)));
    sim_assert_violations(driver, 1, "copy");
    fill(driver, from, 512, 8);
    sim_assert_violations(driver, 2, "copy");
}

static void work_in_flight_of_a_copy_guards_both_sides(void **state)
{
    struct driver *driver = *state;
    uint64_t from = sim_memory(driver, GRANULE, NULL);
    uint64_t to = sim_memory(driver, GRANULE, NULL);
    vmm__sim_lag_set(driver, 10);
    assert_ok(vmm__driver_copy(driver, to, from, 4096, A));
    assert_ok(vmm__driver_unmap(driver, from, GRANULE));
    assert_ok(vmm__driver_unmap(driver, to, GRANULE));
    sim_assert_violations(driver, 2, "unmap");
}

/* ---- Against a plain model ------------------------------------------------------------------- */

enum { MODEL_PLACES = 4096, MODEL_ROUNDS = 20000 };

struct model_place {
    uint32_t word;
    uint32_t place;
};

static uint64_t model_differs(const struct model_place *model, uint32_t first, uint32_t count,
                              uint32_t word)
{
    uint64_t found = 0;
    for (uint32_t place = 0; place < count; place++)
        found += model[first + place].word != word || model[first + place].place != place;
    return found;
}

/* Random fills, copies and checks of 512-byte places over two handles, each checked by an array. */
static void agrees_with_an_array(void **state)
{
    struct driver *driver = *state;
    static struct model_place model[2 * MODEL_PLACES];
    uint64_t address = sim_reserved(driver, 2 * GRANULE);
    sim_mapped(driver, address, GRANULE, sim_created(driver, GRANULE));
    sim_mapped(driver, address + GRANULE, GRANULE, sim_created(driver, GRANULE));
    memset(model, 0, sizeof model);
    srand(1);
    for (uint32_t round = 1; round <= MODEL_ROUNDS; round++) {
        uint32_t count = 1 + (uint32_t)rand() % 64;
        uint32_t first = (uint32_t)rand() % (2 * MODEL_PLACES - count);
        uint32_t other = (uint32_t)rand() % (2 * MODEL_PLACES - count);
        uint64_t at = address + first * UINT64_C(512);
        uint64_t bytes = count * UINT64_C(512);
        bool apart = first + count <= other || other + count <= first;
        switch (rand() % 3) {
        case 0:
            fill(driver, at, bytes, round);
            for (uint32_t place = 0; place < count; place++)
                model[first + place] = (struct model_place){ round, place };
            break;
        case 1:
            if (!apart)
                break;
            assert_ok(vmm__driver_copy(driver, address + other * UINT64_C(512), at, bytes, A));
            memcpy(&model[other], &model[first], count * sizeof *model);
            break;
        default: {
            uint32_t word = model[first].word;
            if (word != 0)
                assert_int_equal(differ(driver, at, bytes, word),
                                 model_differs(model, first, count, word));
        }
        }
    }
    sim_assert_clean(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(finds_what_was_filled),
        SIM_TEST(odd_sizes_are_blocks_too),
        SIM_TEST(fresh_memory_is_undefined),
        SIM_TEST(another_word_is_found),
        SIM_TEST(another_place_is_found),
        SIM_TEST(partly_overwritten_blocks_are_found),
        SIM_TEST(blocks_reach_over_handles),
        SIM_TEST(memory_that_moved_without_a_copy_is_found),
        SIM_TEST(released_memory_forgets),
        SIM_TEST(one_handle_at_two_addresses_is_the_same_memory),
        SIM_TEST(writing_through_both_addresses_at_once_is_told),
        SIM_TEST(a_copy_carries_contents),
        SIM_TEST(a_copy_of_part_keeps_places),
        SIM_TEST(a_copy_onto_itself_is_told),
        SIM_TEST(a_copy_races_like_any_work),
        SIM_TEST(work_in_flight_of_a_copy_guards_both_sides),
        SIM_TEST(agrees_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
