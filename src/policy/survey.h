/*
 * A survey of what pins memory: the chunks that are neither idle nor full of live bytes, and which
 * parts of their granules are occupied. Looks, changes nothing.
 *
 * May be called by: compact, mesh, reback, shortage. Locks: the grow lock and every pool's lock.
 */
#ifndef VMM_POLICY_SURVEY_H
#define VMM_POLICY_SURVEY_H

#include "policy/cache.h"

/* A held chunk that free blocks cover in part. */
struct partly {
    struct chunk *chunk;
    struct heap *heap;
    uint32_t live_granules; /* granules that hold anything but free bytes */
    bool is_pinned;         /* holds a block that must stay where it is */
};

struct survey {
    struct partly *chunks;
    uint64_t count;
    uint64_t capacity;
};

/* Fills *out with every such chunk; ERR_HOST_OOM. To be ended with vmm__survey_end(). */
vmm_status vmm__survey_take(struct vmm_cache *cache, struct survey *out);
void vmm__survey_end(struct survey *survey);

/* What is live in a granule: one bit for each of 512 parts of it, not set where all is free or lent.
 * Parts are at least a slot long, so that runs of them are whole units of any heap. */
enum { OCCUPANCY_WORDS = 8, OCCUPANCY_PARTS = OCCUPANCY_WORDS * 64 };

struct occupancy {
    uint64_t words[OCCUPANCY_WORDS];
};

void vmm__occupancy_read(const struct heap *heap, uint64_t granule, struct occupancy *out);
void vmm__occupancy_taken(const struct heap *heap, uint64_t granule, struct occupancy *out); /* or
                                                                                               lent */
uint64_t vmm__occupancy_part_bytes(const struct arena *arena);
unsigned vmm__occupancy_count(const struct occupancy *occupancy);
bool vmm__occupancy_meets(const struct occupancy *a, const struct occupancy *b);
void vmm__occupancy_add(struct occupancy *to, const struct occupancy *from);

/* The next run of parts at or after *first whose bits are `set`; false at the end. */
bool vmm__occupancy_run(const struct occupancy *occupancy, bool set, unsigned *first,
                        unsigned *count);

/* Whether a block that must stay where it is lies in a chunk's place. */
bool vmm__place_is_pinned(const struct vmm_cache *cache, const struct heap *heap,
                          const struct chunk *chunk);

/* What a granule of a heap holds. */
enum granule_use { GRANULE_FREE, GRANULE_PARTLY, GRANULE_FULL };

enum granule_use vmm__granule_use(const struct heap *heap, uint64_t granule);

#endif
