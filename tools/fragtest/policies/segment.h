/*
 * A segment: a reservation that is backed page by page. That of block-splitting is one page, which stands for a
 * cudaMalloc; an expandable one is as large as 9/8 of the device.
 *
 * Owns: the addresses and the handles of the pages that are mapped; which those are, the policy's
 * blocks tell. May be called by: the two policies, pytorch_model. Locks: none (one thread).
 */
#ifndef FRAGTEST_SEGMENT_H
#define FRAGTEST_SEGMENT_H

#include "driver/driver.h"

struct segment {
    uint64_t address;
    uint64_t
        place; /* what its first block has for an address; the address itself, unless the policy changes it */
    uint64_t bytes;
    uint64_t page_bytes;
    uint64_t handles[]; /* of each page; meaningless where unmapped */
};

/* NULL on failure, with the reason in *status. */
struct segment *segment_create(struct driver *driver, uint64_t page_bytes, uint64_t pages,
                               vmm_status *status);

/* Nothing may be mapped in it. */
vmm_status segment_destroy(struct driver *driver, struct segment *segment);

/* Backs a stretch of whole unmapped pages: a create and a map each, one set access for all. All of
 * it or nothing. */
vmm_status segment_map(struct driver *driver, struct segment *segment, uint64_t address,
                       uint64_t bytes);

/* Unmaps and releases a stretch of whole pages, one by one; goes on after a failure. */
vmm_status segment_unmap(struct driver *driver, struct segment *segment, uint64_t address,
                         uint64_t bytes);

#endif
