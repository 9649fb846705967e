/*
 * Results for scripts: the JSON contract of fragtest.
 *
 * May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_JSON_H
#define FRAGTEST_JSON_H

#include "fragtest/replay/result.h"

/* False: the file could not be written. */
bool json_write(FILE *out, const char *machine, const struct result *results, unsigned count);

/* Writes a string with its quotes. Bytes that are no UTF-8 become U+FFFD. */
void json_string_write(FILE *out, const char *string);

#endif
