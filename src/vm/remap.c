/* Relocation: mapping other chunks at the same addresses. See vm.h. */
#include "base/error.h"
#include "vm/vm.h"

/* Maps a chunk with access. On failure nothing is mapped, unless the driver refuses to undo. */
static vmm_status mapping_make(struct vm *vm, const struct chunk *chunk, uint64_t granule)
{
    vmm_status status = vmm__mapping_map(vm, chunk, granule);
    if (status != VMM_OK)
        return status;
    status = vmm__vm_access(vm, granule, chunk->granules);
    if (status == VMM_OK)
        return VMM_OK;
    VMM_QUIET();
    (void)vmm__mapping_unmap(vm, chunk, granule);
    return status;
}

/* The mapping of a chunk after one: the home comes first, then the places. NO_GRANULE: none. */
static uint64_t mapping_after(const struct vm *vm, const struct chunk *chunk, uint64_t granule)
{
    return granule == chunk->first ? chunk->place : vm->next_places[granule];
}

/* Maps a chunk with access at its mappings before `end`, in the order of mapping_after(). On failure it is mapped
 * nowhere, unless the driver refuses to undo. */
static vmm_status mappings_make(struct vm *vm, const struct chunk *chunk, uint64_t end)
{
    vmm_status status = VMM_OK;
    uint64_t at = chunk->first;
    while (at != end && status == VMM_OK) {
        status = mapping_make(vm, chunk, at);
        at = status == VMM_OK ? mapping_after(vm, chunk, at) : at;
    }
    if (status == VMM_OK)
        return VMM_OK;
    VMM_QUIET();
    for (uint64_t made = chunk->first; made != at; made = mapping_after(vm, chunk, made))
        (void)vmm__mapping_unmap(vm, chunk, made);
    return status;
}

/* Maps a chunk again at its mappings before `end`, where it is unmapped. On failure it is remap
 * pending. */
static void chunk_remap(struct vm *vm, struct chunk *chunk, uint64_t end)
{
    VMM_QUIET();
    chunk->is_mapped = mappings_make(vm, chunk, end) == VMM_OK;
    vm->remap_pending += chunk->is_mapped ? 0 : 1;
}

/* Returns whether exactly one mapping was there. Only a mapping can get access, but unmap may succeed without one. */
static bool range_clear(struct vm *vm, uint64_t address, uint64_t bytes)
{
    return vmm__driver_access(vm->driver, address, bytes) == VMM_OK &&
           vmm__driver_unmap(vm->driver, address, bytes) == VMM_OK;
}

/* Unmaps what a failed relocation left at the addresses of a mapping. A mapping can only be
 * unmapped whole, and no record has its size, so this tries each size at each granule. */
static void mapping_clear(struct vm *vm, uint64_t granule, uint64_t granules)
{
    unsigned shift = vm->arena.granule_shift;
    uint64_t end = granule + granules;
    for (uint64_t first = granule; first < end; first++) {
        uint64_t address = vmm__arena_address(&vm->arena, first);
        uint64_t count = 1;
        while (first + count <= end && !range_clear(vm, address, count << shift))
            count++;
    }
}

static void chunk_clear(struct vm *vm, const struct chunk *chunk)
{
    VMM_QUIET();
    for (uint64_t at = chunk->first; at != NO_GRANULE; at = mapping_after(vm, chunk, at))
        mapping_clear(vm, at, chunk->granules);
}

void vmm__vm_remap_pending(struct vm *vm)
{
    for (uint32_t id = 1; id < vm->record_high && vm->remap_pending > 0; id++) {
        struct chunk *chunk = &vm->records[id];
        if (chunk->state != CHUNK_HELD || chunk->is_mapped)
            continue;
        vm->remap_pending--;
        chunk_remap(vm, chunk, NO_GRANULE);
        if (chunk->is_mapped || vmm__driver_is_lost(vm->driver))
            continue; /* a lost device refuses everything: do not try sizes */
        chunk_clear(vm, chunk);
        vm->remap_pending--;
        chunk_remap(vm, chunk, NO_GRANULE);
    }
}

/* Unmaps a chunk everywhere. On failure it is mapped as before, or remap pending. */
static vmm_status chunk_unmap(struct vm *vm, struct chunk *chunk)
{
    if (!chunk->is_mapped)
        return vmm__error(VMM_ERR_DRIVER, "vm: chunk %u is remap pending",
                          vmm__chunk_id(vm, chunk));
    vmm_status status = VMM_OK;
    uint64_t at = chunk->first;
    while (at != NO_GRANULE && status == VMM_OK) {
        status = vmm__mapping_unmap(vm, chunk, at);
        at = status == VMM_OK ? mapping_after(vm, chunk, at) : at;
    }
    if (status == VMM_OK)
        return VMM_OK;
    chunk_remap(vm, chunk, at);
    for (; !chunk->is_mapped && at != NO_GRANULE; at = mapping_after(vm, chunk, at))
        (void)vmm__mapping_unmap(vm, chunk, at);
    return status;
}

