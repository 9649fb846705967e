/*
 * Slabs: blocks of a small heap that are divided into up to 64 objects of one size, so that a
 * tiny allocation costs one bit and stays apart from larger ones.
 *
 * Size classes rise in steps of 512 bytes up to 4 KiB, and of 1 KiB up to 8 KiB. A slab takes at
 * most 64 KiB. In lanes that were made for other pools than the default one, its start follows from the address of any
 * of its objects: vmm_pool_place() finds it again after all of them were freed.
 *
 * Owns: slab records. Invariants:
 *  1. bit i of free_bits is 1 exactly if object i is neither live nor waiting;
 *  2. free_bits and waiting_bits share no bit, and noted_bits, listed_bits and the pins of the program share none with
 *     either; pinned_bits is the union of pins, and shares none with free_bits;
 *  3. a slab is in the list of its class exactly if it has a free object;
 *  4. all slots of a slab in the directory name its block;
 *  5. in a pooled lane, a slab starts at a multiple of its bytes, rounded up to a power of two.
 * May be called by: lane, cache, api. Locks: the lane's lock.
 */
#ifndef VMM_LANE_SLAB_H
#define VMM_LANE_SLAB_H

#include "lane/heap.h"

enum {
    SLAB_STEP_BYTES = 512,
    SLAB_LARGEST_BYTES = 8192, /* larger requests are blocks of their own */
    SLAB_CLASSES = 12,
    SLAB_FINE_CLASSES = 8, /* classes in steps of 512 bytes; the others use 1024 */
    SLAB_OBJECTS = 64,
    SLAB_PINS = 2
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
    uint64_t pinned_bits;     /* objects that must not move, for any reason */
    uint64_t pins[SLAB_PINS]; /* by the bit of the reason: see enum pin */
    uint64_t noted_bits;      /* live objects with a note: see notes.h */
    uint64_t listed_bits;     /* live objects that any thread may free: see lane/magazine.h */
    uint32_t object_bytes;
    uint32_t reciprocal; /* of object_bytes, in 2^-32, rounded up: see vmm__slab_object() */
    uint32_t class_index;
    uint32_t objects;
    uint16_t requested[SLAB_OBJECTS]; /* bytes, of live objects */
};

struct slabs {
    struct heap *heap;                  /* where the blocks of slabs come from */
    struct slab *partial[SLAB_CLASSES]; /* slabs with a free object */
    struct slab *all;                   /* linked by all_prev, all_next */
};

/* Bytes of an object of a class, and of the block that a slab of the class takes. */
uint32_t vmm__slab_object_bytes(uint32_t class_index);
uint64_t vmm__slab_run_bytes(uint32_t class_index);

/* The class for a request of 0 to SLAB_LARGEST_BYTES bytes. */
static inline uint32_t vmm__slab_class(uint64_t bytes)
{
    uint32_t steps = (uint32_t)((bytes + SLAB_STEP_BYTES - 1) / SLAB_STEP_BYTES);
    steps += steps == 0;
    return steps <= SLAB_FINE_CLASSES ? steps - 1 : (steps + 1) / 2 + 3;
}

/* Bytes of a free block that has room for a slab of the class, whatever its address is. */
uint64_t vmm__slab_need_bytes(const struct slabs *slabs, uint32_t class_index);

/* Opens a slab of a class that has no free object. VMM__NO_FIT if the search finds no free block with room for it;
 * ERR_HOST_OOM. */
vmm_status vmm__slab_open(struct slabs *slabs, uint32_t class_index, enum search_depth search);

/* The same, with as many objects as the largest free block has room for. Not for pooled lanes: see invariant 5. */
vmm_status vmm__slab_open_short(struct slabs *slabs, uint32_t class_index);

/* A slab with a free object of the next larger class that has any; NULL: none has. */
struct slab *vmm__slab_larger(const struct slabs *slabs, uint32_t class_index);

/* Opens the slab of a class that has an object at an address of the heap. VMM__NOT_FOUND if no object of the class
 * starts there; VMM__NO_FIT if the slab's bytes are not free; ERR_HOST_OOM. */
vmm_status vmm__slab_open_at(struct slabs *slabs, uint32_t class_index, uint64_t address,
                             struct slab **out);

/* Takes a given object, which is free. */
void vmm__slab_take_object(struct slabs *slabs, struct slab *slab, uint32_t object,
                           uint64_t requested_bytes);

/* For this module: add to and remove from the list of a class; free an empty slab. */
void vmm__slab_partial_enter(struct slabs *slabs, struct slab *slab);
void vmm__slab_partial_leave(struct slabs *slabs, struct slab *slab);
void vmm__slab_close(struct slabs *slabs, struct slab *slab);

/* Takes a free object of a slab that has one. */
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

/* Frees an object. An empty slab is returned to the heap unless it is the only one of its class
 * with a free object. */
static inline void vmm__slab_give(struct slabs *slabs, struct slab *slab, uint32_t object)
{
    uint64_t bit = UINT64_C(1) << object;
    if (slab->free_bits == 0)
        vmm__slab_partial_enter(slabs, slab);
    slab->free_bits |= bit;
    slab->waiting_bits &= ~bit;
    if (slab->free_bits == slab->all_bits && (slab->prev != NULL || slab->next != NULL))
        vmm__slab_close(slabs, slab);
}

/* Frees the records of all slabs, without touching the heap. For vmm__lane_close(). */
void vmm__slabs_fini(struct slabs *slabs);

/* The bytes of all slabs that no live or waiting object has. */
uint64_t vmm__slabs_free_bytes(const struct slabs *slabs);

/* Returns every empty slab to the heap; false if there was none. */
bool vmm__slabs_purge(struct slabs *slabs);

/* Returns every empty slab that is the only one of its class with a free object: those that
 * vmm__slab_give() leaves. Checks one slab for each class. */
void vmm__slabs_purge_lone(struct slabs *slabs);

/* The object that starts at an address of the slab; SLAB_OBJECTS if none does. */
static inline uint32_t vmm__slab_object(const struct slab *slab, uint64_t address)
{
    /* Exact for offsets below 2^16 and objects of at least 512 bytes. */
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
