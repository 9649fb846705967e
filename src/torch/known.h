/*
 * What is known of blocks while a history is recorded: a table by address, with open addressing.
 *
 * Owns: the slots. Invariants:
 *  1. `capacity` is 0 or a power of two, and more than a quarter of the slots are empty;
 *  2. no slot is empty between an entry and the slot that its address hashes to.
 * May be called by: history. Locks: none; the history's lock guards it.
 */
#ifndef VMM_TORCH_KNOWN_H
#define VMM_TORCH_KNOWN_H

#include "vmmcache/torch.h"

#include <stdbool.h>

struct known {
    uint64_t address; /* 0: the slot is empty */
    uint64_t requested_bytes;
    uint64_t stream;
    uint64_t stack;
    vmm_pool_id pool;
    bool is_told; /* the history has its ALLOC, or had */
};

struct known_table {
    struct known *slots;
    uint64_t capacity;
    uint64_t count;
};

/* NULL if nothing is known of the address. Valid until the table changes. */
const struct known *vmm__known_find(const struct known_table *table, uint64_t address);

/* Takes the place of what was known of the address. Without host memory for it nothing is known. */
void vmm__known_put(struct known_table *table, const struct known *entry);
void vmm__known_remove(struct known_table *table, uint64_t address);
void vmm__known_clear(struct known_table *table);

#endif
