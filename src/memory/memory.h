/*
 * Physical memory and where it is mapped: the chunks that a cache holds from the driver, the page
 * map from granules of the arena to chunks, and limbo, where chunks wait for an event before they
 * are unmapped and given back.
 *
 * Owns: the arena, all chunk records, the page map.
 * Invariants:
 *  1. pages[g] is the id of the chunk mapped at granule g, 0 if none is; a chunk fills its granules
 *     [first, first + granules) and no others;
 *  2. a granule that belongs to a chunk, mapped or not, or is a fence, which stays without
 *     memory, is taken from the arena; no other is;
 *  3. reserved = sum of the bytes of all chunks; limbo_bytes = the same over chunks in limbo;
 *  4. no two chunks share a handle, except a chunk and its aliases: records without a handle of
 *     their own, which hold addresses, not memory, and count neither as reserved nor as
 *     limbo_bytes. An alias in limbo is a stale mapping, left where the chunk was mapped before it
 *     moved. One that is held is a twin: two places live in one chunk (mesh.h); a chunk and its
 *     twins form a ring with exactly one owner of the handle;
 *  5. every held record is mapped, except `astray` of them: those that a re-backing took from their
 *     place and that the driver then refused to map again. Each drain tries to map them. Until then they
 *     neither move nor go to limbo nor leave their ring;
 *  6. every unused record is in the list of unused ones, every record in limbo in that of limbo, and no
 *     other is.
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
    CHUNK_LIMBO,      /* on its way back to the driver */
    CHUNK_STATES
};

struct chunk {
    uint64_t handle;
    uint64_t first; /* granule; of no meaning once unmapped */
    uint32_t granules;
    uint32_t next; /* id: in limbo the next to be drained; unused the next unused */
    enum chunk_state state;
    bool is_mapped; /* false in limbo if its release failed: tried again with each drain */
    bool is_alias;  /* only a mapping; the handle is another record's */
    uint32_t twin;  /* held: id of the next of the ring that shares the handle; 0: alone */
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
    uint32_t twins;  /* held aliases */
    uint32_t astray; /* see invariant 5 */
};

vmm_status vmm__memory_init(struct memory *memory, struct driver *driver, uint64_t arena_bytes,
                            uint64_t limit_bytes);

/* Unmaps and releases every chunk, whatever its state: no work may be in flight. What the driver refuses is
 * tried twice. Returns the first error that stays and goes on. A lost device is given what it still takes. */
vmm_status vmm__memory_fini(struct memory *memory);

/*
 * Maps new physical memory at `count` granules that the caller took from the arena, in chunks of at
 * most chunk_granules; without access yet. On failure the granules go back to the arena, those that
 * were mapped by way of limbo: ERR_DEVICE_OOM (the device, or the limit), ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__memory_map(struct memory *memory, uint64_t granule, uint64_t count,
                           uint32_t chunk_granules);

/*
 * Hand-over: maps a chunk that is held at granules that the caller took, without access yet. Its
 * old mapping stays usable until `epoch` of `timeline` has passed (NULL: it may go at once) and is
 * unmapped by a later drain. The caller gives the new place access before limbo is drained again:
 * CUDA (13.0) maps a handle no more whose oldest mapping went before the next one had access. On
 * failure the chunk is where it was.
 */
vmm_status vmm__memory_move(struct memory *memory, struct chunk *chunk, uint64_t granule,
                            struct timeline *timeline, uint64_t epoch);

/* A part of a chunk's place, and the chunk that takes it. */
struct memory_part {
    struct chunk *chunk;
    uint64_t granule;
};

/*
 * Re-backing: the parts, held and mapped elsewhere, take the place of a chunk that is alone. Their
 * bytes are the caller's business, and no work may be in flight on any of them. Parts lie in the
 * chunk's place in rising order; granules that none of them takes go back to the arena, and the
 * chunk and the parts' old mappings to limbo. On failure everything is where it was (or astray).
 */
vmm_status vmm__memory_swap(struct memory *memory, struct chunk *chunk,
                            const struct memory_part *parts, uint32_t count);

/*
 * Meshing: the place of `guest` is mapped to the memory of `host`, an owner of the same size, and is
 * its twin then. The guest's own memory goes to limbo if no other place has part in it, which is how
 * a ring moves as a whole: place by place. As for the bytes and failures: like swap.
 */
vmm_status vmm__memory_mesh(struct memory *memory, struct chunk *host, struct chunk *guest);

/* Puts one of a ring of twins into limbo; the memory stays with the others. Cannot fail. */
void vmm__memory_unmesh(struct memory *memory, struct chunk *chunk, struct timeline *timeline,
                        uint64_t epoch);

/* Tries to map what is astray where it belongs. */
void vmm__memory_mend(struct memory *memory);

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
 * error is returned after all were tried. Once the device is lost limbo waits for the end of the cache: ERR_LOST.
 */
vmm_status vmm__limbo_drain(struct memory *memory, uint64_t *released);

/* Unmaps and releases a chunk that is in no list. On failure it is as far as it got. For limbo and
 * the end of the cache only. */
vmm_status vmm__chunk_close(struct memory *memory, struct chunk *chunk);

/* Makes the host wait for the oldest of limbo that no capture forbids to wait for, then drains.
 * VMM_NOT_READY if there is none. */
vmm_status vmm__limbo_wait(struct memory *memory, uint64_t *released);

vmm_status vmm__memory_check(const struct memory *memory);

/* ---- For the files of this module --------------------------------------------------------- */

static inline uint32_t vmm__chunk_id(const struct memory *memory, const struct chunk *chunk)
{
    return (uint32_t)(chunk - memory->records);
}

struct chunk *vmm__chunk_take(struct memory *memory); /* an unused record; NULL if none is left */
void vmm__chunk_drop(struct memory *memory, struct chunk *chunk);

/* Lets the granules of a chunk's place name a record; 0: none. */
void vmm__chunk_place(struct memory *memory, const struct chunk *chunk, uint32_t id);

/* A record for the mapping that a chunk has now, which is about to get another: into limbo. */
void vmm__chunk_leave(struct memory *memory, const struct chunk *chunk, struct chunk *stale,
                      struct timeline *timeline, uint64_t epoch);

#endif
