/* Slabs: see slab.h. */
#include "lane/slab.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

enum { RUN_LIMIT_BYTES = 65536 };

uint32_t vmm__slab_object_bytes(uint32_t class_index)
{
    if (class_index < SLAB_FINE_CLASSES)
        return (class_index + 1) * SLAB_STEP_BYTES;
    return (class_index - SLAB_FINE_CLASSES + 5) * 2 * SLAB_STEP_BYTES;
}

static uint32_t slab_objects(uint32_t class_index)
{
    uint32_t fit = RUN_LIMIT_BYTES / vmm__slab_object_bytes(class_index);
    return fit < SLAB_OBJECTS ? fit : SLAB_OBJECTS;
}

static uint64_t run_bytes(uint32_t class_index, uint32_t objects)
{
    return vmm__align_up((uint64_t)objects * vmm__slab_object_bytes(class_index), SMALL_SLOT_BYTES);
}

uint64_t vmm__slab_run_bytes(uint32_t class_index)
{
    return run_bytes(class_index, slab_objects(class_index));
}

/* See invariant 5. */
static uint64_t slab_alignment(uint32_t class_index)
{
    return UINT64_C(2) << vmm__log2(vmm__slab_run_bytes(class_index) - 1);
}

uint64_t vmm__slab_need_bytes(const struct slabs *slabs, uint32_t class_index)
{
    uint64_t padding_bytes = slabs->heap->owner->is_pooled ? slab_alignment(class_index) : 0;
    return vmm__slab_run_bytes(class_index) + padding_bytes;
}

void vmm__slab_partial_enter(struct slabs *slabs, struct slab *slab)
{
    struct slab **head = &slabs->partial[slab->class_index];
    slab->prev = NULL;
    slab->next = *head;
    if (*head != NULL)
        (*head)->prev = slab;
    *head = slab;
}

void vmm__slab_partial_leave(struct slabs *slabs, struct slab *slab)
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

/* Sets all slots of a slab but the first, which the heap maintains, to `block`. */
static void slots_fill(const struct slabs *slabs, const struct slab *slab, struct block *block)
{
    const struct block *run = slab->block;
    for (uint64_t at = SMALL_SLOT_BYTES; at < run->node.size; at += SMALL_SLOT_BYTES)
        *vmm__heap_slot(slabs->heap, run->address + at) = block;
}

/* Takes the bytes of a slab at an address where they are free; address 0: anywhere. */
static vmm_status run_take(struct heap *heap, uint32_t class_index, uint64_t bytes,
                           uint64_t address, enum search_depth search, struct block **out)
{
    if (address == 0 && !heap->owner->is_pooled)
        return vmm__heap_take(heap, bytes, search, out);
    if (address == 0) {
        uint64_t alignment = slab_alignment(class_index);
        const struct block *fit = vmm__heap_find_aligned(heap, bytes, alignment);
        if (fit == NULL)
            return VMM__NO_FIT;
        address = vmm__align_up(fit->address, alignment);
    }
    vmm_status status = vmm__heap_records_keep(heap, 2);
    if (status == VMM_OK)
        *out = vmm__heap_take_at(heap, address, bytes);
    return status;
}

static vmm_status slab_make(struct slabs *slabs, uint32_t class_index, uint32_t objects,
                            uint64_t address, enum search_depth search, struct slab **out)
{
    struct slab *slab = vmm__host_alloc(1, sizeof *slab);
    if (slab == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "slab: no host memory for a slab record");
    vmm_status status = run_take(slabs->heap, class_index, run_bytes(class_index, objects), address,
                                 search, &slab->block);
    if (status != VMM_OK) {
        vmm__host_free(slab, sizeof *slab);
        return status;
    }
    slab->class_index = class_index;
    slab->object_bytes = vmm__slab_object_bytes(class_index);
    slab->objects = objects;
    slab->reciprocal = (uint32_t)((UINT64_C(1) << 32) / slab->object_bytes + 1);
    slab->address = slab->block->address;
    slab->all_bits = UINT64_MAX >> (SLAB_OBJECTS - slab->objects);
    slab->free_bits = slab->all_bits;
    slab->block->state = BLOCK_SLAB;
    slab->block->slab = slab;
    slots_fill(slabs, slab, slab->block);
    all_enter(slabs, slab);
    vmm__slab_partial_enter(slabs, slab);
    *out = slab;
    return VMM_OK;
}

