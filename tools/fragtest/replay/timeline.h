/*
 * Live and reserved bytes over a run, thinned out to a fixed number of samples while it runs.
 *
 * Each sample keeps the highest values of its share of the operations; a share may be empty.
 * Owns: nothing beyond itself. May be called by: replayer (writes), picture, csv (read).
 */
#ifndef FRAGTEST_TIMELINE_H
#define FRAGTEST_TIMELINE_H

#include <stdint.h>

#define TIMELINE_SAMPLES 2046

struct timeline_sample {
    uint64_t live_bytes;
    uint64_t reserved_bytes;
};

struct timeline {
    struct timeline_sample samples[TIMELINE_SAMPLES];
    uint64_t ops;      /* of the whole run */
    uint64_t ops_done; /* where it ended */
};

static inline unsigned timeline_sample(const struct timeline *timeline, uint64_t op)
{
    return (unsigned)(op * TIMELINE_SAMPLES / timeline->ops);
}

/* The first operation of a sample's share: of an empty one, the first after it. */
static inline uint64_t timeline_first(const struct timeline *timeline, unsigned sample)
{
    return (sample * timeline->ops + TIMELINE_SAMPLES - 1) / TIMELINE_SAMPLES;
}

static inline void timeline_raise(struct timeline_sample *sample, uint64_t live_bytes,
                                  uint64_t reserved_bytes)
{
    if (live_bytes > sample->live_bytes)
        sample->live_bytes = live_bytes;
    if (reserved_bytes > sample->reserved_bytes)
        sample->reserved_bytes = reserved_bytes;
}

static inline void timeline_note(struct timeline *timeline, uint64_t op, uint64_t live_bytes,
                                 uint64_t reserved_bytes)
{
    timeline_raise(&timeline->samples[timeline_sample(timeline, op)], live_bytes, reserved_bytes);
}

#endif
