/*
 * Built-in workloads: synthetic traces, the same on every machine.
 *
 * May be called by: main, options, tests. Locks: none.
 */
#ifndef FRAGTEST_WORKLOAD_H
#define FRAGTEST_WORKLOAD_H

#include "trace.h"

#include <stdio.h>

bool workload_exists(const char *name);

/* Makes the trace, to be freed by the caller. False: no such workload, or no host memory. */
bool workload_make(const char *name, struct trace *trace);

/* Writes the lines of --help about workloads. */
void workload_help(FILE *out);

#endif
