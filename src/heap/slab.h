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
    SLAB_FINE_CLASSES = 8, /* steps of 512 bytes; above, of 1024 */
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
    uint64_t known_bits;  /* objects with a knower */
    uint32_t object_bytes;
    uint32_t reciprocal; /* of object_bytes, in 2^-32, rounded up: see vmm__slab_object() */
    uint32_t class_index;
    uint32_t objects;
    uint16_t requested[SLAB_OBJECTS]; /* bytes, of live objects that no magazine knows */
    uint8_t knowers[SLAB_OBJECTS];    /* see block */
};

struct slabs {
    struct heap *heap;                  /* where runs come from */
    struct slab *partial[SLAB_CLASSES]; /* slabs with a free object */
    struct slab *all;                   /* linked by all_prev, all_next */
};

/* Bytes of a class's objects, and of the run that a slab of them takes. */
uint32_t vmm__slab_object_bytes(uint32_t class_index);
uint64_t vmm__slab_run_bytes(uint32_t class_index);

/* The class for 0 .. SLAB_LARGEST_BYTES. */
static inline uint32_t vmm__slab_class(uint64_t bytes)
{
    uint32_t steps = (uint32_t)((bytes + SLAB_STEP_BYTES - 1) / SLAB_STEP_BYTES);
    steps += steps == 0;
    return steps <= SLAB_FINE_CLASSES ? steps - 1 : (steps + 1) / 2 + 3;
}

/* Opens a slab of a class that has none with a free object. VMM_NOT_READY if its run does not fit
 * anywhere; ERR_HOST_OOM. */
vmm_status vmm__slab_open(struct slabs *slabs, uint32_t class_index);

/* For this module: in and out of the list of a class; an empty slab's end. */
void vmm__slab_partial_enter(struct slabs *slabs, struct slab *slab);
void vmm__slab_partial_leave(struct slabs *slabs, struct slab *slab);
void vmm__slab_close(struct slabs *slabs, struct slab *slab, uint64_t epoch);

/* Takes an object of a slab that has a free one. */
static inline uint32_t vmm__slab_take(struct slabs *slabs, struct slab *slab,
                                      uint64_t requested_bytes)
{
    uint32_t object = (uint32_t)__builtin_ctzll(slab->free_bits);
    slab->free_bits &= slab->free_bits - 1;
    if (slab->free_bits == 0)
        vmm__slab_partial_leave(slabs, slab);
    slab->requested[object] = (uint16_t)requested_bytes;
    return object;
}

/* Takes an object back. A slab that becomes empty goes back to the heap unless it is the last of
 * its class with a free object. */
static inline void vmm__slab_give(struct slabs *slabs, struct slab *slab, uint32_t object,
                                  uint64_t epoch)
{
    uint64_t bit = UINT64_C(1) << object;
    if (slab->free_bits == 0)
        vmm__slab_partial_enter(slabs, slab);
    slab->free_bits |= bit;
    slab->waiting_bits &= ~bit;
    if (slab->free_bits == slab->all_bits && (slab->prev != NULL || slab->next != NULL))
        vmm__slab_close(slabs, slab, epoch);
}

/* Frees the records of all slabs: at the end of the pool. */
void vmm__slabs_fini(struct slabs *slabs);

/* Gives every empty slab back to the heap; false if there was none. */
bool vmm__slabs_purge(struct slabs *slabs, uint64_t epoch);

/* The object that starts at an address of the slab; SLAB_OBJECTS if none does. */
static inline uint32_t vmm__slab_object(const struct slab *slab, uint64_t address)
{
    /* Exact for offsets of less than 2^16 and objects of at least 512 bytes. */
    uint64_t offset = address - slab->address;
    uint64_t object = offset * slab->reciprocal >> 32;
    bool is_start = object * slab->object_bytes == offset && object < slab->objects;
    return is_start ? (uint32_t)object : SLAB_OBJECTS;
}

static inline uint64_t vmm__slab_address(const struct slab *slab, uint32_t object)
{
    return slab->address + (uint64_t)object * slab->object_bytes;
}

#endif
