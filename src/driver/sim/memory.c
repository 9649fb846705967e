/*
 * The backing of the sim driver: no memory, but the addresses that an H200 gives out, a rule of CUDA, and the cost of
 * each call. See soft.h.
 *
 * Owns: the lists of each handle's mappings, the users of each mapping, and the spaces of the process's drivers: each
 * open one has the lowest that is free, so no two have the same addresses, and those of the first are always the same.
 * Reservations lie in the driver's space, at the caller's hint or at the lowest fit, so that freed addresses are reused
 * soon and stale uses are detected. The addresses do not exist on this machine and are never dereferenced.
 */
#include "driver/sim/internal.h"

#include "base/arith.h"
#include "base/error.h"
#include "driver/system_memory.h"

/* Measured on an H200: one reservation of 2^46 bytes succeeds, 2^47 fails; 126 TiB in total. */
#define SIM_SPACE_BASE  UINT64_C(0x300000000000)
#define SIM_SPACE_BYTES (UINT64_C(126) << 40)
#define SIM_SPACE_STEP  (UINT64_C(1) << 47) /* from one driver's to the next */
#define SIM_RESERVE_MAX (UINT64_C(1) << 46)

enum { SIM_SPACES = 1024, WORD_BITS = 64 };

/* ---- Spaces ---------------------------------------------------------------------------------- */

static _Atomic uint64_t spaces[SIM_SPACES / WORD_BITS]; /* a bit for each: an open driver has it */

bool vmm__sim_space_take(struct sim *sim)
{
    for (unsigned word = 0; word < SIM_SPACES / WORD_BITS; word++) {
        uint64_t taken = atomic_load_explicit(&spaces[word], memory_order_relaxed);
        while (taken != UINT64_MAX) {
            uint64_t lowest = ~taken & (taken + 1);
            if (!atomic_compare_exchange_weak(&spaces[word], &taken, taken | lowest))
                continue;
            sim->space = word * WORD_BITS + (unsigned)__builtin_ctzll(lowest);
            return true;
        }
    }
    return false;
}

void vmm__sim_space_give(const struct sim *sim)
{
    atomic_fetch_and(&spaces[sim->space / WORD_BITS], ~(UINT64_C(1) << sim->space % WORD_BITS));
}

/* ---- Costs ----------------------------------------------------------------------------------- */

static void clock_add(struct soft *soft, uint64_t ns)
{
    atomic_fetch_add_explicit(&((struct sim *)soft)->clock_ns, ns, memory_order_relaxed);
}

static void backing_charge(struct soft *soft, enum driver_call call, uint64_t bytes,
                           const struct soft_handle *handle)
{
    bool is_exportable = handle != NULL && ((const struct sim_handle *)handle)->share != NULL;
    clock_add(soft, sim_cost_ns(call, bytes, is_exportable));
}

/* ---- Addresses ------------------------------------------------------------------------------- */

static uint64_t space_begin(const struct soft *soft)
{
    return SIM_SPACE_BASE + ((const struct sim *)soft)->space * SIM_SPACE_STEP;
}

/* The first address of a reservation, or the end of the space. */
static uint64_t gap_end(const struct soft *soft, uint32_t index)
{
    const struct soft_space *space = &soft->space;
    return index == space->count ? space_begin(soft) + SIM_SPACE_BYTES
                                 : space->items[index].address;
}

static bool hint_fits(const struct soft *soft, uint64_t bytes, uint64_t hint)
{
    uint64_t end = gap_end(soft, vmm__soft_space_search(&soft->space, hint));
    return hint >= space_begin(soft) && hint < end && end - hint >= bytes;
}

