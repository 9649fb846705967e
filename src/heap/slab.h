/*
 * Slabs: runs of a small heap that are divided into up to 64 objects of one size, so that tiny
 * allocations cost one bit each and live away from everything larger.
 *
 * Classes go up in steps of 512 bytes to 4 KiB and of 1 KiB to 8 KiB. A slab takes at most 64 KiB.
 *
 * Owns: slab records. Invariants:
 *  1. bit i of free_bits is 1 exactly if object i is neither live nor waiting;
 *  2. waiting_bits and free_bits share no bit, nor pinned_bits and either;
 *  3. a slab is in its class's list exactly if it has a free object;
 *  4. the slots of a slab in the directory all name its block.
 * May be called by: pool, report. Locks: the pool's lock.
 */
#ifndef VMM_HEAP_SLAB_H
#define VMM_HEAP_SLAB_H

#include "heap/heap.h"

enum {
    SLAB_STEP_BYTES = 512,
    SLAB_LARGEST_BYTES = 8192, /* larger requests are blocks of their own */
    SLAB_CLASSES = 12,
    SLAB_OBJECTS = 64
};

struct slab {
    struct slab *prev; /* in the list of its class */
    struct slab *next;
    struct slab *all_prev; /* in the list of all */
    struct slab *all_next;
    struct block *block;
    uint64_t address; /* the block's */
    uint64_t all_bits;
    uint64_t free_bits;
    uint64_t waiting_bits;
    uint64_t pinned_bits; /* live objects that are not to be moved */
    uint32_t object_bytes;
    uint32_t reciprocal; /* of object_bytes, in 2^-32, rounded up: see vmm__slab_find() */
    uint32_t class_index;
    uint32_t objects;
    uint16_t requested[SLAB_OBJECTS]; /* bytes, of live objects */
};

struct slabs {
    struct heap *heap;                  /* where runs come from */
    struct slab *partial[SLAB_CLASSES]; /* slabs with a free object */
    struct slab *all;                   /* linked by all_prev, all_next */
};

/* Bytes of a class's objects, and of the run that a slab of them takes. */
uint32_t vmm__slab_object_bytes(uint32_t class_index);
uint64_t vmm__slab_run_bytes(uint32_t class_index);

/* The class for 1 .. SLAB_LARGEST_BYTES. */
uint32_t vmm__slab_class(uint64_t bytes);

/* Takes an object. VMM_NOT_READY if a new slab is needed and its run does not fit anywhere. */
vmm_status vmm__slab_take(struct slabs *slabs, uint64_t requested_bytes, struct slab **slab,
                          uint32_t *object);

/* Takes an object back. A slab that becomes empty goes back to the heap unless it is the last of
 * its class with a free object. */
void vmm__slab_give(struct slabs *slabs, struct slab *slab, uint32_t object, uint64_t epoch);

/* Frees the records of all slabs: at the end of the pool. */
void vmm__slabs_fini(struct slabs *slabs);

/* Gives every empty slab back to the heap; false if there was none. */
bool vmm__slabs_purge(struct slabs *slabs, uint64_t epoch);

/* The live or waiting object that starts at an address of the slab; false if none does. */
bool vmm__slab_find(const struct slab *slab, uint64_t address, uint32_t *object);

static inline uint64_t vmm__slab_address(const struct slab *slab, uint32_t object)
{
    return slab->address + (uint64_t)object * slab->object_bytes;
}

#endif
