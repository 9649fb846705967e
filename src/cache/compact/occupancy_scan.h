/*
 * A scan for the chunks that live blocks pin: those that are neither idle nor full of live bytes. Changes nothing.
 *
 * Owns: nothing. May be called by: compact, relocate. Locks: the caller holds the grow lock and every lane's lock.
 */
#ifndef VMM_CACHE_COMPACT_OCCUPANCY_SCAN_H
#define VMM_CACHE_COMPACT_OCCUPANCY_SCAN_H

#include "cache/cache.h"

/* A mapped chunk that free blocks cover in part. */
struct partly {
    struct chunk *chunk;
    struct heap *heap;
    uint32_t live_granules; /* granules that are not entirely free */
    bool is_pinned;         /* see vmm__chunk_has_pinned() */
};

struct occupancy_scan {
    struct partly *chunks;
    uint64_t count;
    uint64_t capacity;
};

/* Fills *out with every such chunk, but those of retained pools and of pools with a source; ERR_HOST_OOM. End it with
 * vmm__occupancy_scan_end(). */
vmm_status vmm__occupancy_scan_begin(struct vmm_cache *cache, struct occupancy_scan *out);
void vmm__occupancy_scan_end(struct occupancy_scan *occupancy_scan);

/* Whether a block that must not move lies in a chunk: one under vmm_pin(), or an exported one. */
bool vmm__chunk_has_pinned(const struct vmm_cache *cache, const struct heap *heap,
                           const struct chunk *chunk);

/* Whether one free block covers a whole granule of a heap. */
bool vmm__occupancy_granule_is_free(const struct heap *heap, uint64_t granule);

#endif
