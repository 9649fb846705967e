/*
 * Results for scripts: the JSON contract of fragtest.
 *
 * May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_JSON_H
#define FRAGTEST_JSON_H

#include "fragtest/replay/result.h"

void json_write(FILE *out, const char *machine, const struct result *results, unsigned count);

#endif
