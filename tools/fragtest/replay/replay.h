/*
 * Runs one trace through one policy on one driver and measures the outcome.
 *
 * A pass is the whole trace once; blocks that the trace leaves live are freed at its end, so that
 * the next pass begins from the same requests and whatever the policy has cached. One operation is
 * one line of the trace and, with work, one piece of work on the block's stream: a fill after an
 * allocation, a check before a free.
 *
 * With jitter, each block of each later pass is smaller than in the first by a random share of up to so many percent.
 * The sizes are the same for every policy and in every run.
 *
 * Counted are driver calls, driver time and stalls after the policy has opened and before it closes, with those of
 * trims and compactions. Before each of these the replayer waits for the device, because no policy can give back memory
 * that work still uses; these waits are not counted.
 * May be called by: main, search, tests. Locks: none (one thread).
 */
#ifndef FRAGTEST_REPLAY_H
#define FRAGTEST_REPLAY_H

#include "fragtest/cli/progress.h"
#include "fragtest/policies/policy.h"
#include "fragtest/replay/timeline.h"
#include "fragtest/replay/trims.h"
#include "fragtest/trace/trace.h"

#define REPLAY_REASON_BYTES 512

struct replay_request {
    const struct trace *trace;
    const struct policy_ops *policy;
    struct driver *driver;
    uint64_t limit_bytes; /* 0: none */
    unsigned passes;      /* at least 1 */
    uint64_t lag;         /* operations; the sim driver was set to it */
    uint32_t trims;       /* of a pass; none of a policy that cannot */
    uint32_t compacts;    /* the same */
    unsigned jitter;      /* percent */
    bool verify;
    struct policy_settings settings;
    struct timeline *timeline; /* may be NULL */
    struct progress *progress; /* may be NULL */
};

struct replay_pass {
    uint64_t driver_ns; /* including the frees at its end */
    double ns_per_op;   /* of the policy, with the driver's calls at the driver's clock */
};

enum replay_verified { REPLAY_UNASKED, REPLAY_WRONG, REPLAY_VERIFIED };

struct replay_outcome {
    bool ok;           /* every operation of every pass was done, and the policy closed */
    uint64_t ops;      /* of one pass */
    uint64_t ops_done; /* of the last pass that began: `ops` when ok */
    uint64_t peak_live_bytes;
    uint64_t peak_busy_bytes;   /* live, and all that was freed in the last `lag` operations */
    uint64_t lower_bound_bytes; /* of one pass: see lower_bound.h */
    uint64_t peak_reserved_bytes;
    uint64_t calls[DRIVER_CALL_COUNT];
    uint64_t driver_ns;
    uint64_t stalls;
    struct trims_outcome trims;
    struct trims_outcome compacts;
    bool has_stats;
    vmm_stats stats; /* of the policy, at the end of the last pass */
    struct replay_pass *passes;
    unsigned pass_count; /* passes in which at least one operation was done */
    enum replay_verified verified;
    char reason[REPLAY_REASON_BYTES]; /* why it is not ok or not verified; else empty */
};

/* Always fills the outcome: a run that cannot begin is not ok, and has a reason. */
void replay_run(const struct replay_request *request, struct replay_outcome *outcome);
void replay_outcome_free(struct replay_outcome *outcome);

/* Whether the replayer submits work even without verify: only on the sim driver, where it costs
 * nothing. */
bool replay_is_sim(const struct driver *driver);

static inline double replay_footprint(const struct replay_outcome *outcome)
{
    return (double)outcome->peak_reserved_bytes / (double)outcome->peak_live_bytes;
}

/* Footprint for streams that do not wait for each other. */
static inline double replay_over_lower_bound(const struct replay_outcome *outcome)
{
    return (double)outcome->peak_reserved_bytes / (double)outcome->lower_bound_bytes;
}

#endif
