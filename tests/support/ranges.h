/*
 * Sets of mapped address ranges with owners, as vmm_listen() describes them. Ranges never overlap; neighbours of one
 * owner are one range, so that two histories which map the same bytes give the same set.
 */
#ifndef VMM_RANGES_H
#define VMM_RANGES_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stddef.h>

struct owned_range {
    uint64_t address;
    uint64_t end;
    vmm_stream stream;
    vmm_pool_id pool;
    int is_small;
    int is_view;
};

/* Begin with zeros. */
struct ranges {
    struct owned_range *items; /* by ascending address */
    size_t count;
    size_t capacity;
};

void ranges_free(struct ranges *ranges);

/* Adds a range. False: some of its bytes are there already. */
bool ranges_add(struct ranges *ranges, const struct owned_range *range);

/* Removes a range. False, and nothing is removed: ranges_contain() does not hold. */
bool ranges_remove(struct ranges *ranges, const struct owned_range *range);

/* Whether all bytes of a range are there and belong to its stream, its graph pool, its kind of heap and of address. A
 * range without a graph pool may belong to any: a released graph pool has no name left. */
bool ranges_contain(const struct ranges *ranges, const struct owned_range *range);

/* The sum of all ranges. */
uint64_t ranges_bytes(const struct ranges *ranges);

#endif
