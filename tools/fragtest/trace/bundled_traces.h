/* Finds the traces that come with fragtest. Owns nothing. May be called by: runner, tests. */
#ifndef FRAGTEST_BUNDLED_TRACES_H
#define FRAGTEST_BUNDLED_TRACES_H

#include <stddef.h>

#define BUNDLED_TRACES 5
extern const char *const bundled_trace_names[BUNDLED_TRACES];

/*
 * What to open for --trace `name`: the file itself when there is one, the name has a slash or is TRACE_STDIN; else
 * the bundled trace of that name, else the name as it is, for the reader to refuse.
 */
void bundled_trace_find(const char *name, char *path, size_t capacity);

#endif
