/*
 * Runs one trace through one policy on one driver and tells how it went.
 *
 * A pass is the whole trace once; blocks that the trace leaves live are freed at its end, so that
 * the next pass begins from the same requests and whatever the policy has cached. One operation is
 * one line of the trace and, with work, one piece of work on the block's stream: a fill after an
 * allocation, a check before a free.
 *
 * What is counted: driver calls, driver time and stalls between the policy's opening and its
 * closing, both left out, and what trims cost. Before each trim the replayer lets the device finish:
 * memory that is in use cannot be given back by anybody. Those waits are its own and not counted.
 * May be called by: main, search, tests. Locks: none (one thread).
 */
#ifndef FRAGTEST_REPLAY_H
#define FRAGTEST_REPLAY_H

#include "policy.h"
#include "progress.h"
#include "timeline.h"
#include "trace.h"
#include "trims.h"

#define REPLAY_REASON_BYTES 512

struct replay_request {
    const struct trace *trace;
    const struct policy_ops *policy;
    struct driver *driver;
    uint64_t limit_bytes; /* 0: none */
    unsigned passes;      /* at least 1 */
    uint64_t lag;         /* operations; the sim driver was set to it */
    uint32_t trims;       /* of a pass; none of a policy that cannot */
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
    uint64_t peak_busy_bytes;  /* live, and all that was freed in the last `lag` operations */
    uint64_t peak_apart_bytes; /* of one pass: see apart.h */
    uint64_t peak_reserved_bytes;
    uint64_t calls[DRIVER_CALL_COUNT];
    uint64_t driver_ns;
    uint64_t stalls;
    struct trims_outcome trims;
    struct replay_pass *passes;
    unsigned pass_count; /* passes in which at least one operation was done */
    enum replay_verified verified;
    char reason[REPLAY_REASON_BYTES]; /* why it is not ok or not verified; else empty */
};

/* Always fills the outcome; what could not even begin is not ok, and has a reason too. */
void replay_run(const struct replay_request *request, struct replay_outcome *outcome);
void replay_outcome_free(struct replay_outcome *outcome);

/* Whether the replayer submits work even unasked: only on the sim driver, where it is free. */
bool replay_is_sim(const struct driver *driver);

static inline double replay_footprint(const struct replay_outcome *outcome)
{
    return (double)outcome->peak_reserved_bytes / (double)outcome->peak_live_bytes;
}

/* Footprint for streams that do not wait for each other. */
static inline double replay_footprint_apart(const struct replay_outcome *outcome)
{
    return (double)outcome->peak_reserved_bytes / (double)outcome->peak_apart_bytes;
}

#endif
