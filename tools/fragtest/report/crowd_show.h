/*
 * Shows processes with peaks one after the other: a picture over time, a table, a verdict, and JSON.
 *
 * May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_CROWD_SHOW_H
#define FRAGTEST_CROWD_SHOW_H

#include "fragtest/replay/crowd.h"
#include "fragtest/report/style.h"

void crowd_show(FILE *out, struct style style, const struct crowd *crowd, bool quiet);

/* Whether all of it was written. */
bool crowd_json_write(FILE *out, const struct crowd *crowd);

#endif
