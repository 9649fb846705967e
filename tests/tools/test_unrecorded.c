/*
 * fragtest --workload unrecorded: what happens to a block that is freed while a stream reads it, declared or not.
 * Where vmmcache does not promise to wait, the workload must find it wrong: else it could find nothing.
 */
#include "command_support.h"

#include "fragtest/replay/unrecorded.h"

static struct unrecorded unrecorded_of(vmm_reuse reuse, const char *memory)
{
    struct driver_options options = { 0 };
    struct progress progress = { .out = NULL };
    static struct options asked;
    struct driver *driver;

    assert_int_equal(vmm__driver_sim_open(&options, &driver), VMM_OK);
    asked = (struct options){ .memory = memory,
                              .policies = { true, true, true },
                              .settings.reuse = reuse };
    struct unrecorded unrecorded = {
        .run = { .options = &asked, .driver = driver, .progress = &progress }
    };
    assert_int_equal(unrecorded_run(&unrecorded.run), VMM_OK);
    assert_int_equal(driver->created_bytes + driver->mapped_bytes + driver->reservations, 0);
    assert_int_equal(driver->streams + driver->events, 0);
    vmm__driver_close(driver);
    return unrecorded;
}

static void row_expect(const struct unrecorded_row *row, bool is_declared, bool is_right)
{
    assert_true(row->is_declared == is_declared && row->is_promised == is_right);
    assert_true(unrecorded_is_right(row) == is_right);
    for (unsigned i = 0; i < UNRECORDED_CASES; i++)
        assert_int_equal(row->wrong[i], is_right ? 0 : UNRECORDED_ROUNDS);
}

TEST(any_use_waits_for_an_undeclared_use)
{
    struct unrecorded unrecorded = unrecorded_of(VMM_REUSE_ANY_USE, NULL);

    assert_int_equal(unrecorded.row_count, POLICY_COUNT);
    for (unsigned i = 0; i < POLICY_COUNT; i++)
        row_expect(&unrecorded.rows[i], false, true);
    assert_true(unrecorded_is_good(&unrecorded));
}

TEST(any_use_waits_also_if_memory_is_short)
{
    struct unrecorded unrecorded = unrecorded_of(VMM_REUSE_ANY_USE, "1GiB");

    row_expect(&unrecorded.rows[POLICY_COUNT - 1], false, true);
    assert_true(unrecorded_is_good(&unrecorded));
}

TEST(other_modes_wait_only_for_declared_uses)
{
    static const vmm_reuse modes[] = { VMM_REUSE_DECLARED, VMM_REUSE_STREAM_WAIT };

    for (unsigned i = 0; i < 2; i++) {
        struct unrecorded unrecorded = unrecorded_of(modes[i], NULL);
        assert_int_equal(unrecorded.row_count, POLICY_COUNT + 1);
        row_expect(&unrecorded.rows[POLICY_COUNT - 1], false, false);
        row_expect(&unrecorded.rows[POLICY_COUNT], true, true);
        assert_true(unrecorded_is_good(&unrecorded));
    }
}

TEST(a_broken_promise_ends_with_one)
{
    struct unrecorded unrecorded = unrecorded_of(VMM_REUSE_DECLARED, NULL);

    unrecorded.rows[POLICY_COUNT - 1].is_promised = true;
    assert_false(unrecorded_is_good(&unrecorded));
    unrecorded.run.text = write_begin();
    unrecorded.run.style.width = 60;
    scene_unrecorded.show(&unrecorded.run);
    const char *text = write_end();
    assert_contains(text, "vmmcache was WRONG in 30 rounds");
    assert_true(widest_line(text) <= 60);
}

TEST(a_policy_without_memory_is_not_right)
{
    struct unrecorded unrecorded = unrecorded_of(VMM_REUSE_ANY_USE, "2MiB");

    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        assert_int_equal(unrecorded.rows[i].wrong[1], UNRECORDED_MEMORY);
        assert_false(unrecorded_is_right(&unrecorded.rows[i]));
    }
    assert_false(unrecorded_is_good(&unrecorded));
    unrecorded.run.text = write_begin();
    unrecorded.run.style.width = 0;
    scene_unrecorded.show(&unrecorded.run);
    assert_contains(write_end(), "vmmcache ran out of memory.");
}

TEST(the_command_shows_what_real_memory_held)
{
    command_expect("--driver host --workload unrecorded --quiet 2>&1", 0);
    assert_null(strstr(ran.output, "WRONG"));
    assert_contains(ran.output, "vmmcache was right: no memory left its stream");
    command_expect("--driver host --workload unrecorded --reuse declared --policy vmmcache "
                   "--json - 2>/dev/null",
                   0);
    assert_contains(ran.output, "\"workload\":\"unrecorded\",\"driver\":\"host\"");
    assert_contains(ran.output,
                    "\"declared\":false,\"promised\":false,\"cases\":[{\"case\":\"request\"");
    assert_contains(ran.output, "\"case\":\"thread\",\"block_mib\":4.000,\"wrong\":5}");
    assert_contains(ran.output, "\"case\":\"trim\",\"block_mib\":4.000,\"wrong\":null}");
    assert_contains(ran.output,
                    "\"declared\":true,\"promised\":true,\"cases\":[{\"case\":\"request\","
                    "\"block_mib\":1.000,\"wrong\":0}");
}

TEST(the_command_ends_with_one_if_memory_runs_out)
{
    command_expect("--driver sim --workload unrecorded --memory 2MiB --quiet", 1);
    assert_contains(ran.output, "no memory");
    command_expect("--workload list", 0);
    assert_contains(ran.output, "unrecorded");
    command_refuse("--driver sim --workload unrecorded --workload steady", "runs alone");
    command_refuse("--driver sim --workload unrecorded --json /no/such/folder/x", "cannot write");
}
