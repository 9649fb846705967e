/*
 * The live map: what a recording knows of each block, by address. A hash table with open addressing.
 *
 * Owns: the slots. Invariants:
 *  1. `capacity` is 0 or a power of two, and at least a quarter of the slots are empty;
 *  2. no slot is empty between an entry and the slot that its address hashes to.
 * Called by: history. Locks: none; the history's lock guards it.
 */
#ifndef VMM_TORCH_LIVE_MAP_H
#define VMM_TORCH_LIVE_MAP_H

#include "vmmcache/torch.h"

#include <stdbool.h>

struct live_map {
    uint64_t address; /* 0: the slot is empty */
    uint64_t requested_bytes;
    uint64_t stream;
    uint64_t stack;
    vmm_pool_id pool;
    bool is_told; /* its ALLOC was recorded */
};

struct known_table {
    struct live_map *slots;
    uint64_t capacity;
    uint64_t count;
};

/* Returns NULL if the address has no entry. The pointer is valid until the table changes. */
const struct live_map *vmm__live_map_find(const struct known_table *table, uint64_t address);

/* Adds or replaces the entry of an address. If host memory runs out, the address has no entry afterwards. */
void vmm__live_map_put(struct known_table *table, const struct live_map *entry);
void vmm__live_map_remove(struct known_table *table, uint64_t address);
void vmm__live_map_clear(struct known_table *table);

#endif
