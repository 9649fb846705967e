/*
 * What a replay checks besides surviving: live blocks never overlap, every block still holds its
 * own pattern when it is freed, the sim driver saw no violation, nothing is left behind.
 *
 * Owns: the set of live blocks (by address). May be called by: replayer. Locks: none (one thread).
 */
#ifndef FRAGTEST_VERIFY_H
#define FRAGTEST_VERIFY_H

#include "driver/driver.h"
#include "fragtest/policies/ordered.h"

#include <stddef.h>

struct verify {
    struct driver *driver;
    const uint64_t *bytes; /* of each block, in this pass */
    struct ordered live;
    struct ordered_node *nodes; /* of each block of the trace; (address, index) */
    uint64_t overlaps;
    uint64_t mismatches; /* at the start, as are those below */
    uint64_t violations;
    uint64_t handles;
    uint64_t reservations;
    uint64_t mapped_bytes;
    uint64_t events;
};

/* `bytes` is the caller's. */
vmm_status verify_init(struct verify *verify, struct driver *driver, const uint64_t *bytes,
                       uint32_t block_count);
void verify_fini(struct verify *verify);

void verify_alloc(struct verify *verify, uint32_t block, uint64_t address);
void verify_free(struct verify *verify, uint32_t block);

/* Once the policy is closed: whether all was well; else one line on what was not. */
bool verify_end(struct verify *verify, char *text, size_t capacity);

#endif
