/* Blocks and objects of slabs alike: see place.h. */
#include "heap/place.h"
#include "base/error.h"

static uint64_t object_bit(const struct place *place)
{
    return UINT64_C(1) << place->object;
}

bool vmm__place_find(const struct heap *heap, uint64_t address, struct place *place)
{
    struct block *block = vmm__heap_find(heap, address);
    if (block == NULL)
        return false;
    *place = (struct place){ .block = block };
    if (block->state != BLOCK_SLAB)
        return block->state == BLOCK_LIVE || block->state == BLOCK_WAITING;
    place->slab = block->slab;
    place->object = vmm__slab_object(block->slab, address);
    return place->object < SLAB_OBJECTS && (place->slab->free_bits & object_bit(place)) == 0;
}

static bool place_is_waiting(const struct place *place)
{
    if (place->slab == NULL)
        return place->block->state == BLOCK_WAITING;
    return (place->slab->waiting_bits & object_bit(place)) != 0;
}

bool vmm__place_find_live(const struct heap *heap, uint64_t address, struct place *place)
{
    return vmm__place_find(heap, address, place) && !place_is_waiting(place);
}

bool vmm__place_around(const struct heap *heap, uint64_t address, struct place *place)
{
    struct block *block = vmm__heap_find(heap, address); /* a block's start is found at once */
    if (block == NULL)
        block = vmm__heap_cover(heap, address);
    *place = (struct place){ .block = block };
    if (block->state != BLOCK_SLAB)
        return true;
    place->slab = block->slab;
    place->object = (uint32_t)((address - block->slab->address) / block->slab->object_bytes);
    return place->object < block->slab->objects;
}

bool vmm__place_is_live(const struct place *place)
{
    if (place->slab == NULL)
        return place->block->state == BLOCK_LIVE;
    return ((place->slab->free_bits | place->slab->waiting_bits) & object_bit(place)) == 0;
}

vmm_status vmm__place_unknown(const char *function, const struct heap *heap, uint64_t address)
{
    struct place place;
    bool is_live = vmm__place_around(heap, address, &place) && vmm__place_is_live(&place);
    uint64_t offset = is_live ? address - vmm__place_address(&place) : 0;
    if (offset == 0)
        return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                          "%s: 0x%llx is not the start of a live block: it was freed before, or "
                          "never handed out",
                          function, (unsigned long long)address);
    return vmm__error(VMM_ERR_UNKNOWN_POINTER,
                      "%s: 0x%llx is not the start of a live block: it is byte %llu of the one at "
                      "0x%llx, which has %llu",
                      function, (unsigned long long)address, (unsigned long long)offset,
                      (unsigned long long)vmm__place_address(&place),
                      (unsigned long long)vmm__place_bytes(&place));
}

uint64_t vmm__place_address(const struct place *place)
{
    return place->slab == NULL ? place->block->address
                               : vmm__slab_address(place->slab, place->object);
}

uint64_t vmm__place_bytes(const struct place *place)
{
    return place->slab == NULL ? place->block->node.size : place->slab->object_bytes;
}

uint64_t vmm__place_requested_bytes(const struct place *place)
{
    return place->slab == NULL ? place->block->requested_bytes
                               : place->slab->requested[place->object];
}

void vmm__place_set_requested(struct place *place, uint64_t bytes)
{
    if (place->slab == NULL)
        place->block->requested_bytes = bytes;
    else
        place->slab->requested[place->object] = (uint16_t)bytes;
}

uint8_t vmm__place_knower(const struct place *place)
{
    return place->slab == NULL ? place->block->knower : place->slab->knowers[place->object];
}

void vmm__place_set_knower(struct place *place, uint8_t number)
{
    if (place->slab == NULL) {
        place->block->knower = number;
        return;
    }
    place->slab->knowers[place->object] = number;
    uint64_t others = place->slab->known_bits & ~object_bit(place);
    place->slab->known_bits = number == 0 ? others : others | object_bit(place);
}

static bool place_is_pinned(const struct place *place)
{
    if (place->slab == NULL)
        return place->block->is_pinned;
    return (place->slab->pinned_bits & object_bit(place)) != 0;
}

void vmm__place_set_pinned(struct heap *heap, struct place *place, bool is_pinned)
{
    if (place_is_pinned(place) == is_pinned)
        return;
    uint64_t bytes = vmm__place_bytes(place);
    atomic_fetch_add_explicit(&heap->unmovable_bytes, is_pinned ? bytes : -bytes,
                              memory_order_relaxed);
    if (place->slab == NULL)
        place->block->is_pinned = is_pinned;
    else
        place->slab->pinned_bits ^= object_bit(place);
}

void vmm__place_wait(struct place *place)
{
    if (place->slab == NULL)
        place->block->state = BLOCK_WAITING;
    else
        place->slab->waiting_bits |= object_bit(place);
}
