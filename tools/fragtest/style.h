/*
 * How text for people may look on a given output: Unicode or ASCII, with colour or without.
 *
 * Owns nothing. May be called by: main, picture, table.
 */
#ifndef FRAGTEST_STYLE_H
#define FRAGTEST_STYLE_H

#include <stdbool.h>
#include <stdio.h>

struct style {
    bool utf8;   /* the locale's character set */
    bool colour; /* a terminal, and NO_COLOR is not set */
};

/* Needs setlocale(LC_CTYPE, "") beforehand. */
struct style style_of(FILE *out);

#endif
