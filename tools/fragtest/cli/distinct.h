/*
 * The files of a command line: no output may replace a trace, or another output.
 *
 * Owns: nothing. May be called by: main. Locks: none.
 */
#ifndef FRAGTEST_DISTINCT_H
#define FRAGTEST_DISTINCT_H

#include "fragtest/cli/options.h"
#include "fragtest/trace/trace.h"

/* False: two of its files are the same one, by name or by inode; one line in *error says which. */
bool distinct_check(const struct options *options, struct trace_error *error);

#endif
