/*
 * Physical memory and its mappings: the chunks that a cache has created, the page map from
 * granules of the arena to chunks, and limbo, where chunks wait for an event before they are
 * unmapped and released.
 *
 * Owns: the arena, all chunk records, the page map. Invariants:
 *  1. pages[g] is the id of the chunk mapped at granule g, 0 if none is; a chunk covers
 *     exactly the granules [first, first + granules), its home, and as many from each of its
 *     further places on;
 *  2. a granule is taken from the arena exactly if it belongs to a chunk, mapped or not, lies in
 *     a range, or is a guard page; a chunk is in a range exactly if keeps_addresses is set;
 *  3. reserved_bytes is the sum over all chunks that are not asleep, asleep_bytes over the others,
 *     limbo_bytes over the chunks in limbo; so they are in each account for its chunks; the sums over
 *     all chunks leave out imported ones; places and view_bytes are the sums over all further places;
 *  4. no two chunks share a handle, except a chunk and its aliases. An alias is the record
 *     of an old home, left where a chunk was mapped before a relocation. It is always in
 *     limbo, has addresses but no handle of its own, and counts neither in reserved_bytes
 *     nor in limbo_bytes. A place is no alias: it has no record;
 *  5. every held record is mapped at its home and all places, except `remap_pending` of them:
 *     a relocation unmapped these, and the driver then refused to map them again. Each drain
 *     tries again. Until then they are neither relocated nor put into limbo. A chunk that is
 *     asleep, or about to, is mapped nowhere, or at some of them;
 *  6. every unused record is in the list of unused records, and every record in limbo is in
 *     the list of limbo; a held record is in no list but its heap's list of marked chunks
 *     (lane/views.h);
 *  7. segments.sorted has every open segment, by outer address; no two overlap, and none lies in the arena; an open
 *     segment has one chunk, of as many bytes, with one mapping.
 * This module knows nothing of blocks and lanes; it only keeps the fields of a chunk that lane/views.h owns.
 * May be called by: lane, cache, debug, api. Locks: the cache's grow lock guards all of it, but the fields that
 * lane/views.h owns. Where the chunks of a lane are mapped, except under reserved blocks, changes under the lane's
 * lock, too, so that lock is enough to read it. The atomic statistics may be read without a lock.
 */
#ifndef VMM_VM_VM_H
#define VMM_VM_VM_H

#include "base/mutex.h"
#include "base/stat.h"
#include "trace/recorder.h"
#include "vm/arena.h"
#include "vm/clock.h"
#include "vmmcache/vmmcache.h"

enum chunk_state {
    CHUNK_UNUSED = 0, /* the record is free */
    CHUNK_HELD,       /* under blocks */
    CHUNK_LIMBO,      /* to be unmapped and released */
    CHUNK_STATES
};

/* What a part of the cache has reserved, and may reserve. Every chunk belongs to one account. */
struct account {
    struct account *next;  /* all accounts of the memory */
    struct account **link; /* what points to it */
    uint32_t newest;  /* id of a chunk that is booked on it, or 0; the others follow by `older` */
    const char *name; /* for errors */
    _Atomic uint64_t limit_bytes; /* 0: none but that of the memory */
    uint64_t least_bytes;         /* other accounts leave room for this much */
    vmm_share_reach reach; /* of its chunks; if it is not NONE, no two blocks share a chunk */
    bool is_imported;      /* its chunks are memory of other caches */
    struct atomic_stat reserved_bytes;
    struct atomic_stat chunks;
    struct counts counts;          /* limbo_bytes, asleep_bytes */
    _Atomic uint32_t source_calls; /* under way */
};

/* For "no granule". */
#define NO_GRANULE UINT64_MAX

enum { NO_DESCRIPTOR = -1 };

/* What other processes import a chunk by: see cache/share/share.h. */
struct chunk_export {
    _Atomic uint32_t shares; /* that use it; the last one closes it */
    int descriptor;          /* NO_DESCRIPTOR: it came without */
    bool has_fabric;
    struct driver_fabric fabric;
};

