/*
 * The backup of a pool: the contents of its live blocks, in pinned host memory, while the pool sleeps.
 *
 * Owns: the host memory, and an entry for each block that was live when the pool went to sleep. Invariants:
 *  1. entries are in rising order of address, and their host ranges do not overlap;
 *  2. the entries lie in the first pinned_bytes of the host memory, which are pinned in segments of SEGMENT_BYTES.
 * May be called by: cache; api reads `bytes`. Locks: the call that puts the pool to sleep, or wakes it, uses the
 * backup alone; others find entries under the grow lock while the pool is asleep, and read `bytes` at any time.
 */
#ifndef VMM_CACHE_POOL_BACKUP_H
#define VMM_CACHE_POOL_BACKUP_H

#include "driver/driver.h"

enum { SEGMENT_BYTES = 256 << 20 };

struct backup_entry {
    uint64_t address; /* of the block, the slab, or the unit of a reserved block */
    uint64_t bytes;
    uint64_t offset; /* in the host memory */
};

struct backup {
    char *memory;
    _Atomic uint64_t bytes; /* of the host memory; reports read it meanwhile */
    uint64_t pinned_bytes;
    struct backup_entry *entries;
    uint64_t count;
    uint64_t capacity;   /* of entries */
    struct backup *next; /* in cache->kept_backups */
};

/* Forgets the entries. */
void vmm__backup_clear(struct backup *backup);

/* Adds a block; entries may come in any order. ERR_HOST_OOM. */
vmm_status vmm__backup_add(struct backup *backup, uint64_t address, uint64_t bytes);

/* Sorts the entries, gives each its host range, and pins the host memory. Keeps that of an earlier sleep if it is large
 * enough. ERR_HOST_OOM, or the driver's error. Takes long: the caller holds no lock. */
vmm_status vmm__backup_lay_out(struct backup *backup, struct driver *driver);

/* The entry that contains an address; NULL if there is none. */
const struct backup_entry *vmm__backup_find(const struct backup *backup, uint64_t address);

/* The bytes from an offset to the end of its segment: a copy must not cross it. */
static inline uint64_t vmm__backup_segment_left(uint64_t offset)
{
    return SEGMENT_BYTES - offset % SEGMENT_BYTES;
}

/* Gives the host memory and the entries back. ERR_DRIVER: the driver refuses to unpin it, and it stays for a later
 * call. */
vmm_status vmm__backup_drop(struct backup *backup, struct driver *driver);

#endif
