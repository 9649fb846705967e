/* Checks the numbered invariants of vm.h, and calls the check of the arena. */
#include "base/error.h"
#include "vm/vm.h"

/* Sums over the records. */
struct tally {
    uint64_t bytes;
    uint64_t limbo_bytes;
    uint64_t asleep_bytes;
    uint64_t taken_granules;
    uint64_t places;
    uint64_t place_bytes;
    uint32_t remap_pending;
    uint32_t records[CHUNK_STATES]; /* by state */
};

static vmm_status pages_check(const struct vm *vm, uint32_t id)
{
    const struct chunk *chunk = &vm->records[id];
    for (uint64_t granule = 0; granule < chunk->granules; granule++) {
        if (vm->pages[chunk->first + granule] != id)
            return vmm__error(VMM_ERR_INTERNAL,
                              "vm: invariant 1: chunk %u is not in the page "
                              "map at its granule %llu",
                              id, (unsigned long long)granule);
    }
    return VMM_OK;
}

/* Checks the further places of a chunk; they are mapped in every state. */
static vmm_status places_check(const struct vm *vm, uint32_t id)
{
    const struct chunk *chunk = &vm->records[id];
    uint32_t places = 0;
    for (uint64_t place = chunk->place; place != NO_GRANULE && places <= chunk->places;
         place = vm->next_places[place], places++) {
        for (uint64_t i = 0; i < chunk->granules; i++) {
            if (vm->pages[place + i] != id)
                return vmm__error(VMM_ERR_INTERNAL,
                                  "vm: invariant 1: chunk %u is not in the page map at its place "
                                  "%llu",
                                  id, (unsigned long long)place);
        }
    }
    if (places != chunk->places)
        return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 1: chunk %u has lost a place", id);
    return VMM_OK;
}

static vmm_status chunk_check(const struct vm *vm, uint32_t id, struct tally *tally)
{
    const struct chunk *chunk = &vm->records[id];
    bool is_in_use = chunk->state == CHUNK_HELD;
    bool has_own = !chunk->is_alias && !chunk->is_asleep && !chunk->account->is_imported;
    uint64_t bytes = has_own ? vmm__chunk_bytes(vm, chunk) : 0;
    tally->asleep_bytes += chunk->is_asleep ? vmm__chunk_bytes(vm, chunk) : 0;
    tally->bytes += bytes;
    tally->limbo_bytes += is_in_use ? 0 : bytes;
    bool has_home = chunk->is_mapped || is_in_use;
    tally->taken_granules += has_home && !chunk->keeps_addresses ? chunk->granules : 0;
    tally->taken_granules += (uint64_t)chunk->places * chunk->granules;
    tally->places += chunk->places;
    tally->place_bytes += chunk->places * vmm__chunk_bytes(vm, chunk);
    tally->remap_pending += is_in_use && !chunk->is_mapped ? 1 : 0;
    if (is_in_use && chunk->is_alias)
        return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 4: chunk %u has no memory", id);
    vmm_status status = chunk->is_mapped || is_in_use ? pages_check(vm, id) : VMM_OK;
    return status == VMM_OK ? places_check(vm, id) : status;
}

/* Whether a list has `count` records, all of the state. */
static bool list_is_whole(const struct vm *vm, uint32_t first, enum chunk_state state,
                          uint32_t count)
{
    uint32_t id = first;
    uint32_t previous = 0;
    for (; id != 0 && count > 0 && vm->records[id].state == state; count--) {
        if (state == CHUNK_LIMBO && vm->records[id].previous != previous)
            return false;
        previous = id;
        id = vm->records[id].next;
    }
    return id == 0 && count == 0;
}

/* Whether an account has booked its chunks. */
static bool account_adds_up(const struct vm *vm, const struct account *account)
{
    uint64_t bytes = 0;
    uint64_t limbo_bytes = 0;
    uint64_t asleep_bytes = 0;
    for (uint32_t id = account->newest; id != 0; id = vm->records[id].older) {
        const struct chunk *chunk = &vm->records[id];
        if (chunk->state == CHUNK_UNUSED || chunk->account != account)
            return false;
        uint64_t size = vmm__chunk_bytes(vm, chunk);
        asleep_bytes += chunk->is_asleep ? size : 0;
        bytes += chunk->is_asleep ? 0 : size;
        limbo_bytes += chunk->state == CHUNK_LIMBO && !chunk->is_asleep ? size : 0;
    }
    return bytes == vmm__stat_now(&account->reserved_bytes) &&
           limbo_bytes == account->counts.limbo_bytes &&
           asleep_bytes == account->counts.asleep_bytes;
}

static bool accounts_add_up(const struct vm *vm)
{
    const struct account *account = vm->accounts;
    uint64_t bytes = 0;
    uint64_t promised_bytes = 0;
    for (; account != NULL && account_adds_up(vm, account); account = account->next) {
        uint64_t reserved_bytes = vmm__stat_now(&account->reserved_bytes);
        bytes += account->is_imported ? 0 : reserved_bytes;
        promised_bytes += account->least_bytes - vmm__min(account->least_bytes, reserved_bytes);
    }
    return account == NULL && bytes == vmm__stat_now(&vm->reserved_bytes) &&
           promised_bytes == vm->promised_bytes;
}

vmm_status vmm__vm_check(const struct vm *vm)
{
    struct tally tally = { .bytes = 0 };
    for (uint32_t id = 1; id < vm->record_high; id++) {
        tally.records[vm->records[id].state]++;
        if (vm->records[id].state == CHUNK_UNUSED)
            continue;
        vmm_status status = chunk_check(vm, id, &tally);
        if (status != VMM_OK)
            return status;
    }
    if (tally.taken_granules + vm->range_granules + vm->arena.guard_pages +
            vm->arena.free_granules !=
        vm->arena.usable_granules)
        return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 2: addresses taken without a chunk");
    if (tally.bytes != vmm__stat_now(&vm->reserved_bytes) ||
        tally.limbo_bytes != vm->counts.limbo_bytes ||
        tally.asleep_bytes != vm->counts.asleep_bytes)
        return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 3: chunks do not add up");
    if (!accounts_add_up(vm))
        return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 3: accounts do not add up");
    if (tally.places != vm->counts.places || tally.place_bytes != vm->counts.view_bytes)
        return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 3: places do not add up");
    if (tally.remap_pending != vm->remap_pending)
        return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 5: %u chunks are remap pending, not %u",
                          tally.remap_pending, vm->remap_pending);
    if (!list_is_whole(vm, vm->unused, CHUNK_UNUSED, tally.records[CHUNK_UNUSED]) ||
        !list_is_whole(vm, vm->limbo_head, CHUNK_LIMBO, tally.records[CHUNK_LIMBO]))
        return vmm__error(VMM_ERR_INTERNAL, "vm: invariant 6: a record is in no list");
    vmm_status status = vmm__sourced_check(vm);
    return status == VMM_OK ? vmm__arena_check(&vm->arena) : status;
}
