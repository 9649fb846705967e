/*
 * The replayer, on small traces whose every figure is known, and with policies that misbehave.
 */
#include "replay_support.h"

#include "fragtest/replay/search.h"

/* ---- Figures --------------------------------------------------------------------------------- */

REPLAY_TEST(test_stats)
{
    struct replay_request request = replay_of(two_blocks, &policy_block_splitting, driver);

    run_well(&request);
    assert_int_equal(outcome.ops, 4);
    assert_int_equal(outcome.ops_done, 4);
    assert_true(outcome.peak_live_bytes == 3 * MIB);
    assert_true(outcome.lower_bound_bytes == 3 * MIB);
    assert_true(outcome.peak_reserved_bytes == 22 * MIB);
    assert_true(replay_footprint(&outcome) > 7.33 && replay_footprint(&outcome) < 7.34);
    assert_int_equal(outcome.calls[DRIVER_CALL_create], 2);
    assert_int_equal(outcome.calls[DRIVER_CALL_map], 2);
    assert_int_equal(outcome.calls[DRIVER_CALL_access], 2);
    assert_int_equal(outcome.calls[DRIVER_CALL_unmap], 0);
    assert_int_equal(outcome.calls[DRIVER_CALL_release], 0);
    assert_int_equal(outcome.stalls, 0);
    assert_int_equal(outcome.verified, REPLAY_VERIFIED);
    assert_string_equal(outcome.reason, "");
}

/* Two calls of each kind at what an H200 takes for them. */
REPLAY_TEST(test_driver_time_is_modelled)
{
    struct replay_request request = replay_of(two_blocks, &policy_block_splitting, driver);

    run_well(&request);
    assert_true(outcome.driver_ns > 80000 && outcome.driver_ns < 130000);
    assert_int_equal(outcome.pass_count, 1);
    assert_int_equal(outcome.passes[0].driver_ns, outcome.driver_ns);
    assert_true(outcome.passes[0].ns_per_op >= (double)outcome.driver_ns / 4 * 0.9);
}

REPLAY_TEST(test_second_pass_needs_no_driver)
{
    static const char text[] = "+ 1 1048576 0\n+ 2 2097152 7\n- 1\n+ 3 5000000 0\n";

    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        struct replay_request request = replay_of(text, policy_at(i), driver);
        request.passes = 3;
        run_well(&request);
        assert_int_equal(outcome.pass_count, 3);
        assert_int_equal(outcome.ops_done, 4);
        assert_true(outcome.passes[0].driver_ns > 0);
        uint64_t last_ns =
            outcome.passes[2].driver_ns; /* at most events: mapping takes longer, 32 us */
        assert_true(last_ns < 5000);
        assert_int_equal(outcome.driver_ns,
                         outcome.passes[0].driver_ns + outcome.passes[1].driver_ns + last_ns);
    }
}

REPLAY_TEST(test_busy_bytes_with_lag)
{
    static const char text[] = "+ 1 4194304 0\n- 1\n+ 2 4194304 1\n- 2\n";

    vmm__sim_lag_set(driver, 100);
    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        struct replay_request request = replay_of(text, policy_at(i), driver);
        request.lag = 100;
        run_well(&request);
        assert_true(outcome.peak_live_bytes == 4 * MIB);
        assert_true(outcome.lower_bound_bytes == 8 * MIB);
        assert_true(replay_over_lower_bound(&outcome) >= 1);
    }
}

REPLAY_TEST(test_timeline)
{
    struct replay_request request = replay_of(two_blocks, &policy_block_splitting, driver);
    struct timeline timeline;

    request.timeline = &timeline;
    run_well(&request);
    assert_int_equal(timeline.ops, 4);
    assert_int_equal(timeline.ops_done, 4);
    assert_true(timeline.samples[0].live_bytes == 1 * MIB);
    assert_true(timeline.samples[0].reserved_bytes == 2 * MIB);
    unsigned second = timeline_sample(&timeline, 1);
    assert_true(timeline.samples[second].live_bytes == 3 * MIB);
    assert_true(timeline.samples[second].reserved_bytes == 22 * MIB);
}

/* ---- Limits ---------------------------------------------------------------------------------- */

/* Every other block of a full 20-MiB segment is freed: 10 MiB free, never 8 in one piece. */
static const char comb[] = "+ 1 5242880 0\n+ 2 5242880 0\n+ 3 5242880 0\n+ 4 5242880 0\n"
                           "- 1\n- 3\n+ 5 8388608 0\n- 2\n- 4\n- 5\n";

