/*
 * Chunks that sleep: they keep their record, their addresses and their places in views, but neither mappings nor
 * physical memory. See vm.h.
 *
 * Of the mappings of a chunk, by their numbers for vmm__mapping_at(), the first `unmapped` are not mapped. So a chunk
 * that the driver refuses to unmap or map halfway has a defined state, and a later call continues.
 */
#include "base/error.h"
#include "vm/vm.h"

static vmm_status mapping_unmap(struct vm *vm, const struct chunk *chunk, uint32_t number)
{
    return vmm__mapping_unmap(vm, chunk, vmm__mapping_at(vm, chunk, number));
}

/* Unmaps the mapping without access, if there is one. It was made last, so CUDA can still map the handle afterwards. */
static vmm_status access_lack_end(struct vm *vm, struct chunk *chunk)
{
    if (!chunk->lacks_access)
        return VMM_OK;
    vmm_status status = mapping_unmap(vm, chunk, chunk->unmapped - 1);
    chunk->lacks_access = status != VMM_OK;
    return status;
}

static vmm_status mapping_drop(struct vm *vm, struct chunk *chunk)
{
    vmm_status status = access_lack_end(vm, chunk);
    if (status == VMM_OK)
        status = mapping_unmap(vm, chunk, chunk->unmapped);
    chunk->unmapped += status == VMM_OK ? 1 : 0;
    return status;
}

/* Maps the last of the mappings that are missing. */
static vmm_status mapping_restore(struct vm *vm, struct chunk *chunk)
{
    uint64_t granule = vmm__mapping_at(vm, chunk, chunk->unmapped - 1);
    vmm_status status = VMM_OK;
    if (!chunk->lacks_access)
        status = vmm__mapping_map(vm, chunk, granule);
    if (status != VMM_OK)
        return status;
    chunk->lacks_access = true;
    status = vmm__vm_access(vm, granule, chunk->granules);
    if (status == VMM_OK) {
        chunk->lacks_access = false;
        chunk->unmapped--;
        return VMM_OK;
    }
    VMM_QUIET();
    (void)access_lack_end(vm, chunk);
    return status;
}

static vmm_status mappings_restore(struct vm *vm, struct chunk *chunk)
{
    vmm_status status = VMM_OK;
    while (chunk->unmapped > 0 && status == VMM_OK)
        status = mapping_restore(vm, chunk);
    return status;
}

vmm_status vmm__chunk_sleep(struct vm *vm, struct chunk *chunk)
{
    VMM_ASSERT(chunk->state == CHUNK_HELD && chunk->is_mapped && chunk->exported == NULL);
    vmm_status status = VMM_OK;
    if (chunk->is_asleep)
        return VMM_OK;
    while (chunk->unmapped <= chunk->places && status == VMM_OK)
        status = mapping_drop(vm, chunk);
    if (status == VMM_OK)
        status = access_lack_end(vm, chunk);
    if (status == VMM_OK)
        status = vmm__driver_release(vm->driver, chunk->handle, vmm__chunk_bytes(vm, chunk));
    if (status != VMM_OK) {
        VMM_QUIET();
        (void)mappings_restore(vm, chunk);
        return status;
    }
    vmm__account_unbook(vm, chunk);
    vm->counts.asleep_bytes += vmm__chunk_bytes(vm, chunk);
    chunk->account->counts.asleep_bytes += vmm__chunk_bytes(vm, chunk);
    chunk->is_asleep = true;
    chunk->has_slept = true;
    return VMM_OK;
}

vmm_status vmm__chunk_wake(struct vm *vm, struct chunk *chunk)
{
    uint64_t bytes = vmm__chunk_bytes(vm, chunk);
    if (chunk->is_asleep) {
        vmm_status status = vmm__account_check(vm, chunk->account, bytes);
        if (status == VMM_OK)
            status = vmm__driver_create(vm->driver, bytes, chunk->reach, &chunk->handle);
        if (status != VMM_OK)
            return status;
        vmm__account_book(vm, chunk);
        vm->counts.asleep_bytes -= bytes;
        chunk->account->counts.asleep_bytes -= bytes;
        chunk->is_asleep = false;
    }
    return mappings_restore(vm, chunk);
}
