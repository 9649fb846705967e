/*
 * Reserved blocks: addresses of a lane that get and lose physical memory in units (vmm_reserve()); see also
 * alloc/commit.h.
 *
 * A reserved block is a range (vm/vm.h). A unit with memory is one chunk. No heap owns its granules, so the alloc and
 * free paths, views and compaction never see it: a call that finds no heap at an address looks here.
 *
 * Owns: the records of reserved blocks. Invariants:
 *  1. a held chunk that no heap owns is a unit of a block; in limbo after a decommit it keeps its addresses (vm.h, 2);
 *  2. committed_granules counts those in use; the lane's counters have them as one allocation;
 *  3. `sorted` has all blocks, by address; no two overlap;
 *  4. a freed block stays, with its memory, only while its pool is retained;
 *  5. a lane's reserved_blocks is the number of its blocks here.
 * May be called by: cache, debug, api. Locks: the grow lock guards all of it; changes of memory also take the lane's
 * lock, for its counters and the listener. Functions that do not end in _locked take both.
 */
#ifndef VMM_CACHE_RESERVE_RESERVE_H
#define VMM_CACHE_RESERVE_RESERVE_H

#include "cache/cache.h"

struct reserved {
    struct lane *lane;
    uint64_t address;
    uint64_t first; /* granule there */
    uint64_t granules;
    uint64_t bytes; /* as the program asked for */
    uint64_t committed_granules;
    uint32_t unit_granules;
    bool is_pinned;
    bool is_freed;
    struct uses uses; /* of streams that vmm_record_stream() named, under the key 0 */
};

/* Frees the records; the cache ends. */
void vmm__reserves_fini(struct reserves *reserves);

/* See vmm_reserve(). `lane` is the stream's in the pool. */
vmm_status vmm__reserve(struct vmm_cache *cache, struct lane *lane, uint64_t bytes,
                        uint64_t unit_bytes, void **out);

/* These return VMM__NOT_FOUND if no reserved block starts at the address. */
vmm_status vmm__reserved_resize(struct vmm_cache *cache, uint64_t address, uint64_t bytes,
                                void **out);
vmm_status vmm__reserved_free(struct vmm_cache *cache, uint64_t address);
vmm_status vmm__reserved_name(struct vmm_cache *cache, uint64_t address, const char *text);
vmm_status vmm__reserved_pin(struct vmm_cache *cache, uint64_t address, bool is_pinned);

/* user NULL: only checks that there is such a block. */
vmm_status vmm__reserved_use(struct vmm_cache *cache, uint64_t address, const struct lane *user);

/* Whether an address may lie in a reserved block: it lies in the arena, no heap owns it, and blocks have
 * been reserved. Needs no lock. */
bool vmm__reserved_may_own(const struct vmm_cache *cache, uint64_t address);

/* Whether a reserved block starts at an address. Takes the grow lock only if one may. */
bool vmm__reserved_has(struct vmm_cache *cache, uint64_t address);

/* The block, freed or not, whose range contains an address; NULL: none. */
struct reserved *vmm__reserved_around_locked(const struct vmm_cache *cache, uint64_t address);

/* Gives the memory of the freed blocks of a pool back, which nothing uses: the pool sleeps, or the host has waited for
 * its work. NULL: of all pools that are not retained. */
void vmm__reserves_end_locked(struct vmm_cache *cache, const struct pool *pool);

/* ---- For this module and alloc/commit.c -------------------------------------------------- */

/* The key of the uses of a block. */
enum { USES_KEY = 0 };

/* The block that starts at an address and is not freed; NULL: none. */
struct reserved *vmm__reserved_find_locked(const struct vmm_cache *cache, uint64_t address);

/* Gives a block other granules, and puts it where it then belongs. */
void vmm__reserved_range_set(struct vmm_cache *cache, struct reserved *block, uint64_t granule,
                             uint64_t count);

/* The clock that says when no work uses the block's memory: the cache's, if other streams use it. */
struct clock *vmm__reserved_clock(struct vmm_cache *cache, const struct reserved *block);

/* Puts the chunks in use of `count` granules into limbo. The caller holds the lane's lock. */
void vmm__reserved_discard(struct vmm_cache *cache, struct reserved *block, uint64_t granule,
                           uint64_t count);

/* The chunk of a block at a granule, in use or in limbo; NULL: there is no memory. *end: the granule after the chunk,
 * or after the granules without memory, at most `limit`. */
struct chunk *vmm__reserved_chunk(const struct vmm_cache *cache, uint64_t granule, uint64_t limit,
                                  uint64_t *end);

/* Reports memory of a block to the listener and the recorder. */
void vmm__reserved_tell(struct vmm_cache *cache, const struct reserved *block, vmm_change_kind kind,
                        const struct chunk *chunk);

#endif
