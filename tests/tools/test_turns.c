/* fragtest --workload sleep: tenants take turns in memory that holds one of them. */
#include "command_support.h"

#include "fragtest/replay/turns.h"

static struct turns turns_of(uint64_t tenant_bytes, const char *memory, vmm_status expected)
{
    struct driver_options options = { .device_bytes = 1024 * MIB };
    struct progress progress = { .out = NULL };
    const struct options asked = { .scene_bytes = tenant_bytes,
                                   .memory = memory,
                                   .policies = { true, true, true } };
    struct driver *driver;

    assert_int_equal(vmm__driver_sim_open(&options, &driver), VMM_OK);
    struct turns turns = { .run = { .options = &asked, .driver = driver, .progress = &progress } };
    assert_int_equal(turns_run(&turns.run), expected);
    assert_int_equal(driver->created_bytes + driver->mapped_bytes + driver->pinned_bytes, 0);
    vmm__driver_close(driver);
    return turns;
}

TEST(tenants_take_turns_where_no_other_policy_can)
{
    struct turns turns = turns_of(100 * MIB, "120MiB", VMM_OK);

    assert_int_equal(turns.count, TURNS);
    assert_int_equal(turns.mismatches, 0);
    assert_true(turns.peak_bytes <= 120 * MIB);
    assert_int_equal(turns.rival_count, TURNS_POLICIES);
    for (unsigned i = 0; i < TURNS; i++) {
        assert_int_equal(turns.turns[i].slept_bytes, 100 * MIB);
        assert_int_equal(turns.turns[i].woken_bytes, i == 0 ? 0 : 100 * MIB);
        assert_true(turns.turns[i].checked_bytes == 100 * MIB && turns.turns[i].sleep_ns > 0);
    }
    for (unsigned i = 0; i < TURNS_POLICIES; i++) {
        assert_false(turns.rivals[i].holds_both);
        assert_true(turns.rivals[i].live_bytes < 120 * MIB);
    }
}

TEST(other_policies_hold_both_tenants_if_there_is_room)
{
    struct turns turns = turns_of(100 * MIB, NULL, VMM_OK);

    for (unsigned i = 0; i < TURNS_POLICIES; i++) {
        assert_true(turns.rivals[i].holds_both);
        assert_int_equal(turns.rivals[i].live_bytes, 200 * MIB);
    }
}

TEST(a_tenant_that_does_not_fit_alone_fails)
{
    (void)turns_of(100 * MIB, "60MiB", VMM_ERR_DEVICE_OOM);
}

TEST(the_command_shows_turns)
{
    static const char *const drivers[] = { "sim", "host" };

    for (unsigned i = 0; i < 2; i++) {
        command_expect(line_of("--driver %s --workload sleep:32MiB 2>&1", drivers[i]), 0);
        assert_contains(ran.output, "2 tenants of 32 MiB took 8 turns");
        assert_contains(ran.output, "0 places are wrong");
        assert_contains(ran.output, "block-splitting: has no sleep; out of memory at");
    }
    command_expect("--driver sim --workload sleep:32MiB --quiet --json - 2>&1", 0);
    assert_contains(ran.output, "\"workload\":\"sleep\"");
    assert_contains(ran.output, "\"holds_both\":false");
    command_expect("--workload list", 0);
    assert_contains(ran.output, "sleep[:SIZE]");
    command_expect("--driver sim --workload sleep:32MiB --memory 16MiB 2>&1", 1);
    command_refuse("--driver sim --workload sleep --workload steady", "runs alone");
    command_refuse("--driver sim --workload sleep --timeline x.csv", "no timeline");
}