REPLAY_TEST(test_death_has_a_reason)
{
    struct replay_request request = replay_of(comb, &policy_block_splitting, driver);

    request.limit_bytes = 30 * MIB;
    run(&request);
    assert_false(outcome.ok);
    assert_int_equal(outcome.ops_done, 6);
    assert_int_equal(outcome.verified, REPLAY_VERIFIED);
    assert_contains(outcome.reason, "needed 20.0 MiB contiguous; 10.0 MiB free in 2 pieces, "
                                    "largest 5.00 MiB");
    assert_contains(outcome.reason, "10.0 MiB left under the limit");
    assert_contains(outcome.reason, "at operation 7 of 10");
}

REPLAY_TEST(test_limit_is_kept)
{
    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        struct replay_request request = replay_of(comb, policy_at(i), driver);
        request.limit_bytes = 60 * MIB;
        run_well(&request);
        assert_true(outcome.peak_reserved_bytes <= 60 * MIB);
    }
}

/* Whole idle segments go back when another needs their memory, after one wait for the device. */
REPLAY_TEST(test_flush_stalls)
{
    struct replay_request request =
        replay_of("+ 1 20971520 0\n- 1\n+ 2 31457280 0\n- 2\n", &policy_block_splitting, driver);

    request.limit_bytes = 32 * MIB;
    run_well(&request);
    assert_int_equal(outcome.stalls, 1);
    assert_int_equal(outcome.calls[DRIVER_CALL_release], 1);
    assert_true(outcome.peak_reserved_bytes == 30 * MIB);
}

/* The smallest limit is what the policy really needs, to a fifth of a percent. */
REPLAY_TEST(test_least)
{
    struct replay_request request = replay_of(comb, &policy_block_splitting, driver);

    uint64_t least = search_least(&request);
    assert_true(least >= 40 * MIB && least <= 40 * MIB + trace.peak_live_bytes / 500 + 1);
}

REPLAY_TEST(test_vmmcache_dies_below_live_bytes)
{
    struct replay_request request = replay_of(comb, &policy_vmmcache, driver);

    request.limit_bytes = 40 * MIB;
    run_well(&request);
    request.limit_bytes = 16 * MIB;
    run(&request);
    assert_false(outcome.ok);
    assert_int_equal(outcome.ops_done, 3);
    assert_true(strlen(outcome.reason) > 20);
}

/* ---- Policies that misbehave ----------------------------------------------------------------- */

enum fault {
    FAULT_NONE,      /* hands out places one after the other */
    FAULT_SHARES,    /* hands out one and the same place to everybody */
    FAULT_SCRIBBLES, /* writes to its first place at each request */
    FAULT_LEAKS,     /* gives nothing back at the end */
};

struct careless {
    struct policy policy;
    struct driver *driver;
    uint64_t address;
    uint64_t handle;
    uint64_t used_bytes;
};

static enum fault careless_fault;

static vmm_status careless_alloc(struct policy *policy, uint64_t bytes, uint32_t stream,
                                 struct policy_place *out)
{
    struct careless *self = (struct careless *)policy;

    (void)stream;
    *out = (struct policy_place){ .address = self->address + self->used_bytes, .token = self };
    if (careless_fault != FAULT_SHARES)
        self->used_bytes += bytes;
    if (careless_fault == FAULT_SCRIBBLES)
        return vmm__driver_fill(self->driver, self->address, 512, 99, NULL);
    return VMM_OK;
}

static vmm_status careless_free(struct policy *policy, struct policy_place place)
{
    (void)policy;
    (void)place;
    return VMM_OK;
}

static vmm_status careless_close(struct policy *policy)
{
    struct careless *self = (struct careless *)policy;
    vmm_status status = VMM_OK;

    if (careless_fault != FAULT_LEAKS) {
        assert_ok(vmm__driver_device_wait(self->driver));
        assert_ok(vmm__driver_unmap(self->driver, self->address, GRANULE));
        assert_ok(vmm__driver_release(self->driver, self->handle, GRANULE));
        status = vmm__driver_address_free(self->driver, self->address, GRANULE);
    }
    free(self);
    return status;
}

