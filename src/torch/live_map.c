/* The live map: see live_map.h. */
#include "torch/live_map.h"
#include "base/hostmem.h"

#include <stddef.h>

enum { CAPACITY_FIRST = 256 };

static uint64_t slot_of(const struct known_table *table, uint64_t address)
{
    return (address * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (table->capacity - 1);
}

static uint64_t slot_next(const struct known_table *table, uint64_t slot)
{
    return (slot + 1) & (table->capacity - 1);
}

/* The slot of the address, or the empty slot where it belongs. */
static uint64_t slot_find(const struct known_table *table, uint64_t address)
{
    uint64_t slot = slot_of(table, address);
    while (table->slots[slot].address != 0 && table->slots[slot].address != address)
        slot = slot_next(table, slot);
    return slot;
}

const struct live_map *vmm__live_map_find(const struct known_table *table, uint64_t address)
{
    if (table->count == 0 || address == 0)
        return NULL;
    const struct live_map *entry = &table->slots[slot_find(table, address)];
    return entry->address != 0 ? entry : NULL;
}

static bool table_grow(struct known_table *table)
{
    struct known_table grown = { .capacity =
                                     table->capacity == 0 ? CAPACITY_FIRST : table->capacity * 2,
                                 .count = table->count };
    grown.slots = vmm__host_alloc(grown.capacity, sizeof *grown.slots);
    if (grown.slots == NULL)
        return false;
    for (uint64_t slot = 0; slot < table->capacity; slot++) {
        const struct live_map *entry = &table->slots[slot];
        if (entry->address != 0)
            grown.slots[slot_find(&grown, entry->address)] = *entry;
    }
    vmm__host_free(table->slots, table->capacity * sizeof *table->slots);
    *table = grown;
    return true;
}

void vmm__live_map_put(struct known_table *table, const struct live_map *entry)
{
    bool is_full = (table->count + 1) * 4 > table->capacity * 3;
    if (is_full && !table_grow(table)) {
        vmm__live_map_remove(table, entry->address);
        return;
    }
    struct live_map *slot = &table->slots[slot_find(table, entry->address)];
    table->count += slot->address == 0;
    *slot = *entry;
}

/* Whether a search for an entry that hashes to `home` would stop at an empty slot `hole` before it reaches `slot`. */
static bool is_unreachable(uint64_t home, uint64_t hole, uint64_t slot)
{
    return hole <= slot ? home <= hole || home > slot : home <= hole && home > slot;
}

void vmm__live_map_remove(struct known_table *table, uint64_t address)
{
    if (vmm__live_map_find(table, address) == NULL)
        return;
    uint64_t hole = slot_find(table, address);
    for (uint64_t slot = slot_next(table, hole); table->slots[slot].address != 0;
         slot = slot_next(table, slot)) {
        if (is_unreachable(slot_of(table, table->slots[slot].address), hole, slot)) {
            table->slots[hole] = table->slots[slot];
            hole = slot;
        }
    }
    table->slots[hole] = (struct live_map){ 0 };
    table->count--;
}

void vmm__live_map_clear(struct known_table *table)
{
    vmm__host_free(table->slots, table->capacity * sizeof *table->slots);
    *table = (struct known_table){ 0 };
}
