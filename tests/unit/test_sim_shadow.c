/* The contents of memory on the sim driver: overwritten, moved, stale, copied and shared. What every driver guarantees:
 * see ../api/test_driver_contract.c. */
#include "support/sim_support.h"

#include <stdlib.h>

#define A STREAM(0xa)

static void fill(struct driver *driver, uint64_t address, uint64_t bytes, uint32_t word)
{
    assert_ok(vmm__driver_fill(driver, address, bytes, word, A));
}

/* Returns the number of places that a check finds different. */
static uint64_t count_mismatches(struct driver *driver, uint64_t address, uint64_t bytes,
                                 uint32_t word)
{
    uint64_t before = mismatches(driver);
    assert_ok(vmm__driver_check(driver, address, bytes, word, A));
    return mismatches(driver) - before;
}

SIM_TEST(any_block_size_works)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    fill(driver, address + 512, 1, 7);
    fill(driver, address + 1024, 1001, 8);
    fill(driver, address, 0, 9);
    assert_int_equal(count_mismatches(driver, address + 512, 1, 7), 0);
    assert_int_equal(count_mismatches(driver, address + 1024, 1001, 8), 0);
    assert_int_equal(count_mismatches(driver, address, 0, 5), 0);
}

SIM_TEST(fresh_memory_is_undefined)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    assert_int_equal(count_mismatches(driver, address, 1024, 0), 2);
    assert_non_null(strstr(vmm__sim_mismatch(driver), "undefined"));
    fill(driver, address + 512, 512, 7);
    assert_int_equal(count_mismatches(driver, address, 1536, 7), 3);
}

SIM_TEST(a_wrong_word_is_detected)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    fill(driver, address, 4096, 7);
    assert_int_equal(count_mismatches(driver, address, 4096, 8), 8);
    assert_non_null(strstr(vmm__sim_mismatch(driver), "word 0x8 but holds place 0 of word 0x7"));
}

SIM_TEST(partial_overwrites_are_detected)
{
    uint64_t address = memory_map(driver, GRANULE, NULL);
    fill(driver, address, 4096, 7);
    fill(driver, address + 1024, 512, 8);
    assert_int_equal(count_mismatches(driver, address, 4096, 7), 1);
    assert_int_equal(count_mismatches(driver, address, 1024, 7), 0);
    assert_int_equal(count_mismatches(driver, address + 1024, 512, 8), 0);
    fill(driver, address, 4096, 7);
    assert_int_equal(count_mismatches(driver, address, 4096, 7), 0);
    fill(driver, address + 4095, 2, 9);
    assert_int_equal(count_mismatches(driver, address, 4096, 7), 1);
    fill(driver, address, 8192, 10);
    assert_int_equal(count_mismatches(driver, address, 8192, 10), 0);
}

SIM_TEST(a_move_without_a_copy_is_detected)
{
    sim_violations_allow();
    uint64_t handle;
    uint64_t address = memory_map(driver, GRANULE, &handle);
    fill(driver, address, 4096, 7);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    uint64_t other = handle_create(driver, GRANULE);
    handle_map(driver, address, GRANULE, other);
    assert_int_equal(count_mismatches(driver, address, 4096, 7), 8);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    handle_map(driver, address, GRANULE, handle);
    assert_int_equal(count_mismatches(driver, address, 4096, 7), 0);
}

SIM_TEST(released_memory_loses_its_contents)
{
    sim_violations_allow();
    uint64_t handle;
    uint64_t address = memory_map(driver, GRANULE, &handle);
    fill(driver, address, 4096, 7);
    assert_ok(vmm__driver_unmap(driver, address, GRANULE));
    assert_ok(vmm__driver_release(driver, handle, GRANULE));
    handle_map(driver, address, GRANULE, handle_create(driver, GRANULE));
    assert_int_equal(count_mismatches(driver, address, 4096, 7), 8);
}

