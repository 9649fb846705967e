/*
 * Segments: memory that a source of the program has given to a pool (vmm_segment_source), at addresses of its own. A
 * segment is a chunk, whose granules of the arena have no memory: they stand for it. All of vm, lane and cache work with
 * the addresses of these granules, the inner addresses of the memory; the program knows the outer ones. The two are
 * exchanged where blocks are handed out, looked up and reported.
 *
 * Owns: the records of all segments. Invariants:
 *  1. `sorted` has every open segment, by outer address; no two overlap, and none lies in the arena;
 *  2. an open segment has one chunk, with as many bytes; chunk->segment is the segment, and the chunk has one mapping;
 *  3. a closed segment has no chunk: nothing uses its memory, and its source has not got it back yet.
 * Part of struct vm. Locks: the grow lock guards all of it; `lock`, a leaf, also guards `sorted`, so that a look-up needs
 * it only.
 */
#ifndef VMM_VM_SOURCED_H
#define VMM_VM_SOURCED_H

#include "base/mutex.h"
#include "vmmcache/vmmcache.h"

#include <stdatomic.h>

struct account;
struct vm;

struct sourced_segment {
    struct sourced_segment *next; /* closed */
    uint64_t inner;               /* addresses */
    uint64_t outer;
    uint64_t bytes;
    vmm_segment_source source;
};

struct sourced_segments {
    struct mutex lock;
    _Atomic uint64_t count;
    uint64_t capacity; /* of `sorted` */
    struct sourced_segment **sorted;
    _Atomic(struct sourced_segment *) closed; /* list */
};

void vmm__sourced_init(struct sourced_segments *segments);

/* Frees the array. All segments are closed. */
void vmm__sourced_fini(struct sourced_segments *segments);

/*
 * Makes memory of a source a chunk of an account, at granules that the caller took from the arena. ERR_INVALID_ARGUMENT: the
 * address is no multiple of 512, or the memory overlaps that of another segment or the arena; ERR_HOST_OOM. On failure the
 * granules return to the arena, and the memory stays the caller's.
 */
vmm_status vmm__sourced_open(struct vm *vm, struct account *account, uint64_t granule,
                             const struct sourced_segment *memory);

/* Closes the segment of a chunk that is about to be dropped. */
void vmm__sourced_close(struct vm *vm, struct sourced_segment *segment);

/* Takes a closed segment, which the caller gives back to its source and frees; NULL: there is none. */
struct sourced_segment *vmm__sourced_take_closed(struct sourced_segments *segments);
void vmm__sourced_free(struct sourced_segment *segment);

/* The inner address of an address of the program; the same one if no segment has it. Needs no lock. */
uint64_t vmm__sourced_inner(struct vm *vm, uint64_t address);

/* The address of a block, or of a range of memory, as the program knows it. The caller holds the grow lock, or the memory
 * is that of a segment and in use. */
uint64_t vmm__sourced_outer(const struct vm *vm, uint64_t address);

vmm_status vmm__sourced_check(const struct vm *vm);

#endif