vmm_status vmm__slab_open(struct slabs *slabs, uint32_t class_index, enum search_depth search)
{
    struct slab *slab;
    return slab_make(slabs, class_index, slab_objects(class_index), 0, search, &slab);
}

vmm_status vmm__slab_open_short(struct slabs *slabs, uint32_t class_index)
{
    struct slab *slab;
    vmm__heap_settle(slabs->heap);
    const struct size_node *largest = vmm__size_index_largest(&slabs->heap->index);
    uint64_t room = largest == NULL ? 0 : largest->size / vmm__slab_object_bytes(class_index);
    if (room == 0)
        return VMM__NO_FIT;
    uint32_t objects = (uint32_t)vmm__min(room, slab_objects(class_index));
    return slab_make(slabs, class_index, objects, 0, SEARCH_WHOLE, &slab);
}

struct slab *vmm__slab_larger(const struct slabs *slabs, uint32_t class_index)
{
    struct slab *slab = NULL;
    while (slab == NULL && ++class_index < SLAB_CLASSES)
        slab = slabs->partial[class_index];
    return slab;
}

vmm_status vmm__slab_open_at(struct slabs *slabs, uint32_t class_index, uint64_t address,
                             struct slab **out)
{
    uint64_t offset = address & (slab_alignment(class_index) - 1);
    uint32_t object_bytes = vmm__slab_object_bytes(class_index);
    if (offset % object_bytes != 0 || offset / object_bytes >= slab_objects(class_index))
        return VMM__NOT_FOUND;
    if (!vmm__heap_is_free(slabs->heap, address - offset, vmm__slab_run_bytes(class_index)))
        return VMM__NO_FIT;
    return slab_make(slabs, class_index, slab_objects(class_index), address - offset, SEARCH_WHOLE,
                     out);
}

void vmm__slab_take_object(struct slabs *slabs, struct slab *slab, uint32_t object,
                           uint64_t requested_bytes)
{
    slab->free_bits &= ~(UINT64_C(1) << object);
    if (slab->free_bits == 0)
        vmm__slab_partial_leave(slabs, slab);
    slab->requested[object] = (uint16_t)requested_bytes;
}

void vmm__slab_close(struct slabs *slabs, struct slab *slab)
{
    vmm__slab_partial_leave(slabs, slab);
    all_leave(slabs, slab);
    slots_fill(slabs, slab, NULL);
    (void)vmm__heap_give(slabs->heap, slab->block);
    vmm__host_free(slab, sizeof *slab);
}

void vmm__slabs_fini(struct slabs *slabs)
{
    while (slabs->all != NULL) {
        struct slab *slab = slabs->all;
        slabs->all = slab->all_next;
        vmm__host_free(slab, sizeof *slab);
    }
}

uint64_t vmm__slabs_free_bytes(const struct slabs *slabs)
{
    uint64_t bytes = 0;
    for (const struct slab *slab = slabs->all; slab != NULL; slab = slab->all_next) {
        unsigned used = slab->objects - (unsigned)__builtin_popcountll(slab->free_bits);
        bytes += slab->block->node.size - (uint64_t)used * slab->object_bytes;
    }
    return bytes;
}

bool vmm__slabs_purge(struct slabs *slabs)
{
    bool any = false;
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        struct slab *slab = slabs->partial[class_index];
        while (slab != NULL) {
            struct slab *next = slab->next;
            if (slab->free_bits == slab->all_bits) {
                vmm__slab_close(slabs, slab);
                any = true;
            }
            slab = next;
        }
    }
    return any;
}

void vmm__slabs_purge_lone(struct slabs *slabs)
{
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        struct slab *slab = slabs->partial[class_index];
        if (slab != NULL && slab->next == NULL && slab->free_bits == slab->all_bits)
            vmm__slab_close(slabs, slab);
    }
}