struct chunk {
    uint64_t handle;
    uint64_t first; /* granule of its home, the first mapping; meaningless once unmapped */
    uint64_t place; /* granule of the newest further mapping; see next_places */
    uint32_t granules;
    uint32_t places;          /* further mappings; they are unmapped before the home is */
    uint64_t free_head_bytes; /* at its ends, while it has places; lane/views.h owns both */
    uint64_t free_tail_bytes;
    uint64_t view_bits; /* bit n % 64: it may have a place in view n; lane/views.h owns this, too */
    bool is_marked;     /* in its heap's list of chunks to measure; lane/views.h owns it */
    uint32_t next;      /* id of the next record in its list: of limbo, unused or marked ones */
    uint32_t previous;  /* limbo: id of the record before it in its list; 0: none */
    enum chunk_state state;
    bool is_mapped;        /* false in limbo if its release failed: each drain tries again */
    bool is_alias;         /* an old home; another record has the handle */
    vmm_share_reach reach; /* created so that these processes can import it */
    bool keeps_addresses;  /* its home is in a range: the addresses stay taken without it */
    bool is_asleep;        /* it has addresses, and no memory: see vmm__chunk_sleep() */
    bool has_slept;        /* its contents are gone: a wake restores them, and clears this */
    struct chunk_export *exported; /* of its shares: see cache/share/export.h; NULL: none */
    uint32_t unmapped; /* mappings that are missing while its pool sleeps: see sleep.c */
    bool lacks_access; /* the last of these, or in limbo its home, is mapped without access */
    uint64_t epoch;    /* limbo: of `clock`, and released once it has passed; see alloc/commit.c */
    struct clock *clock; /* limbo: NULL if no work is in flight */
    struct account *account;
    uint32_t older; /* ids of its neighbours among the chunks of its account; 0: none */
    uint32_t newer;
    struct sourced_segment *segment; /* memory of a source; NULL: the cache created it */
};

/*
 * Segments: memory that a source of the program has given to a pool (vmm_segment_source), at addresses of its own. A
 * segment is a chunk, whose granules of the arena have no memory: they stand for it. All of vm, lane and cache work
 * with the addresses of these granules, the inner addresses of the memory; the program knows the outer ones. The two
 * are exchanged where blocks are handed out, looked up and reported.
 *
 * A drain of limbo leaves segments there, because their source is called without locks: vmm__limbo_take_segment() takes
 * them out. A closed segment has no chunk, and its source gets it at once. An account counts the calls of its
 * source's functions that are under way, and stays until all have ended. `sorted` changes under the grow lock and
 * `lock`, a leaf, so a look-up needs only the latter.
 */
struct sourced_segment {
    struct sourced_segment *next; /* closed */
    uint64_t inner;               /* addresses */
    uint64_t outer;
    uint64_t bytes;
    struct account *account; /* closed: the account that had its chunk */
    vmm_segment_source source;
};

struct sourced_segments {
    struct mutex lock;
    pthread_cond_t call_ended; /* a call of a source has ended */
    _Atomic uint64_t count;
    uint64_t capacity; /* of `sorted` */
    struct sourced_segment **sorted;
    struct sourced_segment *closed; /* list */
    _Atomic bool has_ready;         /* a drain of limbo found some whose work has finished */
};

struct vm {
    struct driver *driver;
    struct arena arena;
    _Atomic uint64_t limit_bytes; /* 0: none */
    bool is_exportable;           /* other processes can import all of its chunks */
    struct atomic_stat reserved_bytes;
    struct atomic_stat chunks;
    struct counts counts; /* the same, and places, places_max, view_bytes */
    struct account *accounts;
    uint64_t promised_bytes; /* to all accounts, beyond what they have reserved */
    uint64_t range_granules; /* of all ranges */
    uint32_t *pages;         /* by granule */
    uint64_t *next_places;   /* by granule: the next older place of its chunk, or NO_GRANULE */
    struct chunk *records;   /* by id; id 0 is never used */
    uint64_t record_limit;
    uint32_t record_high; /* all ids from here on are fresh */
    uint32_t unused;      /* list */
    uint32_t limbo_head;
    uint32_t limbo_tail;
    uint32_t remap_pending; /* see invariant 5 */
    struct sourced_segments segments;
    struct recorder *recorder; /* of mappings; NULL: none */
};

