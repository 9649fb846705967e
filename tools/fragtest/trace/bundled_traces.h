/* Finds the traces that come with fragtest. Owns nothing. May be called by: runner, tests. */
#ifndef FRAGTEST_BUNDLED_TRACES_H
#define FRAGTEST_BUNDLED_TRACES_H

#include <stdbool.h>
#include <stddef.h>

#define BUNDLED_TRACES 5
extern const char *const bundled_trace_names[BUNDLED_TRACES];

/*
 * What to open for --trace `name`: where the bundled trace of that name should be, unless there is a file `name`; else
 * the name as it is. Returns whether it is a bundled trace.
 */
bool bundled_trace_find(const char *name, char *path, size_t capacity);

#endif
