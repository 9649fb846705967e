/* Trims at random moments: when they come, what they cost and what they find. */
#include "replay_support.h"

#include "base/error.h"
#include "fragtest/replay/trims.h"

/* ---- Moments --------------------------------------------------------------------------------- */

/* The operations after which trims come, in the pass that begins. */
static unsigned moments_of(struct trims *trims, uint32_t *moments)
{
    unsigned count = 0;

    trims_pass(trims);
    for (uint32_t op = 0; op < trims->op_count; op++)
        while (trims_due(trims, op))
            moments[count++] = op;
    return count;
}

TEST(test_moments_are_spread)
{
    uint32_t moments[100];
    struct trims trims;
    unsigned regular = 0;

    assert_true(trims_init(&trims, 100, 5000, 1));
    assert_int_equal(moments_of(&trims, moments), 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(moments[i] >= 50 * i && moments[i] < 50 * (i + 1));
        regular += i > 0 && moments[i] - moments[i - 1] == 50;
    }
    assert_true(regular < 20);
    trims_fini(&trims);
}

TEST(test_moments_are_fixed)
{
    uint32_t first[2][100];
    uint32_t second[2][100];
    struct trims trims;

    for (unsigned i = 0; i < 2; i++) {
        assert_true(trims_init(&trims, 100, 5000, 2));
        assert_int_equal(moments_of(&trims, first[i]), 100);
        assert_int_equal(moments_of(&trims, second[i]), 100);
        trims_fini(&trims);
    }
    assert_memory_equal(first[0], first[1], sizeof(first[0]));
    assert_memory_equal(second[0], second[1], sizeof(second[0]));
    assert_memory_not_equal(first[0], second[0], sizeof(first[0]));
}

TEST(test_more_trims_than_operations)
{
    uint32_t moments[100];
    struct trims trims;

    assert_true(trims_init(&trims, 100, 7, 1));
    assert_int_equal(moments_of(&trims, moments), 100);
    assert_int_equal(moments[0], 0);
    assert_int_equal(moments[99], 6);
    trims_fini(&trims);
    assert_true(trims_init(&trims, 0, 7, 1));
    assert_int_equal(moments_of(&trims, moments), 0);
    trims_fini(&trims);
}

/* ---- The worst of them ----------------------------------------------------------------------- */

TEST(test_worst_median_and_bar)
{
    struct trims_outcome worst = { 0 };
    struct trims trims;

    assert_true(trims_init(&trims, 5, 100, 1));
    trims_note(&trims, &worst, 1000 * MIB, 1000 * MIB, 7);
    assert_int_equal(worst.count, 1);
    assert_true(worst.worst_live_bytes == 1000 * MIB);
    trims_note(&trims, &worst, 1000 * MIB, 1035 * MIB, 9); /* 2 % and 16 MiB are 36 MiB */
    assert_int_equal(worst.over_bar, 0);
    trims_note(&trims, &worst, 1000 * MIB, 1037 * MIB, 8);
    trims_note(&trims, &worst, 0, 17 * MIB, 1);
    trims_note(&trims, &worst, 0, 16 * MIB, 1);
    assert_int_equal(worst.over_bar, 2);
    assert_int_equal(worst.count, 5);
    assert_true(worst.worst_excess_bytes == 37 * MIB);
    assert_true(worst.worst_live_bytes == 1000 * MIB);
    assert_int_equal(worst.worst_driver_ns, 9);
    trims_end(&trims, &worst);
    assert_true(worst.median_excess_bytes == 17 * MIB);
    trims_fini(&trims);
}

/* ---- In a run -------------------------------------------------------------------------------- */

static struct replay_request trims_of(const char *text, const struct policy_ops *policy,
                                      struct driver *driver, uint32_t trims, uint64_t lag)
{
    struct replay_request request = replay_of(text, policy, driver);

    vmm__sim_lag_set(driver, lag);
    request.lag = lag;
    request.trims = trims;
    return request;
}

static void trims_run(const char *text, const struct policy_ops *policy, struct driver *driver,
                      uint32_t trims, uint64_t lag)
{
    struct replay_request request = trims_of(text, policy, driver, trims, lag);

    run_well(&request);
}

/* Whole free segments go back; of the two in use 19 MiB are free. Work in flight does not matter. */
REPLAY_TEST(test_block_splitting)
{
    for (uint64_t lag = 0; lag <= 100; lag += 100) {
        trims_run(two_blocks, &policy_block_splitting, driver, 4, lag);
        assert_int_equal(outcome.trims.count, 4);
        assert_true(outcome.trims.worst_excess_bytes == 19 * MIB);
        assert_true(outcome.trims.worst_live_bytes == 3 * MIB);
        assert_int_equal(outcome.trims.over_bar, 2);
        assert_int_equal(outcome.calls[DRIVER_CALL_release], 2);
        assert_int_equal(outcome.stalls, 2); /* not the four waits before the trims */
        assert_int_equal(outcome.calls[DRIVER_CALL_device_wait], 2);
    }
}

