/*
 * A file of results that is either whole or not there: it is written under another name in the same
 * folder and then renamed, so a run that is interrupted leaves what was there before, and no other file.
 *
 * Standard output, and what is no ordinary file (a pipe, a device), is written directly.
 * Owns: the open file. May be called by: main. Locks: none (one thread).
 */
#ifndef FRAGTEST_OUTPUT_H
#define FRAGTEST_OUTPUT_H

#include "fragtest/trace/trace.h"

#include <limits.h>
#include <stdio.h>

struct output {
    const char *name; /* NULL: no such output */
    char path[PATH_MAX];
    char temporary[PATH_MAX + 32]; /* empty: written directly */
    FILE *file;
};

/* Whether the name can be written, checked before the run; leaves no file. "-": standard output. */
bool output_init(struct output *output, const char *name, struct trace_error *error);

/* Opens it; NULL: there is no such output, or it cannot be written. One file is open at a time. */
FILE *output_begin(struct output *output);

/* Puts the file in its place if all of it was written; else removes it. False: it could not be written. */
bool output_end(struct output *output);

static inline bool output_is_stdout(const char *name)
{
    return name != NULL && name[0] == '-' && name[1] == '\0';
}

#endif
