/*
 * Everything that one command line asks for: its traces, and each of them through each policy.
 *
 * Owns: the traces, the results. May be called by: main. Locks: none (one thread).
 */
#ifndef FRAGTEST_RUNNER_H
#define FRAGTEST_RUNNER_H

#include "fragtest/cli/options.h"
#include "fragtest/replay/result.h"

struct runner {
    const struct options *options;
    struct trace *traces;
    unsigned trace_count;
    struct result *results; /* those of one trace follow each other */
    unsigned result_count;
};

/* Reads and makes all traces. False: one line in *error, nothing to free. */
bool runner_load(struct runner *runner, const struct options *options, struct trace_error *error);
void runner_free(struct runner *runner);

/* Runs one trace through the chosen policies; returns its first result, *count of them. */
struct result *runner_run(struct runner *runner, unsigned trace, struct driver *driver,
                          struct progress *progress, unsigned *count);

#endif