/* Pages of 2 and 20 MiB; they go back one by one. */
REPLAY_TEST(test_expandable)
{
    trims_run("+ 1 20971520 0\n+ 2 20971520 0\n- 1\n- 2\n", &policy_expandable, driver, 4, 100);
    assert_int_equal(outcome.trims.count, 4);
    assert_true(outcome.trims.worst_excess_bytes == 0);
    assert_int_equal(outcome.calls[DRIVER_CALL_release], 2);
    assert_int_equal(outcome.stalls, 2);
}

REPLAY_TEST(test_vmmcache)
{
    trims_run(two_blocks, &policy_vmmcache, driver, 4, 100);
    assert_int_equal(outcome.trims.count, 4);
    assert_true(outcome.trims.worst_excess_bytes <= 2 * MIB);
    assert_int_equal(outcome.trims.over_bar, 0);
    assert_true(outcome.calls[DRIVER_CALL_release] >= 2);
    assert_true(outcome.stalls <= 4); /* a compaction looks whether it can do better */
}

/* The waits before trims are not counted. */
REPLAY_TEST(test_waits_cost_nothing)
{
    static const char growing[] = "+ 1 1048576 0\n+ 2 2097152 0\n+ 3 30000000 0\n";
    uint64_t driver_ns;

    trims_run(growing, &policy_block_splitting, driver, 0, 0);
    driver_ns = outcome.driver_ns;
    assert_int_equal(outcome.trims.count, 0);
    trims_run(growing, &policy_block_splitting, driver, 50, 0);
    assert_int_equal(outcome.trims.count, 50);
    assert_int_equal(outcome.driver_ns, driver_ns);
    assert_int_equal(outcome.passes[0].driver_ns, driver_ns);
    assert_int_equal(outcome.stalls, 0);
    assert_int_equal(outcome.calls[DRIVER_CALL_device_wait], 0);
}

/* Every other block is freed, then the rest. A chunk has several blocks, so only a compaction gives their memory
 * back. */
REPLAY_TEST(test_compacts)
{
    char text[1024] = "";
    for (unsigned i = 0; i < 16; i++)
        (void)snprintf(text + strlen(text), 64, "+ %u 3145728 0\n", i);
    for (unsigned i = 0; i < 16; i++)
        (void)snprintf(text + strlen(text), 64, "- %u\n", i % 8 * 2 + i / 8);
    struct replay_request request = trims_of(text, &policy_vmmcache, driver, 16, 0);
    request.passes = 3;
    request.compacts = 16;
    request.settings.footprint_permille = VMM_FOOTPRINT_ANY;
    run_well(&request);
    assert_int_equal(outcome.compacts.count, 48);
    assert_int_equal(outcome.trims.count, 48);
    assert_true(outcome.trims.worst_excess_bytes > outcome.compacts.worst_excess_bytes);
    assert_true(outcome.compacts.worst_driver_ns > 0);
    request.policy = &policy_expandable; /* cannot */
    run_well(&request);
    assert_int_equal(outcome.compacts.count, 0);
}

/* ---- Policies that cannot -------------------------------------------------------------------- */

static vmm_status odd_trim(struct policy *policy)
{
    (void)policy;
    return vmm__error(VMM_ERR_DRIVER, "the driver has a bad day");
}

REPLAY_TEST(test_policy_without_trim)
{
    odd_make();
    odd_ops.trim = NULL;
    trims_run(two_blocks, &odd_ops, driver, 4, 0);
    assert_int_equal(outcome.trims.count, 0);
    assert_int_equal(outcome.stalls, 0);
}

REPLAY_TEST(test_failing_trim_ends_the_run)
{
    odd_make();
    odd_ops.trim = odd_trim;
    struct replay_request request = trims_of(two_blocks, &odd_ops, driver, 4, 0);
    run(&request);
    assert_false(outcome.ok);
    assert_int_equal(outcome.verified, REPLAY_VERIFIED);
    assert_int_equal(outcome.ops_done, 0);
    assert_int_equal(outcome.trims.count, 0);
    assert_string_equal(outcome.reason, "trim: VMM_ERR_DRIVER: the driver has a bad day; "
                                        "at operation 1 of 4");
}

/* ---- Settings -------------------------------------------------------------------------------- */

/* The library names the field that it refuses, so each of them reached it. */
SIM_TEST(test_settings_reach_vmmcache)
{
    static const struct {
        struct policy_settings settings;
        const char *part;
    } cases[] = {
        { { .footprint_permille = 5000 }, "footprint_permille is 5000" },
        { { .reuse = (vmm_reuse)7 }, "reuse is 7" },
        { { .compaction = (vmm_switch)7 }, "compaction is 7" },
    };
    static vmm_stream streams[1];
    struct policy *policy;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct policy_setup setup = {
            .driver = driver, .streams = streams, .stream_count = 1, .settings = cases[i].settings
        };
        assert_int_equal(policy_vmmcache.open(&policy_vmmcache, &setup, &policy),
                         VMM_ERR_INVALID_ARGUMENT);
        assert_contains(vmm_last_error(), cases[i].part);
    }
}
