/*
 * A block reference names one allocation of a lane, whether it is a block or an object of a slab.
 *
 * Owns: nothing. May be called by: lane, cache, debug, api. Locks: the caller holds the lane's lock.
 */
#ifndef VMM_LANE_BLOCK_REF_H
#define VMM_LANE_BLOCK_REF_H

#include "lane/slab.h"

struct block_ref {
    struct block *block;
    struct slab *slab; /* NULL for a block */
    uint32_t object;
};

/* Finds the block or object that starts at an address of the heap. False if it is free. */
bool vmm__block_ref_find(const struct heap *heap, uint64_t address, struct block_ref *ref);

/* Like vmm__block_ref_find(), but false for a waiting one. One that a magazine keeps counts as
 * live. */
bool vmm__block_ref_find_live(const struct heap *heap, uint64_t address, struct block_ref *ref);

/* Finds the block or object that contains an address of the heap, in any state. False for the
 * bytes at the end of a slab that are too few for an object. */
bool vmm__block_ref_around(const struct heap *heap, uint64_t address, struct block_ref *ref);

/* Whether it is allocated and not waiting. */
bool vmm__block_ref_is_live(const struct block_ref *ref);

/*
 * Returns ERR_UNKNOWN_POINTER with a message that says what lies at an address of the heap that
 * is not the start of a live block or object.
 */
vmm_status vmm__block_ref_unknown(const char *function, const struct heap *heap, uint64_t address);

/* Like vmm__block_ref_unknown(), for an address that lies in no live block or object; heap NULL: no heap owns it. */
vmm_status vmm__block_ref_none(const char *function, const struct heap *heap, uint64_t address);

uint64_t vmm__block_ref_address(const struct block_ref *ref);
uint64_t vmm__block_ref_bytes(const struct block_ref *ref);
uint64_t vmm__block_ref_requested_bytes(const struct block_ref *ref);

/* Pins or unpins a live block or object. */
void vmm__block_ref_set_pinned(struct heap *heap, struct block_ref *ref, bool is_pinned);

/* Mark a block or object as exported, which also keeps it in place: see vmm__lane_export_locked(). */
void vmm__block_ref_set_exported(struct heap *heap, struct block_ref *ref, bool is_exported);
bool vmm__block_ref_is_exported(const struct block_ref *ref);

/* Whether it must stay in place, for either reason. */
bool vmm__block_ref_is_pinned(const struct block_ref *ref);

/* Whether it has a note: see notes.h. */
bool vmm__block_ref_is_noted(const struct block_ref *ref);
void vmm__block_ref_set_noted(struct block_ref *ref, bool is_noted);

/* Whether any thread may free it: see lane/magazine.h. */
bool vmm__block_ref_is_listed(const struct block_ref *ref);
void vmm__block_ref_set_listed(struct block_ref *ref, bool is_listed);

/* Makes a live block or object, which the program does not pin, a waiting one. */
void vmm__block_ref_wait(struct block_ref *ref);

#endif
