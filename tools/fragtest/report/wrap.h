/*
 * Writes text in lines that fit a width.
 *
 * Owns: nothing. May be called by: help, picture, table. Locks: none.
 */
#ifndef FRAGTEST_WRAP_H
#define FRAGTEST_WRAP_H

#include <stdbool.h>
#include <stdio.h>

/*
 * Writes `text`, and a line's end after it. The first line has `used` columns already; each further
 * line begins with `indent` blanks. Lines break at blanks only, so a longer word stays whole.
 * A width of 0 is no limit. One UTF-8 character counts as one column.
 */
void wrap_write(FILE *out, unsigned width, unsigned used, unsigned indent, const char *text);

#endif