/* The resources that a cache may use. */
struct memory_limits {
    uint64_t first_arena_bytes; /* addresses reserved at first */
    uint64_t arena_bytes;       /* all addresses */
    uint64_t bytes;             /* physical memory; 0: what the device has */
    bool is_exportable;         /* see struct vm */
};

vmm_status vmm__vm_init(struct vm *vm, struct driver *driver, struct memory_limits limits);

/* Unmaps and releases every chunk, in any state: no work may be in flight. Tries twice what the
 * driver refuses, continues after an error, and returns the first error that remains. On a lost
 * device, releases what the driver still accepts. */
vmm_status vmm__vm_fini(struct vm *vm);

/* Records each mapping that is made or ends from now on, and first those that there are. NULL: no longer. */
void vmm__vm_record(struct vm *vm, struct recorder *recorder);

void vmm__account_add(struct vm *vm, struct account *account);

/* Sets what other accounts leave room for. */
void vmm__account_promise(struct vm *vm, struct account *account, uint64_t least_bytes);

/* Removes an account. Its chunks go to another one. */
void vmm__account_remove(struct vm *vm, struct account *account, struct account *heir);

/* Moves all chunks of `count` mapped granules to another account. */
void vmm__account_move(struct vm *vm, uint64_t granule, uint64_t count, struct account *to);

/* The most that all accounts may reserve: the limit, or what the device has. */
uint64_t vmm__vm_limit_bytes(const struct vm *vm);

/* How much is missing for an account to reserve `bytes` more: below its own limit; below the limit
 * of the memory, where other accounts have been promised a part. 0: it may. */
uint64_t vmm__account_short_bytes(const struct account *account, uint64_t bytes);
uint64_t vmm__vm_short_bytes(const struct vm *vm, const struct account *account, uint64_t bytes);

/* What the own limit of an account still allows; UINT64_MAX: it has none. */
uint64_t vmm__account_room_bytes(const struct account *account);

/*
 * Creates and maps chunks of at most chunk_granules at `count` granules that the caller took from
 * the arena, without access yet. On failure the granules return to the arena, those already
 * mapped by way of limbo: ERR_DEVICE_OOM (the device, or a limit), ERR_HOST_OOM, ERR_DRIVER.
 */
vmm_status vmm__vm_map(struct vm *vm, struct account *account, uint64_t granule, uint64_t count,
                       uint32_t chunk_granules);

/* A chunk that caches share: its size, and what stands for its memory. */
struct shared_chunk {
    uint64_t bytes;
    struct chunk_export *exported;
};

/* As vmm__vm_map(), for chunks of other caches, side by side from `granule` on. What stands for them stays the
 * caller's. ERR_UNSUPPORTED; ERR_DRIVER also if one stands for other memory. */
vmm_status vmm__vm_import(struct vm *vm, struct account *account, uint64_t granule,
                          const struct shared_chunk *chunks, uint32_t count);

/*
 * Maps a held chunk also at granules that the caller took: a further place, without access yet.
 * Until the caller has given it access, no mapping of the chunk may be unmapped: CUDA 13.0 could
 * then no longer map its handle.
 */
vmm_status vmm__place_map(struct vm *vm, struct chunk *chunk, uint64_t granule);

/* Unmaps a further place, whose last work has finished, and gives its granules back. On failure it
 * stays. */
vmm_status vmm__place_unmap(struct vm *vm, struct chunk *chunk, uint64_t granule);

/* Whether a granule lies in the home of a chunk, which is mapped there. */
static inline bool vmm__chunk_is_home(const struct chunk *chunk, uint64_t granule)
{
    return granule - chunk->first < chunk->granules;
}

