/* Relocation: mapping other chunks at the same addresses. See vm.h. */
#include "base/error.h"
#include "vm/vm.h"

/* Maps a handle with access. On failure nothing is mapped, unless the driver refuses to undo. */
static vmm_status mapping_make(struct vm *vm, uint64_t granule, uint64_t granules, uint64_t handle)
{
    uint64_t address = vmm__arena_address(&vm->arena, granule);
    uint64_t bytes = granules << vm->arena.granule_shift;
    vmm_status status = vmm__driver_map(vm->driver, address, bytes, handle);
    if (status != VMM_OK)
        return status;
    status = vmm__driver_access(vm->driver, address, bytes);
    if (status == VMM_OK)
        return VMM_OK;
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__driver_unmap(vm->driver, address, bytes);
    vmm__error_restore(&line);
    return status;
}

/* Maps a chunk again where it was just unmapped; on failure it is remap pending. */
static void chunk_remap(struct vm *vm, struct chunk *chunk)
{
    struct error_line line;
    vmm__error_save(&line);
    chunk->is_mapped = mapping_make(vm, chunk->first, chunk->granules, chunk->handle) == VMM_OK;
    vm->remap_pending += chunk->is_mapped ? 0 : 1;
    vmm__error_restore(&line);
}

/* Unmaps what a failed relocation left at the addresses of a chunk. A mapping can only be
 * unmapped whole, and its size is no longer known. */
static void chunk_clear(struct vm *vm, const struct chunk *chunk)
{
    unsigned shift = vm->arena.granule_shift;
    struct error_line line;
    vmm__error_save(&line);
    uint64_t end = chunk->first + chunk->granules;
    for (uint64_t first = chunk->first; first < end; first++) {
        uint64_t address = vmm__arena_address(&vm->arena, first);
        uint64_t count = 1;
        while (first + count <= end &&
               vmm__driver_unmap(vm->driver, address, count << shift) != VMM_OK)
            count++;
    }
    vmm__error_restore(&line);
}

void vmm__vm_remap_pending(struct vm *vm)
{
    for (uint32_t id = 1; id < vm->record_high && vm->remap_pending > 0; id++) {
        struct chunk *chunk = &vm->records[id];
        if (chunk->state != CHUNK_HELD || chunk->is_mapped)
            continue;
        vm->remap_pending--;
        chunk_remap(vm, chunk);
        if (chunk->is_mapped || vmm__driver_is_lost(vm->driver))
            continue; /* a lost device refuses everything: do not try sizes */
        chunk_clear(vm, chunk);
        vm->remap_pending--;
        chunk_remap(vm, chunk);
    }
}

static vmm_status chunk_unmap(struct vm *vm, const struct chunk *chunk)
{
    if (!chunk->is_mapped)
        return vmm__error(VMM_ERR_DRIVER, "vm: chunk %u is remap pending",
                          vmm__chunk_id(vm, chunk));
    return vmm__driver_unmap(vm->driver, vmm__chunk_address(vm, chunk),
                             vmm__chunk_bytes(vm, chunk));
}

/* Maps all parts at the addresses of an unmapped chunk; on failure none. */
static vmm_status parts_map(struct vm *vm, const struct memory_part *parts, uint32_t count)
{
    vmm_status status = VMM_OK;
    uint32_t done = 0;
    while (done < count && status == VMM_OK) {
        const struct chunk *chunk = parts[done].chunk;
        status = mapping_make(vm, parts[done].granule, chunk->granules, chunk->handle);
        done += status == VMM_OK ? 1 : 0;
    }
    if (status == VMM_OK)
        return VMM_OK;
    struct error_line line;
    vmm__error_save(&line);
    while (done-- > 0)
        (void)vmm__driver_unmap(vm->driver, vmm__arena_address(&vm->arena, parts[done].granule),
                                vmm__chunk_bytes(vm, parts[done].chunk));
    vmm__error_restore(&line);
    return status;
}

/* Returns records to the list of unused ones. */
static void aliases_drop(struct vm *vm, uint32_t id)
{
    while (id != 0) {
        struct chunk *chunk = &vm->records[id];
        id = chunk->next;
        vmm__chunk_drop(vm, chunk);
    }
}

/* Takes `count` records for aliases, all or none; linked by next. */
static vmm_status aliases_take(struct vm *vm, uint32_t count, uint32_t *first)
{
    *first = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct chunk *chunk = vmm__chunk_take(vm);
        if (chunk == NULL) {
            aliases_drop(vm, *first);
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
    vmm__limbo_put(vm, chunk, NULL, 0);
}

/* Turns the mapping of a chunk, which is now mapped elsewhere, into an alias in limbo. */
static void mapping_leave(struct vm *vm, const struct chunk *chunk, struct chunk *alias)
{
    *alias = (struct chunk){ .first = chunk->first,
                             .place = NO_GRANULE,
                             .granules = chunk->granules,
                             .state = CHUNK_HELD,
                             .is_mapped = true,
                             .is_alias = true };
    vmm__chunk_place(vm, alias, vmm__chunk_id(vm, alias));
    vmm__limbo_put(vm, alias, NULL, 0);
}

/* Updates the records after parts_map(): the parts are at home within the chunk, and the granules
 * between them are free. */
static void parts_settle(struct vm *vm, struct chunk *chunk, const struct memory_part *parts,
                         uint32_t count, uint32_t alias_id)
{
    uint64_t at = chunk->first;
    vmm__chunk_place(vm, chunk, 0);
    for (uint32_t i = 0; i < count; i++) {
        struct chunk *part = parts[i].chunk;
        struct chunk *alias = &vm->records[alias_id];
        alias_id = alias->next;
        mapping_leave(vm, part, alias);
        part->first = parts[i].granule;
        vmm__chunk_place(vm, part, vmm__chunk_id(vm, part));
        if (at < part->first)
            vmm__arena_give(&vm->arena, at, part->first - at);
        at = part->first + part->granules;
    }
    if (at < chunk->first + chunk->granules)
        vmm__arena_give(&vm->arena, at, chunk->first + chunk->granules - at);
    chunk_retire(vm, chunk);
}

vmm_status vmm__vm_swap(struct vm *vm, struct chunk *chunk, const struct memory_part *parts,
                        uint32_t count)
{
    uint32_t alias_id;
    vmm_status status = aliases_take(vm, count, &alias_id);
    if (status != VMM_OK)
        return status;
    status = chunk_unmap(vm, chunk);
    if (status != VMM_OK)
        goto fail_unmap;
    status = parts_map(vm, parts, count);
    if (status != VMM_OK)
        goto fail_map;
    parts_settle(vm, chunk, parts, count, alias_id);
    return VMM_OK;

fail_map:
    chunk_remap(vm, chunk);
fail_unmap:
    aliases_drop(vm, alias_id);
    return status;
}
