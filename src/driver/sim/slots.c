/*
 * Ids of the sim driver's handles and events: see internal.h.
 *
 * An id is generation << 32 | index + 1: never 0, and never dereferenced as a pointer. The
 * generation of a slot is incremented when its object ends, so an old id finds nothing.
 */
#include "driver/sim/internal.h"

#include "base/hostmem.h"

static struct sim_slot *slot_of(const struct sim_slots *slots, uint64_t id)
{
    uint64_t index = (id & UINT32_MAX) - 1;
    if (index >= slots->count)
        return NULL;
    struct sim_slot *slot = &slots->slots[index];
    bool current = slot->object != NULL && slot->generation == (uint32_t)(id >> 32);
    return current ? slot : NULL;
}

static uint32_t slot_unused(struct sim_slots *slots)
{
    if (slots->first_free != 0) {
        uint32_t index = slots->first_free - 1;
        slots->first_free = slots->slots[index].next_free;
        return index;
    }
    if (!vmm__sim_array_grow((void **)&slots->slots, &slots->capacity, slots->count,
                             sizeof *slots->slots))
        return UINT32_MAX;
    slots->slots[slots->count] = (struct sim_slot){ .generation = 1 };
    return slots->count++;
}

uint64_t vmm__sim_slot_take(struct sim_slots *slots, void *object)
{
    uint32_t index = slot_unused(slots);
    if (index == UINT32_MAX)
        return 0;
    slots->slots[index].object = object;
    return (uint64_t)slots->slots[index].generation << 32 | (index + 1);
}

void *vmm__sim_slot_find(const struct sim_slots *slots, uint64_t id)
{
    struct sim_slot *slot = slot_of(slots, id);
    return slot != NULL ? slot->object : NULL;
}

void vmm__sim_slot_drop(struct sim_slots *slots, uint64_t id)
{
    struct sim_slot *slot = slot_of(slots, id);
    slot->object = NULL;
    slot->generation++;
    slot->next_free = slots->first_free;
    slots->first_free = (uint32_t)(slot - slots->slots) + 1;
}

void vmm__sim_slots_free(struct sim_slots *slots)
{
    vmm__host_free(slots->slots, slots->capacity * sizeof *slots->slots);
}
