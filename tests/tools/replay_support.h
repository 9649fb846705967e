/*
 * What the tests of replays share: small traces on the sim driver, and how their replay ended.
 */
#ifndef REPLAY_SUPPORT_H
#define REPLAY_SUPPORT_H

#include "fragtest_support.h"
#include "support/sim_support.h"

#include "fragtest/replay/replay.h"

/* 3 MiB live at most; a small and a large segment for the native policy. */
static const char two_blocks[] = "+ 1 1048576 0\n+ 2 2097152 0\n- 1\n- 2\n";

/* What a test replays, and how that ended. */
static struct trace trace;
static struct replay_outcome outcome;

static inline int replay_teardown(void **state)
{
    replay_outcome_free(&outcome);
    trace_free(&trace);
    return sim_teardown(state);
}

#define REPLAY_TEST(name) TEST_WITH(name, sim_setup, replay_teardown, struct driver *driver)

static inline struct replay_request replay_of(const char *text, const struct policy_ops *policy,
                                              struct driver *driver)
{
    trace_free(&trace);
    trace = test_trace(text);
    return (struct replay_request){
        .trace = &trace,
        .policy = policy,
        .driver = driver,
        .passes = 1,
        .verify = true,
    };
}

static inline void run(const struct replay_request *request)
{
    replay_outcome_free(&outcome);
    replay_run(request, &outcome);
    assert_true(sim_census_is_zero(request->driver));
}

static inline void run_well(const struct replay_request *request)
{
    run(request);
    if (!outcome.ok || outcome.verified != REPLAY_VERIFIED)
        fail_msg("%s: %s", request->policy->name, outcome.reason);
}

/* The native policy, for a test to replace some of its functions. */
static struct policy_ops odd_ops;

static inline void odd_make(void)
{
    odd_ops = policy_block_splitting;
}

#endif
