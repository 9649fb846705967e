/*
 * From the ids of a trace's live blocks to their indices.
 *
 * Open addressing with linear probing in two plain arrays (12 bytes a place), at most two thirds
 * full. Ids leave when their block is freed, so its size follows the live ids, not all ids seen.
 * Invariant: no empty place lies between an id's own place (its hash) and the place it is kept in.
 * Owns: its arrays. May be called by: the trace reader. Locks: none (one thread).
 */
#ifndef FRAGTEST_IDMAP_H
#define FRAGTEST_IDMAP_H

#include <stddef.h>
#include <stdint.h>

#define IDMAP_NONE UINT32_MAX

/* All zero is an empty map. */
struct idmap {
    uint64_t *ids;
    uint32_t *indices; /* IDMAP_NONE: the place is empty */
    size_t capacity;   /* places, a power of two, or 0 */
    size_t count;
};

enum idmap_outcome { IDMAP_ADDED, IDMAP_PRESENT, IDMAP_NO_MEMORY };

/* Adds `id` with `index`, unless it is there already. */
enum idmap_outcome idmap_add(struct idmap *map, uint64_t id, uint32_t index);

/* Takes `id` out and returns its index, or IDMAP_NONE when it is not there. */
uint32_t idmap_take(struct idmap *map, uint64_t id);

void idmap_clear(struct idmap *map);

#endif
