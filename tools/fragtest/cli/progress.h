/*
 * Shows how far a run is: a bar on a terminal that understands escape codes, else one line of plain
 * text for each run.
 *
 * May be called by: main, replayer, search. Locks: none (one thread).
 */
#ifndef FRAGTEST_PROGRESS_H
#define FRAGTEST_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;      /* NULL: says nothing */
    bool bar;       /* out is a terminal with escape codes */
    bool utf8;      /* of the bar */
    unsigned width; /* columns; 0: no limit */
    char label[96];
    uint64_t total;
    uint64_t drawn_ns; /* when the bar was last drawn */
};

void progress_init(struct progress *progress, FILE *out, bool utf8);

/* Begins a run of `total` steps; ends it, leaving the line empty. */
void progress_begin(struct progress *progress, uint64_t total, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void progress_end(struct progress *progress);

/* Cheap enough to be called every few hundred operations. */
void progress_step(struct progress *progress, uint64_t done);

#endif
