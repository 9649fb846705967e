/*
 * Copies the live bytes of a chunk to the backup of its pool, or back.
 *
 * Owns: nothing. May be called by: cache/pool. Locks: the caller holds the grow lock and the lock of the chunk's lane.
 */
#ifndef VMM_CACHE_POOL_CHUNK_COPY_H
#define VMM_CACHE_POOL_CHUNK_COPY_H

#include "cache/cache.h"
#include "cache/pool/backup.h"

enum chunk_copy_way {
    CHUNK_SAVE, /* to the backup */
    CHUNK_LOAD, /* from the backup */
    CHUNK_CLEAR /* writes zeros instead */
};

struct chunk_copy {
    struct vmm_cache *cache;
    struct backup *backup; /* NULL to clear */
    vmm_stream stream;
    enum chunk_copy_way way;
    uint64_t bytes; /* so far */
};

/* Adds an entry for each block and slab that is live in the chunk; a block that lies in several chunks gets one, a
 * reserved one an entry for each unit with memory. */
vmm_status vmm__chunk_list(struct vmm_cache *cache, const struct chunk *chunk,
                           struct backup *backup);

/* Submits the copies of a chunk. Blocks without an entry are left out. */
vmm_status vmm__chunk_copy(struct chunk_copy *copy, const struct chunk *chunk);

#endif
