/*
 * A place: what an address of a pool names, a block or an object of a slab, whichever it is.
 *
 * Owns: nothing. May be called by: pool, report. Locks: the pool's lock.
 */
#ifndef VMM_HEAP_PLACE_H
#define VMM_HEAP_PLACE_H

#include "heap/slab.h"

struct place {
    struct block *block;
    struct slab *slab; /* NULL for a block */
    uint32_t object;
};

/* The place at an address of the heap if it is handed out, live or waiting. */
bool vmm__place_find(const struct heap *heap, uint64_t address, struct place *place);

/* The same, of those that do not wait: live, or kept by the magazine that knows the place. */
bool vmm__place_find_live(const struct heap *heap, uint64_t address, struct place *place);

/* The place that an address of the heap lies in, whatever its state; false in the bytes at the end of a
 * slab that are too few for an object. */
bool vmm__place_around(const struct heap *heap, uint64_t address, struct place *place);

/* Whether a place is handed out and does not wait. */
bool vmm__place_is_live(const struct place *place);

/*
 * ERR_UNKNOWN_POINTER, with what there is at an address of the heap that is not the start of a live place.
 */
vmm_status vmm__place_unknown(const char *function, const struct heap *heap, uint64_t address);

uint64_t vmm__place_address(const struct place *place);
uint64_t vmm__place_bytes(const struct place *place);
uint64_t vmm__place_requested_bytes(const struct place *place);
void vmm__place_set_requested(struct place *place, uint64_t bytes);

/* A live place is kept where it is, or no longer. */
void vmm__place_set_pinned(struct heap *heap, struct place *place, bool is_pinned);

/* The magazine that knows the place; 0: none. */
uint8_t vmm__place_knower(const struct place *place);
void vmm__place_set_knower(struct place *place, uint8_t number);

/* A live place that is not pinned waits from now on. */
void vmm__place_wait(struct place *place);

#endif
