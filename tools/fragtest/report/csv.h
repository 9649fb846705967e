/*
 * Memory over time for plots: a line for each sample of each run.
 *
 * May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_CSV_H
#define FRAGTEST_CSV_H

#include "fragtest/replay/result.h"

void csv_write(FILE *out, const struct result *results, unsigned count);

#endif