/* Maps all parts at addresses of an unmapped chunk; on failure none. */
static vmm_status parts_map(struct vm *vm, const struct memory_part *parts, uint32_t count)
{
    vmm_status status = VMM_OK;
    uint32_t done = 0;
    while (done < count && status == VMM_OK) {
        status = mapping_make(vm, parts[done].chunk, parts[done].granule);
        done += status == VMM_OK ? 1 : 0;
    }
    if (status == VMM_OK)
        return VMM_OK;
    VMM_QUIET();
    while (done-- > 0)
        (void)vmm__mapping_unmap(vm, parts[done].chunk, parts[done].granule);
    return status;
}

/* Returns records to the list of unused ones. */
void vmm__aliases_drop(struct vm *vm, uint32_t id)
{
    while (id != 0) {
        struct chunk *chunk = &vm->records[id];
        id = chunk->next;
        vmm__chunk_drop(vm, chunk);
    }
}

/* Takes `count` records for aliases, all or none; linked by next. */
vmm_status vmm__aliases_take(struct vm *vm, uint32_t count, uint32_t *first)
{
    *first = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct chunk *chunk = vmm__chunk_take(vm);
        if (chunk == NULL) {
            vmm__aliases_drop(vm, *first);
            return vmm__error(VMM_ERR_HOST_OOM, "vm: no record left for an old mapping");
        }
        chunk->next = *first;
        *first = vmm__chunk_id(vm, chunk);
    }
    return VMM_OK;
}

/* Puts an unmapped chunk into limbo, without its addresses. */
static void chunk_retire(struct vm *vm, struct chunk *chunk)
{
    chunk->is_mapped = false;
    chunk->place = NO_GRANULE;
    vm->counts.places -= chunk->places;
    vm->counts.view_bytes -= chunk->places * vmm__chunk_bytes(vm, chunk);
    chunk->places = 0;
    vmm__limbo_put(vm, chunk, NULL, 0);
}

struct chunk *vmm__alias_make(struct vm *vm, uint32_t id, const struct chunk *chunk,
                              uint64_t granule)
{
    struct chunk *alias = &vm->records[id];
    *alias = (struct chunk){ .first = granule,
                             .place = NO_GRANULE,
                             .granules = chunk->granules,
                             .state = CHUNK_HELD,
                             .is_mapped = true,
                             .is_alias = true };
    vmm__chunk_page_home(vm, alias, id);
    return alias;
}

/* Gives the granules of a mapping back that no part covers. */
static void uncovered_give(struct vm *vm, const struct chunk *chunk, uint64_t granule)
{
    for (uint64_t at = granule; at < granule + chunk->granules; at++) {
        if (vm->pages[at] != vmm__chunk_id(vm, chunk))
            continue;
        vm->pages[at] = 0;
        vmm__arena_give(&vm->arena, at, 1);
    }
}

/* Moves the home of a part, whose old mapping becomes an alias. */
static void part_settle(struct vm *vm, const struct memory_part *part, uint32_t alias_id)
{
    struct chunk *alias = vmm__alias_make(vm, alias_id, part->chunk, part->chunk->first);
    vmm__limbo_put(vm, alias, NULL, 0);
    part->chunk->first = part->granule;
    vmm__chunk_page_home(vm, part->chunk, vmm__chunk_id(vm, part->chunk));
}

/* Updates the records after parts_map(). The page map comes first: a part's place may begin where a place of the chunk
 * does, and both are linked there. */
static void parts_settle(struct vm *vm, struct chunk *chunk, const struct memory_part *parts,
                         uint32_t homes, uint32_t count, uint32_t alias_id)
{
    for (uint64_t at = chunk->first; at != NO_GRANULE; at = mapping_after(vm, chunk, at))
        vmm__mapping_record(vm, chunk, at, TRACE_GONE);
    for (uint32_t i = 0; i < homes; i++) {
        uint32_t next_id = vm->records[alias_id].next;
        part_settle(vm, &parts[i], alias_id);
        alias_id = next_id;
    }
    for (uint32_t i = homes; i < count; i++)
        vmm__chunk_page_at(vm, parts[i].chunk, parts[i].granule, vmm__chunk_id(vm, parts[i].chunk));
    for (uint64_t at = chunk->first; at != NO_GRANULE; at = mapping_after(vm, chunk, at))
        uncovered_give(vm, chunk, at);
    for (uint32_t i = homes; i < count; i++)
        vmm__place_link(vm, parts[i].chunk, parts[i].granule);
    chunk_retire(vm, chunk);
}

vmm_status vmm__vm_swap(struct vm *vm, struct chunk *chunk, const struct memory_part *parts,
                        uint32_t homes, uint32_t places)
{
    uint32_t alias_id;
    vmm_status status = vmm__aliases_take(vm, homes, &alias_id);
    if (status != VMM_OK)
        return status;
    status = chunk_unmap(vm, chunk);
    if (status != VMM_OK)
        goto fail_unmap;
    status = parts_map(vm, parts, homes + places);
    if (status != VMM_OK)
        goto fail_map;
    parts_settle(vm, chunk, parts, homes, homes + places, alias_id);
    return VMM_OK;

fail_map:
    chunk_remap(vm, chunk, NO_GRANULE);
fail_unmap:
    vmm__aliases_drop(vm, alias_id);
    return status;
}
