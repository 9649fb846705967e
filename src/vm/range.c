/* Ranges, and moves of chunks to other addresses: see vm.h. */
#include "base/arith.h"
#include "base/error.h"
#include "vm/vm.h"

/* ---- Ranges -------------------------------------------------------------------------------- */

void vmm__range_take(struct vm *vm, uint64_t granule, uint64_t count)
{
    vmm__arena_take(&vm->arena, granule, count);
    vm->range_granules += count;
}

/* Puts the first `done` granules of a failed mapping, which have no access, into limbo, and releases what the driver
 * takes back. */
static void range_undo(struct vm *vm, uint64_t granule, uint64_t done)
{
    for (uint64_t at = granule; at < granule + done;) {
        struct chunk *chunk = vmm__vm_chunk(vm, at);
        chunk->lacks_access = true;
        at += chunk->granules;
    }
    vmm__vm_discard(vm, granule, done, NULL, 0);
    vmm__limbo_drain_quietly(vm);
}

vmm_status vmm__range_map(struct vm *vm, struct account *account, uint64_t granule, uint64_t count,
                          uint32_t chunk_granules)
{
    uint64_t done;
    vmm_status status = vmm__chunks_open(vm, account, granule, count, chunk_granules, &done);
    for (uint64_t at = granule; at < granule + done; at += vmm__vm_chunk(vm, at)->granules)
        vmm__vm_chunk(vm, at)->keeps_addresses = true;
    if (status == VMM_OK)
        status = vmm__vm_access(vm, granule, count);
    if (status != VMM_OK)
        range_undo(vm, granule, done);
    return status;
}

vmm_status vmm__range_access(struct vm *vm, struct chunk *chunk)
{
    if (!chunk->lacks_access)
        return VMM_OK;
    vmm_status status = vmm__vm_access(vm, chunk->first, chunk->granules);
    chunk->lacks_access = status != VMM_OK;
    return status;
}

void vmm__range_end(struct vm *vm, uint64_t granule, uint64_t count)
{
    vm->range_granules -= count;
    uint64_t end = granule + count;
    uint64_t free_from = granule;
    for (uint64_t at = granule; at < end;) {
        struct chunk *chunk = vmm__vm_chunk(vm, at);
        if (chunk == NULL) {
            at++;
            continue;
        }
        chunk->keeps_addresses = false;
        if (free_from < at)
            vmm__arena_give(&vm->arena, free_from, at - free_from);
        at += chunk->granules;
        free_from = at;
    }
    if (free_from < end)
        vmm__arena_give(&vm->arena, free_from, end - free_from);
}

/* ---- Moves --------------------------------------------------------------------------------- */

static vmm_status part_map(struct vm *vm, const struct memory_part *part)
{
    if (!part->chunk->is_mapped)
        return vmm__error(VMM_ERR_DRIVER, "vm: chunk %u is remap pending",
                          vmm__chunk_id(vm, part->chunk));
    return vmm__mapping_map(vm, part->chunk, part->granule);
}

/* Gives access to the parts, with one call for those that are adjacent. */
static vmm_status parts_access(struct vm *vm, const struct memory_part *parts, uint32_t count)
{
    vmm_status status = VMM_OK;
    for (uint32_t i = 0; i < count && status == VMM_OK;) {
        uint64_t first = parts[i].granule;
        uint64_t end = first;
        for (; i < count && parts[i].granule == end; i++)
            end += parts[i].chunk->granules;
        status = vmm__vm_access(vm, first, end - first);
    }
    return status;
}

vmm_status vmm__move_begin(struct vm *vm, const struct memory_part *parts, uint32_t count,
                           uint32_t *aliases)
{
    uint32_t done = 0;
    vmm_status status = vmm__aliases_take(vm, count, aliases);
    if (status != VMM_OK)
        return status;
    while (done < count && status == VMM_OK) {
        status = part_map(vm, &parts[done]);
        done += status == VMM_OK ? 1 : 0;
    }
    if (status == VMM_OK)
        status = parts_access(vm, parts, count);
    if (status != VMM_OK)
        vmm__move_cancel(vm, parts, done, *aliases);
    return status;
}

/* The drain unmaps the new mappings, which may have no access, before any older one is unmapped: otherwise CUDA could
 * not map the handle again. */
void vmm__move_cancel(struct vm *vm, const struct memory_part *parts, uint32_t count,
                      uint32_t aliases)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t next = vm->records[aliases].next;
        struct chunk *alias = vmm__alias_make(vm, aliases, parts[i].chunk, parts[i].granule);
        alias->keeps_addresses = true;
        vmm__limbo_put(vm, alias, NULL, 0);
        aliases = next;
    }
    vmm__aliases_drop(vm, aliases);
    vmm__limbo_drain_quietly(vm);
}

void vmm__move_settle(struct vm *vm, const struct memory_part *parts, uint32_t count,
                      uint32_t aliases, struct clock *clock, uint64_t epoch)
{
    for (uint32_t i = 0; i < count; i++) {
        struct chunk *chunk = parts[i].chunk;
        uint32_t next = vm->records[aliases].next;
        struct chunk *alias = vmm__alias_make(vm, aliases, chunk, chunk->first);
        alias->keeps_addresses = chunk->keeps_addresses;
        vmm__limbo_put(vm, alias, clock, epoch);
        aliases = next;
        chunk->keeps_addresses = true;
        chunk->first = parts[i].granule;
        vmm__chunk_page_home(vm, chunk, vmm__chunk_id(vm, chunk));
    }
}