static vmm_status careless_open(const struct policy_ops *ops, const struct policy_setup *setup,
                                struct policy **out)
{
    struct careless *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    self->policy.ops = ops;
    self->driver = setup->driver;
    self->address = memory_map(setup->driver, GRANULE, &self->handle);
    *out = &self->policy;
    return VMM_OK;
}

static const struct policy_ops careless_ops = {
    .name = "careless",
    .open = careless_open,
    .alloc = careless_alloc,
    .free = careless_free,
    .close = careless_close,
};

static void careless_run(struct driver *driver, const char *text, enum fault fault,
                         const char *part)
{
    struct replay_request request = replay_of(text, &careless_ops, driver);

    careless_fault = fault;
    replay_run(&request, &outcome);
    assert_true(outcome.ok);
    assert_int_equal(outcome.verified, part[0] == '\0' ? REPLAY_VERIFIED : REPLAY_WRONG);
    assert_contains(outcome.reason, part);
}

static const char two_at_once[] = "+ 1 4096 0\n+ 2 4096 0\n- 1\n- 2\n";

REPLAY_TEST(test_careful_enough_is_verified)
{
    careless_run(driver, two_at_once, FAULT_NONE, "");
}

REPLAY_TEST(test_overlap_is_found)
{
    careless_run(driver, two_at_once, FAULT_SHARES, "1 blocks overlapped a live one");
}

REPLAY_TEST(test_lost_contents_are_found)
{
    careless_run(driver, two_at_once, FAULT_SCRIBBLES, "did not hold what was written");
}

REPLAY_TEST(test_leak_is_found)
{
    careless_run(driver, two_at_once, FAULT_LEAKS, "left behind");
}

/* ---- Jitter ---------------------------------------------------------------------------------- */

enum { JITTER_BLOCKS = 40, JITTER_PASSES = 3 };

static struct {
    vmm_status (*alloc)(struct policy *policy, uint64_t bytes, uint32_t stream,
                        struct policy_place *out);
    uint64_t bytes[JITTER_PASSES * JITTER_BLOCKS];
    unsigned count;
} noted;

static vmm_status noting_alloc(struct policy *policy, uint64_t bytes, uint32_t stream,
                               struct policy_place *out)
{
    assert_true(noted.count < JITTER_PASSES * JITTER_BLOCKS);
    noted.bytes[noted.count++] = bytes;
    return noted.alloc(policy, bytes, stream, out);
}

/* Notes the sizes of each pass over blocks of 10000 bytes. */
static void jitter_run(struct driver *driver, unsigned jitter)
{
    char text[JITTER_BLOCKS * 24] = "";

    for (unsigned i = 0; i < JITTER_BLOCKS; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "+ %u 10000 0\n", i);
    odd_make();
    noted.alloc = odd_ops.alloc;
    noted.count = 0;
    odd_ops.alloc = noting_alloc;
    struct replay_request request = replay_of(text, &odd_ops, driver);
    request.passes = JITTER_PASSES;
    request.jitter = jitter;
    run_well(&request);
    assert_int_equal(noted.count, JITTER_PASSES * JITTER_BLOCKS);
}

REPLAY_TEST(test_jitter_draws_sizes_in_later_passes)
{
    uint64_t first[JITTER_PASSES * JITTER_BLOCKS];
    unsigned differ = 0;
    unsigned small = 0;

    jitter_run(driver, 20);
    memcpy(first, noted.bytes, sizeof(first));
    jitter_run(driver, 20);
    assert_memory_equal(first, noted.bytes, sizeof(first)); /* the same in every run */
    for (unsigned i = 0; i < JITTER_PASSES * JITTER_BLOCKS; i++) {
        assert_true(first[i] <= 10000 && first[i] >= (i < JITTER_BLOCKS ? 10000 : 8000));
        differ += i >= 2 * JITTER_BLOCKS && first[i] != first[i - JITTER_BLOCKS];
        small += first[i] < 9000;
    }
    assert_true(differ > JITTER_BLOCKS / 2);
    assert_true(small > JITTER_BLOCKS / 2 && small < 3 * JITTER_BLOCKS / 2);
    assert_int_equal(outcome.peak_live_bytes, JITTER_BLOCKS * 10000);
}

REPLAY_TEST(test_without_jitter_all_passes_are_the_same)
{
    jitter_run(driver, 0);
    for (unsigned i = 0; i < JITTER_PASSES * JITTER_BLOCKS; i++)
        assert_int_equal(noted.bytes[i], 10000);
}
