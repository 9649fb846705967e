/* References to blocks and slab objects: see block_ref.h. */
#include "lane/block_ref.h"
#include "base/error.h"
#include "lane/views.h"

static uint64_t object_bit(const struct block_ref *ref)
{
    return UINT64_C(1) << ref->object;
}

static void object_set(const struct block_ref *ref, uint64_t *bits, bool is_set)
{
    *bits = is_set ? *bits | object_bit(ref) : *bits & ~object_bit(ref);
}

static bool block_is_live(const struct block *block)
{
    return block->state == BLOCK_LIVE || block->state == BLOCK_RESERVED;
}

bool vmm__block_ref_find(const struct heap *heap, uint64_t address, struct block_ref *ref)
{
    struct block *block = vmm__heap_find(heap, address);
    if (block == NULL)
        return false;
    *ref = (struct block_ref){ .block = block };
    if (block->state != BLOCK_SLAB)
        return block_is_live(block) || block->state == BLOCK_WAITING;
    ref->slab = block->slab;
    ref->object = vmm__slab_object(block->slab, address);
    return ref->object < SLAB_OBJECTS && (ref->slab->free_bits & object_bit(ref)) == 0;
}

static bool ref_is_waiting(const struct block_ref *ref)
{
    if (ref->slab == NULL)
        return ref->block->state == BLOCK_WAITING;
    return (ref->slab->waiting_bits & object_bit(ref)) != 0;
}

bool vmm__block_ref_find_live(const struct heap *heap, uint64_t address, struct block_ref *ref)
{
    return vmm__block_ref_find(heap, address, ref) && !ref_is_waiting(ref);
}

/* The block that contains an address; NULL if the address lies in a view, and is free there. Does not look for a chunk
 * at a reserved block: it is in no view, and its chunks come and go without the lane's lock. */
static struct block *block_around(const struct heap *heap, uint64_t address)
{
    const struct views *views = heap->directory->views;
    if (views != NULL && !heap->is_reserved && vmm__views_contain(views, address))
        return vmm__views_cover(views, address);
    return vmm__heap_cover(heap, address);
}

bool vmm__block_ref_around(const struct heap *heap, uint64_t address, struct block_ref *ref)
{
    struct block *block = vmm__heap_find(heap, address); /* fast when the address starts a block */
    if (block == NULL)
        block = block_around(heap, address);
    if (block == NULL)
        return false;
    *ref = (struct block_ref){ .block = block };
    if (block->state != BLOCK_SLAB)
        return true;
    ref->slab = block->slab;
    ref->object = (uint32_t)((address - block->slab->address) / block->slab->object_bytes);
    return ref->object < block->slab->objects;
}

bool vmm__block_ref_is_live(const struct block_ref *ref)
{
    if (ref->slab == NULL)
        return block_is_live(ref->block);
    return ((ref->slab->free_bits | ref->slab->waiting_bits) & object_bit(ref)) == 0;
}

/* The block in a view that occupies an address; NULL: none does. */
static struct block *block_occupying(const struct heap *heap, uint64_t address)
{
    const struct block *block = block_around(heap, address);
    return block != NULL && block->state == BLOCK_OCCUPIED ? block->user : NULL;
}

/* The error for an address whose memory a block in a view occupies. */
static vmm_status occupied_refuse(const char *function, uint64_t address, const char *what,
                                  const struct block *user)
{
    return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                      "%s: 0x%llx is %s: its memory is in use by the block at 0x%llx, which has "
                      "%llu bytes",
                      function, (unsigned long long)address, what,
                      (unsigned long long)user->address, (unsigned long long)user->node.size);
}

vmm_status vmm__block_ref_none(const char *function, const struct heap *heap, uint64_t address)
{
    const struct block *user = heap == NULL ? NULL : block_occupying(heap, address);
    if (user != NULL)
        return occupied_refuse(function, address, "in no live block", user);
    uint64_t outer = heap == NULL ? address : vmm__views_outer(heap, address);
    return vmm__error(VMM_ERR_UNKNOWN_POINTER, "%s: 0x%llx is in no live block", function,
                      (unsigned long long)outer);
}