SIM_TEST(a_write_through_two_aliases_is_a_violation)
{
    uint64_t address = address_reserve(driver, 2 * GRANULE);
    uint64_t handle = handle_create(driver, GRANULE);
    handle_map(driver, address, GRANULE, handle);
    handle_map(driver, address + GRANULE, GRANULE, handle);
    fill(driver, address, 2 * GRANULE, 7);
    sim_assert_violations(driver, 1, "overwrites");
}

/* ---- Copy ------------------------------------------------------------------------------------ */

SIM_TEST(an_overlapping_copy_is_a_violation)
{
    uint64_t handle;
    uint64_t address = memory_map(driver, GRANULE, &handle);
    uint64_t alias = address_reserve(driver, GRANULE);
    handle_map(driver, alias, GRANULE, handle);
    fill(driver, address, 4096, 7);
    assert_ok(vmm__driver_copy(driver, address + 4096, address, 4096, A));
    sim_assert_clean(driver);
    assert_ok(vmm__driver_copy(driver, alias + 512, address, 4096, A));
    sim_assert_violations(driver, 1, "overwrites");
}

SIM_TEST(a_copy_races_like_any_work)
{
    uint64_t from = memory_map(driver, GRANULE, NULL);
    uint64_t to = memory_map(driver, GRANULE, NULL);
    fill(driver, from, 4096, 7);
    assert_ok(vmm__driver_copy(driver, to, from, 4096, STREAM(0xb)));
    sim_assert_violations(driver, 1, "copy");
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_copy(driver, to, from, 4096, STREAM(0xb)));
    sim_assert_violations(driver, 1, "copy");
    fill(driver, from, 512, 8);
    sim_assert_violations(driver, 2, "copy");
}

SIM_TEST(a_pending_copy_uses_both_ranges)
{
    uint64_t from = memory_map(driver, GRANULE, NULL);
    uint64_t to = memory_map(driver, GRANULE, NULL);
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

static uint64_t count_model_mismatches(const struct model_place *model, uint32_t first,
                                       uint32_t count, uint32_t word)
{
    uint64_t found = 0;
    for (uint32_t place = 0; place < count; place++)
        found += model[first + place].word != word || model[first + place].place != place;
    return found;
}

/* Random fills, copies and checks of 512-byte places over two handles, compared with an array. */
SIM_TEST(shadow_agrees_with_an_array)
{
    static struct model_place model[2 * MODEL_PLACES];
    uint64_t address = address_reserve(driver, 2 * GRANULE);
    handle_map(driver, address, GRANULE, handle_create(driver, GRANULE));
    handle_map(driver, address + GRANULE, GRANULE, handle_create(driver, GRANULE));
    memset(model, 0, sizeof model);
    srand(1);
    for (uint32_t round = 1; round <= MODEL_ROUNDS; round++) {
        uint32_t count = 1 + (uint32_t)rand() % 64;
        uint32_t first = (uint32_t)rand() % (2 * MODEL_PLACES - count);
        uint32_t other = (uint32_t)rand() % (2 * MODEL_PLACES - count);
        uint64_t at = address + first * UINT64_C(512);
        uint64_t bytes = count * UINT64_C(512);
        bool is_disjoint = first + count <= other || other + count <= first;
        switch (rand() % 3) {
        case 0:
            fill(driver, at, bytes, round);
            for (uint32_t place = 0; place < count; place++)
                model[first + place] = (struct model_place){ round, place };
            break;
        case 1:
            if (!is_disjoint)
                break;
            assert_ok(vmm__driver_copy(driver, address + other * UINT64_C(512), at, bytes, A));
            memcpy(&model[other], &model[first], count * sizeof *model);
            break;
        default: {
            uint32_t word = model[first].word;
            if (word != 0)
                assert_int_equal(count_mismatches(driver, at, bytes, word),
                                 count_model_mismatches(model, first, count, word));
        }
        }
    }
}
