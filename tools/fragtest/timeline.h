/*
 * Live and reserved bytes over a run, thinned out to the columns of a picture while it runs.
 *
 * Each column keeps the highest values of its share of the operations.
 * Owns: nothing beyond itself. May be called by: replayer (writes), picture (reads).
 */
#ifndef FRAGTEST_TIMELINE_H
#define FRAGTEST_TIMELINE_H

#include <stdint.h>

#define TIMELINE_COLUMNS 66

struct timeline_column {
    uint64_t live_bytes;
    uint64_t reserved_bytes;
};

struct timeline {
    struct timeline_column columns[TIMELINE_COLUMNS];
    uint64_t ops;      /* of the whole run */
    uint64_t ops_done; /* where it ended */
};

static inline unsigned timeline_column(const struct timeline *timeline, uint64_t op)
{
    return (unsigned)(op * TIMELINE_COLUMNS / timeline->ops);
}

static inline void timeline_note(struct timeline *timeline, uint64_t op, uint64_t live_bytes,
                                 uint64_t reserved_bytes)
{
    struct timeline_column *column = &timeline->columns[timeline_column(timeline, op)];
    if (live_bytes > column->live_bytes)
        column->live_bytes = live_bytes;
    if (reserved_bytes > column->reserved_bytes)
        column->reserved_bytes = reserved_bytes;
}

#endif
