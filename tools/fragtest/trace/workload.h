/*
 * Built-in workloads: synthetic traces, the same on every machine.
 *
 * May be called by: runner, options, help, tests. Locks: none.
 */
#ifndef FRAGTEST_WORKLOAD_H
#define FRAGTEST_WORKLOAD_H

#include "fragtest/trace/trace.h"

#define WORKLOAD_COUNT 6

/* What a workload is called, "alternate:SIZE" if it takes a size, and a few words on it. */
const char *workload_name(unsigned index);
const char *workload_note(unsigned index);

/* Whether a name is a workload's, with a size where it takes one: "steady", "alternate:32MiB". */
bool workload_exists(const char *name);

/* Makes the trace, to be freed by the caller. False: no such workload, or no host memory. */
bool workload_make(const char *name, struct trace *trace);

#endif