/* A chunk that a relocation maps at `granule`, within the home of another chunk or one of its places. */
struct memory_part {
    struct chunk *chunk;
    uint64_t granule;
};

/*
 * Relocation: maps the parts, which are held and mapped elsewhere, at the addresses of a chunk. The first
 * `homes` of them lie in its home, in rising order; the next `places` map the same chunks in its places.
 * The caller copies the bytes, and no work may be in flight on any of them. Granules that no part covers
 * return to the arena; the chunk and the old mappings of the parts go to limbo. On failure everything is
 * where it was, or remap pending.
 */
vmm_status vmm__vm_swap(struct vm *vm, struct chunk *chunk, const struct memory_part *parts,
                        uint32_t homes, uint32_t places);

/*
 * A range: granules that stay taken whether memory is mapped there or not, for a reserved block.
 *
 * vmm__range_take() makes one of free granules. vmm__range_map() creates chunks of chunk_granules at
 * granules of a range that have none, with access; on failure it creates nothing. vmm__range_end()
 * ends a range, or a part of one: granules without a chunk return to the arena at once, the others
 * when their chunk is unmapped.
 */
void vmm__range_take(struct vm *vm, uint64_t granule, uint64_t count);
vmm_status vmm__range_map(struct vm *vm, struct account *account, uint64_t granule, uint64_t count,
                          uint32_t chunk_granules);
void vmm__range_end(struct vm *vm, uint64_t granule, uint64_t count);

/* Gives access to a chunk that a failed vmm__range_map() left in limbo. */
vmm_status vmm__range_access(struct vm *vm, struct chunk *chunk);

/*
 * Moves held chunks to other addresses without a copy: the parts, in rising order of their granules,
 * which lie in a range. Begin maps them there with access; they then have two mappings. Settle makes
 * the new ones their homes; the old ones go to limbo, until `epoch` of
 * `clock` has passed. Cancel, and a begin that fails, drops the new ones instead. Settle and cancel
 * cannot fail.
 */
vmm_status vmm__move_begin(struct vm *vm, const struct memory_part *parts, uint32_t count,
                           uint32_t *aliases);
void vmm__move_settle(struct vm *vm, const struct memory_part *parts, uint32_t count,
                      uint32_t aliases, struct clock *clock, uint64_t epoch);
void vmm__move_cancel(struct vm *vm, const struct memory_part *parts, uint32_t count,
                      uint32_t aliases);

/*
 * Sleep unmaps a held chunk, whose last work has finished, and releases its memory. It keeps its addresses. Wake
 * creates new memory and maps it there. On failure a chunk may be in between: nothing may use it until one of the two
 * has succeeded.
 */
vmm_status vmm__chunk_sleep(struct vm *vm, struct chunk *chunk);
vmm_status vmm__chunk_wake(struct vm *vm, struct chunk *chunk);

/* Tries to map the chunks that are remap pending. */
void vmm__vm_remap_pending(struct vm *vm);

/* Gives access to mapped granules. On failure they have none, and stay mapped. */
vmm_status vmm__vm_access(struct vm *vm, uint64_t granule, uint64_t count);

/* Gives further devices access to all that is mapped, and to what will be. A device that has access already costs
 * nothing. On failure the driver's set of peers stays as it was, though the new ones may have access to some memory. */
vmm_status vmm__vm_peers_add(struct vm *vm, uint64_t devices);

/* Puts all chunks of mapped granules into limbo, as vmm__limbo_put(). No block may use them. */
void vmm__vm_discard(struct vm *vm, uint64_t granule, uint64_t count, struct clock *clock,
                     uint64_t epoch);

/* The first granule of the mapping of a chunk, its home or a place, that contains a granule. */
uint64_t vmm__chunk_mapping(const struct vm *vm, const struct chunk *chunk, uint64_t granule);

/* The mapped chunk at a granule; NULL if there is none. */
static inline struct chunk *vmm__vm_chunk(const struct vm *vm, uint64_t granule)
{
    uint32_t id = vm->pages[granule];
    return id == 0 ? NULL : &vm->records[id];
}

