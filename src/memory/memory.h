/*
 * Physical memory and where it is mapped: the chunks that a cache holds from the driver, the page
 * map from granules of the arena to chunks, and limbo, where chunks wait for an event before they
 * are unmapped and given back.
 *
 * Owns: the arena, all chunk records, the page map.
 * Invariants:
 *  1. pages[g] is the id of the chunk mapped at granule g, 0 if none is; a chunk fills its granules
 *     [first, first + granules) and no others;
 *  2. a granule that belongs to a chunk, mapped or not, is taken from the arena; no other is;
 *  3. reserved = sum of the bytes of all chunks; limbo_bytes = the same over chunks in limbo;
 *  4. no two chunks share a handle, except a chunk and its stale mappings: records in limbo without
 *     a handle of their own, left where the chunk was mapped before it moved. They hold addresses,
 *     not memory, and count neither as reserved nor as limbo_bytes.
 * Knows nothing of blocks, pools or why it is asked. May be called by: policy, report, entry.
 * Locks: the cache's grow lock guards all of it; figures may be read without.
 */
#ifndef VMM_MEMORY_MEMORY_H
#define VMM_MEMORY_MEMORY_H

#include "base/figure.h"
#include "memory/arena.h"
#include "memory/timeline.h"

enum chunk_state {
    CHUNK_UNUSED = 0, /* the record is free */
    CHUNK_HELD,       /* under blocks */
    CHUNK_LIMBO       /* on its way back to the driver */
};

struct chunk {
    uint64_t handle;
    uint64_t first; /* granule; of no meaning once unmapped */
    uint32_t granules;
    uint32_t next; /* id: in limbo the next to be drained; unused the next unused */
    enum chunk_state state;
    bool is_mapped; /* false in limbo if its release failed: tried again with each drain */
    bool is_stale;  /* limbo: only a mapping; the handle is another record's */
    uint64_t epoch; /* limbo: of `timeline`; may be unmapped once it has passed */
    struct timeline *timeline; /* limbo: NULL if nothing is in flight */
};

struct memory {
    struct driver *driver;
    struct arena arena;
    uint64_t limit_bytes; /* 0: none */
    struct figure reserved_bytes;
    struct figure chunks;
    _Atomic uint64_t limbo_bytes;
    uint32_t *pages;       /* by granule */
    struct chunk *records; /* by id; 0 is never used */
    uint64_t record_limit;
    uint32_t record_high; /* ids below were used at some time */
    uint32_t unused;      /* list */
    uint32_t limbo_head;
    uint32_t limbo_tail;
};

vmm_status vmm__memory_init(struct memory *memory, struct driver *driver, uint64_t arena_bytes,
                            uint64_t limit_bytes);

/* Unmaps and releases every chunk, whatever its state: no work may be in flight. Returns the first
 * error and goes on. */
vmm_status vmm__memory_fini(struct memory *memory);

/*
 * Maps new physical memory at `count` granules that the caller took from the arena, in chunks of at
 * most chunk_granules; without access yet. On failure nothing is mapped there and the granules go
 * back to the arena: ERR_DEVICE_OOM (the device, or the limit), ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__memory_map(struct memory *memory, uint64_t granule, uint64_t count,
                           uint32_t chunk_granules);

/*
 * Hand-over: maps a chunk that is held at granules that the caller took, without access yet. Its
 * old mapping stays usable until `epoch` of `timeline` has passed (NULL: it may go at once) and is
 * unmapped by a later drain. On failure the chunk is where it was.
 */
vmm_status vmm__memory_move(struct memory *memory, struct chunk *chunk, uint64_t granule,
                            struct timeline *timeline, uint64_t epoch);

/* Makes mapped granules usable. On failure they are not, and mapped still. */
vmm_status vmm__memory_access(struct memory *memory, uint64_t granule, uint64_t count);

/* Puts all chunks of mapped granules that are under no block into limbo, as vmm__limbo_put(). */
void vmm__memory_discard(struct memory *memory, uint64_t granule, uint64_t count,
                         struct timeline *timeline, uint64_t epoch);

/* The mapped chunk at a granule; NULL if there is none. */
static inline struct chunk *vmm__memory_chunk(const struct memory *memory, uint64_t granule)
{
    uint32_t id = memory->pages[granule];
    return id == 0 ? NULL : &memory->records[id];
}

static inline uint64_t vmm__chunk_bytes(const struct memory *memory, const struct chunk *chunk)
{
    return (uint64_t)chunk->granules << memory->arena.granule_shift;
}

static inline uint64_t vmm__chunk_address(const struct memory *memory, const struct chunk *chunk)
{
    return vmm__arena_address(&memory->arena, chunk->first);
}

/*
 * Puts a mapped chunk that no block needs any more into limbo: it goes back to the driver once
 * `epoch` of `timeline` has passed (at once, by the next drain, if timeline is NULL). Cannot fail.
 */
void vmm__limbo_put(struct memory *memory, struct chunk *chunk, struct timeline *timeline,
                    uint64_t epoch);

/*
 * Gives back every chunk of limbo whose time has passed; never waits. released, may be NULL, grows
 * by the bytes given back. A chunk that the driver refuses to take stays in limbo; the first such
 * error is returned after all were tried.
 */
vmm_status vmm__limbo_drain(struct memory *memory, uint64_t *released);

/* Unmaps and releases a chunk that is in no list. On failure it is as far as it got. For limbo and
 * the end of the cache only. */
vmm_status vmm__chunk_close(struct memory *memory, struct chunk *chunk);

/* Makes the host wait for the oldest of limbo, then drains. VMM_NOT_READY if limbo is empty. */
vmm_status vmm__limbo_wait(struct memory *memory, uint64_t *released);

vmm_status vmm__memory_check(const struct memory *memory);

#endif
