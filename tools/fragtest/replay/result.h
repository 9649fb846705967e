/*
 * One line of the closing table: a trace through a policy, and how it went.
 *
 * Owns: the outcome. May be called by: main (fills), picture, table, json, verdict (read).
 */
#ifndef FRAGTEST_RESULT_H
#define FRAGTEST_RESULT_H

#include "fragtest/replay/replay.h"

struct result {
    const struct trace *trace;
    const struct policy_ops *policy;
    const char *driver;              /* its name */
    uint64_t limit_bytes;            /* 0: none */
    uint64_t least_bytes;            /* 0: not searched, or none found */
    struct policy_settings settings; /* of a policy that has them */
    struct replay_outcome outcome;
    struct timeline timeline;
};

static inline bool result_is_good(const struct result *result)
{
    return result->outcome.ok && result->outcome.verified != REPLAY_WRONG;
}

#endif