vmm_status vmm__sim_reserve(struct soft *soft, uint64_t bytes, uint64_t hint, uint64_t *address)
{
    const struct soft_space *space = &soft->space;
    uint32_t index = 0;
    if (bytes > SIM_RESERVE_MAX)
        return vmm__soft_refuse(soft, VMM_ERR_ADDRESS_SPACE, "reserve", bytes,
                                "more than the largest reservation");
    *address = hint;
    if (hint_fits(soft, bytes, hint))
        return VMM_OK;
    *address = space_begin(soft);
    while (gap_end(soft, index) - *address < bytes && index < space->count) {
        *address = space->items[index].address + space->items[index].bytes;
        index++;
    }
    if (gap_end(soft, index) - *address >= bytes)
        return VMM_OK;
    return vmm__soft_refuse(soft, VMM_ERR_ADDRESS_SPACE, "reserve", bytes,
                            "no free range of that size");
}

vmm_status vmm__sim_address_free(struct soft *soft, uint64_t address, uint64_t bytes)
{
    (void)soft;
    (void)address;
    (void)bytes;
    return VMM_OK;
}

/* ---- Handles and pinned memory --------------------------------------------------------------- */

vmm_status vmm__sim_create(struct soft *soft, struct soft_handle *handle)
{
    struct sim_handle *created = (struct sim_handle *)handle;
    if (handle->reach != VMM_SHARE_NONE)
        created->share = vmm__sim_share_new((struct sim *)soft, handle->bytes);
    if (handle->reach == VMM_SHARE_NONE || created->share != NULL)
        return VMM_OK;
    return vmm__soft_refuse(soft, VMM_ERR_HOST_OOM, "create", handle->bytes,
                            "out of host memory for its record");
}

void vmm__sim_handle_end(struct soft *soft, struct soft_handle *handle)
{
    struct sim_handle *ended = (struct sim_handle *)handle;
    (void)soft;
    if (ended->share != NULL)
        vmm__sim_share_drop(ended->share);
    vmm__sim_shadow_free(&ended->shadow);
}

/* CUDA lets the pages go although a copy may still write to them. */
static void backing_pin_end(struct soft *soft, struct soft_pin *pin)
{
    struct sim *sim = (struct sim *)soft;
    struct sim_shadow *shadow = &((struct sim_pin *)pin)->shadow;
    vmm__sim_report_work(sim, "unpin", vmm__sim_shadow_uncovered(shadow, sim->order.observed),
                         pin->address, pin->bytes);
    vmm__sim_shadow_free(shadow);
}

/* ---- Mappings -------------------------------------------------------------------------------- */

vmm_status vmm__sim_map(struct soft *soft, struct soft_mapping *mapping)
{
    struct sim_handle *handle = sim_handle_of(mapping);
    struct sim_mapping *mapped = (struct sim_mapping *)mapping;
    if (handle->blocks_maps)
        return vmm__soft_range_refuse(
            soft, "map", mapping->address, mapping->bytes,
            "the handle's oldest mapping was unmapped before another had access; CUDA "
            "fails with unknown error (999)");
    mapped->older = handle->youngest;
    handle->youngest = mapped;
    handle->lost_oldest = false;
    return VMM_OK;
}

/* Models CUDA 13.0 on an H200: if a handle's oldest mapping is unmapped while no other has access, and the remaining
 * one then gets access, every further map of the handle fails with unknown error (999) until that mapping is unmapped
 * too. */
static void handle_forget_mapping(struct sim_handle *handle, const struct sim_mapping *removed)
{
    struct sim_mapping **link = &handle->youngest;
    bool accessible = false;
    for (; *link != removed; link = &(*link)->older)
        accessible = accessible || (*link)->soft.accessible;
    bool was_oldest = removed->older == NULL;
    *link = removed->older;
    if (was_oldest)
        handle->lost_oldest = handle->youngest != NULL && !accessible;
    if (handle->youngest == NULL)
        handle->blocks_maps = false;
}

