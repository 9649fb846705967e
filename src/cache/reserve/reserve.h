/*
 * Reserved blocks: addresses of a lane that get and lose physical memory in units (vmm_reserve()); see also
 * alloc/commit.h.
 *
 * A reserved block is a block of its lane's third heap (lane/heap.h), so it is found, named, pinned and used as any
 * other; and a range (vm/vm.h). A unit with memory is one chunk. No other heap owns its granules, so requests, views
 * and compaction never see it.
 *
 * Owns: the records of reserved blocks. Invariants:
 *  1. a held chunk is a unit of a block exactly if it lies in a range; in limbo after a decommit it keeps its addresses
 *     (vm.h, 2);
 *  2. committed_granules counts those in use, and its lane's reserved_granules those of all its blocks; the lane's
 *     counters have them as one allocation;
 *  3. cache->reserves has the blocks that the heaps have; all slots of a block's granules name it;
 *  4. a freed block stays, with its memory, only while its pool is retained.
 * May be called by: cache, debug, api. Locks: the grow lock guards the list. A block's address, size, state and memory
 * change under the grow lock and its lane's lock, and may be read under one of them; its lane's lock guards the rest.
 * Callers of functions that end in _locked, and of all in the last part, hold the grow lock. The others take the locks
 * that they need, except where stated.
 */
#ifndef VMM_CACHE_RESERVE_RESERVE_H
#define VMM_CACHE_RESERVE_RESERVE_H

#include "cache/cache.h"

struct reserved {
    struct block block; /* first member; its size is that of the addresses */
    struct lane *lane;
    struct reserved *next;  /* in cache->reserves */
    struct reserved **link; /* what points to this one */
    uint64_t committed_granules;
    uint32_t unit_granules;
};

/* The record of a block that is a reserved one; else NULL. */
static inline struct reserved *vmm__reserved_of(const struct block *block)
{
    bool is_it = block->state == BLOCK_RESERVED || block->state == BLOCK_RETAINED;
    return is_it ? (struct reserved *)block : NULL;
}

static inline bool vmm__reserved_is_freed(const struct reserved *block)
{
    return block->block.state == BLOCK_RETAINED;
}

/* Whether an address lies in a reserved block, freed or not. Needs no lock. */
static inline bool vmm__reserved_owns(const struct vmm_cache *cache, uint64_t address)
{
    const struct heap *heap = vmm__cache_heap_of(cache, address);
    return heap != NULL && heap->is_reserved;
}

/* Frees the records at the end of the cache. Takes no lock. */
void vmm__reserves_fini(struct reserved *block);

/* See vmm_reserve(). `lane` is the stream's in the pool. */
vmm_status vmm__reserve(struct vmm_cache *cache, struct lane *lane, uint64_t bytes,
                        uint64_t unit_bytes, void **out);

/* VMM__NOT_FOUND: no reserved block starts at the address. */
vmm_status vmm__reserved_free(struct vmm_cache *cache, uint64_t address);

/* Records the name of a block as that of its units. */
void vmm__reserved_record_name(struct vmm_cache *cache, struct recorder *recorder,
                               uint64_t address);

/* Whether a reserved block starts at an address. Takes the grow lock only if one may. */
bool vmm__reserved_has(struct vmm_cache *cache, uint64_t address);

/* The block, freed or not, whose range contains an address; NULL: none. Visitors of a walk call it, too, where no
 * assertion knows that the grow lock is held. */
struct reserved *vmm__reserved_around_locked(const struct vmm_cache *cache, uint64_t address);

/* Puts the memory of the freed blocks of a pool into limbo, and ends their ranges: the pool sleeps, or is no longer
 * retained. NULL: of all pools that are not retained. */
void vmm__reserves_end_locked(struct vmm_cache *cache, const struct pool *pool);

/* ---- For this module, alloc/commit.c and alloc/resize.c ------------------------------------- */

/* The block that starts at an address and is not freed; NULL: none. */
struct reserved *vmm__reserved_find_locked(const struct vmm_cache *cache, uint64_t address);

/* The granules of a block: the first one, and the one behind the last. */
uint64_t vmm__reserved_first(const struct vmm_cache *cache, const struct reserved *block);
uint64_t vmm__reserved_end(const struct vmm_cache *cache, const struct reserved *block);

/* Gives a block other granules. The caller holds the lane's lock. */
void vmm__reserved_range_set(struct reserved *block, uint64_t address, uint64_t bytes);

/* The clock that says when no work uses the block's memory: the cache's, if other streams use it. The caller holds the
 * lane's lock. */
struct clock *vmm__reserved_clock(struct vmm_cache *cache, const struct reserved *block);

/* Takes the memory of `count` granules of a live block: puts it into limbo. The caller holds the lane's lock. */
void vmm__reserved_decommit(struct vmm_cache *cache, struct reserved *block, uint64_t granule,
                            uint64_t count);

/* The chunk of a block at a granule, in use or in limbo; NULL: there is no memory. *end: the granule after the chunk,
 * or after the granules without memory, at most `limit`. */
struct chunk *vmm__reserved_chunk(const struct vmm_cache *cache, uint64_t granule, uint64_t limit,
                                  uint64_t *end);

/* Reports memory of a block to the listener and the recorder. */
void vmm__reserved_tell(struct vmm_cache *cache, const struct reserved *block, vmm_change_kind kind,
                        const struct chunk *chunk);

#endif
