/*
 * Plays the history of a snapshot backwards, from the picture that it comes with: each event is undone, and
 * must find what it changes. Fails the running test if one does not.
 *
 * Memory is known by granules of 2 MiB, blocks by their addresses.
 */
#ifndef VMM_TEST_PLAYBACK_H
#define VMM_TEST_PLAYBACK_H

#include "support/test_support.h"
#include "vmmcache/torch.h"

/* What was there before the first event: how many granules were mapped, and how many blocks were live, or
 * freed and still used. */
struct playback {
    uint64_t granules;
    uint64_t live;
    uint64_t waiting;
};

/* Checks that segments rise and that blocks tile them, then plays back. */
struct playback snapshot_play_back(const vmm_torch_snapshot *snapshot);

/* Sums over the picture. */
struct picture_sums {
    uint64_t mapped_bytes;
    uint64_t live;
    uint64_t waiting;
    uint64_t requested_bytes; /* of live blocks */
    uint64_t active_bytes;
};
struct picture_sums snapshot_sums(const vmm_torch_snapshot *snapshot);

#endif
