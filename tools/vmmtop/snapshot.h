/*
 * A snapshot: a copy of a segment (monitor/format.h) that is safe to use. Whatever the bytes were, sizes and numbers of
 * a snapshot stay inside it, and its texts end, are UTF-8 and have no control characters.
 *
 * Owns: its copy of the bytes. May be called by: vmmtop, tests. Locks: none.
 */
#ifndef VMMTOP_SNAPSHOT_H
#define VMMTOP_SNAPSHOT_H

#include "monitor/format.h"

#include <stdint.h>

struct snapshot_cache {
    const struct monitor_cache *cache;
    const struct monitor_pool *pools;
    const struct monitor_lane *lanes;
};

struct snapshot {
    struct monitor_head *head; /* the copy; NULL: there is none */
    struct snapshot_cache *caches;
};

enum snapshot_outcome {
    SNAPSHOT_OK,
    SNAPSHOT_TORN, /* the process may have been writing: copy again */
    SNAPSHOT_WRONG /* it is not a segment, or not of this version */
};

struct snapshot_error {
    char text[120];
};

/* Makes a snapshot of bytes. What is not OK leaves it empty and says why in *error. */
enum snapshot_outcome snapshot_make(struct snapshot *snapshot, const void *bytes, uint64_t count,
                                    struct snapshot_error *error);

/* Frees the copy. Does nothing to an empty snapshot. */
void snapshot_free(struct snapshot *snapshot);

/* The cache with a serial; NULL: there is none, or no snapshot. */
const struct snapshot_cache *snapshot_find(const struct snapshot *snapshot, uint64_t serial);

#endif
