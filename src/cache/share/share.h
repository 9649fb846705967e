/*
 * A share: what stands for the memory of one block in other processes, and what these need to know of it. The
 * program holds its handle (vmm_share_export(), vmm_share_receive()).
 *
 * Owns: the chunks' records (struct chunk_export), some together with other shares; they are NULL only while a share is
 * made. `cache` is set exactly for the shares in cache->exports.
 * May be called by: cache/share, api. Locks: the grow lock of `cache` guards `cache` and `node`. The rest changes only
 * while the share is made; was_sent is atomic.
 */
#ifndef VMM_CACHE_SHARE_SHARE_H
#define VMM_CACHE_SHARE_SHARE_H

#include "base/map.h"
#include "vm/vm.h"

/* The block of a share starts at a multiple of this, like every large block. */
enum { SHARE_OFFSET_UNIT_BYTES = 512 };

/* A bound on what a forged message makes its receiver allocate: 1 MiB. */
enum { SHARE_CHUNKS_MOST = 1 << 16 };

/* What every message of a share begins with. It has no padding: its bytes are sent as they are. */
struct share_head {
    uint64_t magic;
    uint32_t version;
    uint32_t count;                        /* of chunks */
    uint64_t nonce;                        /* of the export */
    uint64_t offset;                       /* of the block's first byte in the chunks */
    uint64_t bytes;                        /* that the exporter requested */
    unsigned char uuid[DRIVER_UUID_BYTES]; /* of the device that has the memory */
};

struct share {
    vmm_share *handle;
    uint64_t generation;     /* of its process: see base/fork.h */
    _Atomic bool was_sent;   /* at least one byte */
    struct vmm_cache *cache; /* that exported it; NULL: it was received, or the cache has ended */
    struct map_node node;    /* in cache->exports; its key is the address of the exported block */
    struct share_head head;
    struct shared_chunk chunks[];
};

/* Makes a share of `count` chunks, without their records. ERR_HOST_OOM: `function` names the call that failed. */
vmm_status vmm__share_open(const char *function, uint32_t count, struct share **out);

/* Closes a share and its chunks. */
void vmm__share_close(struct share *share);

/* Gives a chunk a record, which stands for nothing yet. ERR_HOST_OOM. */
vmm_status vmm__share_chunk_open(const char *function, struct shared_chunk *shared);

/* Takes the record of a chunk from its share, and closes it if no other share uses it. */
void vmm__share_chunk_close(struct shared_chunk *shared);

/* The bytes of all chunks. */
uint64_t vmm__share_memory_bytes(const struct share *share);

#endif
