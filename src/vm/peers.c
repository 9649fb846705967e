/* Access of further devices to memory that is mapped already: see vm.h. */
#include "vm/vm.h"

/* Gives access anew where a chunk is mapped. Memory of a source is mapped by its source. */
static vmm_status chunk_access(struct vm *vm, const struct chunk *chunk)
{
    vmm_status status = VMM_OK;
    if (!chunk->is_mapped || chunk->segment != NULL)
        return VMM_OK;
    for (uint32_t number = chunk->unmapped; number <= chunk->places && status == VMM_OK; number++)
        status = vmm__vm_access(vm, vmm__mapping_at(vm, chunk, number), chunk->granules);
    return status;
}

vmm_status vmm__vm_peers_add(struct vm *vm, uint64_t devices)
{
    uint64_t before = vmm__driver_peers(vm->driver);
    devices &= ~before;
    if (devices == 0)
        return VMM_OK;
    vmm_status status = vmm__driver_peers_check(vm->driver, devices);
    if (status != VMM_OK)
        return status;
    vmm__driver_peers_set(vm->driver, before | devices);
    for (uint32_t id = 1; id < vm->record_high && status == VMM_OK; id++)
        status = chunk_access(vm, &vm->records[id]); /* an unused record is not mapped */
    if (status != VMM_OK)
        vmm__driver_peers_set(vm->driver, before);
    return status;
}
