/*
 * Everything that one command line asks for: its traces, and each of them through each policy.
 *
 * Owns: the traces, the results. May be called by: main. Locks: none (one thread).
 */
#ifndef FRAGTEST_CAMPAIGN_H
#define FRAGTEST_CAMPAIGN_H

#include "options.h"
#include "result.h"

struct campaign {
    const struct options *options;
    struct trace *traces;
    unsigned trace_count;
    struct result *results; /* those of one trace follow each other */
    unsigned result_count;
};

/* Reads and makes all traces. False: one line in *error, nothing to free. */
bool campaign_load(struct campaign *campaign, const struct options *options,
                   struct trace_error *error);
void campaign_free(struct campaign *campaign);

/* Runs one trace through the chosen policies; returns its first result, *count of them. */
struct result *campaign_run(struct campaign *campaign, unsigned trace, struct driver *driver,
                            struct progress *progress, unsigned *count);

#endif
