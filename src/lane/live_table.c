/* Live blocks that any thread may free: see live_table.h. */
#include "lane/live_table.h"

#include <stddef.h>

static uint64_t set_number(uint64_t address)
{
    uint64_t hash = (address >> 9) * UINT64_C(0x9E3779B97F4A7C15);
    return hash >> (64 - LIVE_SET_BITS);
}

/* Changes an entry from one address, or from 0, to an address with LIVE_CLAIMED. */
static bool entry_claim(struct live_entry *entry, uint64_t from, uint64_t address)
{
    return atomic_load_explicit(&entry->address, memory_order_relaxed) == from &&
           atomic_compare_exchange_strong_explicit(&entry->address, &from, address | LIVE_CLAIMED,
                                                   memory_order_acquire, memory_order_relaxed);
}

bool vmm__live_table_add(struct live_table *table, uint64_t address, uint64_t requested_bytes)
{
    struct live_entry *set = table->entries[set_number(address)];
    for (int way = 0; way < LIVE_WAYS; way++) {
        if (!entry_claim(&set[way], 0, address))
            continue;
        __atomic_store_n(&set[way].requested_bytes, requested_bytes, __ATOMIC_RELEASE);
        (void)vmm__live_entry_release(&set[way]);
        return true;
    }
    return false;
}

struct live_entry *vmm__live_table_claim(struct live_table *table, uint64_t address)
{
    struct live_entry *set = table->entries[set_number(address)];
    for (int way = 0; way < LIVE_WAYS; way++) {
        if (entry_claim(&set[way], address, address))
            return &set[way];
    }
    return NULL;
}

bool vmm__live_table_remove(struct live_table *table, uint64_t address)
{
    struct live_entry *entry = vmm__live_table_claim(table, address);
    if (entry != NULL)
        vmm__live_entry_clear(entry);
    return entry != NULL;
}

/* An entry is claimed before its bytes change, so the address is looked at before and after them. */
bool vmm__live_table_read(const struct live_table *table, uint64_t address,
                          uint64_t *requested_bytes)
{
    const struct live_entry *set = table->entries[set_number(address)];
    for (int way = 0; way < LIVE_WAYS; way++) {
        if (atomic_load_explicit(&set[way].address, memory_order_acquire) != address)
            continue;
        uint64_t bytes = __atomic_load_n(&set[way].requested_bytes, __ATOMIC_ACQUIRE);
        if (atomic_load_explicit(&set[way].address, memory_order_relaxed) != address)
            return false;
        *requested_bytes = bytes;
        return true;
    }
    return false;
}

bool vmm__live_table_has(const struct live_table *table, uint64_t address)
{
    uint64_t requested_bytes;
    return vmm__live_table_read(table, address, &requested_bytes);
}

uint64_t vmm__live_table_at(const struct live_table *table, unsigned entry)
{
    const struct live_entry *set = table->entries[entry / LIVE_WAYS];
    uint64_t address = atomic_load_explicit(&set[entry % LIVE_WAYS].address, memory_order_relaxed);
    return (address & LIVE_CLAIMED) == 0 ? address : 0;
}
