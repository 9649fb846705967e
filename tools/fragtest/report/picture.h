/*
 * Draws live against reserved memory over a run, in text.
 *
 * May be called by: main, tests. Locks: none.
 */
#ifndef FRAGTEST_PICTURE_H
#define FRAGTEST_PICTURE_H

#include "fragtest/replay/result.h"
#include "fragtest/report/style.h"

/* The highest value that a picture of this result shows. */
uint64_t picture_top(const struct result *result);

/* Draws it with 0..top_bytes on the upright axis, so that pictures can be compared. */
void picture_draw(FILE *out, struct style style, const struct result *result, uint64_t top_bytes);

/* Explains the signs. */
void picture_legend(FILE *out, struct style style);

#endif
