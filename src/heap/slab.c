/* Many objects of one size in one block: see slab.h. */
#include "heap/slab.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

enum {
    RUN_LIMIT_BYTES = 65536,
    FINE_CLASSES = 8, /* steps of 512 bytes; above, of 1024 */
};

uint32_t vmm__slab_object_bytes(uint32_t class_index)
{
    if (class_index < FINE_CLASSES)
        return (class_index + 1) * SLAB_STEP_BYTES;
    return (class_index - FINE_CLASSES + 5) * 2 * SLAB_STEP_BYTES;
}

uint32_t vmm__slab_class(uint64_t bytes)
{
    uint32_t steps = (uint32_t)((bytes + SLAB_STEP_BYTES - 1) / SLAB_STEP_BYTES);
    return steps <= FINE_CLASSES ? steps - 1 : (steps + 1) / 2 + 3;
}

static uint32_t slab_objects(uint32_t class_index)
{
    uint32_t fit = RUN_LIMIT_BYTES / vmm__slab_object_bytes(class_index);
    return fit < SLAB_OBJECTS ? fit : SLAB_OBJECTS;
}

uint64_t vmm__slab_run_bytes(uint32_t class_index)
{
    uint64_t bytes = (uint64_t)slab_objects(class_index) * vmm__slab_object_bytes(class_index);
    return vmm__align_up(bytes, SMALL_SLOT_BYTES);
}

static void partial_enter(struct slabs *slabs, struct slab *slab)
{
    struct slab **head = &slabs->partial[slab->class_index];
    slab->prev = NULL;
    slab->next = *head;
    if (*head != NULL)
        (*head)->prev = slab;
    *head = slab;
}

static void partial_leave(struct slabs *slabs, struct slab *slab)
{
    if (slab->next != NULL)
        slab->next->prev = slab->prev;
    if (slab->prev != NULL)
        slab->prev->next = slab->next;
    else
        slabs->partial[slab->class_index] = slab->next;
}

static void all_enter(struct slabs *slabs, struct slab *slab)
{
    slab->all_prev = NULL;
    slab->all_next = slabs->all;
    if (slabs->all != NULL)
        slabs->all->all_prev = slab;
    slabs->all = slab;
}

static void all_leave(struct slabs *slabs, struct slab *slab)
{
    if (slab->all_next != NULL)
        slab->all_next->all_prev = slab->all_prev;
    if (slab->all_prev != NULL)
        slab->all_prev->all_next = slab->all_next;
    else
        slabs->all = slab->all_next;
}

/* Lets the slots of a slab's run name `block`; the first slot names it anyhow. */
static void slots_name(const struct slabs *slabs, const struct slab *slab, struct block *block)
{
    const struct block *run = slab->block;
    for (uint64_t at = SMALL_SLOT_BYTES; at < run->node.size; at += SMALL_SLOT_BYTES)
        *vmm__directory_slot(slabs->heap->directory, run->address + at) = block;
}

static vmm_status slab_open(struct slabs *slabs, uint32_t class_index)
{
    struct slab *slab = vmm__host_alloc(1, sizeof *slab);
    if (slab == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "slab: no host memory for its record");
    vmm_status status = vmm__heap_take(slabs->heap, vmm__slab_run_bytes(class_index), &slab->block);
    if (status != VMM_OK) {
        vmm__host_free(slab, sizeof *slab);
        return status;
    }
    slab->class_index = class_index;
    slab->object_bytes = vmm__slab_object_bytes(class_index);
    slab->objects = slab_objects(class_index);
    slab->reciprocal = (uint32_t)((UINT64_C(1) << 32) / slab->object_bytes + 1);
    slab->address = slab->block->address;
    slab->all_bits = UINT64_MAX >> (SLAB_OBJECTS - slab->objects);
    slab->free_bits = slab->all_bits;
    slab->block->state = BLOCK_SLAB;
    slab->block->slab = slab;
    slots_name(slabs, slab, slab->block);
    all_enter(slabs, slab);
    partial_enter(slabs, slab);
    return VMM_OK;
}

static void slab_close(struct slabs *slabs, struct slab *slab, uint64_t epoch)
{
    partial_leave(slabs, slab);
    all_leave(slabs, slab);
    slots_name(slabs, slab, NULL);
    (void)vmm__heap_give(slabs->heap, slab->block, epoch);
    vmm__host_free(slab, sizeof *slab);
}

vmm_status vmm__slab_take(struct slabs *slabs, uint64_t requested_bytes, struct slab **out,
                          uint32_t *object)
{
    uint32_t class_index = vmm__slab_class(requested_bytes == 0 ? 1 : requested_bytes);
    if (slabs->partial[class_index] == NULL) {
        vmm_status status = slab_open(slabs, class_index);
        if (status != VMM_OK)
            return status;
    }
    struct slab *slab = slabs->partial[class_index];
    uint32_t bit = (uint32_t)__builtin_ctzll(slab->free_bits);
    slab->free_bits &= slab->free_bits - 1;
    if (slab->free_bits == 0)
        partial_leave(slabs, slab);
    slab->requested[bit] = (uint16_t)requested_bytes;
    *out = slab;
    *object = bit;
    return VMM_OK;
}

void vmm__slab_give(struct slabs *slabs, struct slab *slab, uint32_t object, uint64_t epoch)
{
    uint64_t bit = UINT64_C(1) << object;
    if (slab->free_bits == 0)
        partial_enter(slabs, slab);
    slab->free_bits |= bit;
    slab->waiting_bits &= ~bit;
    if (slab->free_bits == slab->all_bits && (slab->prev != NULL || slab->next != NULL))
        slab_close(slabs, slab, epoch);
}

void vmm__slabs_fini(struct slabs *slabs)
{
    while (slabs->all != NULL) {
        struct slab *slab = slabs->all;
        slabs->all = slab->all_next;
        vmm__host_free(slab, sizeof *slab);
    }
}

bool vmm__slabs_purge(struct slabs *slabs, uint64_t epoch)
{
    bool any = false;
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        struct slab *slab = slabs->partial[class_index];
        while (slab != NULL) {
            struct slab *next = slab->next;
            if (slab->free_bits == slab->all_bits) {
                slab_close(slabs, slab, epoch);
                any = true;
            }
            slab = next;
        }
    }
    return any;
}

bool vmm__slab_find(const struct slab *slab, uint64_t address, uint32_t *object)
{
    /* Exact for offsets of less than 2^16 and objects of at least 512 bytes. */
    uint64_t offset = address - slab->address;
    uint64_t index = offset * slab->reciprocal >> 32;
    if (index * slab->object_bytes != offset || index >= slab->objects)
        return false;
    *object = (uint32_t)index;
    return (slab->free_bits >> index & 1) == 0;
}
