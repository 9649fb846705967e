/*
 * How text for people may look on a given output.
 *
 * Owns nothing. May be called by: main, progress, picture, table.
 */
#ifndef FRAGTEST_STYLE_H
#define FRAGTEST_STYLE_H

#include <stdbool.h>
#include <stdio.h>

#define STYLE_LEAST_WIDTH 40U

struct style {
    bool utf8;      /* the locale's character set */
    bool escapes;   /* a terminal that understands escape codes: TERM is set, and not "dumb" */
    bool colour;    /* `escapes`, and NO_COLOR is not set */
    unsigned width; /* columns that fit, at least STYLE_LEAST_WIDTH; 0: no limit */
};

/*
 * The width is COLUMNS where that is set, else the terminal's; what is no terminal has no limit.
 * Needs setlocale(LC_CTYPE, "") beforehand.
 */
struct style style_of(FILE *out);

#endif