vmm_status vmm__block_ref_unknown(const char *function, const struct heap *heap, uint64_t address)
{
    struct block_ref ref = { .block = NULL };
    const struct block *user = block_occupying(heap, address);
    if (user != NULL)
        return occupied_refuse(function, address, "not the start of a live block", user);
    bool is_live = vmm__block_ref_around(heap, address, &ref) && vmm__block_ref_is_live(&ref);
    uint64_t offset = is_live ? address - vmm__block_ref_address(&ref) : 0;
    uint64_t outer = vmm__views_outer(heap, address);
    if (offset == 0)
        return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                          "%s: 0x%llx is not the start of a live block: it was freed before, or "
                          "never allocated",
                          function, (unsigned long long)outer);
    return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                      "%s: 0x%llx is not the start of a live block: it is byte %llu of the block "
                      "at 0x%llx, which has %llu bytes",
                      function, (unsigned long long)outer, (unsigned long long)offset,
                      (unsigned long long)(outer - offset),
                      (unsigned long long)vmm__block_ref_bytes(&ref));
}

uint64_t vmm__block_ref_address(const struct block_ref *ref)
{
    return ref->slab == NULL ? ref->block->address : vmm__slab_address(ref->slab, ref->object);
}

uint64_t vmm__block_ref_bytes(const struct block_ref *ref)
{
    return ref->slab == NULL ? ref->block->node.size : ref->slab->object_bytes;
}

uint64_t vmm__block_ref_requested_bytes(const struct block_ref *ref)
{
    return ref->slab == NULL ? ref->block->requested_bytes : ref->slab->requested[ref->object];
}

bool vmm__block_ref_is_listed(const struct block_ref *ref)
{
    if (ref->slab == NULL)
        return ref->block->is_listed;
    return (ref->slab->listed_bits & object_bit(ref)) != 0;
}

void vmm__block_ref_set_listed(struct block_ref *ref, bool is_listed)
{
    if (ref->slab == NULL)
        ref->block->is_listed = is_listed;
    else
        object_set(ref, &ref->slab->listed_bits, is_listed);
}

bool vmm__block_ref_is_pinned(const struct block_ref *ref)
{
    if (ref->slab == NULL)
        return ref->block->pins != 0;
    return (ref->slab->pinned_bits & object_bit(ref)) != 0;
}

/* Counts bytes that must not move from now on, or may move again. */
static void unmovable_count(struct heap *heap, const struct block_ref *ref, bool was_pinned,
                            bool is_pinned)
{
    uint64_t bytes = vmm__block_ref_bytes(ref);
    if (was_pinned != is_pinned && !heap->is_reserved)
        atomic_fetch_add_explicit(&heap->unmovable_bytes, is_pinned ? bytes : -bytes,
                                  memory_order_relaxed);
}

static void block_set_pin(struct block *block, enum pin pin, bool is_set)
{
    block->pins = (uint8_t)(is_set ? block->pins | pin : block->pins & ~pin);
}

static void object_set_pin(const struct block_ref *ref, enum pin pin, bool is_set)
{
    struct slab *slab = ref->slab;
    object_set(ref, &slab->pins[pin - PIN_PROGRAM], is_set);
    slab->pinned_bits = slab->pins[0] | slab->pins[1];
}

static void ref_set_pin(struct heap *heap, struct block_ref *ref, enum pin pin, bool is_set)
{
    bool was_pinned = vmm__block_ref_is_pinned(ref);
    if (ref->slab == NULL)
        block_set_pin(ref->block, pin, is_set);
    else
        object_set_pin(ref, pin, is_set);
    unmovable_count(heap, ref, was_pinned, vmm__block_ref_is_pinned(ref));
}

void vmm__block_ref_set_pinned(struct heap *heap, struct block_ref *ref, bool is_pinned)
{
    ref_set_pin(heap, ref, PIN_PROGRAM, is_pinned);
}

void vmm__block_ref_set_exported(struct heap *heap, struct block_ref *ref, bool is_exported)
{
    ref_set_pin(heap, ref, PIN_EXPORT, is_exported);
}

bool vmm__block_ref_is_exported(const struct block_ref *ref)
{
    if (ref->slab == NULL)
        return (ref->block->pins & PIN_EXPORT) != 0;
    return (ref->slab->pins[PIN_EXPORT - PIN_PROGRAM] & object_bit(ref)) != 0;
}

bool vmm__block_ref_is_noted(const struct block_ref *ref)
{
    if (ref->slab == NULL)
        return ref->block->is_noted;
    return (ref->slab->noted_bits & object_bit(ref)) != 0;
}

void vmm__block_ref_set_noted(struct block_ref *ref, bool is_noted)
{
    if (ref->slab == NULL)
        ref->block->is_noted = is_noted;
    else
        object_set(ref, &ref->slab->noted_bits, is_noted);
}

void vmm__block_ref_wait(struct block_ref *ref)
{
    if (ref->slab == NULL)
        ref->block->state = BLOCK_WAITING;
    else
        ref->slab->waiting_bits |= object_bit(ref);
}