static inline uint64_t vmm__chunk_bytes(const struct vm *vm, const struct chunk *chunk)
{
    return (uint64_t)chunk->granules << vm->arena.granule_shift;
}

static inline uint64_t vmm__chunk_address(const struct vm *vm, const struct chunk *chunk)
{
    return vmm__arena_address(&vm->arena, chunk->first);
}

/*
 * Puts a mapped chunk that no block uses into limbo: a drain releases it once `epoch` of
 * `clock` has passed (at once if clock is NULL). Cannot fail.
 */
void vmm__limbo_put(struct vm *vm, struct chunk *chunk, struct clock *clock, uint64_t epoch);

/* Takes a mapped chunk out of limbo again. */
void vmm__limbo_cancel(struct vm *vm, struct chunk *chunk);

/* The memory of an account in limbo that the driver refused to map, or to release once it was unmapped. */
uint64_t vmm__limbo_unmapped_bytes(const struct vm *vm, const struct account *account);

/*
 * Releases every chunk in limbo whose epoch has passed; never waits. Adds the released bytes to
 * *released, which may be NULL. A chunk that the driver refuses to release stays in limbo; the
 * drain tries the others and then returns the first such error. On a lost device limbo stays
 * until the end of the cache: ERR_LOST.
 */
vmm_status vmm__limbo_drain(struct vm *vm, uint64_t *released);

/* Drains limbo for a call whose result does not depend on that: a later drain tries again what fails, and the error
 * line stays as it is. */
void vmm__limbo_drain_quietly(struct vm *vm);

/* Unmaps and releases a chunk that is in no list. After a failure another call continues. Only
 * for limbo and vmm__vm_fini(). */
vmm_status vmm__chunk_close(struct vm *vm, struct chunk *chunk);

/* Makes the host wait for the oldest chunk in limbo, of an account or with NULL of all, whose work has not finished and
 * whose clock no capture stops, then drains. What the driver refuses to release is no failure. VMM__NOTHING if there
 * was nothing to wait for, and the drain released nothing. */
vmm_status vmm__limbo_wait(struct vm *vm, const struct account *account, uint64_t *released);

/*
 * Makes memory of a source a chunk of an account, at granules that the caller took from the arena.
 * ERR_INVALID_ARGUMENT: the address is no multiple of 512, or the memory overlaps that of another segment or the arena;
 * ERR_HOST_OOM. On failure the granules return to the arena, and the memory stays the caller's.
 */
vmm_status vmm__sourced_open(struct vm *vm, struct account *account, uint64_t granule,
                             const struct sourced_segment *memory);

/* Takes a segment out of limbo whose work has finished, and closes it. The caller gives it back to its source and frees
 * it. NULL: there is none. */
struct sourced_segment *vmm__limbo_take_segment(struct vm *vm);

/* Takes out a segment that is closed, as all are after vmm__vm_fini(). NULL: there is none. */
struct sourced_segment *vmm__sourced_take_closed(struct sourced_segments *segments);
void vmm__sourced_free(struct sourced_segment *segment);

/* begin: a function of an account's source is about to run without locks; the caller holds the grow lock. end: it has
 * run. For a segment that leaves limbo, vmm__limbo_take_segment() calls begin. */
void vmm__sourced_call_begin(struct account *account);
void vmm__sourced_call_end(struct vm *vm, struct account *account);

/* Whether functions of an account's source are running; while the caller holds the grow lock, none begins. calls_wait
 * waits until all have ended; its caller holds no lock. */
bool vmm__sourced_is_called(const struct account *account);
void vmm__sourced_calls_wait(struct vm *vm, const struct account *account);

/* The inner address of an address of the program; the same one if no segment has it. Needs no lock. */
uint64_t vmm__sourced_inner(struct vm *vm, uint64_t address);

/* The address of a block, or of a range of memory, as the program knows it. The caller holds the grow lock, or the
 * memory is that of a segment and in use. */
