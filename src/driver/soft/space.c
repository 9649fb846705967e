/* Addresses of the drivers without a GPU: reservations, and which mapping covers each granule. See soft.h, S1. */
#include "base/hostmem.h"
#include "driver/soft/soft.h"

#include <string.h>

/* ---- Search ---------------------------------------------------------------------------------- */

uint32_t vmm__soft_space_search(const struct soft_space *space, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = space->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct soft_reservation *item = &space->items[middle];
        if (item->address + item->bytes > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool reservation_holds(const struct soft_space *space, uint32_t index, uint64_t address)
{
    return index < space->count &&
           address - space->items[index].address < space->items[index].bytes;
}

struct soft_reservation *vmm__soft_reservation_at(struct soft_space *space, uint64_t address)
{
    if (!reservation_holds(space, space->last_found, address))
        space->last_found = vmm__soft_space_search(space, address);
    if (!reservation_holds(space, space->last_found, address))
        return NULL;
    return &space->items[space->last_found];
}

vmm_status vmm__soft_range_find(struct soft *soft, const char *verb, uint64_t address,
                                uint64_t bytes, struct soft_reservation **out)
{
    const char *why = NULL;
    *out = vmm__soft_reservation_at(&soft->space, address);
    if (!soft_is_granules(bytes) || address % SOFT_GRANULE_BYTES != 0)
        why = "not a positive multiple of the granule";
    else if (*out == NULL)
        why = "not reserved";
    else if (bytes > (*out)->bytes - (address - (*out)->address))
        why = "crosses the end of the reservation";
    return why == NULL ? VMM_OK : vmm__soft_range_refuse(soft, verb, address, bytes, why);
}

/* ---- Reserve and free ------------------------------------------------------------------------ */

static size_t table_bytes(uint64_t bytes)
{
    return (size_t)(bytes / SOFT_GRANULE_BYTES) * sizeof(struct soft_mapping *);
}

/* The array has room. */
static void reservation_insert(struct soft_space *space, struct soft_reservation reservation)
{
    struct soft_reservation *item =
        &space->items[vmm__soft_space_search(space, reservation.address)];
    memmove(item + 1, item, (size_t)(&space->items[space->count] - item) * sizeof *item);
    *item = reservation;
    space->count++;
}

static void reservation_remove(struct soft_space *space, struct soft_reservation *item)
{
    vmm__host_table_free(item->granules, table_bytes(item->bytes));
    space->count--;
    memmove(item, item + 1, (size_t)(&space->items[space->count] - item) * sizeof *item);
}

vmm_status vmm__soft_reserve(struct soft *soft, uint64_t bytes, uint64_t hint, uint64_t *address)
{
    struct soft_space *space = &soft->space;
    struct soft_reservation created = { .bytes = bytes };
    if (!soft_is_granules(bytes))
        return vmm__soft_refuse(soft, VMM_ERR_DRIVER, "reserve", bytes,
                                "not a positive multiple of the granule");
    if (!vmm__host_array_grow((void **)&space->items, &space->capacity, space->count,
                              sizeof *space->items))
        return vmm__soft_refuse(soft, VMM_ERR_HOST_OOM, "reserve", bytes,
                                "out of host memory for its record");
    vmm_status status = soft->backing->reserve(soft, bytes, hint, &created.address);
    if (status != VMM_OK)
        return status;
    created.granules = vmm__host_table_alloc(table_bytes(bytes));
    if (created.granules == NULL) {
        (void)soft->backing->address_free(soft, created.address, bytes);
        return vmm__soft_refuse(soft, VMM_ERR_HOST_OOM, "reserve", bytes,
                                "out of host memory for its granules");
    }
    reservation_insert(space, created);
    soft_charge(soft, DRIVER_CALL_reserve, bytes, NULL);
    *address = created.address;
    return VMM_OK;
}

vmm_status vmm__soft_address_free(struct soft *soft, uint64_t address, uint64_t bytes)
{
    struct soft_reservation *item = vmm__soft_reservation_at(&soft->space, address);
    const char *why = NULL;
    if (item == NULL)
        why = "not reserved";
    else if (item->address != address || item->bytes != bytes)
        why = "not exactly one reservation";
    else if (item->mappings != 0)
        why = "still mapped";
    if (why != NULL)
        return vmm__soft_range_refuse(soft, "address free", address, bytes, why);
    vmm_status status = soft->backing->address_free(soft, address, bytes);
    if (status != VMM_OK)
        return status;
    reservation_remove(&soft->space, item);
    soft_charge(soft, DRIVER_CALL_address_free, bytes, NULL);
    return VMM_OK;
}

void vmm__soft_space_close(struct soft *soft)
{
    struct soft_space *space = &soft->space;
    while (space->count > 0) {
        struct soft_reservation *item = &space->items[space->count - 1];
        (void)soft->backing->address_free(soft, item->address, item->bytes);
        reservation_remove(space, item);
    }
    vmm__host_free(space->items, space->capacity * sizeof *space->items);
}
