/*
 * Addresses of the sim driver: reservations, and which mapping covers each granule.
 *
 * Owns: sim->space. Invariants: reservations are sorted and never overlap; they lie in the range below, at the caller's
 * hint or at the lowest fit, so that freed addresses are reused soon and stale uses are detected. The addresses do not
 * exist on this machine and are never dereferenced.
 */
#include "driver/sim/internal.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <string.h>

/* Measured on an H200: one reservation of 2^46 bytes succeeds, 2^47 fails; 126 TiB in total. */
#define SIM_SPACE_BASE  UINT64_C(0x300000000000)
#define SIM_SPACE_BYTES (UINT64_C(126) << 40)
#define SIM_RESERVE_MAX (UINT64_C(1) << 46)

/* Returns the index of the first reservation that ends above the address. */
static uint32_t space_search(const struct sim_space *space, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = space->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sim_reservation *item = &space->items[middle];
        if (item->address + item->bytes > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool reservation_holds(const struct sim_reservation *reservation, uint64_t address)
{
    return address - reservation->address < reservation->bytes;
}

struct sim_reservation *vmm__sim_reservation_at(struct sim *sim, uint64_t address)
{
    struct sim_space *space = &sim->space;
    if (space->last_found < space->count &&
        reservation_holds(&space->items[space->last_found], address))
        return &space->items[space->last_found];
    uint32_t index = space_search(space, address);
    if (index == space->count || !reservation_holds(&space->items[index], address))
        return NULL;
    space->last_found = index;
    return &space->items[index];
}

/* Returns whether the range at `hint` is free; *index receives its position in the array. */
static bool hint_fits(const struct sim_space *space, uint64_t bytes, uint64_t hint, uint32_t *index)
{
    uint32_t at = space_search(space, hint);
    uint64_t end = at == space->count ? SIM_SPACE_BASE + SIM_SPACE_BYTES : space->items[at].address;
    *index = at;
    return hint >= SIM_SPACE_BASE && hint < end && end - hint >= bytes;
}

/* Finds a gap of `bytes`, at the hint or else the lowest: its address and its position in the array. */
static bool gap_find(const struct sim_space *space, uint64_t bytes, uint64_t hint,
                     uint64_t *address, uint32_t *index)
{
    if (hint_fits(space, bytes, hint, index)) {
        *address = hint;
        return true;
    }
    uint64_t start = SIM_SPACE_BASE;
    for (uint32_t at = 0; at <= space->count; at++) {
        bool at_end = at == space->count;
        uint64_t end = at_end ? SIM_SPACE_BASE + SIM_SPACE_BYTES : space->items[at].address;
        if (end - start >= bytes) {
            *address = start;
            *index = at;
            return true;
        }
        if (!at_end)
            start = end + space->items[at].bytes;
    }
    return false;
}

static size_t table_bytes(const struct sim *sim, uint64_t bytes)
{
    return (size_t)(bytes / sim->driver.granule_bytes) * sizeof(struct sim_mapping *);
}

static vmm_status reserve_refuse(vmm_status status, uint64_t bytes, const char *why)
{
    return vmm__error(status, "sim: reserve of %" PRIu64 " bytes: %s", bytes, why);
}

vmm_status vmm__sim_reserve(struct sim *sim, uint64_t bytes, uint64_t hint, uint64_t *address)
{
    struct sim_space *space = &sim->space;
    uint64_t start;
    uint32_t index;
    if (bytes == 0 || !vmm__is_aligned(bytes, sim->driver.granule_bytes))
        return reserve_refuse(VMM_ERR_DRIVER, bytes, "not a positive multiple of the granule");
    if (bytes > SIM_RESERVE_MAX)
        return reserve_refuse(VMM_ERR_ADDRESS_SPACE, bytes, "more than the largest reservation");
    if (!gap_find(space, bytes, hint, &start, &index))
        return reserve_refuse(VMM_ERR_ADDRESS_SPACE, bytes, "no free range of that size");
    if (!vmm__host_array_grow((void **)&space->items, &space->capacity, space->count,
                              sizeof *space->items))
        return reserve_refuse(VMM_ERR_HOST_OOM, bytes, "out of host memory for its record");
    struct sim_mapping **granules = vmm__host_table_alloc(table_bytes(sim, bytes));
    if (granules == NULL)
        return reserve_refuse(VMM_ERR_HOST_OOM, bytes, "out of host memory for its granules");

    struct sim_reservation *item = &space->items[index];
    memmove(item + 1, item, (space->count - index) * sizeof *item);
    *item = (struct sim_reservation){ .address = start, .bytes = bytes, .granules = granules };
    space->count++;
    sim->census.reservations++;
    sim_charge(sim, SIM_COST_RESERVE, bytes);
    *address = start;
    return VMM_OK;
}

static void reservation_remove(struct sim *sim, struct sim_reservation *item)
{
    struct sim_space *space = &sim->space;
    uint32_t index = (uint32_t)(item - space->items);
    vmm__host_table_free(item->granules, table_bytes(sim, item->bytes));
    space->count--;
    memmove(item, item + 1, (space->count - index) * sizeof *item);
    sim->census.reservations--;
}

vmm_status vmm__sim_address_free(struct sim *sim, uint64_t address, uint64_t bytes)
{
    struct sim_reservation *item = vmm__sim_reservation_at(sim, address);
    const char *why = NULL;
    if (item == NULL)
        why = "not reserved";
    else if (item->address != address || item->bytes != bytes)
        why = "not exactly one reservation";
    else if (item->mappings != 0)
        why = "still mapped";
    if (why != NULL)
        return vmm__error(VMM_ERR_DRIVER,
                          "sim: address free of %" PRIu64 " bytes at %#" PRIx64 ": %s", bytes,
                          address, why);
    reservation_remove(sim, item);
    sim_charge(sim, SIM_COST_ADDRESS_FREE, bytes);
    return VMM_OK;
}

void vmm__sim_space_free(struct sim *sim)
{
    struct sim_space *space = &sim->space;
    while (space->count > 0)
        reservation_remove(sim, &space->items[space->count - 1]);
    vmm__host_free(space->items, space->capacity * sizeof *space->items);
}
