/*
 * Replays the history of a snapshot backwards from the snapshot: undoes each event, which must find what it
 * changed. Fails the running test if it does not.
 *
 * Tracks memory by ranges, and blocks by their addresses.
 */
#ifndef VMM_TEST_PLAYBACK_H
#define VMM_TEST_PLAYBACK_H

#include "support/test_support.h"
#include "vmmcache/torch.h"

/* The state before the first event: mapped bytes, live blocks, and blocks that are freed and still used by other
 * streams. */
struct playback {
    uint64_t mapped_bytes;
    uint64_t live;
    uint64_t waiting;
};

/* Checks that segments ascend and that blocks tile them, then undoes the events. */
struct playback snapshot_play_back(const vmm_torch_snapshot *snapshot);

/* Sums over the snapshot. */
struct picture_sums {
    uint64_t mapped_bytes;
    uint64_t live;
    uint64_t waiting;
    uint64_t requested_bytes; /* of live blocks */
    uint64_t active_bytes;
};
struct picture_sums snapshot_sums(const vmm_torch_snapshot *snapshot);

#endif