uint64_t vmm__sourced_outer(const struct vm *vm, uint64_t address);

vmm_status vmm__vm_check(const struct vm *vm);

/* ERR_DEVICE_OOM if a limit refuses `bytes` more to an account. */
vmm_status vmm__account_check(const struct vm *vm, const struct account *account, uint64_t bytes);

/* ---- For the files of this module --------------------------------------------------------- */

static inline uint32_t vmm__chunk_id(const struct vm *vm, const struct chunk *chunk)
{
    return (uint32_t)(chunk - vm->records);
}

/* The first granule of a mapping of a chunk, by the mapping's number: 0 is the newest place, and `places` of the chunk
 * is its home. */
uint64_t vmm__mapping_at(const struct vm *vm, const struct chunk *chunk, uint32_t number);

/* Map a chunk's handle at a granule, without access, and unmap it there. The caller keeps the records. */
static inline vmm_status vmm__mapping_map(const struct vm *vm, const struct chunk *chunk,
                                          uint64_t granule)
{
    return vmm__driver_map(vm->driver, vmm__arena_address(&vm->arena, granule),
                           vmm__chunk_bytes(vm, chunk), chunk->handle);
}

static inline vmm_status vmm__mapping_unmap(const struct vm *vm, const struct chunk *chunk,
                                            uint64_t granule)
{
    return vmm__driver_unmap(vm->driver, vmm__arena_address(&vm->arena, granule),
                             vmm__chunk_bytes(vm, chunk));
}

/* Link a chunk into the list of its account's chunks, and unlink it. */
void vmm__account_enter(struct vm *vm, struct chunk *chunk, struct account *account);
void vmm__account_leave(struct vm *vm, const struct chunk *chunk);

/* Add a chunk's bytes to what its account and the memory have reserved, and take them off. */
void vmm__account_book(struct vm *vm, const struct chunk *chunk);
void vmm__account_unbook(struct vm *vm, const struct chunk *chunk);

struct chunk *vmm__chunk_take(struct vm *vm); /* an unused record; NULL if there is none */
void vmm__chunk_drop(struct vm *vm, struct chunk *chunk);

/* Creates chunks for `count` granules and maps them, without access yet. On failure the first *done granules have
 * chunks; a handle that could not be mapped goes to limbo, and the caller keeps all other addresses. */
vmm_status vmm__chunks_open(struct vm *vm, struct account *account, uint64_t granule,
                            uint64_t count, uint32_t chunk_granules, uint64_t *done);

/* Take `count` records for aliases, all or none, linked by next; and drop them. */
vmm_status vmm__aliases_take(struct vm *vm, uint32_t count, uint32_t *first);
void vmm__aliases_drop(struct vm *vm, uint32_t id);

/* Makes a record the alias of a chunk that is mapped at a granule. The caller puts it into limbo. */
struct chunk *vmm__alias_make(struct vm *vm, uint32_t id, const struct chunk *chunk,
                              uint64_t granule);

/* Records a mapping of a chunk that was made (HOME, PLACE) or ends (GONE). */
void vmm__mapping_record(const struct vm *vm, const struct chunk *chunk, uint64_t granule,
                         enum trace_kind kind);

/* Set the page map to `id` for a mapping of a chunk, and for its home; 0: none. Both record the change. */
void vmm__chunk_page_at(struct vm *vm, const struct chunk *chunk, uint64_t granule, uint32_t id);
void vmm__chunk_page_home(struct vm *vm, const struct chunk *chunk, uint32_t id);

/* Makes a granule the newest of a chunk's places. */
void vmm__place_link(struct vm *vm, struct chunk *chunk, uint64_t granule);

void vmm__sourced_init(struct sourced_segments *segments);
/* Frees the array. All segments are closed. */
void vmm__sourced_fini(struct sourced_segments *segments);
/* Closes the segment of a chunk that is about to be dropped. */
void vmm__sourced_close(struct vm *vm, struct sourced_segment *segment);
vmm_status vmm__sourced_check(const struct vm *vm);

#endif