static void backing_mapping_end(struct soft *soft, struct soft_mapping *mapping)
{
    struct sim *sim = (struct sim *)soft;
    struct sim_handle *handle = sim_handle_of(mapping);
    struct sim_mapping *ended = (struct sim_mapping *)mapping;
    soft_charge(soft, DRIVER_CALL_unmap, mapping->bytes, mapping->handle);
    vmm__sim_report_work(sim, "unmap", vmm__sim_users_uncovered(&ended->users, sim->order.observed),
                         mapping->address, mapping->bytes);
    handle_forget_mapping(handle, ended);
    vmm__sim_users_clear(&ended->users);
}

static void handle_block_maps(struct soft *soft, const struct soft_mapping *mapping)
{
    struct sim_handle *handle = sim_handle_of(mapping);
    if (!handle->lost_oldest)
        return;
    handle->lost_oldest = false;
    handle->blocks_maps = true;
    vmm__soft_report_add(
        &soft->violations, 1,
        "access to %" PRIu64 " bytes at %#" PRIx64
        " after the handle's oldest mapping was unmapped: the handle cannot be mapped again",
        mapping->bytes, mapping->address);
}

vmm_status vmm__sim_access(struct soft *soft, const struct soft_reservation *reservation,
                           uint64_t address, uint64_t bytes)
{
    struct soft_mapping *mapping;
    for (uint64_t at = address; at < address + bytes; at += mapping->bytes) {
        mapping = *soft_granule(reservation, at);
        if (mapping->accessible)
            clock_add(soft, SIM_ACCESS_AGAIN_NS);
        else
            soft_charge(soft, DRIVER_CALL_access, mapping->bytes, mapping->handle);
        ((struct sim_mapping *)mapping)->peers = vmm__driver_peers(&soft->driver);
        handle_block_maps(soft, mapping);
    }
    return VMM_OK;
}

static uint64_t peerless_in(const struct soft_reservation *reservation, uint64_t peers)
{
    uint64_t count = 0;
    const struct soft_mapping *last = NULL;
    for (uint64_t granule = 0, left = reservation->mappings; left != 0; granule++) {
        const struct soft_mapping *mapping = reservation->granules[granule];
        if (mapping == NULL || mapping == last)
            continue;
        bool misses = (peers & ~((const struct sim_mapping *)mapping)->peers) != 0;
        count += mapping->accessible && misses ? 1 : 0;
        last = mapping;
        left--;
    }
    return count;
}

uint64_t vmm__sim_peerless_count(const struct sim *sim)
{
    uint64_t count = 0;
    for (uint32_t index = 0; index < sim->soft.space.count; index++)
        count += peerless_in(&sim->soft.space.items[index], vmm__driver_peers(&sim->soft.driver));
    return count;
}

/* ---- Memory of the system ----------------------------------------------------------------------- */

/* What the device does not get of the memory that it shares with the system; 0 if it has memory of its own. */
uint64_t vmm__sim_others_bytes(struct soft *soft)
{
    const struct sim *sim = (const struct sim *)soft;
    uint64_t total_bytes = soft->driver.total_bytes;
    uint64_t rest_bytes = total_bytes - vmm__min(total_bytes, soft->physical_bytes);
    uint64_t left_bytes = sim->system_bytes - vmm__min(sim->system_bytes, soft->physical_bytes);
    return rest_bytes - vmm__min(rest_bytes, vmm__system_memory_left(left_bytes, total_bytes));
}

#define BACKING(type, name, parameters) .name = vmm__sim_##name,
/* clang-format off */
const struct soft_backing vmm__sim_backing = {
    .handle_bytes = sizeof(struct sim_handle),
    .mapping_bytes = sizeof(struct sim_mapping),
    .pin_bytes = sizeof(struct sim_pin),
    .position_bytes = sizeof(uint64_t),
    SOFT_BACKING_MAP(BACKING)
    .mapping_end = backing_mapping_end,
    .pin_end = backing_pin_end,
    .charge = backing_charge,
};
/* clang-format on */
